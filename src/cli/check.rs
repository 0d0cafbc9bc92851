//! `agent-reach check`: would `serve` start with this configuration, and what does its policy mean?

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use agent_reach_protocol::names::{OPERATOR_CAPABILITIES, Pattern};
use clap::Args;

use crate::config::{self, Config, Problem};
use crate::policy_file::{PolicyFile, Rule};
use crate::tokens::Tokens;

/// Arguments of `agent-reach check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Runs the command in the environment of this process. Exit 0 good, 1 with problems, which are on stderr.
#[must_use]
pub fn run(args: &CheckArgs) -> ExitCode {
    match check(args, config::environment()) {
        // A closed pipe takes nothing from the answer, which is the exit code.
        Ok(summary) => match std::io::stdout().write_all(summary.as_bytes()) {
            Ok(()) | Err(_) => ExitCode::SUCCESS,
        },
        Err(problems) => {
            for problem in problems {
                eprintln!("{problem}");
            }
            ExitCode::FAILURE
        }
    }
}

fn check(args: &CheckArgs, env: Vec<(String, String)>) -> Result<String, Vec<Problem>> {
    let config = Config::load(&args.config, env)?;
    let policy = match &config.policy {
        Some(policy) => PolicyFile::load(&policy.file)?,
        None => return Ok("ok\n".into()),
    };
    let tokens =
        config.http.as_ref().map_or_else(|| Ok(Tokens::default()), |http| Tokens::load(&http.tokens))?;
    Ok(summary(&config, &policy, &tokens))
}

fn summary(config: &Config, policy: &PolicyFile, tokens: &Tokens) -> String {
    let http = config.http.as_ref().map_or("off".into(), |http| http.listen.to_string());
    let metrics = config.metrics.as_ref().map_or("off".into(), |metrics| metrics.listen.to_string());
    let mut lines = vec![format!(
        "ok: agents on {}, http {http}, metrics {metrics}, policy version {} with {} rules and {} aliases",
        config.agents.listen,
        policy.version,
        policy.rules.len(),
        policy.aliases.len(),
    )];
    for (number, rule) in (1..).zip(&policy.rules) {
        lines.push(format!("rule {number}: {}", meaning(rule)));
    }
    for (number, before) in policy.shadowed() {
        lines.push(format!("warning: rule {number} never counts: rule {before} matches the same first"));
    }
    if !policy.rules.iter().any(|rule| rule.identity == "*") {
        lines.push("any other identity: unauthorized".into());
    }
    for (alias, target) in &policy.aliases {
        lines.push(format!("alias {alias}: {target}"));
    }
    if !policy.open {
        lines.push("dictionary: only these may be offered, whatever the rules grant".into());
    } else if !policy.capabilities.is_empty() {
        lines.push("dictionary: others may be offered as well".into());
    }
    for (name, about) in &policy.capabilities {
        let about = about.as_ref().map(|about| format!(": {about}")).unwrap_or_default();
        lines.push(format!("capability {name}{about}"));
    }
    for (name, role) in tokens.roles() {
        lines.push(format!("token {name}: {role}"));
    }
    lines.join("\n") + "\n"
}

fn meaning(rule: &Rule) -> String {
    let who = if rule.identity == "*" { "any identity" } else { rule.identity.as_str() };
    let ids =
        rule.agent_ids.as_ref().map_or("the name in its certificate".into(), |ids| any_of(ids, "no agent"));
    let provide = any_of(&rule.provide.iter().map(|p| covered(p)).collect::<Vec<_>>(), "nothing");
    let call = any_of(&rule.call.iter().map(|p| covered(p)).collect::<Vec<_>>(), "nothing");
    format!("{who} as {ids}; provides {provide}; calls {call}")
}

/// What a pattern covers, in words: the exceptions are easily forgotten, so they are asked of the pattern.
fn covered(text: &str) -> String {
    let Some(below) = text.strip_suffix('*') else { return text.to_owned() };
    let pattern = text.parse::<Pattern>();
    let not = |name: &&&str| name.starts_with(below) && !pattern.as_ref().is_ok_and(|p| p.covers(name));
    let mut except: Vec<&str> = OPERATOR_CAPABILITIES.iter().filter(not).copied().collect();
    except.extend(below.strip_suffix('.'));
    let what = if below.is_empty() { "everything".into() } else { format!("everything below {below}") };
    match &*except {
        [] => what,
        [one] => format!("{what} (but not {one})"),
        [first @ .., last] => format!("{what} (but not {} and {last})", first.join(", ")),
    }
}

