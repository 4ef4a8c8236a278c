//! Binaries of the programs that the lab knows how to start, as the command line names them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::Programs;
use super::program::KnownProgram;

/// A program that the lab knows how to start, and where its binary is; from the command line, as in `qpep=/opt/qpep`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary {
    name: String,
    path: PathBuf,
}

impl FromStr for Binary {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, path) = text
            .split_once('=')
            .ok_or("write it as in `qpep=/path/to/it`")?;
        if KnownProgram::named(name).is_none() {
            let known = KnownProgram::ALL.map(|(name, _)| name).join("`, `");
            return Err(format!("`{name}` takes no binary; `{known}` do"));
        }
        // Programs are started in directories of their own.
        let path = std::path::absolute(path).map_err(|error| error.to_string())?;
        Ok(Self {
            name: name.to_owned(),
            path,
        })
    }
}

impl fmt::Display for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.path.display())
    }
}

impl Binary {
    /// Puts it among an experiment's programs, in the place of the one that its file names.
    pub(crate) fn put_into(&self, programs: &mut Programs) {
        let named = programs.remove(&self.name).unwrap_or_default();
        programs.insert(self.name.clone(), named.with_binary(self.path.clone()));
    }

    /// The contender whose binary it is.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}
