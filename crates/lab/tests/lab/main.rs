//! What a run measures and what is shown of it: real traffic over a short satellite link, and the report's pages in a browser.

mod report;
mod traffic;
