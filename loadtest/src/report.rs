//! Figures: as a table for people, as JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most that a figure may be, and what is aimed at. Where the aim is above the limit: the least.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Bar {
    /// The most, or the least.
    pub(crate) limit: f64,
    /// The aim.
    pub(crate) aim: f64,
}

impl Bar {
    fn verdict(self, value: f64) -> String {
        let Self { limit, aim } = self;
        let (most, side, missed) =
            if aim > limit { (false, "least", "UNDER") } else { (true, "most", "OVER") };
        let reaches = |bar: f64| if most { value <= bar } else { value >= bar };
        match (reaches(limit), reaches(aim)) {
            (_, true) => format!("met: at {side} {limit}, aim {aim}"),
            (true, false) => format!("within {limit}, aim {aim} missed"),
            (false, false) => format!("{missed} {limit}, aim {aim}"),
        }
    }
}

/// One figure, with its value in each repeat.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// What it is.
    pub(crate) name: String,
    /// What it counts.
    pub(crate) unit: String,
    /// The median of its values.
    pub(crate) median: f64,
    values: Vec<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bar: Option<Bar>,
}

/// All figures of a run, in the order in which they were first given.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Name of the scenario.
    pub(crate) scenario: String,
    /// What load it was: the arguments on which figures depend.
    pub(crate) load: BTreeMap<String, Value>,
    /// The command as it was given.
    pub(crate) command: String,
    /// The machine it ran on, and what else that did.
    pub(crate) machine: String,
    /// The figures.
    pub(crate) figures: Vec<Figure>,
    /// What has to be known to read them, by what it is about.
    notes: BTreeMap<String, String>,
    #[serde(skip)]
    places: BTreeMap<String, usize>,
}

impl Report {
    /// A report with no figures yet, of a run on this machine.
    ///
    /// # Errors
    /// When the machine cannot be described.
    pub(crate) fn new(scenario: &str, load: &impl Serialize) -> Result<Self> {
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        let mut report = Self::of(scenario, load)?;
        report.command = format!("loadtest {command}");
        report.machine = crate::machine::describe()?;
        Ok(report)
    }

    /// The same, of no machine.
    ///
    /// # Errors
    /// When the load is no map.
    pub(crate) fn of(scenario: &str, load: &impl Serialize) -> Result<Self> {
        Ok(Self {
            scenario: scenario.to_owned(),
            load: serde_json::from_value(serde_json::to_value(load)?)?,
            command: String::new(),
            machine: String::new(),
            figures: Vec::new(),
            notes: BTreeMap::new(),
            places: BTreeMap::new(),
        })
    }

    /// Adds what has to be known to read the figures on something.
    pub(crate) fn note(&mut self, about: &str, note: Option<String>) {
        self.notes.extend(note.map(|note| (about.to_owned(), note)));
    }

    /// Adds one repeat's value of a figure.
    pub(crate) fn add(&mut self, name: &str, unit: &str, value: f64) {
        self.put(name, unit, value, None);
    }

    /// The same for a figure that may be held to a bar.
    pub(crate) fn put(&mut self, name: &str, unit: &str, value: f64, bar: Option<Bar>) {
        let place = *self.places.entry(name.to_owned()).or_insert_with(|| {
            let (name, unit) = (name.to_owned(), unit.to_owned());
            self.figures.push(Figure { name, unit, median: value, values: Vec::new(), bar });
            self.figures.len() - 1
        });
        if let Some(figure) = self.figures.get_mut(place) {
            figure.values.push(value);
            figure.median = median(&figure.values);
        }
    }

    /// Prints the table, and writes the JSON where it is wanted.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn publish(&self, json: Option<&Path>) -> Result<()> {
        std::io::stdout().lock().write_all(self.table().as_bytes())?;
        match json {
            Some(path) => std::fs::write(path, serde_json::to_vec_pretty(self)?)
                .with_context(|| path.display().to_string()),
            None => Ok(()),
        }
    }

    fn table(&self) -> String {
        let mut out = format!("{}\n{}\n\n", self.command, self.machine);
        let width = self.figures.iter().map(|figure| figure.name.len()).max().unwrap_or_default();
        for Figure { name, unit, median, values, bar } in &self.figures {
            let verdict = bar.map_or_else(String::new, |bar| bar.verdict(*median));
            let all = match values.as_slice() {
                [_] => String::new(),
                all => format!("  [{}]", all.iter().map(|value| short(*value)).collect::<Vec<_>>().join(" ")),
            };
            let line = format!("{name:<width$}  {:>9} {unit:<7} {verdict}{all}", short(*median));
            // Writing to a String cannot fail.
            let _never = writeln!(out, "{}", line.trim_end());
        }
        for (about, note) in &self.notes {
            let _never = writeln!(out, "note, {about}: {note}");
        }
        out
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    if sorted.len().is_multiple_of(2) { (at(middle.wrapping_sub(1)) + at(middle)) / 2.0 } else { at(middle) }
}

/// A value with three digits.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_whose_aim_is_above_its_limit_is_the_least_that_a_figure_may_be() {
        let least = Bar { limit: 5.0, aim: 10.0 };
        let said = [4.0, 5.0, 10.0].map(|value| least.verdict(value));
        assert_eq!(said, ["UNDER 5, aim 10", "within 5, aim 10 missed", "met: at least 5, aim 10"]);
        assert_eq!(Bar { limit: 5.0, aim: 5.0 }.verdict(5.1), "OVER 5, aim 5");
    }

    #[test]
    fn a_figure_is_the_median_of_its_repeats_and_is_held_to_its_bar() {
        let mut report = Report::of("x", &BTreeMap::<String, u32>::new()).unwrap();
        report.command = "loadtest x".into();
        report.machine = "m".into();
        for value in [30.0, 1.0, 2.0] {
            report.put("cost", "us", value, Some(Bar { limit: 4.0, aim: 1.5 }));
            report.add("rate", "calls/s", value * 1000.0);
        }
        report.add("rate", "calls/s", 4000.0);
        report.note("rate", None);
        report.note("rate", Some("the load was slow".into()));
        assert_eq!(
            report.table(),
            "loadtest x\nm\n\n\
             cost       2.00 us      within 4, aim 1.5 missed  [30.0 1.00 2.00]\n\
             rate       3000 calls/s   [30000 1000 2000 4000]\n\
             note, rate: the load was slow\n"
        );
    }
}
