//! The Agent-Reach hub.
