//! Two ends, two PEPs and what lies between them, in virtual time; fuzzing uses the model, too.

mod script;
pub(crate) mod setting;
pub(crate) mod tcp;
pub(crate) mod world;
