//! Bytes as a row of choices. A script that has ended chooses the first of everything.

pub(crate) struct Script<'a> {
    rest: &'a [u8],
}

impl<'a> Script<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// One of these, or nothing: every second time.
    pub(crate) fn maybe<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        let byte = usize::from(self.byte());
        (byte % 2 == 1).then(|| choices[byte / 2 % choices.len()])
    }

    /// Up to 255 bytes as they are.
    pub(crate) fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.rest.len());
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }
}
