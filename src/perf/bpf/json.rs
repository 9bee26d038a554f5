//! The JSON Lines of `perf bpf`.

use super::Handled;
use super::print::losses;
use std::io::{self, Write};
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::hex::hex;
use unwind_sim_perf_model::bpf::maps::Storage;
use unwind_sim_view::json::{
    HandlerOutputLine, HandlerPrintLine, HandlingLine, Line, MapEntryLine, MapFrameLine,
    MapLossLine, MapStackLine,
};

/// Bytes in hexadecimal without separators.
fn bytes(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Handled {
    /// Writes the outcome of the samples and what the program left; the last line is the summary.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_json(&self, command: &str, out: &mut dyn Write) -> io::Result<()> {
        let mut line = |line: &Line| line.write(out);

        // In the order in which the samples ran, which is that of time.
        for output in &self.outputs {
            line(&Line::HandlerOutput(HandlerOutputLine {
                schema: SCHEMA,
                time: output.time,
                cpu: output.cpu,
                map: output.map.clone(),
                by: if output.is_ring { "ring" } else { "perf" },
                data: bytes(&output.data),
            }))?;
        }

        for text in &self.printed {
            line(&Line::HandlerPrint(HandlerPrintLine {
                schema: SCHEMA,
                text: text.clone(),
            }))?;
        }

        // Losses are gathered for the summary: a map with losses has its entries all the same.
        let mut all = Vec::new();
        for map in self.handlers.maps.iter() {
            let name = &map.def.name;
            let lost = losses(map).into_iter();
            all.extend(lost.map(|(count, what, _)| MapLossLine {
                map: name.clone(),
                what,
                count,
            }));

            if let Storage::Stacks(stacks) = &map.storage {
                for id in stacks.ids() {
                    let frames = stacks.get(id).unwrap_or_default();
                    // A map of stacks does not say of which process a stack is.
                    let frame = |address: u64| MapFrameLine {
                        address: hex(address),
                        name: self.name(address, None).map(str::to_owned),
                    };
                    line(&Line::MapStack(MapStackLine {
                        schema: SCHEMA,
                        map: name.clone(),
                        id,
                        frames: frames.into_iter().map(frame).collect(),
                    }))?;
                }
            }

            for (key, values) in map.dump() {
                line(&Line::MapEntry(MapEntryLine {
                    schema: SCHEMA,
                    map: name.clone(),
                    key: bytes(&key),
                    values: values.into_iter().map(bytes).collect(),
                }))?;
            }
        }

        // The summary is last: without it, the output was cut short.
        let program = &self.handlers.programs()[self.program];
        line(&Line::Handling(HandlingLine {
            schema: SCHEMA,
            program: program.name.clone(),
            section: program.section.clone(),
            samples: self.samples,
            kept: self.kept,
            dropped: self.dropped,
            faults: self.faults,
            first_fault: self.first_fault.as_ref().map(ToString::to_string),
            losses: all,
            command: command.to_owned(),
        }))
    }
}
