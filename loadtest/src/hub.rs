//! The hub under load: the real binary, `serve`, with a configuration and certificates of its own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::client::Endpoint;
use crate::dialect::Dialect;

/// Its configuration, and its store by default, in its directory.
pub(crate) const CONFIG: &str = "agent-reach.toml";
const STORE: &str = "agent-reach.db";
/// Everybody may do everything under the name in the certificate.
pub(crate) const POLICY: &str =
    "version = 1\n[[rules]]\nidentity = \"*\"\nprovide = [\"*\"]\ncall = [\"*\"]\n";

/// A directory with a certificate authority and the server's certificate, for a hub or the relay.
#[derive(Debug)]
pub(crate) struct Certs {
    dir: TempDir,
}

impl Certs {
    /// Made by `agent-reach certs init`.
    ///
    /// # Errors
    /// When the command fails.
    pub(crate) fn new(binary: &Path) -> Result<Self> {
        let dir = TempDir::with_prefix("agent-reach-loadtest-")?;
        let mut command = Command::new(binary);
        command.args(["certs", "init", "--dir"]).arg(dir.path());
        let output = command.output().with_context(|| binary.display().to_string())?;
        if !output.status.success() {
            bail!("certs init: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(Self { dir })
    }

    /// Where they are.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// A running hub. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Hub {
    child: Child,
    binary: PathBuf,
    certs: Certs,
    address: SocketAddr,
    metrics: SocketAddr,
    http: Option<SocketAddr>,
    /// Descriptors with no connection open.
    descriptors: usize,
}

impl Hub {
    /// Starts a hub on a free port and waits until it serves. `log` is its `tracing.log`, `more` is added to its
    /// configuration.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start(binary: &Path, log: &str, more: &str) -> Result<Self> {
        Self::start_on(binary, log, more, |_store| Ok(()))
    }

    /// The same with a store that was filled before; it is told the file.
    ///
    /// # Errors
    /// When it cannot be filled, or the hub does not start.
    pub(crate) fn start_on(
        binary: &Path,
        log: &str,
        more: &str,
        fill: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Self> {
        let certs = Certs::new(binary)?;
        configure(certs.path(), log, more)?;
        fill(&certs.path().join(STORE))?;
        let Served { child, address, metrics, http } = serve(binary, certs.path())?;
        let descriptors = crate::process::descriptors(child.id())?;
        Ok(Self { child, binary: binary.to_owned(), certs, address, metrics, http, descriptors })
    }

    /// Kills it with SIGKILL. What it has stored is there for [`Hub::start_again`].
    ///
    /// # Errors
    /// When it cannot be killed.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts it once more on the same files. Gives the time until it serves.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start_again(&mut self) -> Result<Duration> {
        let began = Instant::now();
        let Served { child, address, metrics, http } = serve(&self.binary, self.certs.path())?;
        let took = began.elapsed();
        self.descriptors = crate::process::descriptors(child.id())?;
        (self.child, self.address, self.metrics, self.http) = (child, address, metrics, http);
        Ok(took)
    }

    /// The file of its store.
    pub(crate) fn store(&self) -> PathBuf {
        self.certs.path().join(STORE)
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Puts a text in the place of one of its files, whole.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let (file, new) = (self.certs.path().join(name), self.certs.path().join(format!("{name}.new")));
        fs::write(&new, text)?;
        Ok(fs::rename(new, file)?)
    }

    /// Makes a revocation list with one certificate more: nobody's who is here.
    ///
    /// # Errors
    /// When the hub's command fails.
    pub(crate) fn revoke(&self, name: &str) -> Result<()> {
        for act in ["issue", "revoke"] {
            let mut command = Command::new(&self.binary);
            let output = command.args(["certs", act, name, "--dir"]).arg(self.certs.path()).output()?;
            if !output.status.success() {
                bail!("certs {act}: {}", String::from_utf8_lossy(&output.stderr));
            }
        }
        Ok(())
    }

    /// Sends it SIGHUP, which has it read its files again.
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn hang_up(&self) -> Result<()> {
        let sent = Command::new("kill").args(["-HUP", &self.pid().to_string()]).status()?;
        sent.success().then_some(()).context("the hub is gone")
    }

    /// How to get in.
    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint { address: self.address, certs: self.certs.path().to_owned(), dialect: Dialect::Hub }
    }

