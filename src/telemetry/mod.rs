//! What the hub tells its operator: metrics, log and traces.

pub mod logging;
pub mod metrics;
pub mod spans;
