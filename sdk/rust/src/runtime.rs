//! The thread that carries connections: one for all agents of the process, apart from the program's own, so that
//! no handler can hold up a heartbeat.

use std::io;
use std::sync::{Mutex, PoisonError};

use tokio::runtime::{Builder, Handle};

/// The runtime of that thread, which begins with the first agent and ends with the process.
pub(crate) fn shared() -> io::Result<Handle> {
    static SHARED: Mutex<Option<Handle>> = Mutex::new(None);
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*shared {
        return Ok(handle.clone());
    }
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("agent-reach".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    *shared = Some(handle.clone());
    Ok(handle)
}
