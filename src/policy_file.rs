//! The policy file: who may be which agent, provide what and call what.
//!
//! ```toml
//! version = 7                               # any number; the live one is shown, so count it up
//! [[rules]]
//! identity  = "spiffe://agent-reach/agent/billing"   # exact, or "*" for everybody else
//! agent_ids = ["billing", "billing-2"]      # default: the NAME in the identity
//! provide   = ["invoice.*"]
//! call      = ["order.create", "hub.agents.*"]
//! [aliases]
//! "invoices.make" = "invoice.create"
//! [capabilities."invoice.create"]           # with one such section, nothing that has none may be offered
//! description = "Makes an invoice of an order"
//! ```
//!
//! The first rule that matches an identity counts; an identity that none matches is unauthorized. A pattern
//! is a capability name, `prefix.*` (below the prefix, not the prefix itself) or `*`. Any other form is a
//! problem with its line: a rule that is loaded must mean what its author reads.
//!
//! The sections of capabilities are the dictionary. It is closed unless the top of the file says
//! `dictionary = "open"`: an agent that registers another name does so without it, and is told the nearest ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use agent_reach_protocol::limits;
use agent_reach_protocol::names::{CapabilityName, Pattern, is_agent_id};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::{Problem, line_at, read_text};

/// Most rules of a file.
pub const MAX_RULES: usize = 100_000;
/// Most entries of one list in a rule.
pub const MAX_LIST: usize = limits::LIST_MAX;
/// Most aliases of a file.
pub const MAX_ALIASES: usize = 10_000;
/// Most names of the dictionary.
pub const MAX_CAPABILITIES: usize = 10_000;
/// Longest identity in bytes.
pub const MAX_IDENTITY_BYTES: usize = 2_048;

/// Longest description of a capability in bytes.
pub const MAX_DESCRIPTION_BYTES: usize = 1_024;

/// A policy as it is written. Every pattern and name in it is of the grammar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFile {
    /// The author's own count, shown as the live version.
    pub version: u64,
    /// In the order of the file.
    pub rules: Vec<Rule>,
    /// Alias to the capability that it stands for, which is never an alias itself.
    pub aliases: BTreeMap<String, String>,
    /// The dictionary: names of capabilities, and what they are for, in words.
    pub capabilities: BTreeMap<String, Option<String>>,
    /// Whether names outside of the dictionary may be offered. Default: only when it is empty.
    pub open: bool,
}

/// What one identity, or everybody else, may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The identity in the certificate, compared exactly, or `*`.
    pub identity: String,
    /// The agent_ids that it may register. `None`: the NAME in its certificate.
    pub agent_ids: Option<Vec<String>>,
    /// Patterns of what it may provide. Default: nothing.
    pub provide: Vec<String>,
    /// Patterns of what it may call. Default: nothing.
    pub call: Vec<String>,
}

impl PolicyFile {
    /// Loads and checks a policy file.
    ///
    /// # Errors
    /// Every problem that was found, in the order of the lines.
    pub fn load(path: &Path) -> Result<Self, Vec<Problem>> {
        let text = read_text(path).map_err(|problem| vec![problem])?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Checks the text of a policy file; `file` is what problems call it.
    ///
    /// # Errors
    /// Every problem that was found, in the order of the lines.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let mut reader = Reader { file, text, problems: Vec::new(), dictionary: None };
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let at = error.span().map_or(0, |span| span.start);
            reader.problem(
                at,
                "",
                format!("not TOML: {}; correct the line", error.message().replace('\n', " ")),
            );
        }
        if errors.is_empty() {
            let policy = reader.policy(table.get_ref());
            if reader.problems.is_empty() {
                return Ok(policy);
            }
        }
        reader.problems.sort();
        Err(reader.problems)
    }

    /// The only names that may be offered; `None`: any.
    #[must_use]
    pub fn dictionary(&self) -> Option<BTreeSet<String>> {
        (!self.open).then(|| self.capabilities.keys().cloned().collect())
    }

    /// The rule that counts for an identity.
    #[must_use]
    pub fn rule_for(&self, identity: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.identity == "*" || rule.identity == identity)
    }

    /// Rules that never count, since an earlier one matches all that they match: pairs of rule numbers from 1,
    /// the one that never counts and the one before it.
    #[must_use]
    pub fn shadowed(&self) -> Vec<(usize, usize)> {
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        let mut shadowed = Vec::new();
        for (number, rule) in (1..).zip(&self.rules) {
            match first.get("*").or_else(|| first.get(rule.identity.as_str())) {
                Some(before) => shadowed.push((number, *before)),
                None => drop(first.insert(&rule.identity, number)),
            }
        }
        shadowed
    }
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    problems: Vec<Problem>,
    /// The only names that may be offered.
    dictionary: Option<BTreeSet<String>>,
}

