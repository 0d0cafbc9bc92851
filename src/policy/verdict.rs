//! What a policy says of a case, and by which rule: for those who write one.
//!
//! It is decided by the same means as in the hub: the first rule that matches, [`Pattern::covers`], and the name that
//! an alias stands for. What an agent declares in HELLO can only narrow this further.

use agent_reach_core::TOKEN_PREFIX;
use agent_reach_protocol::names::{CapabilityName, NameError, Pattern, is_reserved};

use crate::policy_file::{PolicyFile, Rule};
use crate::transport::identity::name_of;

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish<'a> {
    /// Register as this agent.
    Be(&'a str),
    /// Call a capability.
    Call(&'a str),
    /// Offer one.
    Provide(&'a str),
}

/// Whether it may, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it may.
    pub allowed: bool,
    /// The rule that counts, from 1; `None` when none matches.
    pub rule: Option<usize>,
    /// Why, in a sentence.
    pub reason: String,
}

/// Judges a case.
///
/// # Errors
/// When the name of a capability is none.
pub fn judge(policy: &PolicyFile, identity: &str, wish: Wish<'_>) -> Result<Verdict, NameError> {
    if identity.starts_with(TOKEN_PREFIX) {
        let reason = "the role of a token says what it may do, and no rule of the policy".to_owned();
        return Ok(Verdict { allowed: false, rule: None, reason });
    }
    let found = (1..).zip(&policy.rules).find(|(_, rule)| rule.identity == "*" || rule.identity == identity);
    let Some((number, rule)) = found else {
        let reason = format!("no rule matches {identity}: it cannot register");
        return Ok(Verdict { allowed: false, rule: None, reason });
    };
    let (allowed, reason) = match wish {
        Wish::Be(agent) => be(rule, identity, agent),
        Wish::Call(name) => call(policy, rule, name)?,
        Wish::Provide(name) => provide(policy, rule, name)?,
    };
    let reason = format!("rule {number} ({}): {reason}", rule.identity);
    Ok(Verdict { allowed, rule: Some(number), reason })
}

fn be(rule: &Rule, identity: &str, agent: &str) -> (bool, String) {
    match &rule.agent_ids {
        Some(ids) if ids.iter().any(|id| id == agent) => (true, format!("{agent} is in agent_ids")),
        Some(_) => (false, format!("{agent} is not in agent_ids")),
        None if name_of(identity) == Some(agent) => (true, format!("{agent} is the name in the identity")),
        None => {
            let name = name_of(identity).unwrap_or("none");
            (false, format!("without agent_ids it may only be the name in the identity: {name}"))
        }
    }
}

fn call(policy: &PolicyFile, rule: &Rule, name: &str) -> Result<(bool, String), NameError> {
    let (asked, _) = CapabilityName::fold(name)?;
    let asked = asked.as_str();
    let meant = policy.aliases.get(asked).map_or(asked, String::as_str);
    let mut reasons = Vec::new();
    // The right to an alias is none to what it stands for.
    for name in if asked == meant { vec![asked] } else { vec![asked, meant] } {
        match covering(&rule.call, name) {
            Some(pattern) => reasons.push(format!("call has {pattern:?}, which covers {name}")),
            None => return Ok((false, format!("nothing in call covers {name}{}", stands_for(asked, meant)))),
        }
    }
    Ok((true, format!("{}{}", reasons.join(" and "), stands_for(asked, meant))))
}

fn stands_for(asked: &str, meant: &str) -> String {
    if asked == meant { String::new() } else { format!("; {asked} is an alias and stands for {meant}") }
}

fn provide(policy: &PolicyFile, rule: &Rule, name: &str) -> Result<(bool, String), NameError> {
    let (name, _) = CapabilityName::fold(name)?;
    let name = name.as_str();
    if is_reserved(name) {
        return Ok((false, format!("{name} is the hub's own, which no agent provides")));
    }
    if !policy.open && !policy.capabilities.contains_key(name) {
        return Ok((false, format!("{name} is not in the dictionary, whatever provide has")));
    }
    Ok(match covering(&rule.provide, name) {
        Some(pattern) => (true, format!("provide has {pattern:?}, which covers {name}")),
        None => (false, format!("nothing in provide covers {name}")),
    })
}

fn covering<'a>(patterns: &'a [String], name: &str) -> Option<&'a str> {
    let covers = |text: &&String| text.parse::<Pattern>().is_ok_and(|pattern| pattern.covers(name));
    patterns.iter().find(covers).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = r#"version = 1
