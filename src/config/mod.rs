//! The configuration of the hub: one TOML file, with every key also as a variable of the environment.
//!
//! Loading collects every problem, each with its place and what to do, and gives a configuration only when
//! there is none. Paths in it, from the file or the environment, are relative to the folder of the file.

mod check;
mod problem;
mod sections;
mod source;

use std::net::SocketAddr;
use std::path::Path;

pub use problem::{MAX_FILE_BYTES, Problem};
pub(crate) use problem::{line_at, read_text};
pub use sections::{
    Agents, Audit, Breaker, Callbacks, Calls, Dedupe, Durable, Http, Limits, Liveness, LogFormat, Metrics,
    Policy, Store, Tracing,
};
pub use source::ENV_PREFIX;
use source::Source;

use crate::transport::tls::TlsFiles;

/// Everything that an operator decides. Read once at start; the files that it names may be read again.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The listener for agents.
    pub agents: Agents,
    /// Console and HTTP API; none without the section.
    pub http: Option<Http>,
    /// Prometheus; none without the section.
    pub metrics: Option<Metrics>,
    /// How silence is judged.
    pub liveness: Liveness,
    /// What one peer, and all together, may hold.
    pub limits: Limits,
    /// Defaults of a call.
    pub calls: Calls,
    /// When a failing capability is taken out.
    pub breaker: Breaker,
    /// Outcomes by request_id.
    pub dedupe: Dedupe,
    /// The database.
    pub store: Store,
    /// Webhooks.
    pub callbacks: Callbacks,
    /// The audit file.
    pub audit: Audit,
    /// Who may do what. [`Config::load`] requires it; `dev` has none.
    pub policy: Option<Policy>,
    /// Log and traces.
    pub tracing: Tracing,
}

impl Config {
    /// Loads and checks a configuration. `env` is the environment (see [`environment`]); variables that do
    /// not begin with [`ENV_PREFIX`] are left alone.
    ///
    /// # Errors
    /// Every problem that was found, in the order of the lines, those without a line first.
    pub fn load(path: &Path, env: impl IntoIterator<Item = (String, String)>) -> Result<Self, Vec<Problem>> {
        let text = read_text(path).map_err(|problem| vec![problem])?;
        Self::parse(path, &text, env, &REQUIRED)
    }

    /// The configuration of `agent-reach dev`: certificates that [`crate::certs::ensure_dev`] made in `dir`,
    /// everything else by default or from the environment. No policy: everybody may do everything under the
    /// own name.
    ///
    /// # Errors
    /// Every problem that was found, which the environment alone can cause.
    pub fn for_dev(
        dir: &Path,
        agents: SocketAddr,
        http: SocketAddr,
        metrics: SocketAddr,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, Vec<Problem>> {
        let env: Vec<_> = env.into_iter().collect();
        // Who only tries the hub out is left no file that grows.
        let audited = env.iter().any(|(name, _)| name.starts_with(AUDIT_VARIABLES));
        let audit = if audited { "" } else { "[audit]\nenabled = false\n" };
        let text = format!(
            "version = 1\n[agents]\nlisten = \"{agents}\"\ncert = \"hub.pem\"\nkey = \"hub-key.pem\"\n\
             client_ca = \"ca.pem\"\ncrl = \"crl.pem\"\n[http]\nlisten = \"{http}\"\n\
             [metrics]\nlisten = \"{metrics}\"\n{audit}"
        );
        Self::parse(&dir.join("dev.toml"), &text, env, &[])
    }

    fn parse(
        path: &Path,
        text: &str,
        env: impl IntoIterator<Item = (String, String)>,
        required: &[(&str, &str)],
    ) -> Result<Self, Vec<Problem>> {
        let env: Vec<_> = env.into_iter().collect();
        let mut source = Source::new(path, text, &env, &SECTIONS)?;
        let version = source.version();
        let mut config = Self {
            agents: source.section("agents").unwrap_or_default(),
            http: source.section("http"),
            metrics: source.section("metrics"),
            liveness: source.section("liveness").unwrap_or_default(),
            limits: source.section("limits").unwrap_or_default(),
            calls: source.section("calls").unwrap_or_default(),
            breaker: source.section("breaker").unwrap_or_default(),
            dedupe: source.section("dedupe").unwrap_or_default(),
            store: source.section("store").unwrap_or_default(),
            callbacks: source.section("callbacks").unwrap_or_default(),
            audit: source.section("audit").unwrap_or_default(),
            policy: source.section("policy"),
            tracing: source.section("tracing").unwrap_or_default(),
        };
        config.resolve(path.parent().unwrap_or(Path::new("")));
        check::version(&mut source, version);
        check::all(&mut source, &config, required);
        if source.problems.is_empty() {
            return Ok(config);
        }
        source.problems.sort_by(|a, b| (a.line, &a.key).cmp(&(b.line, &b.key)));
        Err(source.problems)
    }

    /// The files of the agent listener, for [`crate::transport::tls::server_config`].
    #[must_use]
    pub fn tls_files(&self) -> TlsFiles {
        let Agents { cert, key, client_ca, crl, tls12, .. } = &self.agents;
        TlsFiles {
            cert: cert.clone(),
            key: key.clone(),
            client_ca: client_ca.clone(),
            crl: crl.clone(),
            tls12: *tls12,
        }
    }

    fn resolve(&mut self, folder: &Path) {
        let Agents { cert, key, client_ca, crl, .. } = &mut self.agents;
        let mut paths = vec![cert, key, client_ca, &mut self.store.path, &mut self.audit.path];
        paths.extend([crl, &mut self.callbacks.secret_file, &mut self.callbacks.ca].into_iter().flatten());
        if let Some(Http { cert, key, tokens, .. }) = &mut self.http {
            paths.push(tokens);
            paths.extend([cert, key].into_iter().flatten());
        }
        paths.extend(self.policy.as_mut().map(|policy| &mut policy.file));
        for path in paths {
            *path = folder.join(&*path);
        }
    }
}

/// The variables of this process that [`Config::load`] looks at. Text that is not Unicode is taken as nearly
/// as it can be: it will be refused where it matters, instead of ending the process here.
#[must_use]
pub fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| name.starts_with(ENV_PREFIX))
        .collect()
}

/// What has to be written, with an example.
const REQUIRED: [(&str, &str); 5] = [
    ("agents.listen", "listen = \"0.0.0.0:7443\""),
    ("agents.cert", "cert = \"certs/hub.pem\""),
    ("agents.key", "key = \"certs/hub-key.pem\""),
    ("agents.client_ca", "client_ca = \"certs/ca.pem\""),
    ("policy.file", "file = \"policy.toml\""),
];

const SECTIONS: [&str; 13] = [
    "agents",
    "http",
    "metrics",
    "liveness",
    "limits",
    "calls",
    "breaker",
    "dedupe",
    "store",
    "callbacks",
    "audit",
    "policy",
    "tracing",
];

/// What the variables of the audit begin with.
const AUDIT_VARIABLES: &str = "AGENT_REACH__AUDIT__";

#[cfg(test)]
mod audit_tests;
#[cfg(test)]
mod tests;
