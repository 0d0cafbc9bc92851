//! `agent-reach demo`: one command to see it work.

mod cast;
mod screen;
mod walk;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use self::cast::{CALLER, Cast, DICE, STORY, TEXT};
use self::screen::Screen;
use super::dev::{self, DevArgs};
use super::serve::Signals;
use crate::config::{Config, Tracing};
use crate::server::{Ready, Server};
use crate::supervisor::Sockets;
use crate::telemetry::logging;

/// How long the farewell may take.
const FAREWELL: Duration = Duration::from_secs(5);

/// Arguments of `agent-reach demo`.
#[derive(Debug, Args)]
#[command(after_help = "\
Starts a hub as `agent-reach dev` does, three sample agents and a caller, shows what they do, and stays up so
that you can try the commands it names in a second terminal. Ctrl-C ends it.")]
pub struct DemoArgs {
    /// End after the walk; exit 1 when a step did not go as it should
    #[arg(long)]
    pub once: bool,
    /// Where certificates are kept, and made when absent
    #[arg(long, value_name = "DIR", default_value = dev::DIR)]
    pub dir: PathBuf,
    /// Address for agents [default: 127.0.0.1:7443, or a free port if it is taken]
    #[arg(long, value_name = "ADDR")]
    pub agents: Option<SocketAddr>,
    /// Address for health [default: 127.0.0.1:7080, or a free port if it is taken]
    #[arg(long, value_name = "ADDR")]
    pub http: Option<SocketAddr>,
    /// Address for Prometheus [default: 127.0.0.1:9464, or a free port if it is taken]
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<SocketAddr>,
}

/// Runs the command. Exit 0 at Ctrl-C or after a walk that went well, 1 otherwise.
#[must_use]
pub fn run(args: &DemoArgs) -> ExitCode {
    let screen = Screen::new(walk::STEPS);
    screen.head("Agent-Reach demo: a hub, three agents and a caller, over real WebSockets with mutual TLS");
    screen.line("");
    let prepared = prepare(args, &screen).and_then(|config| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        Ok((config, runtime.map_err(|e| format!("cannot start the runtime: {e}"))?))
    });
    let played = prepared.and_then(|(config, runtime)| runtime.block_on(play(args, &config, screen)));
    match played {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("agent-reach demo: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The configuration of a hub as `dev` has it, on ports that are free.
fn prepare(args: &DemoArgs, screen: &Screen) -> Result<Config, String> {
    let dev = DevArgs {
        dir: args.dir.clone(),
        agents: port(args.agents, 7443, screen),
        http: port(args.http, 7080, screen),
        metrics: port(args.metrics, 9464, screen),
    };
    let mut config = dev::configure(&dev)?;
    if config.tracing.log == Tracing::default().log {
        // What the hub says at each step would stand between the lines that people came to read.
        config.tracing.log = "warn".to_owned();
    }
    logging::init(&config.tracing).map_err(|e| e.to_string())?;
    Ok(config)
}

/// The address that was asked for; else the usual one, unless somebody else has it.
fn port(asked: Option<SocketAddr>, usual: u16, screen: &Screen) -> SocketAddr {
    let usual = SocketAddr::from(([127, 0, 0, 1], usual));
    asked.unwrap_or_else(|| match TcpListener::bind(usual) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            screen.line(&format!("  {usual} is taken: using a free port instead"));
            SocketAddr::from(([127, 0, 0, 1], 0))
        }
        // Any other trouble is told when the hub begins to listen.
        Ok(_) | Err(_) => usual,
    })
}

