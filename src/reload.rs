//! Reading again, while the hub runs, what it was started with: certificates, revocation lists and the policy.
//!
//! All of it or nothing: what is read is checked as at the start, and only then put in the place of what was there. So a
//! file that cannot be used, or one half of a pair, changes nothing. A reload is asked for by SIGHUP and by
//! `hub.config.reload`, and happens by itself when a file is another one than before.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_reach_core::{Policy, Reloaded};
use aws_lc_rs::digest::{Context, SHA256};
use rustls::ServerConfig;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info};

use crate::access::Access;
use crate::audit::{Audit, Reload, Trigger};
use crate::config::{Config, Problem};
use crate::driver::Driver;
use crate::policy;
use crate::stamp::Stamp;
use crate::telemetry::metrics::Metrics;
use crate::tokens::Tokens;
use crate::transport::pem::{self, PemError};
use crate::transport::refusals::Refusals;
use crate::transport::tls::{self, TlsError, TlsFiles};
use crate::transport::trust::{AgentTls, Trust};
use crate::transport::validity;

/// How often the files are looked at. A file that is another one counts when two looks have seen the same of it, so that
/// one which is being written is left alone.
const LOOK: Duration = Duration::from_secs(1);
/// Largest file that is compared. Larger ones are no certificates and no policy, and loading them fails.
const COMPARED_BYTES: u64 = pem::MAX_PEM_BYTES + 1;

/// Why files cannot be used: each text names the file at fault.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Certificates again.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The policy, or tokens.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Policy(Vec<Problem>),
}

/// The files.
#[derive(Clone, Debug)]
pub struct Sources {
    tls: TlsFiles,
    /// Chain and key of the HTTP listener.
    http: Option<(PathBuf, PathBuf)>,
    /// `None`: everybody may do everything under the own name.
    policy: Option<PathBuf>,
    /// `None`: there is no HTTP listener, where they are shown.
    tokens: Option<PathBuf>,
    refusals: Option<Refusals>,
    /// The name of a token that stands in no file. Default: none.
    pub own_token: Option<&'static str>,
}

/// What is in them.
#[derive(Debug)]
pub struct Loaded {
    /// Of the agent listener.
    pub tls: AgentTls,
    /// Of the HTTP listener, where it has one.
    pub http: Option<Arc<ServerConfig>>,
    /// The rules, those of tokens among them.
    pub policy: Policy,
    /// Those of the HTTP listener.
    pub tokens: Tokens,
    /// Until when what is good, by the value of the metric's label, in seconds since 1970.
    expiries: Vec<(&'static str, i64)>,
    seen: Seen,
}

/// What tells these files from others.
#[derive(Debug)]
struct Seen {
    stamps: Vec<Option<Stamp>>,
    /// By key.
    digests: Vec<(&'static str, io::Result<[u8; 32]>)>,
}

impl Sources {
    /// Those of a configuration. `refusals`: who hears of certificates that the listener refuses.
    #[must_use]
    pub fn of(config: &Config, refusals: Option<Refusals>) -> Self {
        let http = config.http.as_ref().and_then(|http| Some((http.cert.clone()?, http.key.clone()?)));
        let policy = config.policy.as_ref().map(|policy| policy.file.clone());
        let tokens = config.http.as_ref().map(|http| http.tokens.clone());
        Self { tls: config.tls_files(), http, policy, tokens, refusals, own_token: None }
    }

    /// Each with its key in the configuration.
    fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let agents = [
            ("agents.cert", Some(&self.tls.cert)),
            ("agents.key", Some(&self.tls.key)),
            ("agents.client_ca", Some(&self.tls.client_ca)),
            ("agents.crl", self.tls.crl.as_ref()),
        ];
        let http = self.http.as_ref();
        let http = [("http.cert", http.map(|(cert, _)| cert)), ("http.key", http.map(|(_, key)| key))];
        let others = [("policy.file", self.policy.as_ref()), ("http.tokens", self.tokens.as_ref())];
        let all = agents.into_iter().chain(http).chain(others);
        all.filter_map(|(key, path)| Some((key, path?.as_path())))
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        self.files().map(|(_, path)| Stamp::of(path)).collect()
    }

