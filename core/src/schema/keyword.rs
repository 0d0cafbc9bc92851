//! What the keywords of JSON Schema lead to, in all drafts at once: more is followed than any one of them does.

use serde_json::Value;

/// What a keyword does with the schemas in its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyword {
    /// `$ref`: to a schema elsewhere, for the same value.
    Reference,
    /// To its schemas, for the same value.
    Same {
        /// Whether it only asks if they fit, and may have to ask again to say why not.
        choice: bool,
        shape: Shape,
    },
    /// To a schema for each key.
    Properties,
    /// To its schemas, for all values of a map.
    Members(Shape),
    /// To its schema for all items, or to one for each place.
    Items,
    /// Its value is compared, counted or matched.
    Data,
    /// Says nothing about a value.
    Aside,
}

/// Where in a keyword's value its schemas are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// It is one.
    One,
    /// A list of them.
    List,
    /// By name or pattern.
    Map,
}

impl Keyword {
    pub(super) fn of(keyword: &str) -> Self {
        match keyword {
            "$ref" => Self::Reference,
            "allOf" => Self::Same { choice: false, shape: Shape::List },
            "anyOf" | "oneOf" => Self::Same { choice: true, shape: Shape::List },
            "not" | "if" | "then" | "else" => Self::Same { choice: true, shape: Shape::One },
            "dependentSchemas" | "dependencies" => Self::Same { choice: false, shape: Shape::Map },
            "properties" => Self::Properties,
            "patternProperties" => Self::Members(Shape::Map),
            "additionalProperties" | "unevaluatedProperties" | "propertyNames" => Self::Members(Shape::One),
            "items" | "prefixItems" | "additionalItems" | "unevaluatedItems" | "contains" => Self::Items,
            "$defs" | "definitions" | "$comment" | "title" | "description" | "default" | "examples"
            | "format" => Self::Aside,
            _ => Self::Data,
        }
    }
}

impl Shape {
    /// The schemas in a keyword's value. What is no schema is left out: whoever compiles it will refuse it.
    pub(super) fn schemas(self, value: &Value) -> Vec<&Value> {
        let is_schema = |value: &&Value| value.is_object() || value.is_boolean();
        match (self, value) {
            (Self::One, _) => Some(value).into_iter().filter(is_schema).collect(),
            (Self::List, Value::Array(items)) => items.iter().filter(is_schema).collect(),
            (Self::Map, Value::Object(map)) => map.values().filter(is_schema).collect(),
            (Self::List | Self::Map, _) => Vec::new(),
        }
    }
}
