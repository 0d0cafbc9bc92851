//! The rules of a policy file as the core takes them, and what they say of a case.

pub mod verdict;

use std::path::Path;
use std::sync::Arc;

use agent_reach_core::{Policy, Rule};
use agent_reach_protocol::names::{NameError, Pattern};

use crate::config::Problem;
use crate::policy_file::{self, PolicyFile};

/// Reads and checks a policy file.
///
/// # Errors
/// Every problem that was found, in the order of the lines.
pub fn load(path: &Path) -> Result<Policy, Vec<Problem>> {
    let file = PolicyFile::load(path)?;
    let rules = file.rules.iter().map(rule).collect::<Result<_, _>>().map_err(|error| {
        // Every pattern was read once already.
        let (file, message) = (path.display().to_string(), error.to_string());
        vec![Problem { file, line: None, key: "rules".into(), message }]
    })?;
    let dictionary = file.dictionary().map(Arc::new);
    Ok(Policy { version: file.version, rules, aliases: file.aliases, dictionary })
}

fn rule(rule: &policy_file::Rule) -> Result<Rule, NameError> {
    let patterns =
        |texts: &[String]| texts.iter().map(|text| text.parse::<Pattern>()).collect::<Result<Vec<_>, _>>();
    Ok(Rule {
        identity: (rule.identity != "*").then(|| rule.identity.clone()),
        agent_ids: rule.agent_ids.clone(),
        provide: patterns(&rule.provide)?,
        call: patterns(&rule.call)?,
    })
}
