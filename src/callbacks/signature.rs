//! Signatures of webhooks, as [Standard Webhooks](https://www.standardwebhooks.com) has them: HMAC-SHA256 over
//! `id.timestamp.payload`, in base64, one signature for each secret.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD as BASE64};
use tracing::{info, warn};

use crate::stamp::Stamp;

/// What every secret begins with.
pub const PREFIX: &str = "whsec_";
/// Most secrets of a file. Two are enough to rotate.
pub const SECRETS_MAX: usize = 16;
/// Shortest and longest secret, in bytes behind the base64.
pub const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Largest file of secrets, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Secrets are handed around by hand: the `=` at their end may be missing.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Why a file of secrets cannot be used. No text holds any part of a secret.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A line is no secret.
    #[error("{}:{line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The file as a whole holds too little or too much.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// The secrets to sign with, at least one. The first signs first.
#[derive(Debug)]
pub struct Keys(Vec<hmac::Key>);

impl Keys {
    /// Reads a file: `whsec_` and base64 on each line; empty lines and those that begin with `#` are left out.
    ///
    /// # Errors
    /// [`KeysError`] with the line at fault.
    pub fn load(path: &Path) -> Result<Self, KeysError> {
        let read = |source| KeysError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(read)?;
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(read)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(KeysError::File { path: path.to_owned(), reason: "is larger than 64 KiB" });
        }
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, KeysError> {
        let wrong = |reason| KeysError::File { path: path.to_owned(), reason };
        let mut keys = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if keys.len() == SECRETS_MAX {
                return Err(wrong("holds more than 16 secrets"));
            }
            let key = key(line);
            keys.push(key.map_err(|reason| KeysError::Line {
                path: path.to_owned(),
                line: at + 1,
                reason,
            })?);
        }
        if keys.is_empty() {
            return Err(wrong("holds no secret; write whsec_ and base64 into it"));
        }
        Ok(Self(keys))
    }

    /// What the header `webhook-signature` says: `v1,` and base64 for each secret, with spaces between.
    /// `timestamp` is in seconds since the Unix epoch.
    pub fn sign(&self, id: &str, timestamp: u64, payload: &[u8]) -> String {
        let head = format!("{id}.{timestamp}.");
        let one = |key: &hmac::Key| {
            let mut context = hmac::Context::with_key(key);
            context.update(head.as_bytes());
            context.update(payload);
            format!("v1,{}", BASE64.encode(context.sign()))
        };
        self.0.iter().map(one).collect::<Vec<_>>().join(" ")
    }
}

fn key(line: &str) -> Result<hmac::Key, &'static str> {
    let text = line.strip_prefix(PREFIX).ok_or("does not begin with whsec_")?;
    let secret = LENIENT.decode(text).map_err(|_| "has no base64 behind whsec_")?;
    if !SECRET_BYTES.contains(&secret.len()) {
        return Err("is not of 24 to 64 bytes behind the base64");
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &secret))
}

/// The secrets of a file that is read again when it has changed, so that they are rotated without a restart.
#[derive(Debug)]
pub struct Secrets {
    path: PathBuf,
    stamp: Option<Stamp>,
    keys: Arc<Keys>,
}

impl Secrets {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// [`KeysError`] when it holds nothing to sign with.
    pub fn load(path: &Path) -> Result<Self, KeysError> {
        // Looked at before it is read: what is written in between is a change then.
        let stamp = Stamp::of(path);
        Ok(Self { path: path.to_owned(), stamp, keys: Arc::new(Keys::load(path)?) })
    }