    /// Where it answers HTTP.
    ///
    /// # Errors
    /// It was not told to.
    pub(crate) fn http(&self) -> Result<SocketAddr> {
        self.http.context("the hub has no [http] listener")
    }

    /// How many connections it has open.
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn connections(&self) -> Result<usize> {
        Ok(crate::process::descriptors(self.pid())?.saturating_sub(self.descriptors))
    }

    /// The sum of a metric over its labels; 0 while it has not been counted.
    ///
    /// # Errors
    /// When the hub does not answer.
    pub(crate) fn metric(&self, name: &str) -> Result<f64> {
        let mut socket = TcpStream::connect(self.metrics)?;
        socket.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut page = String::new();
        socket.read_to_string(&mut page)?;
        if !page.contains(" 200 ") {
            bail!("metrics: {}", page.lines().next().unwrap_or_default());
        }
        Ok(sum(&page, name))
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A hub that serves, and where.
struct Served {
    child: Child,
    address: SocketAddr,
    metrics: SocketAddr,
    http: Option<SocketAddr>,
}

/// Starts the binary on a directory, and waits until it serves.
fn serve(binary: &Path, dir: &Path) -> Result<Served> {
    let log = dir.join("hub.log");
    let mut child = Command::new(binary)
        .args(["serve", "--config", CONFIG])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&log)?)
        .spawn()
        .with_context(|| binary.display().to_string())?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    let (Some(address), Some(metrics)) = (ready(&line, "agents"), ready(&line, "metrics")) else {
        let _gone_already = child.kill();
        let _reaped = child.wait();
        bail!("the hub does not serve: {}", fs::read_to_string(&log)?);
    };
    Ok(Served { child, address, metrics, http: ready(&line, "http") })
}

fn configure(dir: &Path, log: &str, more: &str) -> Result<()> {
    let config = format!(
        "version = 1\n[agents]\nlisten = \"127.0.0.1:0\"\ncert = \"hub.pem\"\nkey = \"hub-key.pem\"\n\
         client_ca = \"ca.pem\"\ncrl = \"crl.pem\"\n[metrics]\nlisten = \"127.0.0.1:0\"\n\
         [policy]\nfile = \"policy.toml\"\n[tracing]\nlog = {log:?}\n{more}"
    );
    fs::write(dir.join("policy.toml"), POLICY)?;
    Ok(fs::write(dir.join(CONFIG), config)?)
}

/// An address in the ready line.
fn ready(line: &str, listener: &str) -> Option<SocketAddr> {
    let ready: serde_json::Value = serde_json::from_str(line).ok()?;
    let (_scheme, address) = ready.get(listener)?.as_str()?.split_once("://")?;
    address.parse().ok()
}

/// The sum of all lines of a metric on a page of them.
fn sum(page: &str, name: &str) -> f64 {
    let values = page.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let own = series.split('{').next() == Some(name);
        own.then(|| value.parse::<f64>().ok()).flatten()
    });
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_its_labels() {
        let page = "HTTP/1.0 200 OK\n# TYPE a counter\na{x=\"1 2\"} 3\na{x=\"2\"} 4\na_b 5\n";
        assert_eq!((sum(page, "a"), sum(page, "a_b"), sum(page, "b")), (7.0, 5.0, 0.0));
    }

    #[test]
    fn the_ready_line_names_each_listener() {
        let line = "{\"agents\":\"wss://127.0.0.1:1\",\"metrics\":\"http://127.0.0.1:2\",\"http\":null}";
        assert_eq!(ready(line, "agents"), Some("127.0.0.1:1".parse().unwrap()));
        assert_eq!(ready(line, "metrics"), Some("127.0.0.1:2".parse().unwrap()));
        assert_eq!(ready(line, "http"), None);
    }
}
