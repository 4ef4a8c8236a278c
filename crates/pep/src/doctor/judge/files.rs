//! Keys and the state directory: who owns them, who else may read or write them.

use super::{fail, ok, warn};
use crate::doctor::Finding;
use crate::doctor::facts::{Content, Owned};

pub(super) fn judge(content: &Content) -> Vec<Finding> {
    let mut findings: Vec<_> = content.secrets.iter().map(secret).collect();
    findings.extend(content.state_dir.as_ref().map(state_dir));
    findings
}

/// Finding on a key: that others may not read it was seen when the configuration was read.
fn secret(key: &Owned) -> Finding {
    let name = key.path.display();
    let Some(found) = key.found else {
        return warn("keys", format!("{name} is not there"), None);
    };
    if found.mode & key.readers.others() != 0 {
        let text = format!("{name} is accessible to others (mode {:04o})", found.mode);
        let mend = format!("run `chmod {} {name}`", key.readers.mode());
        return fail("keys", text, Some(mend));
    }
    if found.mode & 0o040 != 0 {
        let text = format!(
            "{name} is its owner's and its group's (mode {:04o})",
            found.mode
        );
        return ok("keys", text);
    }
    match key.daemon_user {
        Some(user) if user != found.owner => warn(
            "keys",
            format!(
                "{name} belongs to user {}, its directory to user {user}: a daemon of that user cannot read it",
                found.owner
            ),
            Some(format!("run `chown {user} {name}`")),
        ),
        _ => ok(
            "keys",
            format!("{name} is its owner's alone (mode {:04o})", found.mode),
        ),
    }
}

fn state_dir(directory: &Owned) -> Finding {
    let name = directory.path.display();
    let Some(found) = directory.found else {
        return ok("state", format!("{name} will be made"));
    };
    if found.mode & 0o022 != 0 {
        let text = format!("{name} can be written by others (mode {:04o})", found.mode);
        return fail("state", text, Some(format!("run `chmod 700 {name}`")));
    }
    match directory.daemon_user {
        Some(user) if user != found.owner && user != 0 => warn(
            "state",
            format!(
                "{name} belongs to user {}, the configuration's directory to user {user}: nothing can be remembered there",
                found.owner
            ),
            Some(format!(
                "run `chown -R {user} {name}`, or change `state_dir`"
            )),
        ),
        _ => ok("state", format!("{name} (mode {:04o})", found.mode)),
    }
}
