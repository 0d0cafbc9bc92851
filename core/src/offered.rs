//! The index from capability names to who offers them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Who offers one name.
#[derive(Debug, Default)]
pub(crate) struct Offered {
    /// Agents that offer it, by own name or alias, in the order of their keys.
    pub(crate) by: Vec<usize>,
    /// Its number among the idle names, while nobody offers it.
    idle: Option<u64>,
    /// Where the next turn of rotation starts.
    pub(crate) turn: usize,
}

/// One copy of each name in use, shared by all who offer it: a thousand agents of one capability cost a
/// thousand pointers.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: BTreeMap<Arc<str>, Offered>,
    /// Names nobody offers now, the longest unoffered first; bounds what is remembered.
    idle: BTreeMap<u64, Arc<str>>,
    /// Numbers of `idle`, in the order names became so.
    idled: u64,
    bound: usize,
}

impl Names {
    pub(crate) fn new(bound: usize) -> Self {
        Self { bound, ..Self::default() }
    }

    /// The shared copy of a name. It becomes known only by [`Names::offer`].
    pub(crate) fn intern(&self, name: &str) -> Arc<str> {
        self.known.get_key_value(name).map_or_else(|| name.into(), |(own, _)| Arc::clone(own))
    }

    /// Who offers `name`; `None` when nobody ever has.
    pub(crate) fn get(&self, name: &str) -> Option<(&Arc<str>, &Offered)> {
        self.known.get_key_value(name)
    }

    /// As [`Names::get`], to move the turn on.
    pub(crate) fn get_mut(&mut self, name: &str) -> Option<(&Arc<str>, &mut Offered)> {
        // There is no `get_key_value_mut`; a range of one name is one.
        self.known.range_mut::<str, _>((Bound::Included(name), Bound::Included(name))).next()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Offered)> {
        self.known.iter()
    }

    pub(crate) fn offer(&mut self, name: &Arc<str>, agent: usize) {
        let offered = self.known.entry(Arc::clone(name)).or_default();
        if let Some(number) = offered.idle.take() {
            self.idle.remove(&number);
        }
        if let Err(place) = offered.by.binary_search(&agent) {
            offered.by.insert(place, agent);
        }
    }

    pub(crate) fn withdraw(&mut self, name: &Arc<str>, agent: usize) {
        let Some(offered) = self.known.get_mut(name) else { return };
        if let Ok(place) = offered.by.binary_search(&agent) {
            offered.by.remove(place);
        }
        if !offered.by.is_empty() || offered.idle.is_some() {
            return;
        }
        self.idled += 1;
        offered.idle = Some(self.idled);
        self.idle.insert(self.idled, Arc::clone(name));
        while self.idle.len() > self.bound {
            let Some((_, oldest)) = self.idle.pop_first() else { break };
            self.known.remove(&oldest);
        }
    }
}
