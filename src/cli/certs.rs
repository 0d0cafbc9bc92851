//! `agent-reach certs`: a small certificate authority on the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::certs::{self, CertsError, Issued};

/// Arguments of `agent-reach certs`.
#[derive(Debug, Args)]
pub struct CertsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CertsCommand,
}

/// What `agent-reach certs` does.
#[derive(Debug, Subcommand)]
pub enum CertsCommand {
    /// Make an authority, an empty revocation list and the hub's certificate
    Init(InitArgs),
    /// Make or renew the certificate of an agent, or of the hub (NAME is then "hub")
    Issue(IssueArgs),
    /// Revoke every certificate of an agent that is still valid
    Revoke(RevokeArgs),
}

/// Arguments of `agent-reach certs init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Directory of the authority; made with mode 0700 if it is absent
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// One more name of the hub: DNS:NAME, IP:ADDRESS, URI:URI, or bare. May be repeated
    #[arg(long = "san", value_name = "NAME")]
    pub sans: Vec<String>,
}

/// Arguments of `agent-reach certs issue`.
#[derive(Debug, Args)]
pub struct IssueArgs {
    /// The agent, 1 to 128 of letters, digits, '.', '-', '_'; or "hub"
    pub name: String,
    /// Directory of the authority
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Name in the certificate, in place of spiffe://agent-reach/agent/NAME (for the hub: one more name):
    /// URI:URI, DNS:NAME, IP:ADDRESS, or bare. May be repeated
    #[arg(long = "san", value_name = "NAME")]
    pub sans: Vec<String>,
    /// Days of validity, at most until the authority ends
    #[arg(long, default_value_t = certs::DEFAULT_DAYS, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
}

/// Arguments of `agent-reach certs revoke`.
#[derive(Debug, Args)]
pub struct RevokeArgs {
    /// The agent, or "hub"
    pub name: String,
    /// Directory of the authority
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
}

/// Runs the command. Files that were made are named on stderr. Exit 0 done, 1 failed.
#[must_use]
pub fn run(args: &CertsArgs) -> ExitCode {
    match attempt(&args.command) {
        Ok(lines) => {
            for line in lines {
                eprintln!("{line}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("agent-reach certs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn attempt(command: &CertsCommand) -> Result<Vec<String>, CertsError> {
    match command {
        CertsCommand::Init(InitArgs { dir, sans }) => {
            let hub = certs::init(dir, sans)?;
            let mut lines = vec![format!("made {}", dir.join("ca.pem").display())];
            lines.extend(told(&hub));
            Ok(lines)
        }
        CertsCommand::Issue(IssueArgs { name, dir, sans, days }) => {
            Ok(told(&certs::issue(dir, name, sans, *days)?))
        }
        CertsCommand::Revoke(RevokeArgs { name, dir }) => {
            let serials = certs::revoke(dir, name)?;
            let mut lines: Vec<_> =
                serials.iter().map(|serial| format!("revoked {serial} of {name}")).collect();
            lines.push(format!(
                "wrote {}; a hub that runs applies it after a restart",
                dir.join("crl.pem").display()
            ));
            Ok(lines)
        }
    }
}

fn told(issued: &Issued) -> Vec<String> {
    let key = if issued.new_key { "made" } else { "kept" };
    let mut lines =
        vec![format!("made {}", issued.cert.display()), format!("{key} {}", issued.key.display())];
    if let Some(reason) = &issued.refused {
        lines.push(format!("warning: the hub will refuse an agent with it: {reason}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        certs: CertsArgs,
    }

    fn lines(args: &[&str]) -> Result<Vec<String>, String> {
        let parsed = Command::try_parse_from([&["certs"], args].concat()).map_err(|e| e.to_string())?;
        attempt(&parsed.certs.command).map_err(|error| error.to_string())
    }

    #[test]
    fn init_issue_and_revoke_say_which_files_they_wrote() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("d").display().to_string();
        let at = |verb: &str, file: &str| format!("{verb} {dir}/{file}");
        assert_eq!(
            lines(&["init", "--dir", &dir, "--san", "hub.example.com"]).unwrap(),
            [at("made", "ca.pem"), at("made", "hub.pem"), at("made", "hub-key.pem")]
        );
        let issue = ["issue", "a", "--dir", &dir, "--days", "2"];
        assert_eq!(lines(&issue).unwrap(), [at("made", "agents/a.pem"), at("made", "agents/a-key.pem")]);
        assert_eq!(lines(&issue).unwrap(), [at("made", "agents/a.pem"), at("kept", "agents/a-key.pem")]);
        let revoked = lines(&["revoke", "a", "--dir", &dir]).unwrap();
        assert_eq!(revoked.len(), 3);
        assert_eq!(revoked[2], at("wrote", "crl.pem; a hub that runs applies it after a restart"));
    }

    #[test]
    fn a_second_init_fails_and_names_the_file() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().display().to_string();
        lines(&["init", "--dir", &dir]).unwrap();
        assert!(
            lines(&["init", "--dir", &dir])
                .unwrap_err()
                .starts_with(&format!("{dir}/ca.pem: exists already"))
        );
    }

    #[test]
    fn no_days_are_refused() {
        for days in ["0", "-1", "36501", "many"] {
            assert!(lines(&["issue", "a", "--dir", "d", "--days", days]).is_err());
        }
    }

    #[test]
    fn an_agent_that_would_be_refused_is_warned_of() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().display().to_string();
        lines(&["init", "--dir", &dir]).unwrap();
        let told = lines(&["issue", "a", "--dir", &dir, "--san", "https://example.com"]).unwrap();
        assert!(told[2].starts_with("warning: the hub will refuse an agent with it: "), "{told:?}");
    }
}
