//! The dedupe file: which intents this agent has served, over lives of its process.
//!
//! A log of checksummed records, appended to and made anew when it is opened or has become too long. Its first record
//! names the agent and its `instance`. The instance is kept because that is what the hub goes by: it gives unfinished
//! work only to the life of a process that had it, since another one cannot know what was done. With this file the
//! next process does know, so towards the hub it is the same life.

mod file;
mod record;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use file::{DedupeFile, Opened};
pub(crate) use writer::Writer;
