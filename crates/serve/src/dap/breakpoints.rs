//! Breakpoints: each request replaces all of its kind.

use super::session::{Answer, Session};
use crate::error::Error;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use unwind_sim_judge::states::{Stops, addresses_of};

/// The maximum number of breakpoints of each kind.
const BREAKPOINTS_MAX: usize = 1024;

/// What an editor wants to stop at.
#[derive(Default, Debug)]
pub(super) struct Breakpoints {
    /// The names of functions.
    functions: Vec<String>,
    instructions: Vec<u64>,
    /// The addresses of lines, by the path of the source file.
    lines: BTreeMap<String, Vec<u64>>,
    /// The unwinders whose becoming wrong is stopped at; empty for none.
    pub(super) wrong: Vec<String>,
}

/// An address as an editor writes it: `0x401000`, or decimal.
pub(super) fn address(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The breakpoints of a request.
fn wanted(arguments: &Value) -> Result<&[Value], String> {
    let all = match &arguments["breakpoints"] {
        Value::Array(all) => all.as_slice(),
        Value::Null => &[],
        _ => return Err("breakpoints is not a list".to_owned()),
    };
    if all.len() > BREAKPOINTS_MAX {
        return Err(format!(
            "{} breakpoints are too many; at most {BREAKPOINTS_MAX} are kept",
            all.len()
        ));
    }
    Ok(all)
}

fn answer(breakpoints: Vec<Value>) -> Answer {
    Ok(json!({ "breakpoints": breakpoints }))
}

fn refused(why: &str) -> Value {
    json!({"verified": false, "message": why, "reason": "failed"})
}

impl Breakpoints {
    pub(super) fn of_instructions(&mut self, arguments: &Value) -> Answer {
        self.instructions.clear();
        let mut all = Vec::new();
        for breakpoint in wanted(arguments)? {
            let reference = breakpoint["instructionReference"].as_str();
            let offset = breakpoint["offset"].as_i64().unwrap_or(0);
            let at = reference.and_then(address);
            let at = at.and_then(|at| at.checked_add_signed(offset));
            all.push(match at {
                Some(at) => {
                    self.instructions.push(at);
                    json!({"verified": true, "instructionReference": format!("{at:#x}")})
                }
                None => refused("instructionReference is not an address such as 0x401000"),
            });
        }
        answer(all)
    }
}

impl Session<'_> {
    /// Lines of a source file.
    pub(super) fn of_source(&mut self, arguments: &Value) -> Result<Answer, Error> {
        let all = match wanted(arguments) {
            Ok(all) => all,
            Err(why) => return Ok(Err(why)),
        };
        let path = arguments["source"]["path"].as_str().unwrap_or_default();
        let (lines, bias) = self.debuggee.lines()?;

        let mut addresses = Vec::new();
        let mut told = Vec::new();
        for breakpoint in all {
            let line = breakpoint["line"].as_u64();
            let line = line.and_then(|line| u32::try_from(line).ok());

            // A line without code means the next one that has some, and the reply says which.
            let found = line.and_then(|line| lines.address(path, line));
            told.push(match found {
                Some((address, line)) => {
                    let address = address.wrapping_add(bias);
                    addresses.push(address);
                    let at = format!("{address:#x}");
                    json!({"verified": true, "line": line, "instructionReference": at})
                }
                None => refused(
                    "the program has no code of this line, or no DWARF that says so; stop at a \
                     function or an instruction",
                ),
            });
        }

        // In the protocol, a request has all breakpoints of its file and clears the earlier ones.
        let kept = &mut self.breakpoints.lines;
        kept.remove(path);

        // One request is bounded, but there may be any number of files.
        if kept.len() >= BREAKPOINTS_MAX {
            return Ok(Err("there are breakpoints in too many files".to_owned()));
        }
        kept.insert(path.to_owned(), addresses);
        Ok(answer(told))
    }

    pub(super) fn of_functions(&mut self, arguments: &Value) -> Result<Answer, Error> {
        let all = match wanted(arguments) {
            Ok(all) => all,
            Err(why) => return Ok(Err(why)),
        };
        let names = all
            .iter()
            .map(|one| one["name"].as_str().unwrap_or_default());
        self.breakpoints.functions = names.map(str::to_owned).collect();

        let found = self.functions()?;
        let told = found.iter().map(|addresses| match addresses.first() {
            Some(at) => json!({"verified": true, "instructionReference": format!("{at:#x}")}),
            None => json!({
                "verified": false,
                "message": "no function of this name is mapped yet",
                "reason": "pending",
            }),
        });
        Ok(answer(told.collect()))
    }

    pub(super) fn of_exceptions(&mut self, arguments: &Value) -> Answer {
        let judged = self.debuggee.judged().to_vec();
        let empty = Vec::new();
        let filters = arguments["filters"].as_array().unwrap_or(&empty);
        let mut wrong = BTreeSet::new();
        if filters.iter().any(|filter| filter == "wrong") {
            wrong.extend(judged.iter().cloned());
        }

        // The protocol wants the filters' answers first, then those of the options, in order.
        let mut told = vec![json!({"verified": true}); filters.len()];
        let options = arguments["filterOptions"].as_array().unwrap_or(&empty);
        for option in options {
            let names = option["condition"].as_str().unwrap_or_default();
            let names: Vec<&str> = names.split(',').map(str::trim).collect();
            let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
            // A name of no unwinder would never stop, and nobody would know why.
            let stranger = names
                .iter()
                .find(|name| !judged.iter().any(|one| one == *name));
            told.push(match stranger {
                Some(name) => refused(&format!(
                    "{name:?} is not judged at every state; these are: {}",
                    judged.join(", ")
                )),
                None => json!({"verified": true}),
            });

            // Without a condition, every unwinder counts.
            if names.is_empty() {
                wrong.extend(judged.iter().cloned());
            } else if stranger.is_none() {
                wrong.extend(names.into_iter().map(str::to_owned));
            }
        }
        self.breakpoints.wrong = wrong.into_iter().collect();
        answer(told)
    }

    /// The addresses of each function with a breakpoint, in what is mapped now.
    fn functions(&mut self) -> Result<Vec<Vec<u64>>, Error> {
        let names = &self.breakpoints.functions;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        self.debuggee.with_space(&mut |space| {
            found = names.iter().map(|name| addresses_of(space, name)).collect();
        })?;
        Ok(found)
    }

    /// What is stopped for.
    pub(super) fn stops(&mut self) -> Result<Stops, Error> {
        let mut addresses: BTreeSet<u64> = self.functions()?.into_iter().flatten().collect();
        addresses.extend(&self.breakpoints.instructions);
        addresses.extend(self.breakpoints.lines.values().flatten());
        Ok(Stops {
            addresses: addresses.into_iter().collect(),
            ..Stops::default()
        })
    }
}
