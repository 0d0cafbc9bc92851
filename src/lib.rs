//! The Agent-Reach hub.

pub mod certs;
pub mod cli;
pub mod config;
pub mod policy_file;
pub mod transport;
