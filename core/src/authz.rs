//! Who may be which agent, offer what, and call what.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use agent_reach_protocol::names::{Pattern, split_window};

/// What the identity of a token begins with: no certificate proves such a one.
pub const TOKEN_PREFIX: &str = "token:";
/// Most windows of one token that are agents at one time, beside the agent that has the token's own name.
pub const WINDOWS_MAX: usize = 16;

/// One rule: what an identity may do.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The exact identity, or `None` for every one that a certificate proves. A token has only the rule that names it.
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
    /// The only names that may be offered, whatever the rules grant; `None`: any. Canonical names.
    pub dictionary: Option<Arc<BTreeSet<String>>>,
}

/// What one agent may do; nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) provide: Vec<Pattern>,
    pub(crate) call: Vec<Pattern>,
    pub(crate) dictionary: Option<Arc<BTreeSet<String>>>,
}

/// Most names that are suggested for one that is not in the dictionary, and most letters that they differ by.
const NEAREST_MAX: usize = 3;
const EDITS_MAX: usize = 3;

impl Grant {
    pub(crate) fn may_offer(&self, name: &str) -> bool {
        self.lists(name) && covers(&self.provide, name)
    }

    /// Whether the dictionary has the name, or is open.
    pub(crate) fn lists(&self, name: &str) -> bool {
        self.dictionary.as_ref().is_none_or(|names| names.contains(name))
    }

    /// Names that may be offered and are spelt nearly as this one, the nearest first.
    pub(crate) fn nearest(&self, name: &str) -> Vec<&str> {
        // Of a short name everything would be near.
        let most = EDITS_MAX.min(1 + name.len() / 8);
        let names = self.dictionary.iter().flat_map(|names| names.iter());
        let near =
            names.filter_map(|own| Some((distance(name.as_bytes(), own.as_bytes(), most)?, own.as_str())));
        let mut near: Vec<_> = near.filter(|(_, own)| covers(&self.provide, own)).collect();
        near.sort_unstable();
        near.into_iter().take(NEAREST_MAX).map(|(_, own)| own).collect()
    }
}

/// How many letters have to be put in, taken out or replaced to make one name of another; `None`: more than `most`.
fn distance(one: &[u8], other: &[u8], most: usize) -> Option<usize> {
    // What both begin and end with costs nothing: names often share a long prefix.
    let start = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let (one, other) = (one.get(start..)?, other.get(start..)?);
    let end = one.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    let (one, other) = (one.get(..one.len() - end)?, other.get(..other.len() - end)?);
    if one.len().abs_diff(other.len()) > most {
        return None;
    }
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (taken, letter) in one.iter().enumerate() {
        let (mut before, mut left) = (taken, taken + 1);
        let mut least = left;
        let mut cells = row.iter_mut();
        if let Some(first) = cells.next() {
            *first = left;
        }
        for (cell, own) in cells.zip(other) {
            let edits = (*cell + 1).min(left + 1).min(before + usize::from(letter != own));
            before = std::mem::replace(cell, edits);
            left = edits;
            least = least.min(edits);
        }
        if least > most {
            return None;
        }
    }
    row.last().copied().filter(|edits| *edits <= most)
}

impl Policy {
    /// Everybody may do everything under the name in the certificate: `agent-reach dev`.
    pub fn open() -> Self {
        let all = vec![Pattern::All];
        let hub = "hub.*".parse().map_or_else(|_| all.clone(), |hub| vec![Pattern::All, hub]);
        let rule = Rule { identity: None, agent_ids: None, provide: all, call: hub };
        Self { rules: vec![rule], ..Self::default() }
    }

    /// The name that `asked` stands for; itself when it is no alias.
    pub(crate) fn resolve<'a>(&'a self, asked: &'a str) -> &'a str {
        self.aliases.get(asked).map_or(asked, String::as_str)
    }
}

/// A policy, read so that an agent's rule is found without reading all of them, and what it grants is shared.
#[derive(Debug)]
pub(crate) struct Rights {
    policy: Policy,
    /// Of each rule.
    grants: Vec<Arc<Grant>>,
    /// The first rule of each identity that has one.
    by_identity: BTreeMap<String, usize>,
    /// The first rule for every one.
    for_all: Option<usize>,
}

impl Rights {
    pub(crate) fn new(policy: Policy) -> Self {
        let grant = |rule: &Rule| Grant {
            provide: rule.provide.clone(),
            call: rule.call.clone(),
            dictionary: policy.dictionary.clone(),
        };
        let grants = policy.rules.iter().map(|rule| Arc::new(grant(rule))).collect();
        let mut by_identity = BTreeMap::new();
        for (place, rule) in policy.rules.iter().enumerate() {
            if let Some(identity) = &rule.identity {
                by_identity.entry(identity.clone()).or_insert(place);
            }
        }
        let for_all = policy.rules.iter().position(|rule| rule.identity.is_none());
        Self { policy, grants, by_identity, for_all }
    }

    /// What `identity` (with `name` in it) may do as `agent_id`; `None`: it may not be that agent.
    pub(crate) fn grant(&self, identity: &str, name: &str, agent_id: &str) -> Option<Arc<Grant>> {
        let own = self.by_identity.get(identity).copied();
        // Whose token is taken back must not fall under what is for everybody.
        let for_all = self.for_all.filter(|_| !identity.starts_with(TOKEN_PREFIX));
        let place = own.into_iter().chain(for_all).min()?;
        let allowed = match &self.policy.rules.get(place)?.agent_ids {
            Some(ids) => ids.iter().any(|id| id == agent_id),
            None => agent_id == name || is_window_of(identity, name, agent_id),
        };
        allowed.then(|| self.grants.get(place).map(Arc::clone))?
    }
}