type Value<'a> = Spanned<DeValue<'a>>;

impl Reader<'_> {
    fn policy(&mut self, table: &DeTable<'_>) -> PolicyFile {
        let mut policy = PolicyFile {
            version: 0,
            rules: Vec::new(),
            aliases: BTreeMap::new(),
            capabilities: self.capabilities(table),
            open: self.is_open(table),
        };
        // Rules and aliases are held against it.
        self.dictionary = policy.dictionary();
        let mut versioned = false;
        for (key, value) in table {
            let at = key.span().start;
            match key.get_ref().as_ref() {
                "version" => {
                    versioned = true;
                    policy.version = self.version(value);
                }
                "rules" => policy.rules = self.rules(at, value),
                "aliases" => policy.aliases = self.aliases(at, value),
                "dictionary" | "capabilities" => {}
                other => self.problem(
                    at,
                    other,
                    "unknown key, expected version, dictionary, [[rules]], [aliases] or [capabilities.\"NAME\"]; correct its spelling or remove it",
                ),
            }
        }
        if !versioned {
            self.problem(0, "version", "is missing; write for example version = 1 in the first line");
        }
        policy
    }

    fn version(&mut self, value: &Value<'_>) -> u64 {
        let number =
            value.get_ref().as_integer().and_then(|n| u64::from_str_radix(n.as_str(), n.radix()).ok());
        number.unwrap_or_else(|| {
            self.problem(value.span().start, "version", "is no whole number; write for example version = 1");
            0
        })
    }

    /// Whether any name may be offered.
    fn is_open(&mut self, table: &DeTable<'_>) -> bool {
        let listed = table.contains_key("capabilities");
        let Some(value) = table.get("dictionary") else { return !listed };
        match value.get_ref().as_str() {
            Some("open") => true,
            Some("closed") if listed => false,
            Some("closed") => {
                let reason = "is closed and has no names, so nothing could be offered; write a section as \
                              [capabilities.\"order.create\"] for each";
                self.problem(value.span().start, "dictionary", reason);
                false
            }
            Some(_) | None => {
                self.problem(value.span().start, "dictionary", "is neither \"open\" nor \"closed\"");
                true
            }
        }
    }

    fn capabilities(&mut self, table: &DeTable<'_>) -> BTreeMap<String, Option<String>> {
        let mut capabilities = BTreeMap::new();
        let Some(value) = table.get("capabilities") else { return capabilities };
        let at = value.span().start;
        let Some(table) = value.get_ref().as_table() else {
            let reason = "is made of sections; write [capabilities.\"order.create\"] for each name";
            self.problem(at, "capabilities", reason);
            return capabilities;
        };
        if table.len() > MAX_CAPABILITIES {
            let reason = format!("has more than {MAX_CAPABILITIES} names; write fewer");
            self.problem(at, "capabilities", reason);
            return capabilities;
        }
        for (key, value) in table {
            let (name, at) = (key.get_ref().as_ref(), key.span().start);
            let full = format!("capabilities.{name:?}");
            if let Err(reason) = check_alias(name) {
                self.problem(at, &full, reason);
            }
            let Some(about) = value.get_ref().as_table() else {
                self.problem(at, &full, format!("is a section; write [capabilities.{name:?}]"));
                continue;
            };
            let mut description = None;
            for (key, value) in about {
                match key.get_ref().as_ref() {
                    "description" => {
                        let full = format!("{full}.description");
                        description = Some(self.text_of(&full, value, check_description));
                    }
                    other => {
                        let reason =
                            "unknown key, expected description; a name with dots is written in quotes";
                        self.problem(key.span().start, &format!("{full}.{other}"), reason);
                    }
                }
            }
            capabilities.insert(name.to_owned(), description);
        }
        capabilities
    }

    /// A name that nobody may offer means nothing where it stands.
    fn listed(&mut self, key: &str, name: &Value<'_>) {
        let Some(text) = name.get_ref().as_str() else { return };
        let Ok(parsed) = text.parse::<CapabilityName>() else { return };
        if parsed.is_reserved() || self.dictionary.as_ref().is_none_or(|names| names.contains(text)) {
            return;
        }
        let reason = format!(
            "{text:?} is not in the dictionary; correct its spelling, or add [capabilities.{text:?}], or write \
             dictionary = \"open\" at the top"
        );
        self.problem(name.span().start, key, reason);
    }

    fn rules(&mut self, at: usize, value: &Value<'_>) -> Vec<Rule> {
        let Some(tables) = value.get_ref().as_array() else {
            self.problem(at, "rules", "is a list of sections; write [[rules]] above each rule");
            return Vec::new();
        };
        if tables.len() > MAX_RULES {
            self.problem(at, "rules", format!("has more than {MAX_RULES} rules; write fewer"));
            return Vec::new();
        }
        let mut rules = Vec::with_capacity(tables.len());
        for (number, rule) in (1..).zip(tables) {
            let name = format!("rules[{number}]");
            match rule.get_ref().as_table() {
                Some(table) => rules.push(self.rule(&name, rule.span().start, table)),
                None => {
                    self.problem(rule.span().start, &name, "is no section; write [[rules]] above each rule")
                }
            }
        }
        rules
    }

    fn rule(&mut self, name: &str, at: usize, table: &DeTable<'_>) -> Rule {
        let mut rule =
            Rule { identity: String::new(), agent_ids: None, provide: Vec::new(), call: Vec::new() };
        let mut identified = false;
        for (key, value) in table {
            let full = format!("{name}.{}", key.get_ref());
            match key.get_ref().as_ref() {
                "identity" => {
                    identified = true;
                    rule.identity = self.text_of(&full, value, check_identity);
                }
                "agent_ids" => rule.agent_ids = Some(self.list(&full, value, check_agent_id)),
                "provide" => {
                    rule.provide = self.list(&full, value, check_pattern);
                    for name in value.get_ref().as_array().into_iter().flatten() {
                        self.listed(&full, name);
                    }
                }
                "call" => rule.call = self.list(&full, value, check_pattern),
                _ => self.problem(
                    key.span().start,
                    &full,
                    "unknown key, expected identity, agent_ids, provide or call; correct its spelling or remove it",
                ),
            }
        }
        if !identified {
            self.problem(
                at,
                &format!("{name}.identity"),
                "is missing; write an identity, or \"*\" for everybody",
            );
        }
        rule
    }

    fn aliases(&mut self, at: usize, value: &Value<'_>) -> BTreeMap<String, String> {
        let mut aliases = BTreeMap::new();
        let Some(table) = value.get_ref().as_table() else {
            self.problem(
                at,
                "aliases",
                "is a section; write [aliases] and one name = \"target\" a line below",
            );
            return aliases;
        };
        if table.len() > MAX_ALIASES {
            self.problem(at, "aliases", format!("has more than {MAX_ALIASES} entries; write fewer"));
            return aliases;
        }
        for (key, value) in table {
            let (alias, at) = (key.get_ref().as_ref(), key.span().start);
            let full = format!("aliases.{alias:?}");
            if value.get_ref().is_table() {
                self.problem(
                    at,
                    &full,
                    "has dots; write a name with dots in quotes, as \"a.b\" = \"target\"",
                );
                continue;
            }
            if let Err(reason) = check_alias(alias) {
                self.problem(at, &full, reason);
            }
            let target = self.text_of(&full, value, check_name);
            if table.contains_key(target.as_str()) {
                let reason = format!(
                    "stands for {target:?}, which is an alias itself; write what that one stands for"
                );
                self.problem(value.span().start, &full, reason);
            }
            self.listed(&full, value);
            aliases.insert(alias.to_owned(), target);
        }
        aliases
    }

    fn list(&mut self, key: &str, value: &Value<'_>, check: fn(&str) -> Result<(), String>) -> Vec<String> {
        let Some(items) = value.get_ref().as_array() else {
            self.problem(value.span().start, key, "is no list; write it in brackets, as [\"a.b\", \"c.*\"]");
            return Vec::new();
        };
        if items.len() > MAX_LIST {
            self.problem(value.span().start, key, format!("has more than {MAX_LIST} entries; write fewer"));
            return Vec::new();
        }
        items.iter().map(|item| self.text_of(key, item, check)).collect()
    }

    fn text_of(&mut self, key: &str, value: &Value<'_>, check: fn(&str) -> Result<(), String>) -> String {
        let Some(text) = value.get_ref().as_str() else {
            self.problem(value.span().start, key, "is no text; write it in quotes");
            return String::new();
        };
        if let Err(reason) = check(text) {
            self.problem(value.span().start, key, reason);
        }
        text.to_owned()
    }

    fn problem(&mut self, at: usize, key: &str, message: impl Into<String>) {
        let line = Some(line_at(self.text, at));
        self.problems.push(Problem {
            file: self.file.to_owned(),
            line,
            key: key.to_owned(),
            message: message.into(),
        });
    }
}

