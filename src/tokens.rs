//! Tokens: who comes to the HTTP listener without a certificate.
//!
//! ```toml
//! version = 1
//! [tokens.alice]
//! role = "operator"
//! hash = "$argon2id$v=19$…"
//! ```
//!
//! A token is `NAME.SECRET`; the file has the hash of the secret alone. Who shows it is the identity `token:NAME` and the
//! agent NAME, may offer nothing, and may call what its role says. `agent-reach token add` writes the file.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::path::Path;

use agent_reach_core::{ALL_TASKS, Policy, Rule, TOKEN_PREFIX};
use agent_reach_protocol::names::{Pattern, is_agent_id};
use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::config::{Problem, line_at, read_text};

/// Most tokens of a file.
pub const MAX_TOKENS: usize = 1000;
/// Bytes of a secret, and of the salt of its hash.
const SECRET_BYTES: usize = 32;
const SALT_BYTES: usize = 16;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees everything, changes nothing.
    Viewer,
    /// May call everything.
    Operator,
}

/// What a viewer may call: what only reads.
const READING: [&str; 10] = [
    "hub.agents.list",
    "hub.agents.get",
    "hub.calls.list",
    "hub.capabilities.list",
    "hub.events.watch",
    "hub.stats",
    "hub.tasks.get",
    "hub.tasks.list",
    "hub.tasks.watch",
    "hub.traces.get",
];

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
        })
    }
}

impl Role {
    /// Patterns of what it may call.
    #[must_use]
    pub fn calls(self) -> Vec<String> {
        let patterns: &[&str] = match self {
            Self::Viewer => &READING,
            Self::Operator => &["*", "hub.*", ALL_TASKS],
        };
        patterns.iter().map(|pattern| (*pattern).to_owned()).collect()
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Token {
    role: Role,
    hash: String,
}

/// Tells a token from others that had its name before, or will have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    role: Role,
    /// None of the hub's own.
    hash: Option<String>,
}

impl Stamp {
    /// Stands for it where it is written down.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let hash = self.hash.as_deref();
        let text = format!("{} {} {}", self.role, hash.is_some(), hash.unwrap_or_default());
        let mut out = [0; 32];
        out.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        out
    }
}

/// The tokens of a file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    version: u64,
    #[serde(default)]
    tokens: BTreeMap<String, Token>,
    /// The name under which the hub itself lets in an operator.
    #[serde(skip)]
    own: Option<String>,
}

impl Default for Tokens {
    fn default() -> Self {
        Self { version: 1, tokens: BTreeMap::new(), own: None }
    }
}

/// Why a token could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// There is one.
    #[error("{0:?} has a token already; take its section out of the file to revoke it")]
    Exists(String),
    /// The name is no agent_id.
    #[error("{0:?} is no name for a token; write 1 to 128 letters, digits and _ - : @ + ~, and no dot")]
    Name(String),
    /// No room.
    #[error("the file has {MAX_TOKENS} tokens already")]
    Full,
    /// The system has no randomness, or the hash cannot be made.
    #[error("the token cannot be made: {0}")]
    Make(String),
    /// The file cannot be written.
    #[error("{path}: cannot be written: {source}")]
    Write {
        /// Which.
        path: String,
        /// What the system says.
        source: std::io::Error,
    },
}

impl Tokens {
    /// Reads a file. One that is not there has no tokens.
    ///
    /// # Errors
    /// Every problem that was found.
    pub fn load(path: &Path) -> Result<Self, Vec<Problem>> {
        match path.try_exists() {
            Ok(false) => Ok(Self::default()),
            Ok(true) | Err(_) => {
                let text = read_text(path).map_err(|problem| vec![problem])?;
                Self::parse(&path.display().to_string(), &text)
            }
        }
    }

