//! The token in the link that `dev` prints.

use super::Hash;

/// Good for one session.
#[derive(Debug)]
pub(super) struct Link {
    hash: Option<Hash>,
}

impl Link {
    /// Of the token that has this hash.
    pub(super) const fn new(hash: Hash) -> Self {
        Self { hash: Some(hash) }
    }

    /// Whether that is the token, and it had not been used before: from now on it has.
    pub(super) fn use_up(&mut self, presented: &Hash) -> bool {
        self.hash.take_if(|own| own == presented).is_some()
    }
}
