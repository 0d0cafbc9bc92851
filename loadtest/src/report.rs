//! Figures: as a table for people, as JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

/// The most that a figure may be, and what is aimed at.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Bar {
    /// The most.
    pub(crate) limit: f64,
    /// The aim.
    pub(crate) aim: f64,
}

/// One figure, with its value in each repeat.
#[derive(Clone, Debug, Serialize)]
struct Figure {
    name: String,
    unit: &'static str,
    median: f64,
    values: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bar: Option<Bar>,
}

/// All figures of a run, in the order in which they were first given.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    command: String,
    machine: String,
    figures: Vec<Figure>,
    #[serde(skip)]
    places: BTreeMap<String, usize>,
}

impl Report {
    /// A report with no figures yet.
    ///
    /// # Errors
    /// When the machine cannot be described.
    pub(crate) fn new() -> Result<Self> {
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        Ok(Self {
            command: format!("loadtest {command}"),
            machine: crate::machine::describe()?,
            figures: Vec::new(),
            places: BTreeMap::new(),
        })
    }

    /// Adds one repeat's value of a figure.
    pub(crate) fn add(&mut self, name: &str, unit: &'static str, value: f64) {
        self.put(name, unit, value, None);
    }

    /// The same for a figure that is held to a bar.
    pub(crate) fn add_with_bar(&mut self, name: &str, unit: &'static str, value: f64, bar: Bar) {
        self.put(name, unit, value, Some(bar));
    }

    fn put(&mut self, name: &str, unit: &'static str, value: f64, bar: Option<Bar>) {
        let place = *self.places.entry(name.to_owned()).or_insert_with(|| {
            self.figures.push(Figure { name: name.to_owned(), unit, median: value, values: Vec::new(), bar });
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
            let verdict = match bar {
                Some(Bar { limit, aim }) if median <= aim => format!("met: at most {limit}, aim {aim}"),
                Some(Bar { limit, aim }) if median <= limit => format!("within {limit}, aim {aim} missed"),
                Some(Bar { limit, aim }) => format!("OVER {limit}, aim {aim}"),
                None => String::new(),
            };
            let all = match values.as_slice() {
                [_] => String::new(),
                all => format!("  [{}]", all.iter().map(|value| short(*value)).collect::<Vec<_>>().join(" ")),
            };
            let line = format!("{name:<width$}  {:>9} {unit:<7} {verdict}{all}", short(*median));
            // Writing to a String cannot fail.
            let _never = writeln!(out, "{}", line.trim_end());
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

fn short(value: f64) -> String {
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
    fn a_figure_is_the_median_of_its_repeats_and_is_held_to_its_bar() {
        let mut report = Report {
            command: "loadtest x".into(),
            machine: "m".into(),
            figures: Vec::new(),
            places: BTreeMap::new(),
        };
        for value in [30.0, 1.0, 2.0] {
            report.add_with_bar("cost", "us", value, Bar { limit: 4.0, aim: 1.5 });
            report.add("rate", "calls/s", value * 1000.0);
        }
        report.add("rate", "calls/s", 4000.0);
        assert_eq!(
            report.table(),
            "loadtest x\nm\n\n\
             cost       2.00 us      within 4, aim 1.5 missed  [30.0 1.00 2.00]\n\
             rate       3000 calls/s   [30000 1000 2000 4000]\n"
        );
    }
}
