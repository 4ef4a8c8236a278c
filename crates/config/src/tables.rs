//! Tables of a file by their headers, for messages about what stands in the wrong one.

use std::ops::Range;

/// Header of a table, and the line where it stands, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableHeader<'a> {
    /// Header as it is written: `[link]`, `[[client]]`.
    text: &'a str,
    line: usize,
}

impl TableHeader<'_> {
    /// Name between the brackets.
    fn name(&self) -> &str {
        self.text.trim_matches(['[', ']']).trim()
    }

    fn is_list(&self) -> bool {
        self.text.starts_with("[[")
    }

    /// Words that say which table this is.
    fn place(&self) -> String {
        format!("`{}`, which begins at line {}", self.text, self.line)
    }
}

/// Headers in the order in which they stand.
fn headers(text: &str) -> impl Iterator<Item = TableHeader<'_>> {
    (1..).zip(text.lines()).filter_map(|(line, row)| {
        let row = row.trim_start();
        let text = &row[..=row.rfind(']')?];
        (text.starts_with('[') && !text.contains('=')).then_some(TableHeader { text, line })
    })
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = text.get(..offset).unwrap_or(text);
    before.matches('\n').count() + 1
}

/// Message about a key, or a table, at `span` that the file has twice.
pub(crate) fn duplicate(text: &str, span: &Range<usize>) -> String {
    let line = line_of(text, span.start);
    let last = headers(text).take_while(|it| it.line <= line).last();
    let key = text.get(span.clone()).unwrap_or_default();
    match last {
        Some(again) if again.line == line => {
            let first = headers(text).find(|it| it.name() == again.name());
            match first.filter(|first| first.line < line) {
                Some(first) if again.is_list() != first.is_list() => format!(
                    "`{}` and `{}` at line {}: write both as `[[{key}]]` if there are to be several",
                    again.text, first.text, first.line
                ),
                Some(first) => format!(
                    "there is a `{}` at line {}: put these keys there",
                    first.text, first.line
                ),
                None => format!("duplicate key `{key}`; remove one"),
            }
        }
        Some(table) => format!(
            "duplicate key `{key}` in {}; remove one, or move it above line {} if it is the whole file's",
            table.place(),
            headers(text).next().map_or(1, |first| first.line)
        ),
        None => format!("duplicate key `{key}`; remove one"),
    }
}

/// Words about the table in which an unknown key at `offset` stands; nothing at the top of the file.
pub(crate) fn misplaced(text: &str, offset: usize) -> String {
    let line = line_of(text, offset);
    // A table that is unknown stands nowhere.
    if headers(text).any(|it| it.line == line) {
        return String::new();
    }
    let mut before = headers(text).take_while(|it| it.line < line);
    let Some(first) = before.next() else {
        return String::new();
    };
    let table = before.last().unwrap_or(first);
    format!(
        "; it stands in {}, and keys of the whole file stand above line {}",
        table.place(),
        first.line
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str =
        "a = 1\n\n[page]\n# [x]\nlisten = [1]\nlisten = 2\n[server]\nb = 1\n[page]\n[[server]]\n";

    fn span(text: &str, occurrence: usize) -> Range<usize> {
        let (start, found) = FILE.match_indices(text).nth(occurrence).expect("there");
        start..start + found.len()
    }

    #[test]
    fn a_second_table_or_key_is_told_where_the_first_is() {
        let told = |text, occurrence| duplicate(FILE, &span(text, occurrence));
        assert_eq!(
            told("page", 1),
            "there is a `[page]` at line 3: put these keys there"
        );
        assert_eq!(
            told("server", 1),
            "`[[server]]` and `[server]` at line 7: write both as `[[server]]` if there are to be several"
        );
        assert_eq!(
            told("listen", 1),
            "duplicate key `listen` in `[page]`, which begins at line 3; remove one, or move it above line 3 if it is the whole file's"
        );
        assert_eq!(duplicate(FILE, &(0..1)), "duplicate key `a`; remove one");
    }

    #[test]
    fn a_key_in_the_wrong_table_is_told_which_that_is() {
        let told = |text, occurrence| misplaced(FILE, span(text, occurrence).start);
        assert_eq!(told("a", 0), "");
        assert_eq!(told("server", 0), "");
        assert_eq!(
            told("b", 0),
            "; it stands in `[server]`, which begins at line 7, and keys of the whole file stand above line 3"
        );
    }
}
