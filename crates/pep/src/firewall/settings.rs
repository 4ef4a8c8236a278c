//! The kernel's permission to forward between the LAN's interfaces and our device.
//!
//! It is given to interfaces one by one, where the kernel can do that, never to the whole machine. What was changed
//! stands in sets of the table itself, so that it lives as long as the table and is undone with it, also by the next
//! process if this one is killed.

use std::fs;
use std::io;

use bentpipe_sys::command::run;
use bentpipe_sys::device::NAME;
use bentpipe_sys::nft::Table;

use super::ruleset::Set;
use super::setting::{ALL, Kind, Setting, interfaces, write};
use super::{CLIENT_TABLE, GUARD_TABLE};

/// Settings that we have changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings(Vec<Setting>);

impl Settings {
    /// Two settings of one kind and one of another.
    #[cfg(test)]
    pub(crate) fn sample() -> Self {
        let setting = Setting::of;
        Self(vec![
            setting(Kind::Ipv4, "lan0"),
            setting(Kind::Ipv4, "lan1"),
            setting(Kind::Marks, "wan0"),
        ])
    }

    /// Settings that a process changed that was killed, as its `table` says.
    pub(crate) fn left_behind(table: &Table) -> io::Result<Self> {
        let mut settings = Vec::new();
        if table.exists()? {
            for kind in Kind::ALL {
                // A table of an older version has no such set.
                let listing = run("nft", &["list", "set", "inet", table.name(), kind.set()]);
                let listing = listing.unwrap_or_default();
                settings.extend(quoted(&listing).map(|interface| Setting {
                    kind,
                    interface: interface.to_owned(),
                }));
            }
        }
        Ok(Self(settings))
    }

    /// Settings that a killed client changed, with those of the guard that this client needs as well.
    pub(crate) fn left_behind_by_both() -> io::Result<Self> {
        let mut settings = Self::left_behind(&Table::new(CLIENT_TABLE))?;
        settings.adopt_marks(Self::left_behind(&Table::new(GUARD_TABLE))?);
        Ok(settings)
    }

    /// Notes what `others` have changed to have marks heeded: whoever goes last puts it back.
    pub(crate) fn adopt_marks(&mut self, others: Self) {
        self.note(others.0.into_iter().filter(Setting::is_of_marks));
    }

    /// Notes what is to be changed; to be told to the table, and then done by [`Self::apply`].
    pub(crate) fn note(&mut self, settings: impl IntoIterator<Item = Setting>) {
        for setting in settings {
            if !self.0.contains(&setting) {
                self.0.push(setting);
            }
        }
    }

    /// The sets for the table.
    pub(crate) fn sets(&self) -> String {
        self.sets_of(&Kind::ALL)
    }

    /// The set for a table that has no other settings noted than those that have marks heeded.
    pub(crate) fn set_of_marks(&self) -> String {
        self.sets_of(&[Kind::Marks])
    }

    fn sets_of(&self, kinds: &[Kind]) -> String {
        let set = |kind: &Kind| {
            let own = self.0.iter().filter(|setting| setting.kind == *kind);
            let names = own.map(|setting| format!("\"{}\"", setting.interface));
            Set::new(kind.set(), "ifname").elements(names).to_string()
        };
        kinds.iter().map(set).collect()
    }

    /// Lets what comes in by `interface` be forwarded, if there is such an interface. `table` is in force and has [`Self::sets`].
    pub(crate) fn enable(&mut self, interface: &str, table: &Table) -> io::Result<()> {
        if !is_there(interface)? {
            // The lack of its settings does not mean that the kernel has none for a single interface.
            return Ok(());
        }
        self.change(Kind::Ipv4, interface, table)?;
        let forced = Setting::of(Kind::Ipv6, interface);
        if fs::exists(forced.path())? {
            return self.change(Kind::Ipv6, interface, table);
        }
        let machine = Setting::of(Kind::Ipv6, ALL);
        if machine.is("0") {
            for other in interfaces()? {
                self.change(Kind::Advertisements, &other, table)?;
            }
            self.change(Kind::Ipv6, ALL, table)?;
        }
        Ok(())
    }

    /// Notes what is to be changed for [`Self::enable`]; to be told to the table, and then done by [`Self::apply`].
    pub(crate) fn plan(&mut self, interface: &str) -> io::Result<()> {
        if !is_there(interface)? {
            return Ok(());
        }
        let setting = Setting::of;
        let mut wanted = vec![
            setting(Kind::Ipv4, interface),
            setting(Kind::Marks, interface),
        ];
        let forced = setting(Kind::Ipv6, interface);
        if fs::exists(forced.path())? {
            wanted.push(forced);
        } else if setting(Kind::Ipv6, ALL).is("0") {
            let others = interfaces()?;
            let others = others
                .iter()
                .map(|other| setting(Kind::Advertisements, other));
            wanted.extend(others);
            wanted.push(setting(Kind::Ipv6, ALL));
        }
        let changed = |setting: &Setting| setting.is(setting.kind.values()[0]);
        self.note(wanted.into_iter().filter(changed));
        Ok(())
    }

    /// Does what is noted and is not as it should be; of an interface that is gone nothing.
    pub(crate) fn apply(&self) -> io::Result<()> {
        for setting in self.lost() {
            let [_, after] = setting.kind.values();
            setting.set(after)?;
        }
        Ok(())
    }

