//! `bentpipe check FILE`: is this configuration usable?

use bentpipe_pep::config;

use crate::cli::Check;
use crate::exit::Failure;

/// Validates the file and says which role it is good for.
pub(crate) fn run(options: &Check) -> Result<(), Failure> {
    let role = config::check(&options.file, options.role.map(Into::into))?;
    super::print(&format!(
        "{}: a valid {role} configuration",
        options.file.display()
    ))
}
