//! What an expression of PromQL names: metrics, and labels with their values. No more of the language than that needs.

use std::collections::BTreeSet;

/// What stands in an expression.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) metrics: BTreeSet<String>,
    /// Labels of matchers and of `by`, `on` and the like.
    pub(crate) labels: BTreeSet<String>,
    /// Metric, label, operator and value of each matcher.
    pub(crate) matchers: Vec<(String, String, String, String)>,
}

/// Words of the language that stand where a metric could.
const WORDS: [&str; 8] = ["and", "or", "unless", "offset", "bool", "inf", "nan", "atan2"];
/// Words before a list of labels.
const BEFORE_LABELS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

/// Reads an expression.
pub(crate) fn named(expression: &str) -> Named {
    let tokens = tokens(expression);
    let mut named = Named::default();
    let mut at = 0;
    let mut metric = String::new();
    while let Some(token) = tokens.get(at) {
        let next = tokens.get(at + 1).map_or("", String::as_str);
        at += 1;
        if token == "{" {
            while let Some([label, operator, value]) = tokens.get(at..at + 3).filter(|t| t[0] != "}") {
                named.labels.insert(label.clone());
                let value = value.trim_matches('"').to_owned();
                named.matchers.push((metric.clone(), label.clone(), operator.clone(), value));
                at += if tokens.get(at + 3).is_some_and(|token| token == ",") { 4 } else { 3 };
            }
        } else if BEFORE_LABELS.contains(&token.as_str()) {
            // `group_left` may stand without a list.
            if next == "(" {
                let list: Vec<_> = tokens[at + 1..].iter().take_while(|token| *token != ")").collect();
                at += list.len() + 2;
                named.labels.extend(list.into_iter().filter(|token| *token != ",").cloned());
            }
        } else if is_name(token)
            // A function, or an aggregation as in `sum by (…) (…)`.
            && !(next == "(" || BEFORE_LABELS.contains(&next))
            && !WORDS.contains(&token.to_lowercase().as_str())
        {
            metric.clone_from(token);
            named.metrics.insert(token.clone());
        }
    }
    named
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == ':')
}

/// Names, strings with their marks, operators and single characters; numbers and durations as one token each.
fn tokens(expression: &str) -> Vec<String> {
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.');
    let mut tokens: Vec<String> = Vec::new();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if first == '"' {
            rest[1..].find('"').map_or(rest.len(), |end| end + 2)
        } else if part(first) {
            rest.find(|c| !part(c)).unwrap_or(rest.len())
        } else if ["=~", "!~", "!=", "==", ">=", "<="].iter().any(|operator| rest.starts_with(operator)) {
            2
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token.to_owned());
        rest = after.trim_start();
    }
    tokens
}

#[test]
fn metrics_labels_and_values_are_told_apart_from_the_words_of_the_language() {
    let found = named(
        "sum by (job, le) (rate(a_total{x=~\"b|c\",y!=\"d e\"}[5m])) / on (job) group_left (v) 0 * b:c:d5m \
         offset 1d unless absent(up{job=\"j\"}) and count(ALERTS)",
    );
    assert_eq!(found.metrics.iter().collect::<Vec<_>>(), ["ALERTS", "a_total", "b:c:d5m", "up"]);
    assert_eq!(found.labels.iter().collect::<Vec<_>>(), ["job", "le", "v", "x", "y"]);
    let matcher = |metric: &str, label: &str, operator: &str, value: &str| {
        (metric.to_owned(), label.to_owned(), operator.to_owned(), value.to_owned())
    };
    let expected = vec![
        matcher("a_total", "x", "=~", "b|c"),
        matcher("a_total", "y", "!=", "d e"),
        matcher("up", "job", "=", "j"),
    ];
    assert_eq!(found.matchers, expected);
}
