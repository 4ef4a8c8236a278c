//! The skeleton of the pages that the lab draws: one file each, which needs nothing but itself.
//!
//! uPlot 1.6.32 (MIT, its licence beside it in `plot/uplot/`) is embedded, unchanged, as published on npm.

use anyhow::{Context as _, Result};
use serde::Serialize;

const SKELETON: &str = include_str!("page.html");
const UPLOT: &str = include_str!("plot/uplot/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("plot/uplot/uPlot.min.css");

/// What one page has of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page<'a> {
    /// Of the window.
    pub(crate) title: &'a str,
    pub(crate) style: &'a str,
    /// HTML.
    pub(crate) body: &'a str,
    /// Draws what it finds as JSON in the element `data`.
    pub(crate) script: &'a str,
}

impl Page<'_> {
    /// The page's text, with `data` in it.
    pub(crate) fn with(&self, data: &impl Serialize) -> Result<String> {
        // Within a script no text of ours may end it.
        let data = serde_json::to_string(data)?.replace('<', "\\u003c");
        let parts = [
            ("TITLE", self.title),
            ("UPLOT_STYLE", UPLOT_STYLE),
            ("STYLE", self.style),
            ("BODY", self.body),
            ("UPLOT", UPLOT),
            ("DATA", &data),
            ("SCRIPT", self.script),
        ];
        // In the order of the page: nothing is looked for in what was put in.
        let (mut text, mut rest) = (String::new(), SKELETON);
        for (name, part) in parts {
            let (before, after) = rest
                .split_once(&format!("/*{name}*/"))
                .with_context(|| format!("the page has no place for {name}"))?;
            text.push_str(before);
            text.push_str(part);
            rest = after;
        }
        Ok(text + rest)
    }
}

/// Text as HTML shows it.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
