//! Scenario files, and the files that they name: what is read builds a link, or says which key is at fault; a link that
//! was built carries packets without a panic.

use std::time::{Duration, Instant};

use bentpipe_link::{Files, Link, PacketHeader, Port, Scenario, TerminalId};
use bentpipe_units::ByteCount;

/// What comes after it is the text of every file that the scenario names.
const FILE: &str = "\n#FILE\n";
/// Scenarios may be slow to simulate without being wrong; a fuzzer wants many inputs.
const PACKETS: u64 = 8;

pub(crate) fn scenario(data: &[u8]) {
    let text: String = data.iter().copied().map(readable).collect();
    let (text, file) = text.split_once(FILE).unwrap_or((&text, ""));
    let Ok(scenario) = toml::from_str::<Scenario>(text) else {
        return;
    };
    let written = toml::to_string(&scenario).expect("what was read can be written");
    let again = toml::from_str::<Scenario>(&written).expect("what was written can be read");
    assert_eq!(again, scenario);
    let files = scenario.files().into_iter();
    let files: Files = files.map(|path| (path, file.to_owned())).collect();
    match scenario.build(&files) {
        Ok(model) => {
            let start = crate::origin();
            carry(&mut Link::new(&model, start), start);
        }
        Err(error) => assert!(!error.key().is_empty() && !error.problem().is_empty()),
    }
    // The smaller model takes some of them.
    drop(scenario.link_config());
}

/// Bytes that are no text would end most inputs at the first of them; a digit in their place lets them be read on.
fn readable(byte: u8) -> char {
    match byte {
        b'\n' | b' '..=b'~' => byte.into(),
        other => char::from(b'0' + other % 10),
    }
}

fn carry(link: &mut Link<u64>, start: Instant) {
    for packet in 0..PACKETS {
        let now = start + Duration::from_millis(40 * packet);
        let header = PacketHeader {
            size: ByteCount::new(20 + packet * 9000),
            dscp: packet as u8,
            train: (packet % 3 > 0).then_some(packet / 3),
        };
        let terminal = TerminalId::new(packet as usize % (link.terminals() + 1));
        let port = if packet % 2 == 0 {
            Port::Gateway { terminal }
        } else {
            Port::Terminal(terminal)
        };
        link.handle_packet(now, port, header, packet);
        while link.poll_output(now).is_some() {}
    }
    link.probe(start + Duration::from_secs(1));
    while link.poll_event().is_some() {}
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let base = "[scenario]\nname = \"x\"\nseed = 1\n[orbit]\nmodel = \"constant\"\none_way_delay = \"20 ms\"\n";
    let cbr = "standard = \"cbr\"\nbit_rate = \"10 Mbit/s\"\n";
    let plain = format!("{base}[forward]\n{cbr}[return]\n{cbr}");
    let carrier = format!(
        "{base}[return]\n{cbr}[forward]\nstandard = \"dvb-s2\"\nbandwidth = \"5 MHz\"\nroll_off = 0.25\nmodcods = \"1-12, 28\"\n\
         pilots = true\nlabel = \"3 B\"\nl2_header = \"14 B\"\n"
    );
    let budget =
        "[link_budget]\nclear_sky_uplink_cn = \"20 dB\"\nclear_sky_downlink_cn = \"12 dB\"\n";
    let classes = "[[queue]]\nname = \"ef\"\npriority = 1\ndscp = [46]\npackets = 5\n[[queue]]\nname = \"be\"\npriority = 4\n\
        limit = \"64 kB\"\ndiscipline = \"codel\"\ntarget = \"20 ms\"\ninterval = \"600 ms\"\n";
    let texts = [
        format!(
            "{plain}[errors]\nmodel = \"gilbert_elliott\"\nrate = \"1 %\"\nmean_burst = 4.0\nslot = \"1 ms\"\n{classes}"
        ),
        format!("{plain}[errors]\nmodel = \"trace\"\nfile = \"t\"\n{FILE}# x\n0100\n1\n"),
        format!("{plain}[errors]\nmodel = \"periodic\"\nevery = 64\n")
            .replace("20 ms\"", "20 ms\"\njitter = \"3 ms\""),
        format!(
            "{carrier}timing = \"opensand_ticks\"\n{budget}[acm]\nmargin = \"1 dB\"\nreport = \"required_esn0\"\nselect = \"threshold\"\n"
        ),
        format!(
            "{carrier}mode = \"vcm\"\n[[terminal]]\nname = \"a\"\nmodcod = 4\n[[terminal]]\nname = \"b\"\nmodcod = 28\n\
             [background]\nforward = \"1 Mbit/s\"\nterminals = 4\n"
        ),
        format!(
            "{carrier}{budget}[attenuation.forward_downlink]\nmodel = \"file\"\nfile = \"f\"\n[errors]\nmodel = \"iid\"\nrate = 0.1\n\
             unit = \"bbframe\"\ndirection = \"forward\"\n{FILE}0 0\n10 6\n20 0\n"
        ),
        plain.replace(
            "model = \"constant\"\none_way_delay = \"20 ms\"",
            "model = \"trace\"\nfile = \"d\"\nrepeat = true",
        ) + FILE
            + "0 25\n30 40\n60 25\n",
    ];
    let texts = texts.into_iter().chain(shared_return_links());
    texts
        .chain(moving_satellites(&plain))
        .map(String::into_bytes)
        .collect()
}

