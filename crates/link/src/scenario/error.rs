//! What is wrong with a scenario that reads well, and where.

/// A scenario that reads well but describes no link.
///
/// The key is the path in the file, `forward.modcods` or `queue.1.limit` (the second `[[queue]]`), so that a reader of
/// the file can add the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct ScenarioError {
    key: String,
    problem: String,
}

impl ScenarioError {
    pub(crate) fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            problem: problem.into(),
        }
    }

    /// The path of the key or table at fault, with dots.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Fault, and its mend.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    fn text(&self) -> String {
        match self.key.rsplit_once('.') {
            Some((table, key)) if key.parse::<usize>().is_err() => {
                format!("[{table}] {key} {}", self.problem)
            }
            _ => format!("[{}] {}", self.key, self.problem),
        }
    }
}
