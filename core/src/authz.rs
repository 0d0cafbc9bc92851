//! Who may be which agent, offer what, and call what.

use std::collections::BTreeMap;

use agent_reach_protocol::names::Pattern;

/// One rule: what an identity may do.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The exact identity, or `None` for every one.
    pub identity: Option<String>,
    /// Agent ids it may take; `None`: only the name in the certificate.
    pub agent_ids: Option<Vec<String>>,
    /// Capabilities it may offer.
    pub provide: Vec<Pattern>,
    /// Capabilities it may call.
    pub call: Vec<Pattern>,
}

/// The rules in force. The first rule that matches an identity counts; none: unauthorized.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Number of the policy file, shown in `hub.stats`.
    pub version: u64,
    /// In order.
    pub rules: Vec<Rule>,
    /// Further names of capabilities: asked for -> meant. Canonical names.
    pub aliases: BTreeMap<String, String>,
}

/// What one agent may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) provide: Vec<Pattern>,
    pub(crate) call: Vec<Pattern>,
}

impl Policy {
    /// Everybody may do everything under the name in the certificate: `agent-reach dev`.
    pub fn open() -> Self {
        let all = vec![Pattern::All];
        let hub = "hub.*".parse().map_or_else(|_| all.clone(), |hub| vec![Pattern::All, hub]);
        let rule = Rule { identity: None, agent_ids: None, provide: all, call: hub };
        Self { version: 0, rules: vec![rule], aliases: BTreeMap::new() }
    }

    /// What `identity` (with `name` in it) may do as `agent_id`; `None`: it may not be that agent.
    pub(crate) fn grant(&self, identity: &str, name: &str, agent_id: &str) -> Option<Grant> {
        let rule =
            self.rules.iter().find(|rule| rule.identity.as_deref().is_none_or(|own| own == identity))?;
        let allowed = match &rule.agent_ids {
            Some(ids) => ids.iter().any(|id| id == agent_id),
            None => agent_id == name,
        };
        allowed.then(|| Grant { provide: rule.provide.clone(), call: rule.call.clone() })
    }

    /// The name that `asked` stands for; itself when it is no alias.
    pub(crate) fn resolve<'a>(&'a self, asked: &'a str) -> &'a str {
        self.aliases.get(asked).map_or(asked, String::as_str)
    }
}

pub(crate) fn covers(patterns: &[Pattern], name: &str) -> bool {
    patterns.iter().any(|pattern| pattern.covers(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(identity: Option<&str>, agent_ids: Option<&[&str]>) -> Rule {
        Rule {
            identity: identity.map(str::to_owned),
            agent_ids: agent_ids.map(|ids| ids.iter().map(|id| (*id).to_owned()).collect()),
            provide: vec![Pattern::All],
            call: vec!["text.*".parse().unwrap()],
        }
    }

    #[test]
    fn without_agent_ids_an_identity_may_only_be_its_own_name() {
        let policy = Policy { rules: vec![rule(None, None)], ..Policy::default() };
        assert!(policy.grant("spiffe://d/agent/a", "a", "a").is_some());
        assert!(policy.grant("spiffe://d/agent/b", "b", "a").is_none());
    }

    #[test]
    fn the_first_matching_rule_counts_even_when_it_refuses() {
        let rules = vec![rule(Some("x"), Some(&["one"])), rule(None, None)];
        let policy = Policy { rules, ..Policy::default() };
        assert!(policy.grant("x", "x", "one").is_some());
        assert!(policy.grant("x", "x", "x").is_none());
        assert!(policy.grant("y", "y", "y").is_some());
    }

    #[test]
    fn no_rule_means_no_right() {
        assert!(Policy::default().grant("x", "x", "x").is_none());
    }

    #[test]
    fn the_open_policy_reaches_operators_capabilities() {
        let grant = Policy::open().grant("x", "x", "x").unwrap();
        assert!(covers(&grant.call, "hub.agents.disconnect"));
        assert!(covers(&grant.call, "anything.else"));
    }
}
