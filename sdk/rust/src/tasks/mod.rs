//! Durable tasks, from the side of who asked.

mod handle;
mod inbox;
mod info;
mod watch;

pub use handle::TaskHandle;
pub(crate) use inbox::Mailbox;
pub use inbox::{Inbox, TaskResult};
pub use info::{TaskFilter, TaskInfo, TaskState};
pub use watch::{TaskEvent, TaskWatch};

/// What `hub.tasks.*` takes for one task.
#[derive(Debug, serde::Serialize)]
struct TaskId<'a> {
    task_id: &'a str,
}
