//! `bentpipe check FILE`: is this configuration usable?

use bentpipe_pep::{check_certificate, config};

use crate::cli::Check;
use crate::exit::Failure;

/// Validates the file and the certificate that it names, and says which role it is good for.
pub(crate) fn run(options: &Check) -> Result<(), Failure> {
    let file = config::load(&options.file, options.role.map(Into::into))?;
    let (role, name) = (file.role(), options.file.display());
    let warning = check_certificate(&file)?;
    let warning = warning.map(|text| format!("; {text}")).unwrap_or_default();
    super::print(&format!(
        "{name}: a valid configuration of {}{warning}",
        role.with_article()
    ))
}
