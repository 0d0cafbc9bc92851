//! The same calls, with ids that the hub keeps for long, for a while and not at all.

use anyhow::Result;

use super::TasksLoad;
use crate::dialect::RequestIds;
use crate::report::Bar;
use crate::scenarios::{Run, Server, call};

pub(super) const MEASUREMENTS: usize = 3;
/// Processor time of a call whose id is kept in memory, beside one whose id is not kept.
const RATIO: Bar = Bar { limit: 1.1, aim: 1.05 };

/// # Errors
/// When the hub does not start, or a call fails.
pub(super) fn measure(load: &TasksLoad, repeats: u32, run: &mut Run) -> Result<()> {
    for _ in 0..repeats {
        // One right after the other, so that all of them see the machine alike.
        let mut costs = |name, ids| {
            let hub = run.hub()?;
            let server = Server { name, ..Server::hub(&hub) };
            call::measure(&load.calls(ids), &server, load.in_flight, run)
        };
        let unkept = costs("ids not kept", RequestIds::Unkept)?;
        let kept = costs("ids kept 10 min, in memory", RequestIds::Sdk)?;
        let stored = costs("ids kept 24 h, in the store", RequestIds::Keyed)?;
        let report = &mut run.report;
        let over = |costs: &call::Costs| costs.cpu_us / unkept.cpu_us;
        report.put("ids: CPU for each call, kept in memory over not kept", "x", over(&kept), Some(RATIO));
        report.add("ids: CPU for each call, kept in the store over not kept", "x", over(&stored));
    }
    Ok(())
}
