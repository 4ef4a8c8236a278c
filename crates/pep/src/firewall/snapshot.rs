//! Snapshots of nftables scripts: a file for each configuration, so that a review sees the firewall.
//!
//! A test compares what the code writes with the files. `UPDATE_SNAPSHOTS=1` writes the files anew. Where the test is
//! privileged, `nft --check` reads each script in a namespace of its own.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use bentpipe_testbed::namespace::namespace;
use bentpipe_testbed::privileged;

/// Compares `scripts`, by name, with the files `NAME.nft` of `directory`, and has `nft` check them.
pub(crate) fn compare(directory: &str, scripts: &[(&str, String)]) {
    let directory = Path::new(directory);
    let file = |name: &str| directory.join(name).with_extension("nft");
    if env::var_os("UPDATE_SNAPSHOTS").is_some_and(|value| value == "1") {
        fs::create_dir_all(directory).unwrap();
        for (name, script) in scripts {
            fs::write(file(name), script).unwrap();
        }
    }
    for (name, script) in scripts {
        let known = fs::read_to_string(file(name)).unwrap_or_default();
        assert!(
            known == *script,
            "{} differs from what is written now; look at it, then UPDATE_SNAPSHOTS=1 writes it anew:\n{script}",
            file(name).display()
        );
    }
    let wanted: BTreeSet<_> = scripts.iter().map(|(name, _)| file(name)).collect();
    let present = fs::read_dir(directory).unwrap();
    let present: BTreeSet<_> = present.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(present, wanted, "one file for each configuration");
    if privileged("nft --check of snapshots") {
        let namespace = namespace("snapshots");
        for file in &wanted {
            let file = file.to_str().unwrap();
            namespace.run("nft", &["--check", "-f", file]).unwrap();
        }
    }
}
