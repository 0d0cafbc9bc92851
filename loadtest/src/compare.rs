//! A run beside an older one: how each figure has changed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::report::{Report, short};

/// Reads the JSON of an older run.
///
/// # Errors
/// When it cannot be read, or is none.
pub(crate) fn read(path: &Path) -> Result<Report> {
    let text = std::fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| format!("{} is no report of this program", path.display()))
}

/// Whether two runs put the same load on a server, so that their figures mean the same.
///
/// # Errors
/// When they do not; it says where they differ.
pub(crate) fn same_load(old: &Report, new: &Report) -> Result<()> {
    if old.scenario != new.scenario {
        bail!("the older run was of `{}`, this one is of `{}`", old.scenario, new.scenario);
    }
    let keys = old.load.keys().chain(new.load.keys());
    let differing = keys.filter(|key| old.load.get(*key) != new.load.get(*key));
    let said =
        |report: &Report, key: &String| report.load.get(key).map_or("none".into(), ToString::to_string);
    if let Some(key) = differing.into_iter().next() {
        bail!("the runs do not fit: {key} was {}, now it is {}", said(old, key), said(new, key));
    }
    Ok(())
}

/// A table of both medians of each figure, and their ratio.
///
/// # Errors
/// When the runs do not have the same figures.
pub(crate) fn table(old: &Report, new: &Report) -> Result<String> {
    same_load(old, new)?;
    let medians = |report: &Report| -> BTreeMap<_, _> {
        report
            .figures
            .iter()
            .map(|figure| ((figure.name.clone(), figure.unit.clone()), figure.median))
            .collect()
    };
    let (before, after) = (medians(old), medians(new));
    if let Some((name, unit)) = before.keys().find(|key| !after.contains_key(*key)) {
        bail!("the runs do not fit: only the older one has `{name}` ({unit})");
    }
    if let Some((name, unit)) = after.keys().find(|key| !before.contains_key(*key)) {
        bail!("the runs do not fit: only this one has `{name}` ({unit})");
    }
    let mut out = format!("beside {} ({})\n", old.command, old.machine);
    let width = new.figures.iter().map(|figure| figure.name.len()).max().unwrap_or_default();
    let _never = writeln!(out, "{:<width$}  {:>9} {:>9} {:>7}", "", "old", "new", "new/old");
    for figure in &new.figures {
        let old = before.get(&(figure.name.clone(), figure.unit.clone())).copied().unwrap_or(f64::NAN);
        let (name, now, unit) = (&figure.name, figure.median, &figure.unit);
        let ratio = if old == 0.0 { "-".to_owned() } else { format!("{:.2}", now / old) };
        let line = format!("{name:<width$}  {:>9} {:>9} {ratio:>7}  {unit}", short(old), short(now));
        // Writing to a String cannot fail.
        let _never = writeln!(out, "{}", line.trim_end());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(scenario: &str, agents: u32, figures: &[(&str, f64)]) -> Report {
        let mut report = Report::of(scenario, &serde_json::json!({ "agents": agents })).unwrap();
        figures.iter().for_each(|(name, value)| report.add(name, "us", *value));
        report
    }

    #[test]
    fn every_figure_stands_beside_its_older_self() {
        let old = report("call", 30, &[("cost", 40.0), ("none", 0.0)]);
        let new = report("call", 30, &[("cost", 10.0), ("none", 1.0)]);
        let table = table(&old, &new).unwrap();
        let lines: Vec<_> = table.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "            old       new new/old",
                "cost       40.0      10.0    0.25  us",
                "none       0.00      1.00       -  us"
            ]
        );
    }

    #[test]
    fn runs_that_do_not_fit_are_refused_with_what_differs() {
        let new = report("call", 30, &[("cost", 1.0)]);
        let refused = |old: &Report| table(old, &new).unwrap_err().to_string();
        assert_eq!(
            refused(&report("idle", 30, &[("cost", 1.0)])),
            "the older run was of `idle`, this one is of `call`"
        );
        assert_eq!(
            refused(&report("call", 31, &[("cost", 1.0)])),
            "the runs do not fit: agents was 31, now it is 30"
        );
        assert_eq!(refused(&report("call", 30, &[])), "the runs do not fit: only this one has `cost` (us)");
        assert_eq!(
            refused(&report("call", 30, &[("cost", 1.0), ("rate", 1.0)])),
            "the runs do not fit: only the older one has `rate` (us)"
        );
    }

    #[test]
    fn a_report_reads_back_from_its_json() {
        let report = report("call", 30, &[("cost", 1.5)]);
        let read: Report = serde_json::from_slice(&serde_json::to_vec(&report).unwrap()).unwrap();
        assert!(table(&read, &report).is_ok());
        assert!(serde_json::from_str::<Report>("{\"figures\": []}").is_err());
    }
}
