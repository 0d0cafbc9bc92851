//! What a call asks of who takes it, as it is kept for another try.

use std::sync::Arc;

use agent_reach_protocol::codec::Writer;
use agent_reach_protocol::{Call as Asking, Labels};

use crate::schema::Expected;
use crate::waiting::LineKey;

/// What most calls do not ask: they name a capability, and pay nothing for this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// The one agent it is for.
    pub(crate) agent: Option<Arc<str>>,
    pub(crate) require: Box<[(Box<str>, Box<str>)]>,
    /// A semver requirement that was read once already.
    pub(crate) version: Option<Box<str>>,
    pub(crate) affinity_key: Option<Box<str>>,
    /// MessagePack of a JSON Schema that was read once already.
    pub(crate) expected_output: Option<Box<[u8]>>,
}

impl Demand {
    /// Of a call for one target; `None` when it only names its capability.
    pub(crate) fn of(asking: &Asking<'_>) -> Option<Box<Self>> {
        let demand = Self {
            agent: asking.agents.as_ref().and_then(|ids| ids.first()).map(|id| (*id).into()),
            require: asking.require.0.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
            version: asking.version.map(Into::into),
            affinity_key: asking.affinity_key.map(Into::into),
            expected_output: asking.expected_output.map(|schema| schema.0.into()),
        };
        (demand != Self::default()).then(|| Box::new(demand))
    }

    pub(crate) fn require(&self) -> Labels<'_> {
        Labels(self.require.iter().map(|(key, value)| (&**key, &**value)).collect())
    }

    pub(crate) fn version(&self) -> Option<semver::VersionReq> {
        self.version.as_deref().and_then(|text| text.parse().ok())
    }

    pub(crate) fn expected(&self) -> Option<Expected> {
        self.expected_output.as_deref().and_then(|schema| Expected::read(schema).ok())
    }

    /// The line of all calls that the same agents can take. `rights`: of the caller, where it may not call everything;
    /// an agent's alias may stand for a name that it may not call. `misfits`: the places, among all schemas of those
    /// who offer the capability, of the ones that the body does not fit.
    pub(crate) fn line(&self, name: &Arc<str>, rights: Option<u128>, misfits: &[usize]) -> LineKey {
        let mut terms = Writer::default();
        if let Some(rights) = rights {
            terms.bin(&rights.to_le_bytes());
        }
        if let Some(expected) = &self.expected_output {
            terms.bin(expected);
        }
        for misfit in misfits {
            terms.uint(*misfit as u64);
        }
        if self.version.is_some() || !self.require.is_empty() {
            terms.str(self.version.as_deref().unwrap_or_default());
            for (key, value) in &self.require {
                terms.str(key);
                terms.str(value);
            }
        }
        LineKey { name: Arc::clone(name), agent: self.agent.clone(), terms: terms.into_bytes().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_decides_who_can_take_a_call_makes_a_line() {
        let name: Arc<str> = "a".into();
        let plain = Demand::default().line(&name, None, &[]);
        assert!(plain.terms.is_empty());
        let affine = Demand { affinity_key: Some("k".into()), ..Demand::default() };
        assert_eq!(affine.line(&name, None, &[]), plain);
        let lines = [
            Demand { agent: Some("p".into()), ..Demand::default() },
            Demand { version: Some("^1".into()), ..Demand::default() },
            Demand { require: [("^1".into(), "".into())].into(), ..Demand::default() },
            Demand { require: [("k".into(), "v".into())].into(), ..Demand::default() },
            Demand { expected_output: Some([1].into()), ..Demand::default() },
        ]
        .map(|demand| demand.line(&name, None, &[]));
        assert_ne!(Demand::default().line(&name, None, &[1]), plain);
        assert_ne!(Demand::default().line(&name, Some(1), &[]), plain);
        for (place, line) in lines.iter().enumerate() {
            assert!(*line != plain && !lines[..place].contains(line), "{line:?}");
        }
        let [some, other] = [1, 2].map(|rights| Demand::default().line(&name, Some(rights), &[]));
        assert!(some != plain && some != other && !lines.contains(&some));
    }
}
