//! The `agent-reach` command.
fn main() {}