fn shared_return_links() -> Vec<String> {
    let base = "[scenario]\nname = \"x\"\nseed = 1\n[orbit]\nmodel = \"constant\"\none_way_delay = \"20 ms\"\n\
        [forward]\nstandard = \"cbr\"\nbit_rate = \"10 Mbit/s\"\n[return]\nstandard = \"dvb-rcs2\"\n";
    vec![
        format!(
            "{base}bandwidth = \"9.99 MHz\"\nroll_off = 0.35\nwaveforms = \"3-12\"\ncra = \"100 kbit/s\"\n\
             rbdc_max = \"5120 kbit/s\"\nvbdc_max = \"64 kB\"\nfca = true\nrequest_period = \"1 s\"\nmsl = 23\n"
        ),
        format!(
            "{base}symbol_rate = \"2 Mbaud\"\nburst_symbols = 1616\naccess = \"dedicated\"\nlogon = \"cold\"\n\
             superframe = \"26.5 ms\"\nlabel = \"3 B\"\ntiming = \"opensand_ticks\"\n[link_budget]\n\
             clear_sky_uplink_cn = \"20 dB\"\nclear_sky_downlink_cn = \"12 dB\"\n"
        ),
    ]
}

fn moving_satellites(plain: &str) -> Vec<String> {
    let stations = "terminal = { latitude = \"35 deg\", longitude = \"-40 deg\" }\n\
        gateway = { latitude = \"51 deg\", longitude = \"0 deg\" }\n";
    let orbits = [
        format!(
            "model = \"geo\"\nsatellite_longitude = \"-20 deg\"\nextra_delay = \"1 ms\"\n{stations}"
        ),
        format!(
            "model = \"walker\"\nsatellites = 66\nplanes = 6\nphasing = 3\naltitude = \"780 km\"\n\
             inclination = \"86.4 deg\"\npattern = \"star\"\ninter_satellite_links = true\n{stations}"
        ),
        "model = \"starlink\"\nperiod = \"15 s\"\nburst_probability = \"30 %\"\n".to_owned(),
    ];
    let constant = "model = \"constant\"\none_way_delay = \"20 ms\"\n";
    orbits.map(|orbit| plain.replace(constant, &orbit)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_build_links() {
        for seed in seeds() {
            let text = String::from_utf8(seed).expect("text");
            let (text, file) = text.split_once(FILE).unwrap_or((&text, ""));
            let scenario =
                toml::from_str::<Scenario>(text).unwrap_or_else(|error| panic!("{error}"));
            let files = scenario.files().into_iter();
            let files = files.map(|path| (path, file.to_owned())).collect();
            let model = scenario.build(&files);
            model.unwrap_or_else(|error| panic!("{error}\n{text}"));
        }
    }
}
