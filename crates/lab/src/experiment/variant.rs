//! `[link.NAME]`: a scenario that an experiment changes in some keys, for sweeps. It is written anew with the changes and
//! then read as every other.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;

use bentpipe_config::{ConfigError, Source};
use bentpipe_link::Network;
use bentpipe_units::{BitRate, ByteCount, TimeSpan};
use toml::{Spanned, Table, Value};

use super::NamedScenario;
use super::checks::check_unique;
use super::file::Names;
use bentpipe_emulator::scenario::{load_beside, load_changed};
use bentpipe_emulator::topology::{Behind, EndHosts};

/// The links that an experiment names, its own among them.
pub(super) fn scenarios(
    source: &Source,
    names: &Names,
    mut links: BTreeMap<String, Table>,
) -> Result<Vec<NamedScenario>, ConfigError> {
    check_unique(source, names)?;
    let mut load = |name: &Spanned<String>| {
        let fault = |text: String| source.error(&name.span(), text);
        let text = name.get_ref();
        // A table that held a title alone changes nothing of the link.
        let changes = links.remove(text).filter(|table| !table.is_empty());
        let found = match changes {
            Some(changes) => make(source, text, changes)?,
            None => {
                let loaded = load_beside(source, text);
                let (scenario, files) = loaded.map_err(|error| fault(error.to_string()))?;
                NamedScenario {
                    name: text.clone(),
                    scenario,
                    files,
                    udp_policer: None,
                    behind: Behind::default(),
                    end_hosts: EndHosts::default(),
                }
            }
        };
        let scenario = &found.scenario;
        if scenario.terminals.len() > 1 {
            return Err(fault(format!(
                "`{text}` has several terminals; experiments need links with one"
            )));
        }
        if scenario.network != Network::default() {
            return Err(fault(format!(
                "`{text}` has addresses of its own; remove its `[network]`"
            )));
        }
        Ok(found)
    };
    let loaded = names.iter().map(&mut load).collect::<Result<_, _>>()?;
    match links.keys().next() {
        None => Ok(loaded),
        Some(name) => {
            let text =
                format!("`scenarios` names no `{name}`; name it there, or remove this table");
            Err(source.error_at_key(&format!("link.{name}"), text))
        }
    }
}

/// Makes the link called `name` of what its table in `source` says.
fn make(source: &Source, name: &str, mut table: Table) -> Result<NamedScenario, ConfigError> {
    let fault = |text: String| source.error_at_key(&format!("link.{name}"), text);
    let base: Option<String> = taken(&mut table, name, "base").map_err(fault)?;
    let base = base.ok_or_else(|| fault(format!("`{name}` has no `base`: a preset, or a file")))?;
    let udp_policer: Option<BitRate> = taken(&mut table, name, "udp_policer").map_err(fault)?;
    let behind = behind(&mut table, name).map_err(fault)?;
    let end_hosts = EndHosts {
        window: window(&mut table, name).map_err(fault)?,
        initial_window: segments(&mut table, name, "host_initial_window").map_err(fault)?,
    };
    let mut general = Table::new();
    general.insert("name".into(), Value::String(name.to_owned()));
    table.insert("scenario".into(), Value::Table(general));
    let change = |text: &str| {
        let mut whole: Table = Source::new(Path::new(&base), text).parse()?;
        merge(&mut whole, table.clone());
        Ok(written(&whole))
    };
    let (scenario, files) =
        load_changed(source, &base, change).map_err(|error| fault(format!("`{name}`: {error}")))?;
    Ok(NamedScenario {
        name: name.to_owned(),
        scenario,
        files,
        udp_policer,
        behind,
        end_hosts,
    })
}

/// Takes out of the table of the link called `name` what is behind its gateway.
fn behind(table: &mut Table, name: &str) -> Result<Behind, String> {
    let delay: Option<TimeSpan> = taken(table, name, "terrestrial_delay")?;
    let mut rate = |key| match taken::<BitRate>(table, name, key)? {
        Some(rate) if rate.as_u64() == 0 => Err(format!("`{key}` of `{name}` is zero")),
        rate => Ok(rate),
    };
    Ok(Behind {
        uplink: rate("host_uplink")?,
        downlink: rate("host_downlink")?,
        loss: taken(table, name, "lan_loss")?,
        delay: delay.unwrap_or_default().get(),
    })
}

/// Takes the window of the hosts out of the table of the link called `name`.
fn window(table: &mut Table, name: &str) -> Result<Option<ByteCount>, String> {
    let window: Option<ByteCount> = taken(table, name, "host_window")?;
    match window.map(ByteCount::as_u64) {
        None | Some(1..=0xffff) => Ok(window),
        Some(_) => Err(format!(
            "`host_window` of `{name}` is 1 to 65535 B: such hosts do not scale their windows"
        )),
    }
}

/// Takes a number of segments, 1 to 1000, out of the table of the link called `name`.
fn segments(table: &mut Table, name: &str, key: &str) -> Result<Option<u32>, String> {
    let number = match table.remove(key) {
        None => return Ok(None),
        Some(Value::Integer(number)) => u32::try_from(number).ok(),
        Some(_) => None,
    };
    match number {
        Some(1..=1000) => Ok(number),
        _ => Err(format!(
            "`{key}` of `{name}` is a number of segments, 1 to 1000"
        )),
    }
}

/// Takes a key that scenarios do not have out of the table of the link called `name`.
fn taken<T>(table: &mut Table, name: &str, key: &str) -> Result<Option<T>, String>
where
    T: FromStr<Err: Display>,
{
    match table.remove(key) {
        None => Ok(None),
        Some(Value::String(text)) => {
            let value = text.parse().map(Some);
            value.map_err(|error| format!("`{key}`: {error}"))
        }
        Some(_) => Err(format!("`{key}` of `{name}` is a string")),
    }
}

