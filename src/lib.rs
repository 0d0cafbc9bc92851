//! The Agent-Reach hub.

pub mod access;
pub mod audit;
pub mod callbacks;
pub mod certs;
pub mod cli;
pub mod config;
pub mod connection;
pub mod driver;
pub mod http;
pub mod keeping;
pub mod policy;
pub mod policy_file;
pub mod reload;
pub mod server;
mod stamp;
pub mod store;
pub mod supervisor;
pub mod telemetry;
pub mod tokens;
pub mod transport;
mod watcher;
pub mod websocket;
