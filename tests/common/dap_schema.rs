//! Messages of a debug adapter, compared with the schema of the Debug Adapter Protocol.
//!
//! `dap_schema.json` is the published schema (debugProtocol.json of microsoft/debug-adapter-protocol, MIT
//! licence) as debugpy 1.8.22 ships it, without its texts; `tests/serve/distil-dap-schema.py` makes it.
//! One rule is added: what the schema does not name is wrong. Editors ignore such fields, so a name
//! with a mistake in it would never be seen.

use serde_json::{Map, Value};
use std::sync::OnceLock;

/// The definitions, by name.
fn definitions() -> &'static Map<String, Value> {
    static DEFINITIONS: OnceLock<Map<String, Value>> = OnceLock::new();
    DEFINITIONS.get_or_init(|| {
        serde_json::from_str(include_str!("dap_schema.json")).expect("the schema is JSON")
    })
}

/// Fails if an adapter's message is not one of the protocol.
#[track_caller]
pub(crate) fn assert_conforms(message: &Value) {
    let problems = problems(message);
    assert!(problems.is_empty(), "{}\n{message}", problems.join("\n"));
}

/// What is wrong with an adapter's message.
pub(crate) fn problems(message: &Value) -> Vec<String> {
    let name = match message["type"].as_str() {
        Some("event") => capitalized(&message["event"], "Event"),
        Some("response") if message["success"] == false => "ErrorResponse".to_owned(),
        Some("response") => capitalized(&message["command"], "Response"),
        _ => return vec!["it is neither a response nor an event".to_owned()],
    };
    let Some(definition) = definitions().get(&name) else {
        return vec![format!("the protocol has no {name}")];
    };
    let mut found = Vec::new();
    check(definition, message, &name, &mut found);
    found
}

/// The name of the definition of a command or event: `stackTrace` is `StackTraceResponse`.
fn capitalized(name: &Value, suffix: &str) -> String {
    let name = name.as_str().unwrap_or_default();
    let (first, rest) = name.split_at(name.len().min(1));
    format!("{}{rest}{suffix}", first.to_uppercase())
}

/// Compares a value with a schema. `at` says which value it is.
fn check(schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let parts = parts(schema);
    for part in &parts {
        if let Some(types) = part.get("type")
            && !is_of(types, value)
        {
            found.push(format!("{at} is {value}, and not of type {types}"));
        }
        if let Some(Value::Array(allowed)) = part.get("enum")
            && !allowed.contains(value)
        {
            found.push(format!("{at} is {value}, which is none of {allowed:?}"));
        }
        if let (Some(items), Value::Array(values)) = (part.get("items"), value) {
            for (index, value) in values.iter().enumerate() {
                check(items, value, &format!("{at}[{index}]"), found);
            }
        }
    }
    if let Value::Object(fields) = value {
        check_fields(&parts, fields, at, found);
    }
}

/// Compares the fields of an object with all parts of its schema together.
fn check_fields(parts: &[&Value], fields: &Map<String, Value>, at: &str, found: &mut Vec<String>) {
    let required = parts.iter().filter_map(|part| part["required"].as_array());
    for name in required.flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            found.push(format!("{at} lacks {name}"));
        }
    }

    // Several parts may describe a field, the general one and the special one.
    for (name, value) in fields {
        let schemas = parts.iter().filter_map(|part| part["properties"].get(name));
        let mut is_known = false;
        for schema in schemas {
            is_known = true;
            check(schema, value, &format!("{at}.{name}"), found);
        }
        let is_open = parts
            .iter()
            .any(|part| part.get("additionalProperties").is_some());
        let is_described = parts.iter().any(|part| part.get("properties").is_some());
        if !is_known && !is_open && is_described {
            found.push(format!("{at} has {name}, which the protocol does not know"));
        }
    }
}

/// The schemas that a value has to fulfil at once: `$ref` and `allOf` resolved.
fn parts(schema: &Value) -> Vec<&Value> {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        let definition = definitions().get(name);
        return parts(definition.unwrap_or_else(|| panic!("no definition {name}")));
    }
    match &schema["allOf"] {
        Value::Array(all) => all.iter().flat_map(parts).collect(),
        _ => vec![schema],
    }
}

/// Whether a value is of a type, or of one of several.
fn is_of(types: &Value, value: &Value) -> bool {
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => panic!("a schema with the type {name}"),
    };
    match types {
        Value::Array(all) => all.iter().filter_map(Value::as_str).any(is),
        _ => types.as_str().is_some_and(is),
    }
}
