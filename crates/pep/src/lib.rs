//! Client and server of the encrypted proxy.
