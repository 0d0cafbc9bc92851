//! The machine that figures come from: without it they mean nothing.

use std::fs;
use std::time::Duration;

use anyhow::Result;

use crate::process;

/// How long is looked whether others are at work.
const LOOK: Duration = Duration::from_millis(500);

/// One line on the machine, and how busy others keep it.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn describe() -> Result<String> {
    let info = fs::read_to_string("/proc/cpuinfo")?;
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown processor");
    let model = model.trim_start_matches([' ', '\t', ':']);
    let cores = std::thread::available_parallelism()?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default();
    let (used, all) = process::machine_cpu()?;
    std::thread::sleep(LOOK);
    let (used_then, all_then) = process::machine_cpu()?;
    let busy = 100.0 * (used_then - used).as_secs_f64() / (all_then - all).as_secs_f64().max(0.001);
    let kernel = kernel.trim();
    Ok(format!(
        "{model}, {cores} cores, Linux {kernel}; before the run: load {load}, {busy:.0} % busy with other work"
    ))
}
