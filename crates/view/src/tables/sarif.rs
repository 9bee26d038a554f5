//! Contradictions as SARIF 2.1.0 (OASIS), which pages that show code scanning read.

use super::index;
use super::known::Identity;
use super::names::{Names, address};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use unwind_sim_judge::blame::{Blame, Judge};
use unwind_sim_tables::blame::{CodeContext, shape_of_all};
use unwind_sim_tables::check::{Checked, Report};
use unwind_sim_tables::file::File;
use unwind_sim_tables::proof::claim::Subject;
use unwind_sim_tables::proof::verdict::Contradiction;
use unwind_sim_unwind::reason::Code;

/// The schema of the format.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// The pages of the codes, below the repository.
const PAGES: &str = "blob/main/docs/book/src/codes";

/// A rule: its code, and its name as other tools write such names.
const RULES: [(Code, &str, &str); 4] = [
    (
        Code::WrongCfa,
        "WrongCfa",
        "The row of the unwind table gives another canonical frame address than the code has made.",
    ),
    (
        Code::WrongReturnAddress,
        "WrongReturnAddress",
        "The row of the unwind table finds the return address where it is not.",
    ),
    (
        Code::WrongRegister,
        "WrongCalleeSavedRegister",
        "The row of the unwind table finds the caller's value of a callee-saved register where it is \
         not.",
    ),
    (
        Code::NoRowForExecuted,
        "NoRowForReachedCode",
        "The function reaches code that no row of its unwind table covers, or one that says nothing.",
    ),
];

/// A log that files are added to.
#[derive(Debug, Default)]
pub struct Sarif {
    results: Vec<Value>,
    /// How often each fingerprint was given.
    given: HashMap<String, u64>,
}

impl Sarif {
    /// Adds the contradictions of a file.
    pub fn add(&mut self, file: &File, report: &Report) {
        let (mut names, mut judge) = (Names::new(file), Judge::new(file));
        for checked in &report.functions {
            let Some(blame) = judge.blame(checked) else {
                continue;
            };
            let identity = Identity::of(file, &mut names, checked);
            for wrong in &checked.verdict.contradictions {
                let result = self.result(file, checked, wrong, &identity, &blame);
                self.results.push(result);
            }
        }
        self.results
            .extend(index::results(file, &mut names, &report.index));
    }

    fn result(
        &mut self,
        file: &File,
        checked: &Checked,
        wrong: &Contradiction,
        identity: &Identity,
        blame: &Blame,
    ) -> Value {
        // The message names a distance from the function, which is the same in another build.
        let start = checked.range.start;
        let distance = wrong.pc.wrapping_sub(start);
        let section = wrong.table.section().map_or("", |s| s.as_str());

        // A function without a symbol is known by its address, or by section and offset in an
        // object.
        let name = identity.name.clone().unwrap_or_else(|| {
            let mut name = String::from("function at ");
            address(file, start, &mut name);
            name
        });

        let text = format!(
            "{} at {name}+{distance:#x}: {} ({section}+{:#x} says: {}).",
            wrong.code().description(),
            super::proof::what(file, start, wrong),
            wrong.row_offset,
            match wrong.subject {
                Subject::Row => "nothing".to_owned(),
                _ => wrong.rule.to_string(),
            }
        );

        // Rules are listed once, and results refer to them by index.
        let rule = RULES.iter().position(|(code, ..)| *code == wrong.code());

        json!({
            "ruleId": wrong.code().as_str(),
            "ruleIndex": rule,
            "level": "error",
            "message": { "text": text },
            "locations": [{
                "physicalLocation": physical(file, start, wrong, format!("{name}+{distance:#x}")),
                "logicalLocations": [{
                    "name": name,
                    "fullyQualifiedName": name,
                    "kind": "function",
                }],
            }],
            // With the fingerprint, a viewer knows a finding again although lines and addresses
            // have changed.
            "partialFingerprints": {
                "unwindSim/v2": self.fingerprint(file, start, wrong, identity),
            },
            "properties": {
                "cause": blame.cause.as_str(),
                "writer": blame.writer.to_string(),
                "known": blame.known.map(|known| known.id),
            },
        })
    }

    /// What is the same in another build, wherever the function and the instructions in it have moved:
    /// the function, the claim, and the instructions before and at the address.
    fn fingerprint(
        &mut self,
        file: &File,
        start: u64,
        wrong: &Contradiction,
        identity: &Identity,
    ) -> String {
        let CodeContext { before, at, .. } = CodeContext::of(file, start, wrong);
        let code = shape_of_all([before, at].iter().flatten());
        let (reg, table) = (
            crate::json::WrongRowLine::register(wrong.subject),
            wrong.table.as_str(),
        );
        let of = identity.text();
        let mut print = format!("{of}/{}/{reg}/{table}/{code:016x}", wrong.code());
        // The same instructions may be wrong twice in a function, or in a second one of its name.
        let count = self.given.entry(print.clone()).or_default();
        *count += 1;
        if *count > 1 {
            let _ = write!(print, "/{count}");
        }
        print
    }

