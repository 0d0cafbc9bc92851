//! What the demo looks like: plain text, with colours on a terminal only.

use std::io::IsTerminal;
use std::time::Duration;

use tokio::time::Instant;

use crate::cli::output;

/// The longest that a step may take before it counts as failed.
const STEP: Duration = Duration::from_secs(20);
/// Room before what belongs to a step.
const INDENT: &str = "       ";

/// Where the demo writes, and how its steps went.
pub(super) struct Screen {
    colour: bool,
    steps: usize,
    begun: usize,
    failed: usize,
}

#[derive(Clone, Copy)]
enum Style {
    Bold,
    Dim,
    Good,
    Bad,
}

impl Screen {
    /// For so many steps.
    pub(super) fn new(steps: usize) -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
        Self { colour: wanted && std::io::stdout().is_terminal(), steps, begun: 0, failed: 0 }
    }

    /// One line. That nobody reads it stops nothing: the exit code counts.
    pub(super) fn line(&self, text: &str) {
        let _nobody_reads = output::line(text);
    }

    /// A line that stands out.
    pub(super) fn head(&self, text: &str) {
        self.line(&self.styled(Style::Bold, text));
    }

    /// A line that explains.
    pub(super) fn note(&self, text: &str) {
        self.line(&format!("{INDENT}{}", self.styled(Style::Dim, text)));
    }

    /// What the caller does in a step.
    pub(super) fn asks(&self, text: &str) {
        self.line(&format!("{INDENT}> {text}"));
    }

    /// What comes back in a step.
    pub(super) fn gets(&self, text: &str) {
        self.line(&format!("{INDENT}< {text}"));
    }

    /// Begins a line of what comes back, to be continued piece by piece and ended with [`Self::line`].
    pub(super) fn begins(&self) {
        self.piece(&format!("{INDENT}<"));
    }

    /// A piece of the line that was begun.
    pub(super) fn piece(&self, text: &str) {
        let _nobody_reads = output::part(text);
    }

    /// Several lines of a step.
    pub(super) fn block(&self, text: &str) {
        for line in text.lines() {
            self.line(&format!("{INDENT}  {line}"));
        }
    }

    /// Runs a step and tells how it went and how long it took.
    pub(super) async fn step(
        &mut self,
        title: &str,
        note: &str,
        step: impl AsyncFnOnce(&Self) -> Result<(), String>,
    ) {
        self.begun += 1;
        self.line("");
        self.head(&format!("[{}/{}]  {title}", self.begun, self.steps));
        self.note(note);
        let begun = Instant::now();
        let done = tokio::time::timeout(STEP, step(self))
            .await
            .unwrap_or_else(|_| Err(format!("it did not end within {} s", STEP.as_secs())));
        let took = millis(begun.elapsed());
        match done {
            Ok(()) => self.line(&format!("{INDENT}{}", self.styled(Style::Good, &format!("ok, {took}")))),
            Err(why) => {
                self.failed += 1;
                self.line(&format!("{INDENT}{} after {took}: {why}", self.styled(Style::Bad, "FAILED")));
            }
        }
    }

    /// Whether every step was run and went as it should.
    pub(super) const fn all_good(&self) -> bool {
        self.failed == 0 && self.begun == self.steps
    }

    fn styled(&self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Good => "32",
            Style::Bad => "1;31",
        };
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// A time as milliseconds, as exact as it is of interest.
pub(super) fn millis(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1_000.0;
    if ms < 100.0 { format!("{ms:.2} ms") } else { format!("{ms:.0} ms") }
}
