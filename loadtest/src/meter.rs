//! What a server and its load used between two moments, and which of them the rest waited for.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::process;

/// Share of a core from which a process of the load, which has one thread, was at its end.
const FULL: f64 = 0.9;
/// Share of the machine from which everybody waits for everybody.
const FULL_MACHINE: f64 = 0.95;
/// Share of its cores below which a server mostly waited.
const IDLE: f64 = 0.25;

/// A measurement under way.
#[derive(Debug)]
pub(crate) struct Meter {
    began: Instant,
    server: (u32, Duration),
    clients: Vec<(u32, Duration)>,
    machine: (Duration, Duration),
}

/// What was used.
#[derive(Debug)]
pub(crate) struct Usage {
    /// How long it took.
    pub(crate) span: Duration,
    /// Processor time of the server.
    pub(crate) server: Duration,
    /// Processor time of each process of the load.
    clients: Vec<Duration>,
    /// Share of the machine's time that anybody used.
    busy: f64,
    /// How many cores there are for server and load.
    cores: f64,
}

impl Meter {
    /// Begins.
    ///
    /// # Errors
    /// When one of the processes is gone.
    pub(crate) fn start(server: u32, clients: impl IntoIterator<Item = u32>) -> Result<Self> {
        let look = |pid| Ok((pid, process::cpu(pid)?));
        let clients = clients.into_iter().map(look).collect::<Result<_>>()?;
        let machine = process::machine_cpu()?;
        Ok(Self { began: Instant::now(), server: look(server)?, clients, machine })
    }

    /// Ends.
    ///
    /// # Errors
    /// When one of the processes is gone.
    pub(crate) fn stop(self) -> Result<Usage> {
        let span = self.began.elapsed();
        let spent = |(pid, before)| Ok(process::cpu(pid)?.saturating_sub(before));
        let server = spent(self.server)?;
        let clients = self.clients.into_iter().map(spent).collect::<Result<_>>()?;
        let (used, all) = process::machine_cpu()?;
        let used = used.saturating_sub(self.machine.0).as_secs_f64();
        let busy = used / all.saturating_sub(self.machine.1).as_secs_f64().max(0.001);
        let cores = u32::try_from(std::thread::available_parallelism()?.get())?;
        Ok(Usage { span, server, clients, busy, cores: f64::from(cores) })
    }
}

impl Usage {
    /// Processor time of the whole load.
    pub(crate) fn clients(&self) -> Duration {
        self.clients.iter().sum()
    }

    /// Who was the bottleneck, where it was not the server. Costs for each call hold all the same: they are
    /// the server's own.
    pub(crate) fn bottleneck(&self) -> Option<String> {
        let share = |time: Duration| time.as_secs_f64() / self.span.as_secs_f64().max(0.001);
        let server = share(self.server);
        let fullest = self.clients.iter().copied().max().map_or(0.0, share);
        let load = share(self.clients());
        let others = (self.busy * self.cores - server - load).max(0.0);
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let (of_server, of_load) = (percent(server), percent(load));
        if self.cores > 1.0 && fullest > FULL {
            let fullest = percent(fullest);
            return Some(format!(
                "the load was the bottleneck: one process of it used {fullest} of a core, the server {of_server}"
            ));
        }
        if (server + load) / self.cores > FULL_MACHINE || self.busy > FULL_MACHINE {
            let others = percent(others);
            return Some(format!(
                "the machine was full (server {of_server} of a core, load {of_load}, others {others}): rates and \
                 latencies hold all of it"
            ));
        }
        (server / self.cores < IDLE).then(|| {
            let idle = percent(1.0 - server / self.cores);
            format!("the server was idle for {idle} of the time: the load did not ask for more")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(server: u64, clients: &[u64], busy: f64, cores: f64) -> Option<String> {
        let ms = Duration::from_millis;
        let clients = clients.iter().copied().map(ms).collect();
        Usage { span: ms(1000), server: ms(server), clients, busy, cores }.bottleneck()
    }

    #[test]
    fn the_bottleneck_is_named_when_it_is_not_the_server() {
        let starts = |said: Option<String>, with: &str| said.is_some_and(|said| said.starts_with(with));
        assert!(starts(
            usage(600, &[950, 100], 0.9, 2.0),
            "the load was the bottleneck: one process of it used 95 %"
        ));
        assert!(starts(
            usage(1100, &[500, 350], 0.97, 2.0),
            "the machine was full (server 110 % of a core, load 85 %, others 0 %)"
        ));
        assert!(starts(usage(100, &[100], 0.2, 2.0), "the server was idle for 95 %"));
        assert_eq!(usage(1500, &[100], 0.85, 2.0), None);
        // On one core a process of the load cannot be told from the machine.
        assert!(starts(usage(70, &[920], 0.99, 1.0), "the machine was full"));
    }
}
