//! What the documents say is held to the program: their configurations are valid, and `docs/configuration.md` names
//! exactly the keys that there are.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bentpipe_testbed::keys::generate;

use crate::BENTPIPE;
use crate::site::{page, pages};

/// A key that no table knows; the fault lists those that are known.
const NO_KEY: &str = "zzzzzzzz";

fn bentpipe() -> Command {
    Command::new(BENTPIPE)
}

/// A directory of its own for `test`, under cargo's.
fn directory(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    fs::create_dir_all(&path).expect("cargo's directory is writable");
    path
}

/// Checks `text` as a file of `role`, or of the role that it shows.
fn check(directory: &Path, role: Option<&str>, text: &str) -> Output {
    let file = directory.join("example.toml");
    fs::write(&file, text).expect("the directory is ours");
    let mut command = bentpipe();
    command.arg("check").arg(&file);
    if let Some(role) = role {
        command.args(["--role", role]);
    }
    command.output().expect("bentpipe runs")
}

/// The configurations shown on a page.
fn examples(page: &str) -> impl Iterator<Item = &str> {
    page.split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
}

#[test]
fn configurations_in_the_documents_are_valid() {
    let directory = directory("examples");
    let key = |name: &str| generate(BENTPIPE, &directory.join(name)).expect("a key");
    key("client.key");
    key("pep.key");
    let server = key("server.key");
    let terminals = [1, 2].map(|number| key(&format!("terminal-{number}.key")));
    token(&directory.join("page.token"));
    let mut count = 0;
    for name in configured() {
        for example in examples(&page(&name)) {
            let text = whole(example)
                .replace("\"SERVER\"", &format!("{server:?}"))
                .replace("\"TERMINAL_1\"", &format!("{:?}", terminals[0]))
                .replace("\"TERMINAL_2\"", &format!("{:?}", terminals[1]));
            let output = check(&directory, None, &text);
            let fault = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {fault}{text}");
            count += 1;
        }
    }
    assert!(count >= 20, "only {count} examples were found");
}

/// Makes the file of a token that an example names, closed to others.
fn token(file: &Path) {
    fs::write(file, "0123456789abcdef\n").expect("the directory is ours");
    fs::set_permissions(file, Permissions::from_mode(0o600)).expect("the file is ours");
}

/// Pages whose examples are configurations; those of the emulator and the lab are scenarios and experiments.
fn configured() -> Vec<String> {
    let scenarios = ["docs/emulator.md", "docs/lab.md", "docs/scenario.md"];
    let mut names = pages();
    names.retain(|name| !scenarios.contains(&name.as_str()));
    names
}

/// The file that `example` is, or the least one that it is a part of.
fn whole(example: &str) -> String {
    let (peer, entrance) = (
        "address = \"192.0.2.1:4433\"\npublic_key = \"SERVER\"\n",
        "[socks5]\nlisten = \"127.0.0.1:1080\"\n",
    );
    if example.contains("private_key_file") || example.contains("transport") {
        return example.to_owned();
    }
    if ["[[client]]", "[packets]"]
        .iter()
        .any(|table| example.contains(table))
    {
        return format!(
            "private_key_file = \"server.key\"\nlisten = \"192.0.2.1:4433\"\n{example}"
        );
    }
    let mut text = "private_key_file = \"client.key\"\n".to_owned();
    if !example.contains("[[server]]") {
        text.push_str(&format!("[server]\n{peer}"));
    }
    if !["[intercept]", "[socks5]", "[[publish]]"]
        .iter()
        .any(|table| example.contains(table))
    {
        text.push_str(entrance);
    }
    text + example
}

/// The feed's package names the version that it builds.
#[test]
fn the_package_of_openwrt_has_the_version_of_the_program() {
    let root = env!("CARGO_MANIFEST_DIR");
    let recipe = fs::read_to_string(Path::new(root).join("packaging/openwrt/Makefile"));
    let version = format!("PKG_VERSION:={}\n", env!("CARGO_PKG_VERSION"));
    assert!(recipe.unwrap().contains(&version), "{version}");
}

#[test]
fn exit_codes_are_those_of_the_help() {
    let output = bentpipe().arg("--help").output().expect("bentpipe runs");
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, codes) = help.split_once("Exit codes:\n").expect("a list of codes");
    let table = page("docs/exit-codes.md").replace('`', "");
    for line in codes.lines().filter(|line| !line.is_empty()) {
        let (code, meaning) = line.trim().split_once("  ").expect("code and meaning");
        let row = format!("| {code} | {meaning} |");
        assert!(table.contains(&row), "docs/exit-codes.md lacks: {row}");
    }
}

#[test]
fn every_key_is_documented_and_no_other() {
    let text = page("docs/configuration.md");
    let directory = directory("keys");
    let plain = "transport = \"plain\"\n";
    for (role, head, title) in [
        ("server", "", "## The server's file\n"),
        ("client", "", "## The client's file\n"),
        ("pep", "", "## The PEP's file\n"),
        ("server", plain, "## The server's file without a tunnel\n"),
        ("client", plain, "## The client's file without a tunnel\n"),
    ] {
        let (_, chapter) = text.split_once(title).expect("the chapter exists");
        let chapter = chapter.split("\n## ").next().unwrap_or_default();
        let sections = sections(chapter);
        for section in &sections {
            for table in &section.tables {
                let known = known_keys(&directory, role, &format!("{head}{table}"));
                assert_eq!(section.keys, known, "keys of {table} in the {role}'s file");
            }
        }
        let (top, rest) = sections.split_first().expect("the top-level keys");
        let mut keys = top.keys.clone();
        // A table within a table is a key of that one.
        let tables = rest.iter().flat_map(|section| &section.tables);
        let tables = tables.filter(|table| !table.contains('.'));
        keys.extend(tables.map(|table| table.trim_matches(['[', ']']).to_owned()));
        let known = known_keys(&directory, role, head);
        assert_eq!(keys, known, "top-level keys of the {role}'s file");
    }
}

/// Part of a chapter: the tables that its heading names, and the keys listed under it.
struct Section {
    tables: Vec<String>,
    keys: BTreeSet<String>,
}

/// A heading is a line such as "**`[limits]`**, …"; the part before the first one is about top-level keys.
fn sections(chapter: &str) -> Vec<Section> {
    let section = |part: &str| {
        let (heading, body) = part.split_once('\n').unwrap_or((part, ""));
        let tables = heading.split('`').filter(|word| word.starts_with('['));
        let keys = body
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .map(|key| key.trim_matches(['[', ']']).to_owned());
        Section {
            tables: tables.map(str::to_owned).collect(),
            keys: keys.collect(),
        }
    };
    chapter.split("\n**`").map(section).collect()
}

/// The keys that `table` has, by the program's own account; the empty name stands for the top level.
fn known_keys(directory: &Path, role: &str, table: &str) -> BTreeSet<String> {
    let output = check(directory, Some(role), &format!("{table}\n{NO_KEY} = 1\n"));
    let fault = String::from_utf8_lossy(&output.stderr);
    let list = fault.split_once("known here: ");
    let (_, list) = list.unwrap_or_else(|| panic!("{role} {table}: {fault}"));
    let (list, _) = list.split_once("; it stands").unwrap_or((list, ""));
    let keys = list.split('`').skip(1).step_by(2);
    keys.map(str::to_owned).collect()
}
