//! Lines of a stream of bytes, of bounded length.

use bytes::{Bytes, BytesMut};

/// A line is longer than it may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Takes bytes as they come and gives lines.
#[derive(Debug)]
pub(super) struct Lines {
    buffer: BytesMut,
    /// Bytes at the beginning of `buffer` that hold no line end: not looked at again.
    seen: usize,
    most: usize,
}

impl Lines {
    /// Lines of at most so many bytes.
    pub(super) fn new(most: usize) -> Self {
        Self { buffer: BytesMut::new(), seen: 0, most }
    }

    /// Takes what has come.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole line without its end; `None` when more has to come.
    ///
    /// # Errors
    /// [`TooLong`] when the line has too many bytes, whether its end has come or not.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        let fresh = self.buffer.get(self.seen..).unwrap_or_default();
        let Some(at) = fresh.iter().position(|byte| *byte == b'\n') else {
            self.seen = self.buffer.len();
            return if self.seen > self.most { Err(TooLong) } else { Ok(None) };
        };
        let end = self.seen + at;
        if end > self.most {
            return Err(TooLong);
        }
        self.seen = 0;
        let line = self.buffer.split_to(end + 1).freeze();
        Ok(Some(without_end(&line)))
    }

    /// What has come and is no whole line, cut at the bound where it is longer.
    pub(super) fn rest(&mut self) -> Option<Bytes> {
        self.seen = 0;
        let most = self.buffer.len().min(self.most.max(1));
        (most > 0).then(|| without_end(&self.buffer.split_to(most).freeze()))
    }
}

fn without_end(line: &Bytes) -> Bytes {
    let body = line.strip_suffix(b"\n").unwrap_or(line);
    let body = body.strip_suffix(b"\r").unwrap_or(body);
    line.slice_ref(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_however_the_bytes_are_cut() {
        let text = b"one\r\n\ntwo\nthree";
        for size in 1..=text.len() {
            let mut lines = Lines::new(5);
            let mut found = Vec::new();
            for part in text.chunks(size) {
                lines.push(part);
                while let Some(line) = lines.next().unwrap() {
                    found.push(line);
                }
            }
            found.extend(lines.rest());
            assert_eq!(found, [&b"one"[..], b"", b"two", b"three"], "{size}");
            assert_eq!(lines.rest(), None);
        }
    }

    #[test]
    fn a_line_over_the_bound_is_an_error_before_its_end_has_come() {
        let mut lines = Lines::new(3);
        lines.push(b"abc");
        assert_eq!(lines.next(), Ok(None));
        lines.push(b"d");
        assert_eq!(lines.next(), Err(TooLong));
        assert_eq!(lines.rest().as_deref(), Some(&b"abc"[..]), "it can be taken in parts");
        lines.push(b"\n");
        assert_eq!(lines.next().unwrap().as_deref(), Some(&b"d"[..]));
        lines.push(b"abcd\n");
        assert_eq!(lines.next(), Err(TooLong));
    }
}