    /// Writes the log.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(self, out: &mut dyn Write) -> io::Result<()> {
        // Each rule has a page of its own in the documentation of reason codes.
        let rules = RULES.map(|(code, name, description)| {
            let page = format!("{}/{PAGES}/{code}.md", env!("CARGO_PKG_REPOSITORY"));
            json!({
                "id": code.as_str(),
                "name": name,
                "shortDescription": { "text": sentence(code.description()) },
                "fullDescription": { "text": description },
                "help": { "text": format!("{description} See {page}") },
                "helpUri": page,
                "defaultConfiguration": { "level": "error" },
                "properties": { "tags": ["unwind-tables"], "precision": "very-high" },
            })
        });

        // The flaws of indexes have rules of their own.
        let rules: Vec<Value> = rules.into_iter().chain(index::rules()).collect();

        let log = json!({
            "$schema": SCHEMA,
            "version": "2.1.0",
            "runs": [{
                "tool": { "driver": {
                    "name": "unwind-sim",
                    "version": env!("CARGO_PKG_VERSION"),
                    "semanticVersion": env!("CARGO_PKG_VERSION"),
                    "informationUri": env!("CARGO_PKG_REPOSITORY"),
                    "rules": rules,
                }},
                // There are no columns in machine code, but the format wants their unit.
                "columnKind": "utf16CodeUnits",
                "results": self.results,
            }],
        });

        serde_json::to_writer_pretty(&mut *out, &log)?;
        writeln!(out)
    }
}

/// Where a contradiction is: the instruction's bytes in the file, and its address in the program or in
/// the section of a relocatable object.
fn physical(file: &File, start: u64, wrong: &Contradiction, name: String) -> Value {
    let mut address = json!({ "kind": "instruction", "fullyQualifiedName": name });

    // Addresses in an object are made up, so its places are sections and offsets.
    if file.is_relocatable() {
        let mut place = String::new();
        super::names::address(file, wrong.pc, &mut place);
        address["name"] = place.into();
    } else {
        address["absoluteAddress"] = wrong.pc.into();
    }

    let mut physical = json!({
        "artifactLocation": { "uri": uri(file.name()) },
        "address": address,
    });

    // Code of a section without contents in the file has no bytes to show.
    if let Some(offset) = file.offset(wrong.pc) {
        let lines = super::code::around(file, start, wrong.pc);
        let bytes = |shown: &[super::code::InstructionText]| {
            let (first, last) = (shown.first()?.address, shown.last()?.address);
            let len = last - first + super::code::length(file, last) as u64;
            let text: Vec<&str> = shown.iter().map(|line| line.text.as_str()).collect();
            Some(json!({
                // The offset of the first instruction that is shown, which may be before the wrong
                // one.
                "byteOffset": offset.wrapping_add(first.wrapping_sub(wrong.pc)),
                "byteLength": len,
                "snippet": { "text": text.join("\n") },
            }))
        };

        // Without the instruction in the listing there is no region to mark.
        let at = lines.iter().position(|line| line.address == wrong.pc);
        if let Some(at) = at {
            physical["region"] = bytes(&lines[at..=at]).unwrap_or_default();
            physical["contextRegion"] = bytes(&lines).unwrap_or_default();
        }
    }

    physical
}

/// The file at `path` as a URI (RFC 3986): relative paths stay relative. One that goes up is resolved as it is
/// on this machine, since `..` behind a symbolic link means another folder to a reader of the log.
pub(super) fn uri(path: &str) -> String {
    let goes_up = path.split('/').any(|part| part == "..");
    let resolved = goes_up
        .then(|| Path::new(path).canonicalize().ok())
        .flatten();
    let resolved = resolved.as_deref().and_then(Path::to_str);
    encoded(resolved.unwrap_or(path))
}

fn encoded(path: &str) -> String {
    let is_absolute = Path::new(path).is_absolute();
    let mut uri = String::from(if is_absolute { "file://" } else { "" });
    let parts = path.split('/').filter(|part| *part != ".");
    for (number, part) in parts.enumerate() {
        if number > 0 {
            uri.push('/');
        }
        for byte in part.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'+' => {
                    uri.push(byte.into());
                }
                _ => {
                    let _ = write!(uri, "%{byte:02X}");
                }
            }
        }
    }
    uri
}

/// Words as a sentence.
pub(super) fn sentence(words: &str) -> String {
    let mut chars = words.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), chars.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_uri() {
        assert_eq!(uri("/usr/lib/a b#1.so"), "file:///usr/lib/a%20b%231.so");
        assert_eq!(uri("./out/x%y.o"), "out/x%25y.o");
        assert_eq!(uri("libstdc++.so"), "libstdc++.so");
        assert_eq!(sentence("wrong CFA"), "Wrong CFA.");
    }
}
