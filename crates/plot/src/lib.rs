//! Plots in pages: the library that draws them, and the skeleton of pages that are one file and need nothing but themselves.
//!
//! ```text
//!  emulator, lab, measure of pep: data, style, script ──► Page ──► FILE.html
//!  page of pep: UPLOT, UPLOT_STYLE ──HTTP──► browser
//! ```
//!
//! uPlot 1.6.32 (MIT, its licence beside it in `uplot/`) is embedded, unchanged, as published on npm.

use anyhow::{Context as _, Result};
use serde::Serialize;

const SKELETON: &str = include_str!("page.html");

/// Script of uPlot, which defines `uPlot`.
pub const UPLOT: &str = include_str!("uplot/uPlot.iife.min.js");

/// Style sheet of uPlot.
pub const UPLOT_STYLE: &str = include_str!("uplot/uPlot.min.css");

/// Parts that one page has of its own.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// Title of the window.
    pub title: &'a str,
    /// Style sheet.
    pub style: &'a str,
    /// Body, as HTML.
    pub body: &'a str,
    /// Script that draws what it finds as JSON in the element `data`.
    pub script: &'a str,
}

impl Page<'_> {
    /// Text of the page, with `data` in it.
    ///
    /// # Errors
    /// `data` has no form as JSON.
    pub fn with(&self, data: &impl Serialize) -> Result<String> {
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
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
