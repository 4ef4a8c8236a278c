//! Model of a satellite link, in virtual time.