fn any_of(items: &[String], none: &str) -> String {
    if items.is_empty() { none.to_owned() } else { items.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(policy: &str, more: &str) -> (tempfile::TempDir, CheckArgs) {
        let home = tempfile::tempdir().unwrap();
        crate::certs::init(home.path(), &[]).unwrap();
        let config = format!(
            "version = 1\n[agents]\nlisten = \"127.0.0.1:7443\"\ncert = \"hub.pem\"\nkey = \"hub-key.pem\"\n\
             client_ca = \"ca.pem\"\n[policy]\nfile = \"policy.toml\"\n{more}"
        );
        std::fs::write(home.path().join("hub.toml"), config).unwrap();
        std::fs::write(home.path().join("policy.toml"), policy).unwrap();
        let config = home.path().join("hub.toml");
        (home, CheckArgs { config })
    }

    #[test]
    fn a_good_configuration_is_summed_up_with_what_each_rule_means() {
        let policy = r#"version = 3
[[rules]]
identity = "spiffe://d/agent/a"
provide = ["a.b", "c.*"]
call = ["*", "hub.*"]
[[rules]]
identity = "spiffe://d/agent/a"
agent_ids = ["x", "y"]
[aliases]
old = "a.b"
"#;
        let (_home, args) = world(policy, "[http]\nlisten = \"127.0.0.1:7080\"\ntokens = \"t.toml\"\n");
        let expected = "\
ok: agents on 127.0.0.1:7443, http 127.0.0.1:7080, metrics off, policy version 3 with 2 rules and 1 aliases
rule 1: spiffe://d/agent/a as the name in its certificate; provides a.b, everything below c. (but not c); \
calls everything (but not hub.agents.disconnect, hub.agents.drain, hub.config.reload and hub.tasks.retry), everything below hub. (but not hub)
rule 2: spiffe://d/agent/a as x, y; provides nothing; calls nothing
warning: rule 2 never counts: rule 1 matches the same first
any other identity: unauthorized
alias old: a.b
";
        assert_eq!(check(&args, vec![]).unwrap(), expected);
    }

    #[test]
    fn the_dictionary_is_told_and_whether_it_is_closed() {
        let names = "[capabilities.\"a.b\"]\ndescription = \"does b\"\n[capabilities.\"a.c\"]\n";
        for (top, told) in [
            ("", "dictionary: only these may be offered, whatever the rules grant"),
            ("dictionary = \"open\"\n", "dictionary: others may be offered as well"),
        ] {
            let (_home, args) = world(&format!("version = 1\n{top}{names}"), "");
            let summary = check(&args, vec![]).unwrap();
            let end = format!("{told}\ncapability a.b: does b\ncapability a.c\n");
            assert!(summary.ends_with(&end), "{summary}");
        }
    }

    #[test]
    fn a_pattern_is_told_with_its_exceptions() {
        let cases = [
            ("a.b", "a.b"),
            ("a.*", "everything below a. (but not a)"),
            (
                "*",
                "everything (but not hub.agents.disconnect, hub.agents.drain, hub.config.reload and hub.tasks.retry)",
            ),
            ("hub.*", "everything below hub. (but not hub)"),
            (
                "hub.agents.*",
                "everything below hub.agents. (but not hub.agents.disconnect, hub.agents.drain and hub.agents)",
            ),
        ];
        for (pattern, told) in cases {
            assert_eq!(covered(pattern), told);
        }
    }

    #[test]
    fn a_problem_in_the_policy_is_told_with_its_file_line_and_key() {
        let (home, args) = world("version = 1\n[[rules]]\nidentity = \"*\"\ncall = [\"text-*\"]\n", "");
        let problems = check(&args, vec![]).unwrap_err();
        let start = format!("{}/policy.toml:4: rules[1].call: \"text-*\" ", home.path().display());
        assert!(problems.len() == 1 && problems[0].to_string().starts_with(&start), "{problems:?}");
    }

    #[test]
    fn a_problem_in_the_configuration_is_told() {
        let (_home, args) = world("version = 1\n", "[liveness]\nkeepalive_ms = 20000\n");
        let problems = check(&args, vec![]).unwrap_err();
        assert_eq!((problems.len(), problems[0].line), (1, Some(10)));
    }
}