/// Tables are changed key by key, everything else is replaced; so is a table that is of another kind then.
fn merge(into: &mut Table, from: Table) {
    let kind = |table: &Table| {
        ["model", "standard"]
            .iter()
            .any(|key| table.contains_key(*key))
    };
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(into)), Value::Table(from)) if !kind(&from) => merge(into, from),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

/// A line for each key, with tables in braces.
fn written(table: &Table) -> String {
    let line = |(key, value): (&String, &Value)| format!("{} = {}\n", quoted(key), inline(value));
    table.iter().map(line).collect()
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(inline).collect();
            format!("[{}]", values.join(", "))
        }
        Value::Table(table) => {
            let pair =
                |(key, value): (&String, &Value)| format!("{} = {}", quoted(key), inline(value));
            let pairs: Vec<String> = table.iter().map(pair).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        Value::Float(number) => format!("{number:?}"),
        Value::Integer(number) => number.to_string(),
        Value::Boolean(truth) => truth.to_string(),
        Value::Datetime(time) => time.to_string(),
    }
}

/// Escapes of JSON are escapes of TOML.
fn quoted(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

#[cfg(test)]
mod tests {
    use bentpipe_link::{PRESETS, Scenario};
    use bentpipe_units::Ratio;

    use super::*;

    fn made(text: &str) -> Result<NamedScenario, ConfigError> {
        let source = Source::new(Path::new("e.toml"), format!("[link.near]\n{text}"));
        let mut tables: Table = source.parse()?;
        let Some(Value::Table(mut links)) = tables.remove("link") else {
            panic!("no table");
        };
        let Some(Value::Table(link)) = links.remove("near") else {
            panic!("no link");
        };
        make(&source, "near", link)
    }

    #[test]
    fn unchanged_it_is_its_base_with_another_name() {
        for preset in PRESETS {
            let found = made(&format!("base = \"{preset}\"\n")).unwrap();
            let mut expected = bentpipe_emulator::scenario::preset(preset).unwrap();
            expected.general.name = "near".into();
            assert_eq!(found.scenario, expected, "{preset}");
            assert_eq!(found.udp_policer, None);
            assert_eq!(found.behind, Behind::default());
            assert_eq!(found.end_hosts, EndHosts::default());
        }
    }

    #[test]
    fn what_is_changed_is_changed_and_the_rest_is_not() {
        let found =
            made("base = \"paper-plr\"\nudp_policer = \"4 Mbit/s\"\nerrors.rate = \"2 %\"\n")
                .unwrap();
        let text = |scenario: &Scenario| format!("{scenario:?}").replace("near", "paper-plr");
        let base = bentpipe_emulator::scenario::preset("paper-plr").unwrap();
        assert_eq!(found.udp_policer, Some(BitRate::megabits_per_second(4)));
        assert_ne!(found.scenario, base);
        let mut back = found.scenario;
        back.errors = base.errors.clone();
        assert_eq!(text(&back), text(&base));
        // Of another kind, a table keeps nothing.
        let clear = "attenuation.forward_downlink = { model = \"constant\", value = \"3 dB\" }";
        made(&format!("base = \"paper-atten\"\n{clear}\n")).unwrap();
    }

    #[test]
    fn hosts_and_what_is_behind_the_gateway_are_read() {
        let text = "base = \"s1\"\nhost_uplink = \"384 kbit/s\"\nhost_downlink = \"3 Mbit/s\"\nlan_loss = \"0.5 %\"\n\
                    host_window = \"23360 B\"\nhost_initial_window = 3\n";
        let found = made(text).unwrap();
        let behind = Behind {
            uplink: Some(BitRate::kilobits_per_second(384)),
            downlink: Some(BitRate::megabits_per_second(3)),
            loss: Ratio::new(0.005),
            ..Behind::default()
        };
        assert_eq!(found.behind, behind);
        assert_eq!(found.end_hosts.window, Some(ByteCount::new(23_360)));
        assert_eq!(found.end_hosts.initial_window, Some(3));
    }

    #[test]
    fn faults_name_the_link() {
        for (text, expected) in [
            ("errors.rate = \"2 %\"\n", "has no `base`"),
            ("base = \"geo\"\nudp_policer = \"fast\"\n", "`fast`"),
            ("base = \"geo\"\nudp_policer = 4\n", "is a string"),
            (
                "base = \"geo\"\nterrestrial_delay = \"28\"\n",
                "`terrestrial_delay`",
            ),
            ("base = \"geo\"\nhost_uplink = \"0 bit/s\"\n", "is zero"),
            ("base = \"geo\"\nlan_loss = \"2\"\n", "`lan_loss`"),
            ("base = \"geo\"\nhost_window = 23360\n", "is a string"),
            ("base = \"geo\"\nhost_window = \"64 KiB\"\n", "1 to 65535 B"),
            ("base = \"geo\"\nhost_initial_window = 0\n", "1 to 1000"),
            ("base = \"gio\"\n", "gio"),
            (
                "base = \"geo\"\norbit.delay = \"1 s\"\n",
                "unknown key `delay`",
            ),
            (
                "base = \"geo\"\nforward.bit_rate = \"0 Mbit/s\"\n",
                "bit_rate is zero",
            ),
        ] {
            let error = made(text).err().unwrap();
            assert_eq!(error.line(), 1, "{error}");
            assert!(error.message().contains(expected), "{error}");
        }
    }
}
