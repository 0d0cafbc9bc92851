//! The same calls, with ids that the hub keeps for long, for a while and not at all.

use anyhow::Result;

use super::TasksLoad;
use crate::dialect::RequestIds;
use crate::report::Bar;
use crate::scenarios::{Run, Server, call};

pub(super) const MEASUREMENTS: usize = 5;
/// Processor time of a call whose id is kept in memory, beside one whose id is not kept.
const RATIO: Bar = Bar { limit: 1.1, aim: 1.05 };

/// # Errors
/// When the hub does not start, or a call fails.
pub(super) fn measure(load: &TasksLoad, repeats: u32, run: &mut Run) -> Result<()> {
    for _ in 0..repeats {
        // One right after the other, so that all of them see the machine alike.
        let mut costs = |names: &[&'static str], ids| {
            let hub = run.hub()?;
            let measured = names.iter().map(|name| {
                let server = Server { name, ..Server::hub(&hub) };
                Ok(call::measure(&load.calls(ids), &server, load.in_flight, run)?.cpu_us)
            });
            measured.collect::<Result<Vec<f64>>>()
        };
        let unkept = costs(&["ids not kept", "ids not kept, still"], RequestIds::Unkept)?;
        // The first fills the hub's memory for ids, with pages that the system has to make; the second finds it full.
        let kept = costs(&["ids kept 10 min, in memory", "ids kept, once memory is full"], RequestIds::Sdk)?;
        let stored = costs(&["ids kept 24 h, in the store"], RequestIds::Keyed)?;
        let report = &mut run.report;
        let what = ["kept in memory over not kept", "the same once memory is full"];
        for ((what, kept), unkept) in what.into_iter().zip(kept).zip(&unkept) {
            report.put(&format!("ids: CPU for each call, {what}"), "x", kept / unkept, Some(RATIO));
        }
        for (stored, unkept) in stored.into_iter().zip(unkept) {
            report.add("ids: CPU for each call, kept in the store over not kept", "x", stored / unkept);
        }
    }
    Ok(())
}
