//! The Agent-Reach wire protocol, version 1.
