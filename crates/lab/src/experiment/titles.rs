//! `title`: the words by which pages show a link or a task.

use std::collections::BTreeMap;

use bentpipe_config::{ConfigError, Source};
use serde::{Deserialize, Serialize};
use toml::{Spanned, Table, Value};

use super::PlacedTask;

/// Titles of an experiment's links and tasks, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Titles {
    #[serde(default)]
    links: BTreeMap<String, String>,
    #[serde(default)]
    tasks: BTreeMap<String, String>,
}

impl Titles {
    /// Takes out of the links what each is to be shown as, and reads that of the tasks.
    pub(super) fn taken(
        source: &Source,
        links: &mut BTreeMap<String, Table>,
        tasks: &BTreeMap<Spanned<String>, PlacedTask>,
    ) -> Result<Self, ConfigError> {
        let mut titles = Self::default();
        for (name, table) in links {
            match table.remove("title") {
                None => {}
                Some(Value::String(title)) => {
                    titles.links.insert(name.clone(), title);
                }
                Some(_) => {
                    let text = "`title` is a text: the words by which pages show the link";
                    return Err(source.error_at_key(&format!("link.{name}"), text.to_owned()));
                }
            }
        }
        for (name, task) in tasks {
            if let Some(title) = task.title() {
                titles
                    .tasks
                    .insert(name.get_ref().clone(), title.to_owned());
            }
        }
        Ok(titles)
    }

    /// Title of the link called `name`: that name where the file gives none.
    #[must_use]
    pub fn link<'a>(&'a self, name: &'a str) -> &'a str {
        self.links.get(name).map_or(name, String::as_str)
    }

    /// Titles of a link and of a task over it, as pages name the place.
    #[must_use]
    pub fn place(&self, link: &str, task: &str) -> String {
        format!("{}, {}", self.link(link), self.task(task))
    }

    /// Title of the task called `name`: that name where the file gives none.
    #[must_use]
    pub fn task<'a>(&'a self, name: &'a str) -> &'a str {
        self.tasks.get(name).map_or(name, String::as_str)
    }
}
