//! Findings about the indexes of unwind tables, as text and SARIF.

use super::names::{Names, address};
use super::sarif::{sentence, uri};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{self, Write};
use unwind_sim_recordings::counted::counted;
use unwind_sim_tables::file::File;
use unwind_sim_tables::index::{Finding, Flaw};

/// What the rules mean.
const PAGE: &str = concat!(
    env!("CARGO_PKG_REPOSITORY"),
    "/blob/main/docs/static-proof.md#the-index"
);

/// Writes the findings for people, by what is wrong; at most `limit` places of each kind.
pub(super) fn write_text(
    file: &File,
    names: &mut Names<'_>,
    findings: &[Finding],
    limit: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    for flaw in Flaw::ALL {
        let mut places = findings.iter().filter(|f| f.flaw == flaw).peekable();
        if places.peek().is_none() {
            continue;
        }
        writeln!(out, "index: {}: {}", flaw.as_str(), flaw.description())?;
        for finding in places.by_ref().take(limit) {
            writeln!(out, "  {}", place(file, names, finding))?;
        }
        let more = places.count();
        if more > 0 {
            writeln!(out, "  and {} (--limit)", counted(more, "more place"))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The place in the index, and the code that it is about.
fn place(file: &File, names: &mut Names<'_>, finding: &Finding) -> String {
    let mut out = format!("{}+{:#x}", finding.section, finding.offset);
    let Some(code) = &finding.code else {
        if finding.functions > 0 {
            let _ = write!(out, ": {} lost", counted(finding.functions, "function"));
        }
        return out;
    };
    let mut at = String::new();
    address(file, code.start, &mut at);
    let name = names.function(code.start).map(|(name, _)| name);
    let size = counted(code.end - code.start, "byte");
    let name = name.unwrap_or("function");
    out.push_str(&match finding.functions {
        0 | 1 => format!(": {name}: {size} at {at}"),
        n => format!(
            ": {}, the first is {name}: {size} at {at}",
            counted(n, "function")
        ),
    });
    out
}

/// The findings as results of SARIF.
pub(super) fn results(file: &File, names: &mut Names<'_>, findings: &[Finding]) -> Vec<Value> {
    let result = |finding: &Finding| {
        let place = place(file, names, finding);
        let name = finding.code.as_ref();
        let name = name.and_then(|code| Some(names.function(code.start)?.0.to_owned()));

        let mut location = json!({
            "physicalLocation": {
                "artifactLocation": { "uri": uri(file.name()) },
                "address": {
                    "fullyQualifiedName": format!("{}+{:#x}", finding.section, finding.offset),
                },
            },
        });

        // A byte offset in the file lets a viewer show the bytes; a section without contents has
        // none.
        let section = file.section_range(finding.section);
        if let Some(offset) = section.and_then(|s| file.offset(s.start + finding.offset)) {
            location["physicalLocation"]["region"] =
                json!({ "byteOffset": offset, "byteLength": WORD });
        }

        // The address is that of the code whose rows are lost, not that of the index entry.
        if let Some(code) = &finding.code {
            location["physicalLocation"]["address"]["absoluteAddress"] = json!(code.start);
        }
        if let Some(name) = &name {
            location["logicalLocations"] = json!([{ "name": name, "kind": "function" }]);
        }

        // A fingerprint should stay the same where code has moved, so the name is preferred.
        let of = name.unwrap_or_else(|| format!("{:#x}", finding.offset));
        json!({
            "ruleId": finding.flaw.as_str(),
            "level": "error",
            "message": { "text": sentence(&format!("{place}: {}", finding.flaw.description())) },
            "locations": [location],
            "partialFingerprints": {
                "unwindSim/v2": format!("{of}/{}/{}", finding.flaw.as_str(), finding.section),
            },
        })
    };

    findings.iter().map(result).collect()
}

/// The name of a rule, as other tools write such names: `IndexHdrUnsorted`. It has to differ from the id in
/// more than capital letters.
fn rule_name(flaw: Flaw) -> String {
    let words = flaw.as_str().split('-').map(sentence);
    let words = words.map(|word| word.trim_end_matches('.').to_owned());
    ["Index".to_owned()].into_iter().chain(words).collect()
}

/// What a finding is about begins with a word of this size, bytes.
const WORD: u64 = 4;

/// The rules of SARIF that these findings break.
pub(super) fn rules() -> impl Iterator<Item = Value> {
    Flaw::ALL.into_iter().map(|flaw| {
        json!({
            "id": flaw.as_str(),
            "name": rule_name(flaw),
            "shortDescription": { "text": sentence(flaw.description()) },
            "fullDescription": { "text": sentence(flaw.description()) },
            "help": { "text": sentence(flaw.description()) },
            "helpUri": PAGE,
            "defaultConfiguration": { "level": "error" },
            "properties": { "tags": ["unwind-tables"], "precision": "very-high" },
        })
    })
}