    /// What to sign with now. A look at the file's metadata, and at the file only when they have changed. A file
    /// that cannot be used changes nothing, and is logged once.
    pub fn keys(&mut self) -> Arc<Keys> {
        let stamp = Stamp::of(&self.path);
        if stamp != self.stamp {
            self.stamp = stamp;
            match Keys::load(&self.path) {
                Ok(keys) => {
                    self.keys = Arc::new(keys);
                    info!(secrets = self.keys.0.len(), "the secrets of webhooks have been read again");
                }
                Err(error) => warn!(%error, "new secrets of webhooks cannot be used; the old ones stay"),
            }
        }
        Arc::clone(&self.keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn keys(text: &str) -> Result<Keys, String> {
        Keys::parse(text, Path::new("secrets")).map_err(|error| error.to_string())
    }

    /// A secret of so many bytes.
    fn secret(bytes: usize) -> String {
        format!("{PREFIX}{}", BASE64.encode(vec![7; bytes]))
    }

    #[test]
    fn a_signature_is_that_of_the_standard() {
        // The example that the libraries of the standard are tested with.
        let keys = keys(SECRET).unwrap();
        let signature = keys.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn every_secret_signs_and_the_first_is_first() {
        let (old, new) = (secret(24), secret(64));
        let both = keys(&format!("# since May\n{new}\n\n  # until June\n  {old}  \r\n")).unwrap();
        let alone = |one: &str| keys(one).unwrap().sign("id", 1, b"x");
        assert_eq!(both.sign("id", 1, b"x"), format!("{} {}", alone(&new), alone(&old)));
    }

    #[test]
    fn id_time_and_payload_are_all_signed() {
        let keys = keys(SECRET).unwrap();
        let signature = keys.sign("id", 1, b"x");
        for other in [keys.sign("ie", 1, b"x"), keys.sign("id", 2, b"x"), keys.sign("id", 1, b"y")] {
            assert_ne!(other, signature);
        }
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_with_the_line_and_without_the_secret() {
        let (short, long) = (secret(23), secret(65));
        let bytes = "is not of 24 to 64 bytes behind the base64";
        let table = [
            (String::new(), "secrets: holds no secret; write whsec_ and base64 into it".to_owned()),
            (
                "# nothing\n".to_owned(),
                "secrets: holds no secret; write whsec_ and base64 into it".to_owned(),
            ),
            (format!("{SECRET}\nhunter2"), "secrets:2: does not begin with whsec_".to_owned()),
            (format!("#\n\n{PREFIX}***"), "secrets:3: has no base64 behind whsec_".to_owned()),
            (PREFIX.to_owned(), format!("secrets:1: {bytes}")),
            (short, format!("secrets:1: {bytes}")),
            (long, format!("secrets:1: {bytes}")),
            (format!("{SECRET}\n").repeat(17), "secrets: holds more than 16 secrets".to_owned()),
        ];
        for (text, problem) in table {
            assert_eq!(keys(&text).unwrap_err(), problem);
        }
        assert!(keys(&format!("{SECRET}\n").repeat(16)).is_ok());
        assert!(keys(secret(25).trim_end_matches('=')).is_ok(), "padding may be missing");
    }

    #[test]
    fn a_file_over_the_limit_is_not_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = format!("{SECRET}\n#{}", "x".repeat(64 * 1024 - SECRET.len() - 2));
        std::fs::write(file.path(), &text).unwrap();
        assert!(Keys::load(file.path()).is_ok());
        std::fs::write(file.path(), text + "x").unwrap();
        assert!(Keys::load(file.path()).unwrap_err().to_string().ends_with("is larger than 64 KiB"));
    }

    #[test]
    fn secrets_are_rotated_while_the_hub_runs_and_a_bad_file_keeps_the_old_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets");
        let put = |text: &str| {
            let new = dir.path().join("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(new, &path).unwrap();
        };
        let (first, second) = (secret(24), secret(32));
        put(&first);
        let mut secrets = Secrets::load(&path).unwrap();
        let old = secrets.keys().sign("id", 1, b"x");
        assert!(Arc::ptr_eq(&secrets.keys(), &secrets.keys()), "an unchanged file is not read again");
        put("nonsense");
        assert_eq!(secrets.keys().sign("id", 1, b"x"), old);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(secrets.keys().sign("id", 1, b"x"), old);
        put(&format!("{second}\n{first}"));
        let new = secrets.keys().sign("id", 1, b"x");
        assert!(new.ends_with(&format!(" {old}")), "{new}");
    }
}