/// Whether an agent_id is that of a window of the token that `identity` comes with: as good as the name itself.
fn is_window_of(identity: &str, name: &str, agent_id: &str) -> bool {
    identity.starts_with(TOKEN_PREFIX) && split_window(agent_id).is_some_and(|(own, _)| own == name)
}

impl Deref for Rights {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.policy
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
        let policy = Rights::new(Policy { rules: vec![rule(None, None)], ..Policy::default() });
        assert!(policy.grant("spiffe://d/agent/a", "a", "a").is_some());
        assert!(policy.grant("spiffe://d/agent/b", "b", "a").is_none());
    }

    #[test]
    fn the_first_matching_rule_counts_even_when_it_refuses() {
        let rules = vec![rule(Some("x"), Some(&["one"])), rule(None, None)];
        let policy = Rights::new(Policy { rules, ..Policy::default() });
        assert!(policy.grant("x", "x", "one").is_some());
        assert!(policy.grant("x", "x", "x").is_none());
        assert!(policy.grant("y", "y", "y").is_some());
    }

    #[test]
    fn a_rule_for_all_hides_what_stands_below_it_and_agents_share_what_is_granted() {
        let rules = vec![rule(Some("x"), None), rule(None, None), rule(Some("y"), Some(&["z"]))];
        let policy = Rights::new(Policy { rules, ..Policy::default() });
        assert!(policy.grant("y", "y", "z").is_none());
        let [one, other] = ["a", "b"].map(|name| policy.grant(name, name, name).unwrap());
        assert!(Arc::ptr_eq(&one, &other));
        assert!(!Arc::ptr_eq(&one, &policy.grant("x", "x", "x").unwrap()));
    }

    #[test]
    fn names_of_a_dictionary_are_suggested_for_what_is_nearly_spelt_so_and_may_be_offered() {
        let names = ["text.upper", "text.uppers", "text.lower", "secret.upper", "a", "b"];
        let dictionary = names.map(str::to_owned).into_iter().collect();
        let grant = Grant {
            provide: ["text.*", "a", "b"].map(|pattern| pattern.parse().unwrap()).to_vec(),
            call: Vec::new(),
            dictionary: Some(Arc::new(dictionary)),
        };
        assert_eq!(grant.nearest("text.uper"), ["text.upper", "text.uppers"]);
        assert_eq!(grant.nearest("text.lowre"), ["text.lower"]);
        assert_eq!(grant.nearest("c"), ["a", "b"]);
        assert_eq!(grant.nearest("secret.uper"), [""; 0], "what is not granted is not told");
        assert_eq!(grant.nearest("something.else"), [""; 0]);
        assert!(
            grant.may_offer("text.upper")
                && !grant.may_offer("text.uper")
                && !grant.may_offer("secret.upper")
        );
    }

    #[test]
    fn the_distance_of_names_counts_letters_put_in_taken_out_and_replaced() {
        let of = |one: &str, other: &str| distance(one.as_bytes(), other.as_bytes(), 3);
        for (one, other, edits) in [
            ("", "", Some(0)),
            ("abc", "abc", Some(0)),
            ("abc", "", Some(3)),
            ("kitten", "sitting", Some(3)),
            ("saturday", "sunday", Some(3)),
            ("aaa", "aa", Some(1)),
            ("abcd", "", None),
            ("abcd", "efgh", None),
        ] {
            assert_eq!((of(one, other), of(other, one)), (edits, edits), "{one} {other}");
        }
    }

    #[test]
    fn a_token_has_only_the_rule_that_names_it() {
        let rules = vec![rule(Some("token:a"), None), rule(None, None)];
        let policy = Rights::new(Policy { rules, ..Policy::default() });
        assert!(policy.grant("token:a", "a", "a").is_some());
        assert!(policy.grant("token:b", "b", "b").is_none());
        assert!(policy.grant("tokens", "b", "b").is_some());
    }

    #[test]
    fn a_token_may_be_each_of_its_windows_and_nobody_else_may() {
        let rules = vec![rule(Some("token:a"), None), rule(Some("token:b"), Some(&["b"])), rule(None, None)];
        let policy = Rights::new(Policy { rules, ..Policy::default() });
        let own = policy.grant("token:a", "a", "a").unwrap();
        assert!(Arc::ptr_eq(&own, &policy.grant("token:a", "a", "a/w").unwrap()));
        for (identity, name, agent_id) in [
            ("token:a", "a", "b/w"),
            ("token:a", "a", "a/"),
            ("token:a", "a", "a/w/x"),
            ("token:b", "b", "b/w"),
            ("spiffe://d/agent/a", "a", "a/w"),
        ] {
            assert!(policy.grant(identity, name, agent_id).is_none(), "{identity} {agent_id}");
        }
    }

    #[test]
    fn no_rule_means_no_right() {
        assert!(Rights::new(Policy::default()).grant("x", "x", "x").is_none());
    }

    #[test]
    fn the_open_policy_reaches_operators_capabilities() {
        let grant = Rights::new(Policy::open()).grant("x", "x", "x").unwrap();
        assert!(covers(&grant.call, "hub.agents.disconnect"));
        assert!(covers(&grant.call, "anything.else"));
    }
}
