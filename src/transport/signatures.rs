//! Signatures that are checked again and again, checked once.
//!
//! webpki checks the signature of a revocation list in each handshake that looks into it, which costs as much as
//! checking the certificate itself. A check is a pure function of key, message and signature: one that has held
//! holds for ever, so the last few are remembered, whole, and compared byte by byte. What is *in* a certificate
//! or list (its times, its serials) is judged anew each time.

use std::sync::{LazyLock, Mutex, PoisonError};

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm};

/// How many are remembered. Certificates of agents come and go among them; the lists and the authorities, which
/// every handshake asks for, are always the latest.
const REMEMBERED: usize = 16;

/// The algorithms for certificates and lists with a memory of what they have found good. Signatures of the handshake
/// itself are never the same twice, and go past it.
pub(super) fn remembering(algorithms: WebPkiSupportedAlgorithms) -> WebPkiSupportedAlgorithms {
    static ALL: LazyLock<Vec<Remembering>> = LazyLock::new(|| {
        let all = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.all;
        all.iter().map(|algorithm| Remembering { algorithm: *algorithm, good: Mutex::default() }).collect()
    });
    static DYN: LazyLock<Vec<&'static dyn SignatureVerificationAlgorithm>> =
        LazyLock::new(|| ALL.iter().map(|one| one as &dyn SignatureVerificationAlgorithm).collect());
    WebPkiSupportedAlgorithms { all: DYN.as_slice(), mapping: algorithms.mapping }
}

/// One algorithm and what it found good, the latest first.
#[derive(Debug)]
struct Remembering {
    algorithm: &'static dyn SignatureVerificationAlgorithm,
    good: Mutex<Vec<Good>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Good {
    signature: Box<[u8]>,
    public_key: Box<[u8]>,
    message: Box<[u8]>,
}

impl Good {
    fn is(&self, public_key: &[u8], message: &[u8], signature: &[u8]) -> bool {
        *self.signature == *signature && *self.public_key == *public_key && *self.message == *message
    }
}

impl SignatureVerificationAlgorithm for Remembering {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        {
            let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = good.iter().position(|good| good.is(public_key, message, signature)) {
                good.get_mut(..=at).unwrap_or_default().rotate_right(1);
                return Ok(());
            }
        }
        self.algorithm.verify_signature(public_key, message, signature)?;
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        good.truncate(REMEMBERED - 1);
        let (signature, public_key) = (signature.into(), public_key.into());
        good.insert(0, Good { signature, public_key, message: message.into() });
        Ok(())
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.signature_alg_id()
    }

    fn fips(&self) -> bool {
        self.algorithm.fips()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Good is what has the key in front of the message as its signature.
    #[derive(Debug, Default)]
    struct Counting {
        checked: AtomicUsize,
    }

    impl SignatureVerificationAlgorithm for Counting {
        fn verify_signature(
            &self,
            key: &[u8],
            message: &[u8],
            signature: &[u8],
        ) -> Result<(), InvalidSignature> {
            self.checked.fetch_add(1, Ordering::Relaxed);
            if signature == [key, message].concat() { Ok(()) } else { Err(InvalidSignature) }
        }

        fn public_key_alg_id(&self) -> AlgorithmIdentifier {
            rustls::pki_types::alg_id::ED25519
        }

        fn signature_alg_id(&self) -> AlgorithmIdentifier {
            rustls::pki_types::alg_id::ED25519
        }
    }

    fn remembering() -> (&'static Counting, Remembering) {
        let counting: &'static Counting = Box::leak(Box::default());
        (counting, Remembering { algorithm: counting, good: Mutex::default() })
    }

    #[test]
    fn a_good_signature_is_checked_once_and_a_bad_one_every_time() {
        let (counting, remembering) = remembering();
        for _ in 0..3 {
            assert!(remembering.verify_signature(b"k", b"m", b"km").is_ok());
            assert!(remembering.verify_signature(b"k", b"n", b"km").is_err());
            assert!(remembering.verify_signature(b"l", b"m", b"km").is_err());
            assert!(remembering.verify_signature(b"k", b"m", b"kn").is_err());
        }
        assert_eq!(counting.checked.load(Ordering::Relaxed), 1 + 3 * 3);
    }

    #[test]
    fn what_is_asked_for_each_time_is_not_pushed_out_by_what_is_asked_for_once() {
        let (counting, remembering) = remembering();
        for n in 0..1000_u16 {
            let leaf = n.to_be_bytes();
            assert!(remembering.verify_signature(b"k", b"list", b"klist").is_ok());
            assert!(remembering.verify_signature(b"k", &leaf, &[b"k", leaf.as_slice()].concat()).is_ok());
        }
        assert_eq!(counting.checked.load(Ordering::Relaxed), 1001, "the list once");
        assert_eq!(remembering.good.lock().unwrap().len(), REMEMBERED);
    }
}
