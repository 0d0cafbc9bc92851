//! What the kernel knows of a process, and of the machine.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// Processor time that a process has used, in user space and in the kernel, to the nanosecond.
///
/// # Errors
/// When the process is gone.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid)?)).context("a process that is gone")?;
    Ok(clock_gettime(clock)?.into())
}

/// Nanoseconds on the one clock of all processes of this machine.
///
/// # Errors
/// When the kernel does not tell.
pub(crate) fn now_ns() -> Result<u64> {
    Ok(u64::try_from(Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?).as_nanos())?)
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// Resident: what the process has in memory.
    pub(crate) resident: u64,
    /// The part of it that is no file: heap and stacks.
    pub(crate) anonymous: u64,
}

/// Memory of a process now.
///
/// # Errors
/// When the process is gone, or is another user's.
pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let rollup = read(pid, "smaps_rollup")?;
    Ok(Memory {
        resident: kib(&rollup, "Rss:").context("smaps_rollup")?,
        anonymous: kib(&rollup, "Anonymous:").context("smaps_rollup")?,
    })
}

/// The most memory that a process ever had resident, in bytes.
///
/// # Errors
/// When the process is gone.
pub(crate) fn peak(pid: u32) -> Result<u64> {
    kib(&read(pid, "status")?, "VmHWM:").context("/proc/PID/status")
}

/// How many descriptors a process has open.
///
/// # Errors
/// When the process is gone, or is another user's.
pub(crate) fn descriptors(pid: u32) -> Result<usize> {
    Ok(fs::read_dir(path(pid, "fd"))?.count())
}

/// Memory that the kernel spends on its own objects, sockets among them, on the whole machine. In bytes.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn kernel_memory() -> Result<u64> {
    let unreclaimable = kib(&fs::read_to_string("/proc/meminfo")?, "SUnreclaim:").context("/proc/meminfo")?;
    let sockets = fs::read_to_string("/proc/net/sockstat")?;
    let tcp = sockets.lines().find_map(|line| line.strip_prefix("TCP:")).context("/proc/net/sockstat")?;
    let pages = tcp.split_whitespace().skip_while(|word| *word != "mem").nth(1);
    let pages: u64 = pages.context("/proc/net/sockstat")?.parse()?;
    Ok(unreclaimable + pages * system(SysconfVar::PAGE_SIZE, 4096))
}

/// Processor time of the whole machine: used, and used and idle together.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn machine_cpu() -> Result<(Duration, Duration)> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().context("/proc/stat")?;
    let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).map_while(|n| n.parse().ok()).collect();
    let all: u64 = ticks.iter().sum();
    // The fourth and fifth are idle, and idle while waiting for a disk.
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    Ok((from_ticks(all - idle), from_ticks(all)))
}

fn from_ticks(ticks: u64) -> Duration {
    Duration::from_secs(ticks) / u32::try_from(system(SysconfVar::CLK_TCK, 100)).unwrap_or(100)
}

fn system(what: SysconfVar, usual: u64) -> u64 {
    let value = sysconf(what).ok().flatten();
    value.and_then(|value| u64::try_from(value).ok()).unwrap_or(usual)
}

fn kib(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(value.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

fn path(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = path(pid, file);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_can_look_at_itself() {
        let pid = std::process::id();
        let memory = memory(pid).unwrap();
        assert!(memory.anonymous <= memory.resident && memory.resident <= peak(pid).unwrap());
        assert!(descriptors(pid).unwrap() >= 3);
        // The machine's time is counted in ticks, and each processor's by itself.
        let (tick, own) = (Duration::from_millis(100), cpu(pid).unwrap());
        assert!(own > Duration::ZERO && own <= machine_cpu().unwrap().0 + tick);
        assert!(kernel_memory().unwrap() > 0);
    }
}
