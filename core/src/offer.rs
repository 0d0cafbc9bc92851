//! One capability that one agent offers.

use std::sync::Arc;

use agent_reach_protocol::codec::Writer;
use agent_reach_protocol::names::CapabilityName;
use agent_reach_protocol::{Capability, FieldValue};

use crate::breaker::{Breaker, BreakerSettings, Verdict};
use crate::offered::Names;
use crate::quota::Quota;
use crate::schema::{Promise, Schema};
use crate::time::Now;

/// One capability that one agent offers.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    /// The provider's own name.
    pub(crate) name: Arc<str>,
    pub(crate) idempotent: bool,
    /// It says nothing beside its name, and its breaker lets every call through.
    plain: bool,
    /// What else is said of it, and how its calls went; an idle agent that says nothing else pays nothing for it.
    terms: Option<Box<Terms>>,
}

/// What an offer may say beside its name.
#[derive(Clone, Debug, Default)]
struct Terms {
    version: Option<semver::Version>,
    timeout_ms: Option<u64>,
    /// Its `qps_limit`.
    quota: Option<Quota>,
    aliases: Box<[Arc<str>]>,
    /// Its `input_schema`, if bodies are held against it.
    input: Option<Arc<Schema>>,
    /// Its `output_schema`.
    output: Option<Arc<Promise>>,
    /// Description, schemas, labels, as they came, for the dictionary; `None` when there is none of them.
    about: Option<Box<[u8]>>,
    /// Made with the first call whose end says something of the agent.
    breaker: Option<Box<Breaker>>,
}

impl Terms {
    #[inline(never)]
    fn has_alias(&self, name: &Arc<str>) -> bool {
        self.aliases.iter().any(|alias| Arc::ptr_eq(alias, name))
    }

    /// Whether every call may be given, whatever it asks.
    fn says_nothing(&self) -> bool {
        self.version.is_none()
            && self.timeout_ms.is_none()
            && self.quota.is_none()
            && self.aliases.is_empty()
            && self.about.is_none()
            && self.breaker.as_deref().is_none_or(Breaker::is_closed)
    }
}

impl Offer {
    /// Reads an offer; the flag says whether its name was folded.
    ///
    /// The error says why it cannot be taken.
    pub(crate) fn read(capability: &Capability<'_>, names: &Names) -> Result<(Self, bool), String> {
        let (name, folded) = CapabilityName::fold(capability.name).map_err(|e| format!("the name {e}"))?;
        if name.is_reserved() {
            return Err("names below hub. belong to the hub".to_owned());
        }
        let version = match capability.version.map(semver::Version::parse) {
            Some(Err(e)) => return Err(format!("version is not semver: {e}")),
            Some(Ok(version)) => Some(version),
            None => None,
        };
        let mut aliases = Vec::with_capacity(capability.aliases.len());
        for alias in &capability.aliases {
            let (alias, _) = CapabilityName::fold(alias).map_err(|e| format!("an alias {e}"))?;
            if alias.is_reserved() {
                return Err(format!("alias {alias} belongs to the hub"));
            }
            aliases.push(names.intern(alias.as_str()));
        }
        let terms = Terms {
            version,
            timeout_ms: capability.timeout_ms,
            quota: capability.qps_limit.and_then(Quota::new),
            aliases: aliases.into(),
            input: None,
            output: None,
            about: about(capability),
            breaker: None,
        };
        let name = names.intern(name.as_str());
        let plain = terms.says_nothing();
        let terms = (!plain).then(|| Box::new(terms));
        Ok((Self { name, idempotent: capability.idempotent, plain, terms }, folded))
    }

    /// Bytes of its description and schemas.
    pub(crate) fn described(&self) -> usize {
        self.about().map_or(0, <[u8]>::len)
    }

    pub(crate) fn version(&self) -> Option<&semver::Version> {
        self.terms.as_ref()?.version.as_ref()
    }

    pub(crate) fn timeout_ms(&self) -> Option<u64> {
        self.terms.as_ref()?.timeout_ms
    }

    /// Its `qps_limit`.
    pub(crate) fn quota(&self) -> Option<&Quota> {
        self.terms.as_ref()?.quota.as_ref()
    }