[[rules]]
identity = "spiffe://d/agent/a"
provide = ["text.*"]
call = ["order.create", "*"]
[[rules]]
identity = "b.example"
agent_ids = ["b1", "b2"]
call = ["invoices.make"]
[[rules]]
identity = "spiffe://d/agent/ops"
call = ["hub.*"]
[aliases]
"invoices.make" = "invoice.create"
[capabilities."text.upper"]
[capabilities."invoice.create"]
"#;

    fn case(identity: &str, wish: Wish<'_>) -> (bool, Option<usize>, String) {
        let policy = PolicyFile::parse("policy.toml", POLICY).unwrap();
        let Verdict { allowed, rule, reason } = judge(&policy, identity, wish).unwrap();
        (allowed, rule, reason)
    }

    #[test]
    fn a_call_is_judged_by_the_first_rule_and_by_the_first_pattern_that_covers_it() {
        let (allowed, rule, reason) = case("spiffe://d/agent/a", Wish::Call("Order.Create"));
        assert_eq!((allowed, rule), (true, Some(1)), "as it is asked for: folded");
        assert_eq!(
            reason,
            "rule 1 (spiffe://d/agent/a): call has \"order.create\", which covers order.create"
        );
        let (allowed, _, reason) = case("spiffe://d/agent/a", Wish::Call("order.createx"));
        assert!(allowed && reason.ends_with("call has \"*\", which covers order.createx"), "{reason}");
        assert!(!case("spiffe://d/agent/a", Wish::Call("hub.config.reload")).0, "* does not cover it");
        assert!(case("spiffe://d/agent/ops", Wish::Call("hub.config.reload")).0);
        assert!(!case("spiffe://d/agent/ops", Wish::Call("hubs.x")).0, "by word, not by letters");
    }

    #[test]
    fn who_may_call_an_alias_needs_the_right_to_what_it_stands_for() {
        let (allowed, _, reason) = case("b.example", Wish::Call("invoices.make"));
        assert!(!allowed);
        assert_eq!(
            reason,
            "rule 2 (b.example): nothing in call covers invoice.create; invoices.make is an alias and stands for \
             invoice.create"
        );
    }

    #[test]
    fn a_name_is_offered_if_the_rule_and_the_dictionary_have_it() {
        assert!(case("spiffe://d/agent/a", Wish::Provide("text.upper")).0);
        assert!(case("spiffe://d/agent/a", Wish::Provide("text.lower")).2.contains("dictionary"));
        assert!(case("spiffe://d/agent/a", Wish::Provide("invoice.create")).2.contains("nothing in provide"));
        assert!(case("spiffe://d/agent/a", Wish::Provide("hub.x")).2.contains("hub's own"));
    }

    #[test]
    fn an_agent_id_is_the_name_in_the_identity_or_one_of_the_list() {
        assert!(case("spiffe://d/agent/a", Wish::Be("a")).0);
        assert!(!case("spiffe://d/agent/a", Wish::Be("b1")).0);
        assert!(case("b.example", Wish::Be("b2")).0);
        assert!(!case("b.example", Wish::Be("b.example")).0);
        assert_eq!(
            case("nobody", Wish::Be("nobody")),
            (false, None, "no rule matches nobody: it cannot register".into())
        );
    }
}
