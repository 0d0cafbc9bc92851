//! From a file and an environment to sections, key by key, so that one bad key does not hide the next.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::problem::{Problem, line_at};

/// Prefix of every variable that stands for a key: `AGENT_REACH__SECTION__KEY`.
pub const ENV_PREFIX: &str = "AGENT_REACH__";

/// What was written, and where, before it is given its types.
pub(super) struct Source<'i> {
    file: String,
    text: &'i str,
    version: Option<Entry<'i>>,
    sections: BTreeMap<String, BTreeMap<String, Entry<'i>>>,
    places: BTreeMap<String, Place>,
    mistyped: BTreeSet<String>,
    pub(super) problems: Vec<Problem>,
}

enum Entry<'i> {
    File(Spanned<DeValue<'i>>),
    Env(&'i str),
}

#[derive(Clone)]
enum Place {
    Line(usize),
    Env(String),
}

impl<'i> Source<'i> {
    /// Takes a file's text apart, and lays the environment over it.
    ///
    /// Text that is not TOML ends it here: what follows a syntax error cannot be trusted to mean what it says.
    pub(super) fn new(
        path: &Path,
        text: &'i str,
        env: &'i [(String, String)],
        known: &[&str],
    ) -> Result<Self, Vec<Problem>> {
        let mut source = Self {
            file: path.display().to_string(),
            text,
            version: None,
            sections: BTreeMap::new(),
            places: BTreeMap::new(),
            mistyped: BTreeSet::new(),
            problems: Vec::new(),
        };
        let (table, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            return Err(errors.iter().map(|error| source.syntax(error)).collect());
        }
        source.add_file(table.into_inner(), known);
        for (name, value) in env {
            if let Some(key) = name.strip_prefix(ENV_PREFIX) {
                source.add_variable(name, key, value, known);
            }
        }
        Ok(source)
    }

    /// The `version` of the file's format.
    pub(super) fn version(&mut self) -> Option<u64> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Top {
            version: Option<u64>,
        }
        let entry = self.version.take()?;
        let entries = BTreeMap::from([("version".to_owned(), entry)]);
        self.typed::<Top>("", entries).version
    }

    /// The section of this name, or nothing when neither the file nor the environment has it.
    pub(super) fn section<T: DeserializeOwned + Default>(&mut self, name: &str) -> Option<T> {
        let entries = self.sections.remove(name)?;
        Some(self.typed(name, entries))
    }

    /// Whether the key was written anywhere. `key` is `section.key`.
    pub(super) fn has(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    /// Notes a problem with a key, at the place where it was written, or else at its section. Of a key whose
    /// value has the wrong type there is nothing more to say: what would be judged is only the default.
    pub(super) fn problem(&mut self, key: &str, message: impl Into<String>) {
        if self.mistyped.contains(key) {
            return;
        }
        let section = key.split_once('.').map_or(key, |(section, _)| section);
        let place = self.places.get(key).or_else(|| self.places.get(section)).cloned();
        let message = message.into();
        self.problems.push(match place {
            Some(Place::Env(variable)) if self.has(key) => {
                Problem { file: "environment".into(), line: None, key: variable, message }
            }
            Some(Place::Line(line)) => self.in_file(Some(line), key, message),
            Some(Place::Env(_)) | None => self.in_file(None, key, message),
        });
    }

    fn in_file(&self, line: Option<usize>, key: &str, message: String) -> Problem {
        Problem { file: self.file.clone(), line, key: key.to_owned(), message }
    }

    fn syntax(&self, error: &toml::de::Error) -> Problem {
        let line = error.span().map(|span| line_at(self.text, span.start));
        let message = format!("not TOML: {}; correct the line", one_line(error.message()));
        self.in_file(line, "", message)
    }

    fn add_file(&mut self, table: DeTable<'i>, known: &[&str]) {
        for (name, value) in table {
            let line = line_at(self.text, name.span().start);
            let name = name.into_inner().into_owned();
            self.places.insert(name.clone(), Place::Line(line));
            if name == "version" {
                self.version = Some(Entry::File(value));
                continue;
            }
            if !known.contains(&name.as_str()) {
                self.problem(&name, unknown_section(known));
                continue;
            }
            let DeValue::Table(keys) = value.into_inner() else {
                self.problem(&name, format!("is a section: write [{name}] and its keys below"));
                continue;
            };
            let section = self.sections.entry(name.clone()).or_default();
            for (key, value) in keys {
                let line = line_at(self.text, key.span().start);
                let key = key.into_inner().into_owned();
                self.places.insert(format!("{name}.{key}"), Place::Line(line));
                section.insert(key, Entry::File(value));
            }
        }
    }

    fn add_variable(&mut self, variable: &str, key: &str, value: &'i str, known: &[&str]) {
        let place = Place::Env(variable.to_owned());
        if key == "VERSION" {
            self.places.insert("version".into(), place);
            self.version = Some(Entry::Env(value));
            return;
        }
        let lower = key.to_ascii_lowercase();
        let upper_case = !key.bytes().any(|b| b.is_ascii_lowercase());
        let Some((section, key)) = lower.split_once("__").filter(|(section, key)| {
            upper_case && known.contains(section) && !key.is_empty() && !key.contains("__")
        }) else {
            let message = "unknown variable; write AGENT_REACH__SECTION__KEY in upper case, or remove it";
            self.problems.push(Problem {
                file: "environment".into(),
                line: None,
                key: variable.to_owned(),
                message: message.into(),
            });
            return;
        };
        self.places.entry(section.to_owned()).or_insert_with(|| place.clone());
        self.places.insert(format!("{section}.{key}"), place);
        self.sections.entry(section.to_owned()).or_default().insert(key.to_owned(), Entry::Env(value));
    }

    /// Gives a section its types. A key that has no meaning becomes a problem, and its default stays.
    fn typed<T: DeserializeOwned + Default>(
        &mut self,
        name: &str,
        entries: BTreeMap<String, Entry<'i>>,
    ) -> T {
        let mut section = DeTable::new();
        for (key, entry) in entries {
            match entry.resolve::<T>(&key) {
                Ok(value) => {
                    section.insert(Spanned::new(0..0, key.into()), value);
                }
                Err(error) => {
                    let full = if name.is_empty() { key } else { format!("{name}.{key}") };
                    self.refuse(&full, &error);
                }
            }
        }
        let whole = Spanned::new(0..0, DeValue::Table(section));
        T::deserialize(ValueDeserializer::from(whole)).unwrap_or_else(|error| {
            self.problem(name, one_line(error.message()));
            T::default()
        })
    }

    fn refuse(&mut self, key: &str, error: &toml::de::Error) {
        let text = one_line(error.message());
        let message = match text.strip_prefix("unknown field ").and_then(|rest| rest.split_once(", ")) {
            Some((_, expected)) => format!("unknown key, {expected}; correct its spelling or remove it"),
            None if text.contains("; write ") => text,
            None => format!("{text}; correct the value"),
        };
        self.problem(key, message);
        self.mistyped.insert(key.to_owned());
        // An element of a list over several lines can be told apart from the key.
        let in_file = matches!(self.places.get(key), Some(Place::Line(_)));
        if let (true, Some(span), Some(problem)) = (in_file, error.span(), self.problems.last_mut())
            && span.end > 0
        {
            problem.line = Some(line_at(self.text, span.start));
        }
    }
}

impl<'i> Entry<'i> {
    /// The value of the key as section `T` can take it.
    fn resolve<T: DeserializeOwned>(self, key: &str) -> Result<Spanned<DeValue<'i>>, toml::de::Error> {
        let fits = |value: &Spanned<DeValue<'i>>| {
            let mut single = DeTable::new();
            single.insert(Spanned::new(0..0, key.to_owned().into()), value.clone());
            T::deserialize(ValueDeserializer::from(Spanned::new(0..0, DeValue::Table(single)))).map(drop)
        };
        let text = match self {
            Self::File(value) => return fits(&value).map(|()| value),
            Self::Env(text) => text,
        };
        let plain = Spanned::new(0..0, DeValue::String(text.into()));
        // A variable is TOML when the key can take it as such (numbers, lists), and plain text otherwise.
        let Ok(value) = DeValue::parse(text) else {
            return fits(&plain).map(|()| plain);
        };
        match fits(&value) {
            Ok(()) => Ok(value),
            Err(error) => fits(&plain).map(|()| plain).map_err(|_| error),
        }
    }
}

fn unknown_section(known: &[&str]) -> String {
    format!(
        "unknown, expected version or one of the sections {}; correct its spelling or remove it",
        known.join(", ")
    )
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
