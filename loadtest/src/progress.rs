//! How far a run is, for who looks on: nothing of it where stderr is no terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often the bar is drawn while nothing happens.
const REDRAW: Duration = Duration::from_millis(250);

/// A bar on stderr with one unit for each measurement.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar for so many measurements.
    pub(crate) fn new(measurements: usize) -> Self {
        let bar = ProgressBar::new(measurements as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}") {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// Says what is done now.
    pub(crate) fn say(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
    }

    /// One measurement is done.
    pub(crate) fn done(&self) {
        self.bar.inc(1);
    }

    /// Lets time pass.
    pub(crate) fn wait(&self, span: Duration) {
        if self.bar.is_hidden() {
            return std::thread::sleep(span);
        }
        let began = Instant::now();
        while let Some(rest) = span.checked_sub(began.elapsed()).filter(|rest| !rest.is_zero()) {
            std::thread::sleep(rest.min(REDRAW));
            self.bar.tick();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