    fn parse(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let problem =
            |line, key: String, message: String| Problem { file: file.to_owned(), line, key, message };
        let tokens: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| line_at(text, span.start));
            vec![problem(line, String::new(), error.message().replace('\n', " "))]
        })?;
        let mut problems = Vec::new();
        if tokens.version != 1 {
            problems.push(problem(None, "version".into(), "is not 1, the only one there is".into()));
        }
        if tokens.tokens.len() > MAX_TOKENS {
            problems.push(problem(None, "tokens".into(), format!("has more than {MAX_TOKENS}")));
        }
        for (name, token) in &tokens.tokens {
            let key = format!("tokens.{name:?}");
            if !is_name(name) {
                problems.push(problem(None, key.clone(), TokenError::Name(name.clone()).to_string()));
            }
            if PasswordHash::new(&token.hash).is_err() {
                let message = "is no hash of a token; make it with agent-reach token add";
                problems.push(problem(None, format!("{key}.hash"), message.into()));
            }
        }
        if problems.is_empty() { Ok(tokens) } else { Err(problems) }
    }

    /// Makes a token and notes its hash. Gives the token, which is written nowhere else.
    ///
    /// # Errors
    /// When the name has one already, or is none.
    pub fn add(&mut self, name: &str, role: Role) -> Result<String, TokenError> {
        if !is_name(name) {
            return Err(TokenError::Name(name.to_owned()));
        }
        if self.tokens.contains_key(name) {
            return Err(TokenError::Exists(name.to_owned()));
        }
        if self.tokens.len() >= MAX_TOKENS {
            return Err(TokenError::Full);
        }
        let (mut secret, mut salt) = ([0; SECRET_BYTES], [0; SALT_BYTES]);
        let random = SystemRandom::new();
        let filled = random.fill(&mut secret).and_then(|()| random.fill(&mut salt));
        filled.map_err(|error| TokenError::Make(error.to_string()))?;
        let secret = URL_SAFE_NO_PAD.encode(secret);
        let hash = Argon2::default().hash_password_with_salt(secret.as_bytes(), &salt);
        let hash = hash.map_err(|error| TokenError::Make(error.to_string()))?.to_string();
        self.tokens.insert(name.to_owned(), Token { role, hash });
        Ok(format!("{name}.{secret}"))
    }

    /// Writes a file, mode 0600, whole or not at all.
    ///
    /// # Errors
    /// [`TokenError::Write`].
    pub fn write(&self, path: &Path) -> Result<(), TokenError> {
        let failed = |source| TokenError::Write { path: path.display().to_string(), source };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).map_err(failed)?;
        let text = toml::to_string(self).map_err(|error| failed(std::io::Error::other(error)))?;
        file.write_all(
            b"# Hashes of tokens: agent-reach token add. Without its section a token is revoked.\n",
        )
        .and_then(|()| file.write_all(text.as_bytes()))
        .and_then(|()| file.as_file().sync_all())
        .map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        Ok(())
    }

    /// Whose token this is. Takes tens of milliseconds of a processor, also for a name that has none: how long it took
    /// says nothing of which names there are.
    #[must_use]
    pub fn verify(&self, presented: &str) -> Option<&str> {
        let (name, secret) = presented.split_once('.').unwrap_or((presented, ""));
        let known = self.tokens.get_key_value(name);
        let hash = known.map_or(NOBODY, |(_, token)| token.hash.as_str());
        let hash = PasswordHash::new(hash).ok()?;
        let good = Argon2::default().verify_password(secret.as_bytes(), &hash).is_ok();
        known.map(|(name, _)| name.as_str()).filter(|_| good)
    }

    /// Puts the rules of these tokens before all others of a policy, so that none of those gives a token more.
    #[must_use]
    pub fn govern(&self, mut policy: Policy) -> Policy {
        let own = self.own.iter().map(|name| (name.as_str(), Role::Operator));
        let own = own.chain(self.roles()).map(|(name, role)| Rule {
            identity: Some(format!("{TOKEN_PREFIX}{name}")),
            agent_ids: None,
            provide: Vec::new(),
            call: role.calls().iter().filter_map(|text| text.parse::<Pattern>().ok()).collect(),
        });
        policy.rules.splice(0..0, own);
        policy
    }

    /// The same, with a name of the hub's own whose token stands in no file: whoever is let in under it is an operator. A
    /// token of the file with that name does not count.
    #[must_use]
    pub fn with_own(mut self, name: &str) -> Self {
        self.tokens.remove(name);
        self.own = Some(name.to_owned());
        self
    }

    /// That name.
    #[must_use]
    pub fn own(&self) -> Option<&str> {
        self.own.as_deref()
    }

    /// What the token of a name is for.
    #[must_use]
    pub fn role(&self, name: &str) -> Option<Role> {
        self.stamp(name).map(|stamp| stamp.role)
    }

    /// Tells the token that a name has now from others.
    #[must_use]
    pub fn stamp(&self, name: &str) -> Option<Stamp> {
        if self.own() == Some(name) {
            return Some(Stamp { role: Role::Operator, hash: None });
        }
        self.tokens.get(name).map(|token| Stamp { role: token.role, hash: Some(token.hash.clone()) })
    }

    /// Takes over a token of others, as a file would that is edited by hand.
    #[cfg(test)]
    pub(crate) fn adopt(&mut self, others: &Self, name: &str) {
        let token = others.tokens.get(name).cloned();
        self.tokens.extend(token.map(|token| (name.to_owned(), token)));
    }

    /// Each name with what its token is for.
    pub fn roles(&self) -> impl Iterator<Item = (&str, Role)> {
        self.tokens.iter().map(|(name, token)| (name.as_str(), token.role))
    }
}

