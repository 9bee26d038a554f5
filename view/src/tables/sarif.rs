//! Contradictions as SARIF 2.1.0 (OASIS), which pages that show code scanning read.

use super::index;
use super::names::Names;
use serde_json::{Value, json};
use std::io::{self, Write};
use unwind_sim_tables::check::Report;
use unwind_sim_tables::file::File;
use unwind_sim_unwind::reason::Code;

/// The schema of the format.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// A log that files are added to.
#[derive(Debug, Default)]
pub struct Sarif {
    results: Vec<Value>,
}

impl Sarif {
    /// Adds the contradictions of a file.
    pub fn add(&mut self, file: &File, report: &Report) {
        let mut names = Names::new(file);
        for checked in &report.functions {
            let start = checked.range.start;
            let name = names.function(start).map(|(name, _)| name.to_owned());
            let name = name.unwrap_or_else(|| format!("function at {start:#x}"));
            for wrong in &checked.verdict.contradictions {
                let distance = wrong.pc.wrapping_sub(start);
                let section = wrong.table.section().map_or("", |s| s.as_str());
                let text = format!(
                    "{} at {name}+{distance:#x}: {} ({section}+{:#x} says: {})",
                    wrong.code().description(),
                    super::proof::what(wrong),
                    wrong.row_offset,
                    wrong.rule
                );
                self.results.push(json!({
                    "ruleId": wrong.code().as_str(),
                    "level": "error",
                    "message": { "text": text },
                    "locations": [{
                        "physicalLocation": {
                            "artifactLocation": { "uri": file.name() },
                            "address": {
                                "absoluteAddress": wrong.pc,
                                "fullyQualifiedName": format!("{name}+{distance:#x}"),
                            },
                        },
                        "logicalLocations": [{ "name": name, "kind": "function" }],
                    }],
                    "partialFingerprints": {
                        "unwindSim/v1": format!("{name}+{distance:#x}/{}/{}", wrong.code(), wrong.table.as_str()),
                    },
                }));
            }
        }
        self.results
            .extend(index::results(file, &mut names, &report.index));
    }

    /// Writes the log.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(self, out: &mut dyn Write) -> io::Result<()> {
        let rules = [
            Code::WrongCfa,
            Code::WrongReturnAddress,
            Code::WrongRegister,
        ];
        let rules = rules.into_iter().map(|code| {
            json!({ "id": code.as_str(), "shortDescription": { "text": code.description() } })
        });
        let rules: Vec<Value> = rules.chain(index::rules()).collect();
        let log = json!({
            "$schema": SCHEMA,
            "version": "2.1.0",
            "runs": [{
                "tool": { "driver": {
                    "name": "unwind-sim",
                    "version": env!("CARGO_PKG_VERSION"),
                    "informationUri": env!("CARGO_PKG_REPOSITORY"),
                    "rules": rules,
                }},
                "results": self.results,
            }],
        });
        serde_json::to_writer_pretty(&mut *out, &log)?;
        writeln!(out)
    }
}