    /// Forgets interfaces that do not exist any more, and their settings with them.
    pub(crate) fn forget_gone(&mut self) {
        self.0
            .retain(|setting| fs::exists(setting.path()).unwrap_or(true));
    }

    /// True if a setting of this interface was changed.
    pub(crate) fn names(&self, interface: &str) -> bool {
        self.0.iter().any(|setting| setting.interface == interface)
    }

    /// True if something that was changed has been changed back.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost().next().is_some()
    }

    fn lost(&self) -> impl Iterator<Item = &Setting> {
        self.0.iter().filter(|setting| {
            let [before, _] = setting.kind.values();
            setting.is(before)
        })
    }

    /// True if forwarding of IPv6 is on for the whole machine because of us.
    pub(crate) fn opened_machine(&self) -> bool {
        let machine = |setting: &Setting| setting.kind == Kind::Ipv6 && setting.interface == ALL;
        self.0.iter().any(machine)
    }

    /// Gives a setting that [`Setting::lacking`] found the value that it is to have.
    pub(crate) fn mend(&mut self, setting: &Setting, table: &Table) -> io::Result<()> {
        if setting.interface == NAME && !setting.is_of_marks() {
            return prepare_device(NAME);
        }
        self.change(setting.kind, &setting.interface, table)
    }

    /// Noted first, then done: what is noted and was not done is undone in vain.
    fn change(&mut self, kind: Kind, interface: &str, table: &Table) -> io::Result<()> {
        let setting = Setting::of(kind, interface);
        let [before, after] = kind.values();
        if !setting.is(before) {
            return Ok(());
        }
        if !self.0.contains(&setting) {
            table.add_element(kind.set(), &format!("\"{interface}\""), None)?;
            self.0.push(setting.clone());
        }
        setting.set(after)
    }

    /// Notes in `table` which interfaces heed marks because of us: whose table that is puts them back in its turn.
    pub(crate) fn hand_over_marks(&self, table: &Table) {
        let names = self.0.iter().filter(|setting| setting.is_of_marks());
        for setting in names {
            let name = format!("\"{}\"", setting.interface);
            // A table that was removed is made anew from what is in force.
            let _ = table.add_element(Kind::Marks.set(), &name, None);
        }
    }

    /// Puts back what still is as we left it; not what makes checks heed marks if others need that, `keeping_marks`.
    ///
    /// # Errors
    /// Some could not be put back, all others were; the text has the commands that do it.
    pub(crate) fn restore(&self, keeping_marks: bool) -> io::Result<()> {
        let machine = Setting::of(Kind::Ipv4, ALL);
        // Somebody else has made a router of the machine meanwhile.
        let router = machine.is("1");
        let mut failed = Vec::new();
        for setting in self.0.iter().rev() {
            let [before, after] = setting.kind.values();
            let kept = match setting.kind {
                Kind::Ipv4 => router,
                Kind::Marks => keeping_marks,
                _ => false,
            };
            if setting.is(after) && !kept {
                match write(&setting.path(), before) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        failed.push((error, format!("`sysctl -w {}={before}`", setting.name())));
                    }
                    // An interface may be gone, and its settings with it.
                    Ok(()) | Err(_) => {}
                }
            }
        }
        let (errors, commands): (Vec<_>, Vec<_>) = failed.into_iter().unzip();
        match errors.first() {
            None => Ok(()),
            Some(first) => {
                let text = format!("{first}; {}", commands.join(", "));
                Err(io::Error::new(first.kind(), text))
            }
        }
    }
}

/// Settings of the device itself, which go with it: what it delivers is forwarded, although the way back to who sent it
/// leads, as the main table has it, over the link (a loose check of the source is the least that the kernel takes for
/// that where the machine's own is strict), and is found by a mark where the main table has none.
pub(crate) fn prepare_device(device: &str) -> io::Result<()> {
    let conf = |family: &str, key: &str| format!("/proc/sys/net/{family}/conf/{device}/{key}");
    write(&conf("ipv4", "rp_filter"), "2")?;
    write(&conf("ipv4", "src_valid_mark"), "1")?;
    write(&conf("ipv4", "forwarding"), "1")?;
    let forced = conf("ipv6", "force_forwarding");
    if fs::exists(&forced)? {
        write(&forced, "1")?;
    }
    Ok(())
}

/// True if the kernel has settings of `interface`.
fn is_there(interface: &str) -> io::Result<bool> {
    fs::exists(Setting::of(Kind::Ipv4, interface).path())
}

/// Names of interfaces in what `nft` prints of a set.
fn quoted(listing: &str) -> impl Iterator<Item = &str> {
    listing.split('"').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_holds_what_was_changed() {
        let setting = Setting::of;
        let changed = Settings(vec![
            setting(Kind::Ipv4, "lan0"),
            setting(Kind::Ipv4, "lan1"),
            setting(Kind::Ipv6, "all"),
        ]);
        let text = changed.sets();
        assert!(text.contains("elements = { \"lan0\", \"lan1\" }"), "{text}");
        let (v4, v6) = text.split_once("set forwarding6").unwrap();
        assert_eq!(quoted(v4).collect::<Vec<_>>(), ["lan0", "lan1"]);
        assert_eq!(quoted(v6).collect::<Vec<_>>(), ["all"]);
    }
}