/// Whether that can be the name of a token. A dot ends it there.
pub(crate) fn is_name(name: &str) -> bool {
    is_agent_id(name) && !name.contains('.')
}

/// A hash that nothing fits, with the usual costs.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5bm9ib2R5bm8$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

#[cfg(test)]
mod tests {
    use agent_reach_core::HUB_CAPABILITIES;

    use super::*;

    #[test]
    fn a_token_proves_its_name_and_the_file_does_not_have_it() {
        let mut tokens = Tokens::default();
        let alice = tokens.add("alice", Role::Operator).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.toml");
        tokens.write(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let secret = alice.strip_prefix("alice.").unwrap();
        assert!(!text.contains(secret) && secret.len() >= 40, "{text}");
        let read = Tokens::load(&path).unwrap();
        assert_eq!(read.verify(&alice), Some("alice"));
        assert_eq!(read.roles().collect::<Vec<_>>(), [("alice", Role::Operator)]);
        for wrong in ["alice", "alice.", "bob.x", "", &alice[..alice.len() - 1], &format!("bob.{secret}")] {
            assert_eq!(read.verify(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_name_has_one_token_and_no_dot() {
        let mut tokens = Tokens::default();
        tokens.add("alice", Role::Viewer).unwrap();
        assert!(matches!(tokens.add("alice", Role::Operator), Err(TokenError::Exists(_))));
        for name in ["", "a.b", "a b", "a*"] {
            assert!(matches!(tokens.add(name, Role::Viewer), Err(TokenError::Name(_))), "{name:?}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_has_none_and_a_broken_one_is_told() {
        assert_eq!(Tokens::load(Path::new("/nowhere/tokens.toml")).unwrap().verify("a.b"), None);
        let problems = |text: &str| {
            Tokens::parse("t", text).unwrap_err().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(problems("version = 1\n[tokens.a]\nrole = \"king\"\nhash = \"x\"\n")[0].starts_with("t:3: "));
        assert_eq!(problems("version = 2\n"), ["t: version: is not 1, the only one there is"]);
        let told = problems("version = 1\n[tokens.\"a.b\"]\nrole = \"viewer\"\nhash = \"x\"\n");
        assert_eq!(told.len(), 2, "{told:?}");
    }

    #[test]
    fn nobody_fits_the_hash_of_nobody() {
        assert!(PasswordHash::new(NOBODY).is_ok());
    }

    #[test]
    fn a_role_goes_before_every_rule_and_a_viewer_changes_nothing() {
        let mut tokens = Tokens::default();
        tokens.add("eve", Role::Viewer).unwrap();
        tokens.add("op", Role::Operator).unwrap();
        let policy = tokens.govern(Policy::open());
        let calls = |identity: &str, name: &str| {
            let rule =
                policy.rules.iter().find(|rule| rule.identity.as_deref().is_none_or(|own| own == identity));
            rule.unwrap().call.iter().any(|pattern| pattern.covers(name))
        };
        let changing = [
            "hub.agents.disconnect",
            "hub.agents.drain",
            "hub.config.reload",
            "hub.tasks.all",
            "hub.tasks.cancel",
            "hub.tasks.retry",
            "order.create",
        ];
        for name in changing {
            assert!(!calls("token:eve", name) && calls("token:op", name), "{name}");
        }
        for name in HUB_CAPABILITIES.iter().filter(|name| !changing.contains(name)) {
            assert!(calls("token:eve", name) && calls("token:op", name), "{name}");
        }
    }
}
