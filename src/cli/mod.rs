//! The commands of `agent-reach`, one file for each.

pub mod certs;
pub mod check;
