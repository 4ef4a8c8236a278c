//! `bentpipe guard`: what holds traffic while no client does.

use bentpipe_pep::guard::{self, GuardError};

use super::daemon::config;
use crate::cli::{Guard, GuardAction, Role};
use crate::exit::Failure;

/// Puts the guard in force, removes it, or shows it.
pub(crate) fn run(options: &Guard) -> Result<(), Failure> {
    match options.action {
        GuardAction::On => guard::on(config(options.config.as_deref(), Role::Client)?)?,
        GuardAction::Off => guard::off()?,
        GuardAction::Show => {
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
