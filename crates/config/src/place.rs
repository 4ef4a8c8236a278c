//! Where in a file something stands, for the cases in which `serde` does not say.
//!
//! An enum with a tag (`model = "…"`) is read from a copy of its table: an error within it has the table's place. What
//! the message quotes is then looked for in the table's lines.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// `span`, or the line within the table that begins there which the message is about.
pub(crate) fn narrowed(text: &str, span: Range<usize>, message: &str) -> Range<usize> {
    if !text.get(span.start..).is_some_and(|at| at.starts_with('[')) {
        return span;
    }
    let Some(quoted) = quoted(message) else {
        return span;
    };
    let mut start = span.start;
    for (number, line) in text[span.start..].split_inclusive('\n').enumerate() {
        if number > 0 && line.trim_start().starts_with('[') {
            break;
        }
        if let Some(value) = mention(line, quoted) {
            return start + value..start + line.len();
        }
        start += line.len();
    }
    span
}

/// Text that a message of `serde` or of a unit quotes first: a key, or a value as it stands in the file.
fn quoted(message: &str) -> Option<&str> {
    if message.starts_with("missing field") {
        return None;
    }
    let string = message
        .strip_prefix("invalid type: string \"")
        .or_else(|| message.strip_prefix("invalid value: string \""));
    match string {
        Some(rest) => rest.split_once('"').map(|(value, _)| value),
        None => message.split('`').nth(1),
    }
    .filter(|quoted| !quoted.is_empty())
}

/// Byte at which the value begins in a line whose key or value is `quoted`.
fn mention(line: &str, quoted: &str) -> Option<usize> {
    let (key, value) = line.split_once('=')?;
    let value = value.split('#').next()?.trim();
    let found = [key.trim(), value, value.trim_matches(['"', '\''])].contains(&quoted);
    found.then_some(key.len() + 1)
}

/// The place of `key`, whose parts have dots between them and lists an index; of the nearest table around it if it is
/// not there.
pub(crate) fn of_key(text: &str, key: &str) -> Range<usize> {
    let Ok(table) = DeTable::parse(text) else {
        return 0..0;
    };
    let mut parts = key.split('.').peekable();
    let mut place = 0..0;
    let mut here = table.get_ref();
    while let Some(part) = parts.next() {
        let lone =
            |part: &str| part == "0" && !here.keys().any(|name| name.get_ref().as_ref() == "0");
        // A table that could be a list stands alone.
        if lone(part) && place != (0..0) {
            continue;
        }
        let found = here
            .iter()
            .find(|(name, _)| name.get_ref().as_ref() == part);
        let Some((name, mut value)) = found else {
            return place;
        };
        place = name.span();
        if let DeValue::Array(list) = value.get_ref()
            && let Some(index) = parts.peek().and_then(|part| part.parse::<usize>().ok())
        {
            parts.next();
            let Some(element) = list.get(index) else {
                return place;
            };
            (value, place) = (element, element.span());
        }
        match value.get_ref() {
            DeValue::Table(inner) => here = inner,
            _ => return place,
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde::Deserialize;

    use crate::Source;

    #[derive(Debug, Deserialize)]
    #[serde(tag = "model", rename_all = "snake_case", deny_unknown_fields)]
    enum Shape {
        #[allow(dead_code, reason = "read from text, then thrown away")]
        Square { side: u32 },
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[allow(dead_code, reason = "read from text, then thrown away")]
        shape: Shape,
    }

    fn fault(text: &str) -> String {
        let source = Source::new(Path::new("f.toml"), text);
        source.parse::<File>().unwrap_err().to_string()
    }

    #[test]
    fn faults_in_a_table_with_a_tag_have_their_own_line() {
        let text = "# first\n[shape]\nmodel = \"square\"\n\nsize = 3\n";
        let unknown = fault(text);
        assert_eq!(
            unknown,
            "f.toml:5: unknown key `size`; did you mean `side`?"
        );
        let value = fault("[shape]\nmodel = \"square\"\nside = \"big\"\n");
        assert!(
            value.starts_with("f.toml:3: `side`: invalid type"),
            "{value}"
        );
        let tag = fault("[shape]\nmodel = \"circle\"\n");
        assert!(
            tag.starts_with("f.toml:2: unknown value `circle` for `model`"),
            "{tag}"
        );
        assert_eq!(
            fault("\n[shape]\nmodel = \"square\"\n"),
            "f.toml:2: missing key `side`"
        );
    }

    #[test]
    fn keys_are_found_by_name() {
        let text = "[a]\nx = 1\n[a.b]\ny = 2\n[[t]]\nn = 1\n[[t]]\nn = 2\nm = [\n 1,\n 2 ]\n";
        let source = Source::new(Path::new("f.toml"), text);
        let line = |key: &str| source.error_at_key(key, "").line();
        let found = [
            "a", "a.x", "a.b.y", "a.z", "t.1.n", "t.0.n", "t.1.m", "t.1.m.1", "t.7", "q", "a.0.x",
        ];
        let lines = found.map(line);
        assert_eq!(lines, [1, 2, 4, 1, 8, 6, 9, 11, 5, 1, 2]);
    }
}
