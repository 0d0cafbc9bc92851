//! A command and everything that it starts, as one thing that can be ended.
//!
//! The command leads a process group of its own. Signals go to the group, by `rustix`: the standard library has none
//! for groups, and a call of libc would be unsafe code here.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

/// A command that runs. Dropped, all of its group is killed.
pub(super) struct Process {
    // Before the child: while that is not waited for, the group's number is nobody else's.
    group: Group,
    child: Child,
}

/// Both ends of a command's talk.
pub(super) struct Pipes {
    pub(super) stdin: Option<ChildStdin>,
    pub(super) stdout: Option<ChildStdout>,
    pub(super) stderr: Option<ChildStderr>,
}

impl Process {
    /// Starts it, as the leader of a group.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn start(mut command: Command) -> io::Result<(Self, Pipes)> {
        let mut child = command.process_group(0).kill_on_drop(true).spawn()?;
        let leader = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pipes =
            Pipes { stdin: child.stdin.take(), stdout: child.stdout.take(), stderr: child.stderr.take() };
        Ok((Self { group: Group(leader), child }, pipes))
    }

    /// Waits for the command's own end. What it leaves behind in its group is killed then, so that nothing holds its
    /// output open. Cancel-safe.
    ///
    /// # Errors
    /// What the system says.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.group.kill();
        status
    }

    /// Ends it: SIGTERM to all of the group, and SIGKILL to what is left when the command has ended and its output is
    /// closed, or when the grace is over. `closed` resolves when nobody holds its output any more.
    pub(super) async fn stop(&mut self, grace: Duration, closed: impl Future<Output = ()>) {
        self.group.signal(Signal::TERM);
        let child = &mut self.child;
        let gone = async {
            let (status, ()) = tokio::join!(child.wait(), closed);
            status
        };
        if tokio::time::timeout(grace, gone).await.is_err() {
            tracing::warn!("the command did not end in its grace and is killed");
        }
        if let Err(error) = self.ended_by_force().await {
            tracing::warn!(%error, "the command's end cannot be waited for");
        }
    }

    async fn ended_by_force(&mut self) -> io::Result<ExitStatus> {
        self.group.kill();
        self.child.wait().await
    }
}

/// A process group by its leader; `None` once it was killed, since its number may be another's then.
struct Group(Option<Pid>);

impl Group {
    fn signal(&self, signal: Signal) {
        let Some(leader) = self.0 else { return };
        // A group of which nobody is left is what is wanted.
        if let Err(error) = kill_process_group(leader, signal) {
            tracing::debug!(%error, "no signal to the command's group");
        }
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
