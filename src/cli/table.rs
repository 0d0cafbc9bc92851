//! Tables for people.

use std::fmt::Write as _;

/// Names of a list that are shown before the rest is only counted.
const NAMES_SHOWN: usize = 6;

/// Rows under a head, as wide as they need.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With these column names.
    pub(super) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|name| (*name).to_owned()).collect()] }
    }

    /// Without a head: names and values.
    pub(super) const fn plain() -> Self {
        Self { rows: Vec::new() }
    }

    /// Adds a row; what is no text for a terminal is shown escaped.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| clean(&cell)).collect());
    }

    /// As text, the last line without its end.
    pub(super) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut lines = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                // Writing to a string does not fail.
                let _infallible = write!(line, "{cell:width$}  ");
            }
            lines.push(line.trim_end().to_owned());
        }
        lines.join("\n")
    }
}

/// Text that a peer chose, safe for a terminal: control characters are escaped.
pub(super) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Names after each other; of a long list the beginning.
pub(super) fn names<S: AsRef<str>>(all: &[S]) -> String {
    let shown: Vec<&str> = all.iter().take(NAMES_SHOWN).map(AsRef::as_ref).collect();
    match all.len().saturating_sub(NAMES_SHOWN) {
        0 if all.is_empty() => "-".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Labels as `k=v`.
pub(super) fn labels<'a>(all: impl IntoIterator<Item = (&'a String, &'a String)>) -> String {
    names(&all.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>())
}

/// How long ago, or for how long, in the unit that fits.
pub(super) fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{} s", ms / 1_000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} d", ms / 86_400_000),
    }
}

/// Microseconds as milliseconds.
pub(super) fn millis(us: u64) -> String {
    format!("{}.{:03} ms", us / 1_000, us % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["ID", "STATUS"]);
        table.row(["a-long-name".to_owned(), "ready".to_owned()]);
        table.row(["ä".to_owned(), "x".to_owned()]);
        assert_eq!(table.text(), "ID           STATUS\na-long-name  ready\nä            x");
    }

    #[test]
    fn a_peer_cannot_drive_the_terminal() {
        assert_eq!(clean("a\x1b[31mb\nc\u{9b}"), "a\\u{1b}[31mb\\nc\\u{9b}");
    }

    #[test]
    fn a_long_list_is_counted_and_an_empty_one_is_a_dash() {
        assert_eq!(names::<&str>(&[]), "-");
        assert_eq!(names(&["a", "b"]), "a, b");
        assert_eq!(names(&["1", "2", "3", "4", "5", "6", "7", "8"]), "1, 2, 3, 4, 5, 6 and 2 more");
    }

    #[test]
    fn times_are_told_in_the_unit_that_fits() {
        let spans = [999, 1_000, 119_999, 120_000, 7_200_000, 172_800_000].map(span);
        assert_eq!(spans, ["999 ms", "1 s", "119 s", "2 min", "2 h", "2 d"]);
        assert_eq!(millis(1_234_567), "1234.567 ms");
    }
}
