//! What the hub tells its operator: metrics and log.

pub mod logging;
pub mod metrics;
