//! The Agent-Reach hub.

pub mod callbacks;
pub mod certs;
pub mod cli;
pub mod config;
pub mod connection;
pub mod driver;
pub mod http;
pub mod keeping;
pub mod policy_file;
pub mod server;
pub mod store;
pub mod telemetry;
pub mod transport;
pub mod websocket;
