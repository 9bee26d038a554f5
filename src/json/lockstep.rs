//! The lines of `lockstep`.

use schemars::JsonSchema;
use serde::Serialize;

/// Where the machine and the processor differ.
#[derive(Serialize, JsonSchema)]
pub struct DifferenceLine {
    pub(super) schema: &'static str,
    /// Instructions before this one.
    pub(super) number: u64,
    pub(super) rip: String,
    /// The instruction's bytes, in hex; empty with `late`.
    pub(super) bytes: String,
    pub(super) instruction: String,
    /// It shows only when all memory is compared: an earlier instruction did it.
    pub(super) late: bool,
    /// What differs, memory apart.
    pub(super) values: Vec<ValueLine>,
    pub(super) memory: Vec<BytesLine>,
}

/// A value that differs.
#[derive(Serialize, JsonSchema)]
pub struct ValueLine {
    /// A register, or `ended`.
    pub(super) name: String,
    pub(super) machine: String,
    pub(super) processor: String,
}

/// Memory that differs.
#[derive(Serialize, JsonSchema)]
pub struct BytesLine {
    pub(super) address: String,
    /// Bytes in hex.
    pub(super) machine: String,
    pub(super) processor: String,
}

/// The last line of `lockstep`.
#[derive(Serialize, JsonSchema)]
pub struct LockstepLine {
    pub(super) schema: &'static str,
    /// How the program ended; absent if there was a difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<String>,
    /// Instructions that both executed, and of which all was compared.
    pub(super) compared: u64,
    /// Instructions of which the processor was told what they do, such as system calls.
    pub(super) led: u64,
    /// Exceptions that both raised.
    pub(super) exceptions: u64,
    pub(super) differences: u64,
    /// The command that gives the same again.
    pub(super) command: String,
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod lines {
    use super::{BytesLine, DifferenceLine, LockstepLine, ValueLine};
    use crate::SCHEMA;
    use crate::json::Line;
    use crate::lockstep::Run;
    use crate::own::hex;

    fn digits(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// All lines of a run.
    pub fn lockstep(run: &Run, command: &str) -> Vec<Line> {
        let mut lines = Vec::new();
        if let Some(difference) = &run.difference {
            let values = difference.values().into_iter();
            let memory = difference.memory.iter();
            lines.push(Line::Difference(Box::new(DifferenceLine {
                schema: SCHEMA,
                number: difference.number,
                rip: hex(difference.rip),
                bytes: digits(&difference.bytes),
                instruction: difference.insn.clone(),
                late: difference.late,
                values: values
                    .map(|(name, machine, processor)| ValueLine {
                        name,
                        machine,
                        processor,
                    })
                    .collect(),
                memory: memory
                    .map(|memory| BytesLine {
                        address: hex(memory.address),
                        machine: digits(&memory.machine),
                        processor: digits(&memory.cpu),
                    })
                    .collect(),
            })));
        }
        lines.push(Line::Lockstep(LockstepLine {
            schema: SCHEMA,
            end: run.difference.is_none().then(|| run.end.to_string()),
            compared: run.compared,
            led: run.led,
            exceptions: run.exceptions,
            differences: u64::from(run.difference.is_some()),
            command: command.to_owned(),
        }));
        lines
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use lines::lockstep;