    /// Reads and checks all of them. Waits for the disk.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn load(&self) -> Result<Loaded, LoadError> {
        // Looked at before they are read: what is written in between is a change then.
        let seen = Seen {
            stamps: self.stamps(),
            digests: self.files().map(|(key, path)| (key, digest(path))).collect(),
        };
        let tls = tls::server_config_told(&self.tls, self.refusals.clone())?;
        let http = match &self.http {
            Some((cert, key)) => Some(tls::http_server_config(cert, key)?),
            None => None,
        };
        let policy = match &self.policy {
            Some(file) => policy::load(file).map_err(LoadError::Policy)?,
            None => Policy::open(),
        };
        let tokens = match &self.tokens {
            Some(file) => Tokens::load(file).map_err(LoadError::Policy)?,
            None => Tokens::default(),
        };
        let tokens = match self.own_token {
            Some(name) => tokens.with_own(name),
            None => tokens,
        };
        let policy = tokens.govern(policy);
        Ok(Loaded { tls, http, policy, tokens, expiries: self.expiries()?, seen })
    }

    fn expiries(&self) -> Result<Vec<(&'static str, i64)>, LoadError> {
        let leaf = |path: &Path| -> Result<Option<i64>, PemError> {
            Ok(validity::not_after(pem::certs(path)?.get(..1).unwrap_or_default()))
        };
        let http = self.http.as_ref().map_or(Ok(None), |(cert, _)| leaf(cert))?;
        let crl = match &self.tls.crl {
            Some(crl) => validity::next_update(&pem::crls(crl)?),
            None => None,
        };
        let client_ca = validity::not_after(&pem::certs(&self.tls.client_ca)?);
        let all = [("agents", leaf(&self.tls.cert)?), ("client_ca", client_ca), ("crl", crl), ("http", http)];
        Ok(all.into_iter().filter_map(|(what, at)| Some((what, at?))).collect())
    }
}

fn digest(path: &Path) -> io::Result<[u8; 32]> {
    let mut context = Context::new(&SHA256);
    let mut file = File::open(path)?.take(COMPARED_BYTES);
    let mut piece = vec![0; 64 * 1024];
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            break;
        }
        context.update(piece.get(..read).unwrap_or_default());
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    Ok(out)
}

impl Loaded {
    /// Says until when what is good.
    pub fn tell(&self, metrics: &Metrics) {
        for (what, at) in &self.expiries {
            metrics.certificate_expiry(what, *at);
        }
    }
}

impl Seen {
    /// Keys of those that are not the same in both.
    fn changed(&self, other: &Self) -> Vec<&'static str> {
        let pairs = self.digests.iter().zip(&other.digests);
        let differ = pairs.filter(|((_, one), (_, other))| match (one, other) {
            (Ok(one), Ok(other)) => one != other,
            // Only tokens need no file.
            (Err(one), Err(other)) => one.kind() != other.kind(),
            (Err(_), Ok(_)) | (Ok(_), Err(_)) => true,
        });
        differ.map(|((key, _), _)| *key).collect()
    }
}

/// Who asks for a reload.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// A `hub.config.reload`, by the number that its answer needs.
    Operator(u64),
    /// SIGHUP.
    Signal,
}

/// Keeps a hub to what its files say.
pub struct Reloader {
    /// The files.
    pub sources: Sources,
    /// The hub.
    pub driver: Arc<Driver>,
    /// Its agent listener.
    pub trust: Arc<Trust>,
    /// Its HTTP listener, where that speaks TLS.
    pub http: Option<watch::Sender<Arc<ServerConfig>>>,
    /// Who is let in there.
    pub access: Arc<Access>,
    /// Its metrics.
    pub metrics: Arc<Metrics>,
    /// Its audit.
    pub audit: Option<Arc<Audit>>,
    /// Who asks.
    pub orders: mpsc::Receiver<Order>,
}

