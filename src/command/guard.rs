//! `bentpipe guard`: what holds traffic while no client does.

use bentpipe_pep::guard::{self, GuardError};

use crate::cli::{Guard, GuardAction};
use crate::exit::Failure;

/// Puts the guard in force, removes it, or shows it.
pub(crate) fn run(options: &Guard) -> Result<(), Failure> {
    match (options.action, &options.config) {
        (GuardAction::On, Some(file)) => guard::on(file)?,
        // The command line asks for the file.
        (GuardAction::On, None) => {}
        (GuardAction::Off, _) => guard::off()?,
        (GuardAction::Show, _) => {
            let listing = guard::listing()?;
            return super::print(listing.as_deref().unwrap_or("the guard is off").trim_end());
        }
    }
    Ok(())
}

impl From<GuardError> for Failure {
    fn from(error: GuardError) -> Self {
        match error {
            GuardError::Config(error) => error.into(),
            GuardError::Run(error) => error.into(),
        }
    }
}
