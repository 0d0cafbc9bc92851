//! Rust SDK of Agent-Reach.