impl Reloader {
    /// Works until it is dropped. `live` is what counts now.
    pub async fn run(mut self, mut live: Live) {
        let mut suspected = None;
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Cancel-safe: an order that is not taken now is taken by the next turn.
            let order = tokio::select! {
                Some(order) = self.orders.recv() => Some(order),
                _ = looks.tick() => None,
            };
            if order.is_none() {
                let sources = self.sources.clone();
                let Ok(stamps) = tokio::task::spawn_blocking(move || sources.stamps()).await else { return };
                if stamps == live.seen.stamps {
                    suspected = None;
                    continue;
                }
                if suspected.as_ref() != Some(&stamps) {
                    suspected = Some(stamps);
                    continue;
                }
            }
            let outcome = self.reload(&mut live).await;
            self.note(order, &live, &outcome);
            if let Some(Order::Operator(number)) = order {
                self.driver.reloaded(number, outcome);
            }
        }
    }

    /// Has it written down.
    fn note(&self, order: Option<Order>, live: &Live, outcome: &Result<Reloaded, String>) {
        let Some(audit) = &self.audit else { return };
        audit.reloaded(&Reload {
            trigger: match order {
                Some(Order::Operator(_)) => Trigger::Call,
                Some(Order::Signal) => Trigger::Signal,
                None => Trigger::File,
            },
            changed: outcome.as_ref().map_or_else(|_| Vec::new(), |reloaded| reloaded.changed.clone()),
            policy_version: live.version,
            problem: outcome.as_ref().err().cloned(),
        });
    }

    async fn reload(&self, live: &mut Live) -> Result<Reloaded, String> {
        let sources = self.sources.clone();
        let loaded = tokio::task::spawn_blocking(move || (sources.stamps(), sources.load())).await;
        let loaded = loaded.map_err(|error| error.to_string()).and_then(|(stamps, loaded)| {
            // Once is enough for what cannot be used: it is read again when it is another one.
            live.seen.stamps = stamps;
            loaded.map_err(|error| error.to_string())
        });
        match loaded {
            Ok(loaded) => {
                let reloaded = self.apply(live, loaded).await;
                self.metrics.reload("completed");
                info!(changed = ?reloaded.changed, policy_version = reloaded.policy_version, "reloaded");
                Ok(reloaded)
            }
            Err(error) => {
                self.metrics.reload("failed");
                error!(error, "a reload has failed; what was loaded before counts");
                Err(error)
            }
        }
    }

    async fn apply(&self, live: &mut Live, loaded: Loaded) -> Reloaded {
        loaded.tell(&self.metrics);
        let changed = live.seen.changed(&loaded.seen);
        let keys: BTreeSet<&str> = changed.iter().copied().collect();
        let any = |wanted: &[&str]| wanted.iter().any(|key| keys.contains(key));
        let others = any(&["agents.client_ca", "agents.crl"]);
        if others || any(&["agents.cert", "agents.key"]) {
            self.trust.replace(loaded.tls, others);
        }
        if let (Some(http), Some(tls)) = (&self.http, loaded.http)
            && any(&["http.cert", "http.key"])
        {
            http.send_replace(tls);
        }
        *live = Live { version: loaded.policy.version, seen: loaded.seen };
        if any(&["http.tokens"]) {
            self.access.set_tokens(loaded.tokens);
        }
        if any(&["policy.file", "http.tokens"]) {
            self.driver.set_policy(loaded.policy);
        }
        if others {
            self.driver.wake_all().await;
        }
        Reloaded { policy_version: live.version, changed }
    }
}

/// What counts now, as far as it is compared with what is read next.
#[derive(Debug)]
pub struct Live {
    version: u64,
    seen: Seen,
}

impl Loaded {
    /// Takes out what a hub is started with.
    #[must_use]
    pub fn split(self) -> (AgentTls, Option<Arc<ServerConfig>>, Policy, Tokens, Live) {
        let live = Live { version: self.policy.version, seen: self.seen };
        (self.tls, self.http, self.policy, self.tokens, live)
    }
}
