//! A run as lines of JSON.

use unwind_sim_emulator_compare::lockstep::Run;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::hex::hex;
use unwind_sim_view::json::Line;
use unwind_sim_view::json::lockstep::{BytesLine, DifferenceLine, LockstepLine, ValueLine};

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// All lines of a run.
pub(super) fn lines(run: &Run, command: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(difference) = &run.difference {
        let values = difference.values().into_iter();
        let memory = difference.memory.iter();
        // A run stops at its first difference, so there is at most one such line.
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

    // Last, so that a reader sees whether the output is whole.
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

#[cfg(test)]
mod tests {
    use super::*;
    use unwind_sim_emulator::linux::{End, Outcome};
    use unwind_sim_emulator_compare::lockstep::{Cpu, Difference, Memory, Side};

    #[test]
    fn a_difference_is_a_line_of_json() {
        let side = |r13: u64| {
            let mut cpu = Cpu::default();
            cpu.gpr[13] = r13;
            Side {
                cpu,
                fx: None,
                ended: "done".into(),
            }
        };

        let run = Run {
            end: End::Outcome(Outcome::Limit),
            difference: Some(Box::new(Difference {
                number: 1,
                rip: 0x40_0079,
                bytes: vec![0x90],
                insn: "nop".into(),
                before: Cpu::default(),
                machine: side(5),
                processor: side(0),
                memory: vec![Memory {
                    address: 0x50_0000,
                    machine: vec![1],
                    cpu: vec![2],
                }],
                late: false,
            })),
            compared: 1,
            vex: 0,
            led: 0,
            exceptions: 0,
            time: std::time::Duration::ZERO,
            bare_speed: None,
            notices: Vec::new(),
            followed: Default::default(),
        };

        let lines = serde_json::to_value(lines(&run, "x")).expect("JSON");
        let [difference, summary] = lines.as_array().expect("lines").as_slice() else {
            panic!("{lines}");
        };
        assert_eq!(difference["type"], "difference");
        assert_eq!(
            (&difference["number"], &difference["bytes"]),
            (&1.into(), &"90".into())
        );
        let value = serde_json::json!({"name": "r13", "machine": "0x5", "processor": "0x0"});
        let values = difference["values"].as_array().expect("values");
        assert!(values.contains(&value), "{lines}");
        // Memory as bytes in the order of addresses: how much differs is not a whole word.
        let memory = serde_json::json!({"address": "0x500000", "machine": "01", "processor": "02"});
        assert_eq!(difference["memory"][0], memory);
        assert_eq!(
            (&summary["type"], &summary["differences"]),
            (&"summary".into(), &1.into())
        );
    }
}
