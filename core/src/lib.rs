//! The Agent-Reach decision core.
