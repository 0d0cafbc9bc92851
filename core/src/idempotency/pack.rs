//! Ends that are kept, one behind the other in larger pieces of memory.
//!
//! What is kept is written once and, nearly always, never read: in a place of its own each end would be as many lines of
//! memory that are in no cache, twice, when it comes and when it goes. Behind one another they are written the way that
//! processors are good at, and their memory is given back once for all that lie in it.

use agent_reach_protocol::limits;
use bytes::{Bytes, BytesMut};

/// One piece of memory, in bytes.
const PIECE: usize = 64 * 1024;
/// A longer end has a place of its own: it stays where it is, shared with the connection that it is sent to.
const PACKED_MAX: usize = 4 * 1024;

/// The piece that fills now.
///
/// A piece lives for as long as its last end, so it has only ends of one `keep_ms`, which go in the order in which they
/// came: but for the piece whose ends go now and the one that fills, none holds memory of ends that have gone.
#[derive(Debug, Default)]
pub(crate) struct Pack(BytesMut);

impl Pack {
    /// An end, to be kept for `keep_ms`.
    pub(crate) fn keep(&mut self, end: &Bytes, keep_ms: u64) -> Bytes {
        if end.len() > PACKED_MAX || keep_ms != limits::KEEP_MS_MADE {
            return end.clone();
        }
        if self.0.capacity() < end.len() {
            self.0 = BytesMut::with_capacity(PIECE);
        }
        self.0.extend_from_slice(end);
        self.0.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_behind(one: &Bytes, other: &Bytes) -> bool {
        one.as_ptr_range().end == other.as_ptr()
    }

    #[test]
    fn usual_ends_lie_behind_one_another_until_their_piece_is_full() {
        let mut pack = Pack::default();
        let text = Bytes::from(vec![7; PACKED_MAX]);
        let kept: Vec<Bytes> =
            (0..=PIECE / PACKED_MAX).map(|_| pack.keep(&text, limits::KEEP_MS_MADE)).collect();
        assert!(kept.iter().all(|end| *end == text && end.as_ptr() != text.as_ptr()));
        let (last, full) = kept.split_last().unwrap();
        assert!(full.windows(2).all(|pair| is_behind(&pair[0], &pair[1])));
        assert!(!is_behind(full.last().unwrap(), last), "a new piece");
    }

    #[test]
    fn what_is_large_or_kept_for_another_time_is_not_copied() {
        let mut pack = Pack::default();
        let (small, large) = (Bytes::from(vec![7; 10]), Bytes::from(vec![7; PACKED_MAX + 1]));
        assert_eq!(pack.keep(&large, limits::KEEP_MS_MADE).as_ptr(), large.as_ptr());
        assert_eq!(pack.keep(&small, limits::KEEP_MS_MADE + 1).as_ptr(), small.as_ptr());
        assert_ne!(pack.keep(&small, limits::KEEP_MS_MADE).as_ptr(), small.as_ptr());
    }
}
