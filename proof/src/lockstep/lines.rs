//! A run as lines of JSON.

use super::Run;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::hex::hex;
use unwind_sim_view::json::Line;
use unwind_sim_view::json::lockstep::{BytesLine, DifferenceLine, LockstepLine, ValueLine};

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// All lines of a run.
pub fn lines(run: &Run, command: &str) -> Vec<Line> {
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
