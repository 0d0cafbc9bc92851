//! How much memory the process takes: the core has no process, so it is told.

use std::sync::Arc;
use std::time::Duration;

use agent_reach_core::Input;
use tokio::time::MissedTickBehavior;

use super::Driver;

/// How old the figure may be that `hub.stats` shows.
const EVERY: Duration = Duration::from_secs(5);

impl Driver {
    /// Tells the core again and again how much memory the process takes. Never ends by itself, but on a system that
    /// does not tell.
    pub async fn tell_memory(self: Arc<Self>) {
        let mut due = tokio::time::interval(EVERY);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            due.tick().await;
            // The system may take its time over what it tells of a process with much memory.
            let told = tokio::task::spawn_blocking(|| std::fs::read_to_string("/proc/self/status")).await;
            let bytes = told.ok().and_then(Result::ok).as_deref().and_then(resident);
            let Some(bytes) = bytes else { return std::future::pending().await };
            self.settle(self.lock(), self.now(), [Input::Resident { bytes }], None);
        }
    }
}

/// Resident bytes, from what Linux tells of a process.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes_and_what_is_not_understood_is_none() {
        let status = "Name:\thub\nVmHWM:\t    9000 kB\nVmRSS:\t    1736 kB\nThreads:\t5\n";
        assert_eq!(resident(status), Some(1736 * 1024));
        for wrong in
            ["", "VmRSS:\n", "VmRSS:\t17 pages\n", "VmRSS:\t-1 kB\n", "VmRSS:\t18446744073709551615 kB"]
        {
            assert_eq!(resident(wrong), None, "{wrong}");
        }
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(resident(&own).unwrap() > 1 << 20);
    }
}
