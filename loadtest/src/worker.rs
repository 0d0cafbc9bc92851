//! Worker processes, seen from the one that measures.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;

use crate::jobs::{AgentsJob, Job, Order, Tally};

/// Descriptors that a worker needs beside its connections.
const SPARE_DESCRIPTORS: u64 = 256;

/// Where a process of the load runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Where the scheduler likes.
    Anywhere,
    /// On the first core.
    First,
    /// On the second core, behind all that is not nice.
    Behind,
}

impl Place {
    /// This program once more, there.
    ///
    /// # Errors
    /// When it is not known where this program is.
    pub(crate) fn command(self) -> Result<Command> {
        let program = std::env::current_exe()?;
        let before: &[&str] = match self {
            Self::Anywhere => return Ok(Command::new(program)),
            Self::First => &["taskset", "-c", "0"],
            Self::Behind => &["nice", "-n", "10", "taskset", "-c", "1"],
        };
        let mut words = before.iter();
        let mut command = Command::new(words.next().context("a command")?);
        command.args(words).arg(program);
        Ok(command)
    }
}

/// A worker process. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    /// Closed, it ends the worker.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts this program once more, with a job.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub(crate) fn start(job: &Job) -> Result<Self> {
        Self::start_at(job, Place::Anywhere)
    }

    /// The same, at a place of its own.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub(crate) fn start_at(job: &Job, place: Place) -> Result<Self> {
        let mut child = place
            .command()?
            .arg("worker")
            .arg(serde_json::to_string(job)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("the worker's stdout")?);
        Ok(Self { child, orders, answers })
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order and does not wait for it to be carried out.
    ///
    /// # Errors
    /// When the worker is gone.
    pub(crate) fn tell(&mut self, order: Order) -> Result<()> {
        let mut line = serde_json::to_vec(&order)?;
        line.push(b'\n');
        let orders = self.orders.as_mut().context("a worker that was ended")?;
        orders.write_all(&line)?;
        Ok(orders.flush()?)
    }

    /// Waits for the answer to an order.
    ///
    /// # Errors
    /// When the worker is gone.
    pub(crate) fn hear(&mut self) -> Result<Tally> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("a worker ended: {}", self.child.wait()?);
        }
        Ok(serde_json::from_str(&line)?)
    }

    /// Gives an order and waits for its answer.
    ///
    /// # Errors
    /// When the worker is gone.
    pub(crate) fn ask(&mut self, order: Order) -> Result<Tally> {
        self.tell(order)?;
        self.hear()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Agents in as many processes as their descriptors need, and at least two.
#[derive(Debug)]
pub(crate) struct Agents {
    workers: Vec<Worker>,
    count: u32,
}

impl Agents {
    /// Starts the processes and lets them prepare; nothing connects yet.
    ///
    /// # Errors
    /// When a process cannot be started.
    pub(crate) fn start(job: &AgentsJob) -> Result<Self> {
        let room = descriptors_max().saturating_sub(SPARE_DESCRIPTORS).max(1);
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let processes = job.count.div_ceil(room).max(2).min(job.count.max(1));
        let each = job.count.div_ceil(processes.max(1)).max(1);
        let mut workers = Vec::new();
        for first in (0..job.count).step_by(each as usize) {
            let part = AgentsJob {
                first: job.first + first,
                count: each.min(job.count - first),
                at_a_time: job.at_a_time.div_ceil(processes),
                ..job.clone()
            };
            workers.push(Worker::start(&Job::Agents(part))?);
        }
        let mut agents = Self { workers, count: job.count };
        // Answered when all certificates are made.
        agents.ask(Order::Count)?;
        Ok(agents)
    }

    /// Connects all, and waits for it.
    ///
    /// # Errors
    /// When one could not connect.
    pub(crate) fn connect(&mut self) -> Result<()> {
        let tally = self.ask(Order::Connect)?;
        self.check(&tally, "connected")
    }

    /// What was done since the last time.
    ///
    /// # Errors
    /// When a connection was lost.
    pub(crate) fn count(&mut self) -> Result<Tally> {
        let tally = self.ask(Order::Count)?;
        self.check(&tally, "are still connected")?;
        Ok(tally)
    }

    /// The process ids.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.workers.iter().map(Worker::pid)
    }

    fn ask(&mut self, order: Order) -> Result<Tally> {
        for worker in &mut self.workers {
            worker.tell(order)?;
        }
        let mut sum = Tally::default();
        for worker in &mut self.workers {
            let tally = worker.hear()?;
            sum.connected += tally.connected;
            sum.failed += tally.failed;
            sum.failure = sum.failure.or(tally.failure);
            sum.keepalives += tally.keepalives;
            sum.heard += tally.heard;
        }
        Ok(sum)
    }

    fn check(&self, tally: &Tally, what: &str) -> Result<()> {
        if tally.connected != u64::from(self.count) || tally.failed > 0 {
            let failure = tally.failure.as_deref().unwrap_or("no reason known");
            bail!("{} of {} agents {what}; {failure}", tally.connected, self.count);
        }
        Ok(())
    }
}

/// How many descriptors a process may have.
pub(crate) fn descriptors_max() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft)
}

/// Raises the number of descriptors of this process, and of those that it starts, to what is allowed.
///
/// # Errors
/// When the system refuses.
pub(crate) fn raise_descriptors() -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("ulimit -n")
}

/// Keeps this process, and those that it starts, on one core.
///
/// # Errors
/// When there is no such core.
pub(crate) fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    let pinned = set.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    pinned.with_context(|| format!("core {core}"))
}
