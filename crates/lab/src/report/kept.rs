//! Files of runs that were kept beside the results, which the page leads to.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::results::KEPT;
use bentpipe_plot::escape;

/// Files that a directory of results has kept, in order; none if nothing was.
pub(super) fn files(results: &Path) -> Result<Vec<PathBuf>> {
    let kept = results.join(KEPT);
    if !kept.exists() {
        return Ok(Vec::new());
    }
    let list = |directory: &Path| -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
        let mut paths = Vec::new();
        for entry in entries {
            paths.push(entry?.path());
        }
        paths.sort();
        Ok(paths)
    };
    let runs = list(&kept)?;
    let files: Result<Vec<_>> = runs.iter().map(|run| list(run)).collect();
    Ok(files?.concat())
}

/// Links to the files from the page at this path; empty if there are none.
pub(super) fn list(files: &[PathBuf], page: &Path) -> String {
    let lines = files.iter().map(|file| {
        let name = file.iter().rev().take(2).map(|part| part.to_string_lossy());
        let name: Vec<_> = name.collect();
        let name = name.into_iter().rev().collect::<Vec<_>>().join(": ");
        format!("<li>{}</li>\n", link(file, page, &name))
    });
    let lines: String = lines.collect();
    match lines.is_empty() {
        true => lines,
        false => format!("<ul>\n{lines}</ul>\n"),
    }
}

/// Link to a file from the page at this path.
pub(super) fn link(file: &Path, page: &Path, name: &str) -> String {
    let to = escape(&address(file, page)).replace('%', "%25");
    let to = to.replace('#', "%23").replace('?', "%3F");
    format!("<a href=\"{to}\">{}</a>", escape(name))
}

/// A file's place as seen from the page: relative if it lies below the page's directory.
fn address(file: &Path, page: &Path) -> String {
    let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (file, page) = (whole(file), whole(page));
    let beside = page.parent().and_then(|base| file.strip_prefix(base).ok());
    beside.unwrap_or(&file).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_below_the_page_have_relative_links() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("e-full/kept/plain_cubic geo get 1");
        fs::create_dir_all(&run).unwrap();
        fs::write(run.join("link.pcapng"), "").unwrap();
        let files = files(&directory.path().join("e-full")).unwrap();
        let text = list(&files, &directory.path().join("report.html"));
        let link = "<a href=\"e-full/kept/plain_cubic geo get 1/link.pcapng\">plain_cubic geo get 1: link.pcapng</a>";
        assert!(text.contains(link), "{text}");
        let far = list(&files, Path::new("/elsewhere/report.html"));
        assert!(far.contains("href=\"/"), "{far}");
        assert_eq!(list(&[], Path::new("p.html")), "");
    }
}
