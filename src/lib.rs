//! The Agent-Reach hub.

pub mod certs;
pub mod transport;