fn check_pattern(text: &str) -> Result<(), String> {
    let parsed = text.parse::<Pattern>().map(drop);
    parsed.map_err(|error| format!("{text:?} {error}; a pattern is a name as a.b, a prefix as a.*, or *"))
}

fn check_name(text: &str) -> Result<(), String> {
    let parsed = text.parse::<CapabilityName>().map(drop);
    parsed.map_err(|error| format!("{text:?} {error}; write the name of one capability"))
}

fn check_alias(text: &str) -> Result<(), String> {
    check_name(text)?;
    match text.parse::<CapabilityName>() {
        Ok(name) if name.is_reserved() => {
            Err(format!("{text:?} is reserved for the hub; choose another name"))
        }
        _ => Ok(()),
    }
}

fn check_agent_id(text: &str) -> Result<(), String> {
    if is_agent_id(text) {
        return Ok(());
    }
    Err(format!(
        "{text:?} is no agent_id; write 1 to 128 letters, digits and . _ - : @ + ~ (there are no wildcards here)"
    ))
}

fn check_description(text: &str) -> Result<(), String> {
    if text.len() > MAX_DESCRIPTION_BYTES {
        return Err(format!("has {} bytes; write at most {MAX_DESCRIPTION_BYTES}", text.len()));
    }
    Ok(())
}

fn check_identity(text: &str) -> Result<(), String> {
    if text == "*" {
        return Ok(());
    }
    if text.contains('*') {
        return Err(format!(
            "{text:?} has * in an unsupported place; write an exact identity, or \"*\" alone"
        ));
    }
    if !(1..=MAX_IDENTITY_BYTES).contains(&text.len()) || text.bytes().any(|b| !b.is_ascii_graphic()) {
        return Err(format!("{text:?} is no identity; write it as the certificate has it, without spaces"));
    }
    Ok(())
}

#[cfg(test)]
#[path = "policy_file_tests.rs"]
mod tests;