    pub(crate) fn quota_mut(&mut self) -> Option<&mut Quota> {
        self.terms.as_mut()?.quota.as_mut()
    }

    pub(crate) fn aliases(&self) -> &[Arc<str>] {
        self.terms.as_ref().map_or(&[], |terms| &terms.aliases)
    }

    /// Description, schemas, labels, as they came.
    pub(crate) fn about(&self) -> Option<&[u8]> {
        self.terms.as_ref()?.about.as_deref()
    }

    /// Whether the offer answers to a name, given as the shared copy: every name of a registered offer is one.
    pub(crate) fn answers_to(&self, name: &Arc<str>) -> bool {
        Arc::ptr_eq(&self.name, name) || self.terms.as_ref().is_some_and(|terms| terms.has_alias(name))
    }

    /// Whether the offer says nothing beside its name, and lets every call through.
    pub(crate) const fn has_no_terms(&self) -> bool {
        self.plain
    }

    /// Whether the offer says nothing beside its name, which is this.
    pub(crate) fn is_plain(&self, name: &Arc<str>) -> bool {
        self.plain && Arc::ptr_eq(&self.name, name)
    }

    /// Its `input_schema`, if bodies are held against it.
    pub(crate) fn input(&self) -> Option<&Arc<Schema>> {
        self.terms.as_ref()?.input.as_ref()
    }

    /// Its `output_schema`.
    pub(crate) fn output(&self) -> Option<&Arc<Promise>> {
        self.terms.as_ref()?.output.as_ref()
    }

    /// Holds bodies and expectations against its schemas from now on.
    pub(crate) fn set_schemas(&mut self, input: Option<Arc<Schema>>, output: Option<Arc<Promise>>) {
        if let Some(terms) = &mut self.terms {
            (terms.input, terms.output) = (input, output);
        }
    }

    /// Its breaker, once a call told it something.
    pub(crate) fn breaker(&self) -> Option<&Breaker> {
        self.terms.as_ref()?.breaker.as_deref()
    }

    /// A call is given; whether it is the breaker's trial.
    pub(crate) fn give(&mut self, now: Now, settings: &BreakerSettings) -> bool {
        let terms = self.terms.as_mut().filter(|_| !self.plain);
        terms.and_then(|terms| terms.breaker.as_mut()).is_some_and(|breaker| breaker.give(now, settings))
    }

    /// A call that was given has ended.
    pub(crate) fn end(&mut self, now: Now, settings: &BreakerSettings, trial: bool, verdict: Verdict) {
        if verdict == Verdict::Neither && !trial {
            return;
        }
        let terms = self.terms.get_or_insert_default();
        terms.breaker.get_or_insert_with(|| Box::new(Breaker::new())).end(now, settings, trial, verdict);
        if verdict == Verdict::Failure || !self.plain {
            self.plain = terms.says_nothing();
        }
    }

    /// Takes over how the calls of the offer went that this one replaces.
    pub(crate) fn succeed(&mut self, before: &mut Self) {
        if let Some(breaker) = before.terms.as_mut().and_then(|terms| terms.breaker.take()) {
            let terms = self.terms.get_or_insert_default();
            terms.breaker = Some(breaker);
            self.plain = terms.says_nothing();
        }
    }

    /// Every name the offer answers to, its own first.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        std::iter::once(&self.name).chain(self.aliases())
    }

    pub(crate) fn names_mut(&mut self) -> impl Iterator<Item = &mut Arc<str>> {
        let aliases = self.terms.iter_mut().flat_map(|terms| &mut terms.aliases);
        std::iter::once(&mut self.name).chain(aliases)
    }
}

/// Keeps the descriptive part of a capability encoded: it is read only when somebody lists the dictionary.
fn about(capability: &Capability<'_>) -> Option<Box<[u8]>> {
    let described = capability.description.is_some()
        || capability.input_schema.is_some()
        || capability.output_schema.is_some()
        || capability.qps_limit.is_some()
        || capability.labels.present();
    described.then(|| {
        let mut out = Writer::default();
        capability.write(&mut out);
        out.into_bytes().into_boxed_slice()
    })
}