/// The whole play. `false` when a step went wrong.
async fn play(args: &DemoArgs, config: &Config, mut screen: Screen) -> Result<bool, String> {
    let mut signals = Signals::new().map_err(|e| format!("cannot listen for signals: {e}"))?;
    let server =
        Server::start(config, Some(&args.dir), Sockets::default()).await.map_err(|e| e.to_string())?;
    let ready = server.ready().clone();
    let announced = Announced::new(&args.dir, &ready);
    // Cancel-safe: what is dropped here is not used again.
    let cast = tokio::select! {
        cast = Cast::connect(&ready.agents, &args.dir) => Some(cast),
        () = signals.stop() => None,
    };
    let mut interrupted = cast.is_none();
    let cast = cast.transpose();
    if let Ok(Some(cast)) = &cast {
        introduce(&screen, &ready, &args.dir);
        // Cancel-safe: the walk is not taken up again.
        tokio::select! {
            () = walk::walk(cast, &mut screen) => {}
            () = signals.stop() => interrupted = true,
        }
        if !interrupted {
            conclude(args, &screen, &ready);
        }
        if !interrupted && !args.once {
            signals.stop().await;
        }
    }
    let farewell = async {
        if let Ok(Some(cast)) = cast {
            cast.leave().await;
            Ok(())
        } else {
            cast.map(drop)
        }
    };
    let left = tokio::time::timeout(FAREWELL, farewell).await;
    announced.withdraw();
    // Cancel-safe: a second signal ends the process at once.
    tokio::select! {
        () = server.stop() => {}
        () = signals.stop() => {}
    }
    left.unwrap_or(Ok(()))?;
    Ok(screen.all_good() || (interrupted && !args.once))
}

fn introduce(screen: &Screen, ready: &Ready, dir: &Path) {
    let lines = [
        ("hub", format!("{} (certificates in {})", ready.agents, dir.display())),
        (TEXT, "quick: text.upper, text.stats, agent.hello".to_owned()),
        (STORY, "slow, streams: story.write, agent.hello".to_owned()),
        (DICE, "flaky: dice.roll, agent.hello".to_owned()),
        (CALLER, "asks the others".to_owned()),
    ];
    for (who, what) in lines {
        screen.line(&format!("  {who:12} {what}"));
    }
}

fn conclude(args: &DemoArgs, screen: &Screen, ready: &Ready) {
    screen.line("");
    let went =
        if screen.all_good() { "Every step went as it should." } else { "Not every step went as it should." };
    screen.head(went);
    if args.once {
        return;
    }
    let dir = if args.dir == Path::new(dev::DIR) {
        String::new()
    } else {
        format!(" --dir {}", quoted(&args.dir.display().to_string()))
    };
    screen.line("");
    screen.head("Now try this in a second terminal, in this directory:");
    // As it was called itself: it need not be in the PATH.
    let me = std::env::args().next().map_or_else(|| "agent-reach".to_owned(), |me| quoted(&me));
    let mut lines = vec![
        format!("{me} call text.upper '{{\"text\":\"hello\"}}'{dir}"),
        format!("{me} call story.write --stream{dir}"),
        format!("{me} call agent.hello --all{dir}"),
        format!("{me} call story.write --task{dir}"),
        format!("{me} agents{dir}"),
        format!("{me} tail{dir}"),
    ];
    lines.extend(
        ready.metrics.as_ref().map(|url| format!("curl -s {url}/metrics | grep agent_reach_calls_total")),
    );
    for line in lines {
        screen.line(&format!("  {line}"));
    }
    screen.line("");
    screen.line("The hub and its agents stay up. Ctrl-C ends them.");
}

/// An argument as a shell takes it.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// The ready line in the directory, for as long as the hub is there.
struct Announced {
    path: PathBuf,
    /// That of a hub which ran here before, and may still do.
    before: Option<Vec<u8>>,
}

impl Announced {
    fn new(dir: &Path, ready: &Ready) -> Self {
        let path = dir.join(dev::READY_FILE);
        let before = std::fs::read(&path).ok();
        dev::announce(dir, ready);
        Self { path, before }
    }

    /// Puts back what was there.
    fn withdraw(self) {
        let put_back = match &self.before {
            Some(line) => std::fs::write(&self.path, line),
            None => std::fs::remove_file(&self.path),
        };
        if let Err(error) = put_back {
            tracing::debug!(%error, "the ready line stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_named_as_a_shell_takes_it() {
        assert_eq!(quoted("/tmp/demo-1"), "/tmp/demo-1");
        assert_eq!(quoted("/tmp/it's here"), r"'/tmp/it'\''s here'");
    }
}
