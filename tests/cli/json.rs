//! `--json`: JSON Lines in the schema that `generate json-schema` prints.

use crate::cli::{SEED, THROWS, ends_with, run, snapshot, stdout};
use serde_json::Value;

const COMMANDS: [&[&str]; 13] = [
    &["replay", SEED, "--unwinder", "all", "--json"],
    &[
        "replay",
        THROWS,
        "--unwinder",
        "all",
        "--limit",
        "200",
        "--json",
    ],
    &[
        "replay",
        SEED,
        "--unwinder",
        "orc",
        "--regs",
        "fake:v5.1",
        "--json",
    ],
    &["compare", SEED, "--json"],
    &[
        "compare",
        THROWS,
        "--limit",
        "500",
        "--group-by",
        "function",
        "--json",
    ],
    &[
        "compare",
        SEED,
        "--regs",
        "hw,fake:v5.1,fake:v5.2",
        "--json",
    ],
    &["tables", "dump", "corpus/sframe/t_2.46", "--json"],
    &["tables", "diff", "corpus/sframe/t_2.46", "--json"],
    &["perf", "stitch", DEFERRED, "--samples", "--json"],
    &[
        "perf",
        "bpf",
        "--kallsyms",
        "corpus/perfdata/script/kallsyms.txt",
        "--symfs",
        "corpus/perfdata/script/symfs",
        "corpus/bpf/profile.bpf.o",
        DEFERRED,
        "--json",
    ],
    &[
        "perf",
        "bpf",
        "corpus/bpf/iprange.bpf.o",
        DEFERRED,
        "--json",
    ],
    &["doctor", THROWS, "--limit", "500", "--json"],
    &["doctor", "corpus/perfdata/norow.data", "--json"],
];

const DEFERRED: &str = "corpus/perfdata/threads4-switch-defer.data";

fn lines(args: &[&str]) -> Vec<Value> {
    let output = run(args);
    let lines = stdout(&output).lines();
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    lines.map(parse).collect()
}

#[test]
fn every_line_is_of_the_schema() {
    let text = ends_with(0, &["generate", "json-schema"]);
    let schema: Value = serde_json::from_str(&text).expect("JSON");
    for args in COMMANDS {
        let lines = lines(args);
        let (last, others) = lines.split_last().expect("lines");
        assert_eq!(last["type"], "summary", "{args:?}");
        assert!(
            others.iter().all(|line| line["type"] != "summary"),
            "{args:?}"
        );
        for line in &lines {
            assert_eq!(line["schema"], "unwind-sim.v1", "{line}");
            if let Err(what) = fits(line, &schema, &schema) {
                panic!("{args:?}: {what}\n{line}");
            }
        }
    }
}

/// A window of states is one line.
#[test]
fn the_timeline_is_of_the_schema() {
    let text = ends_with(0, &["generate", "json-schema"]);
    let schema: Value = serde_json::from_str(&text).expect("JSON");
    // A program, a recording, and samples with two sets of registers.
    let case = "corpus/cases/frame/fp-loses-the-caller-before-push-rbp.s";
    for args in [
        &["step", "--json", case][..],
        &["step", "--json", "--count", "3", THROWS],
        &["step", "--json", "--regs", "hw,fake:v5.1", SEED],
    ] {
        let lines = lines(args);
        let [line] = lines.as_slice() else {
            panic!("{args:?}: {} lines", lines.len());
        };

        assert_eq!(line["type"], "timeline", "{args:?}");
        if let Err(what) = fits(line, &schema, &schema) {
            panic!("{args:?}: {what}");
        }

        // The schema must not take just anything: here a state lacks its walks.
        let mut less = line.clone();
        less["states"][0]
            .as_object_mut()
            .expect("a state")
            .remove("walks");
        assert!(fits(&less, &schema, &schema).is_err(), "{args:?}");
    }
}

#[test]
fn the_schema_refuses_what_is_not_of_it() {
    let text = ends_with(0, &["generate", "json-schema"]);
    let schema: Value = serde_json::from_str(&text).expect("JSON");
    let line = lines(COMMANDS[0]).swap_remove(0);
    for key in ["schema", "sample", "verdict", "frames", "type"] {
        let mut less = line.clone();
        less.as_object_mut().expect("an object").remove(key);
        assert!(fits(&less, &schema, &schema).is_err(), "without {key}");
    }
    let mut other = line;
    other["sample"] = "three".into();
    assert!(fits(&other, &schema, &schema).is_err());
}

/// Addresses are strings, since not every JSON reader has 64-bit integers.
#[test]
fn addresses_are_hexadecimal_strings() {
    for line in lines(COMMANDS[0]).iter().filter(|l| l["type"] == "chain") {
        for frame in line["frames"].as_array().expect("frames") {
            let pc = frame["pc"].as_str().expect("a string");
            let digits = pc.strip_prefix("0x").expect("0x");
            u64::from_str_radix(digits, 16).expect("an address");
        }
    }
}

#[test]
fn lines_as_they_are() {
    snapshot("json-replay", &["replay", SEED, "--sample", "2", "--json"]);
    let args = [
        "compare",
        SEED,
        "--unwinder",
        "dwarf,orc",
        "--regs",
        "fake:v5.1",
        "--json",
    ];
    snapshot("json-compare", &args);
}

/// Checks a value with the subset of JSON Schema that our schema uses.
pub(super) fn fits(value: &Value, schema: &Value, root: &Value) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        // A reference within the document is `#` and a JSON pointer (RFC 6901).
        let pointer = reference.trim_start_matches('#');
        let target = root.pointer(pointer).ok_or(format!("no {reference}"))?;
        fits(value, target, root)?;
    }

    for key in ["oneOf", "anyOf"] {
        if let Some(choices) = schema[key].as_array() {
            let tries = choices.iter().map(|choice| fits(value, choice, root));
            let errors: Vec<String> = tries.filter_map(Result::err).collect();
            let hits = choices.len() - errors.len();
            // `oneOf` wants exactly one that fits, `anyOf` at least one (JSON Schema core).
            if hits == 0 || (key == "oneOf" && hits > 1) {
                return Err(format!("{hits} of {key}: {}", errors.join("; ")));
            }
        }
    }

    for part in schema["allOf"].as_array().into_iter().flatten() {
        fits(value, part, root)?;
    }
    // Keywords beside each other all apply, so a value goes through every check.
    if schema.get("const").is_some_and(|wanted| wanted != value) {
        return Err(format!("{value} is not {}", schema["const"]));
    }

    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    // Without `type`, any type fits.
    if !types.is_empty() && !types.iter().any(|t| is_type(value, t)) {
        return Err(format!("{value} is not of {types:?}"));
    }

    for key in schema["required"].as_array().into_iter().flatten() {
        let key = key.as_str().unwrap_or_default();
        if value.is_object() && value.get(key).is_none() {
            return Err(format!("without {key}"));
        }
    }

    if let (Some(object), Some(known)) = (value.as_object(), schema["properties"].as_object()) {
        for (key, inner) in object {
            let known = known.get(key);
            // A member that the schema does not name is allowed.
            known.map_or(Ok(()), |schema| fits(inner, schema, root))?;
        }
    }
    if let (Some(items), Some(schema)) = (value.as_array(), schema.get("items")) {
        items.iter().try_for_each(|item| fits(item, schema, root))?;
    }

    Ok(())
}

fn is_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    }
}
