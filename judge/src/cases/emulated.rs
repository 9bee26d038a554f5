//! Runs a case in the emulated machine.

use super::failure::CaseFailure;
use super::run::{Taken, meta, plan};
use crate::case::Case;
use std::path::Path;
use unwind_sim_emulator::Processor;
use unwind_sim_emulator::linux::Outcome;
use unwind_sim_record::emulator::{self, EmulatorOptions, Lbr};
use unwind_sim_record::program::{End, RunningProgram};
use unwind_sim_record::{At, TraceRecorder};
use unwind_sim_recordings::trace::TraceWriter;

/// Runs `program` in the emulated machine.
pub(super) fn run(
    case: &Case,
    program: &Path,
    at: At,
    processor: Processor,
) -> Result<Taken, CaseFailure> {
    let mut program = RunningProgram::alone(program);
    program.options.args = vec![padded_name(&case.name, program.path.len())];
    program.options.processor = processor;
    let root = program.options.root.clone();
    let options = EmulatorOptions {
        plan: plan(case, at),
        lbr: Lbr::default(),
        timeout: None,
    };
    let mut writer =
        TraceWriter::new(Vec::new(), &meta(case)).map_err(|e| CaseFailure::run(case, e))?;
    let mut recorder = TraceRecorder::new(&mut writer, emulator::finder_options(&root));
    let summary = emulator::record(program, &options, &mut recorder);
    let summary = summary.map_err(|e| CaseFailure::run(case, e))?;
    recorder
        .write_text()
        .map_err(|e| CaseFailure::run(case, e))?;
    let points = std::mem::take(&mut recorder.points);
    let ended = match &summary.end {
        End::Outcome(Outcome::Exited(0)) => None,
        other => {
            let notices = summary.notices.iter().map(|n| format!("; {n}"));
            Some(format!("{other}{}", notices.collect::<String>()))
        }
    };
    Ok(Taken {
        trace: writer.finish().map_err(|e| CaseFailure::run(case, e))?,
        points,
        unknown: summary.unknown,
        ended,
    })
}

/// The stack starts below the strings of a new program, among them its path. With this as its name,
/// their length does not depend on the folder it was built in, modulo any alignment of a stack.
fn padded_name(name: &str, path_len: usize) -> Vec<u8> {
    const ALIGNMENT_MAX: usize = 4096;
    let padding = ALIGNMENT_MAX - (path_len + name.len()) % ALIGNMENT_MAX;
    [vec![b'/'; padding], name.as_bytes().to_vec()].concat()
}

#[cfg(test)]
mod tests {
    use super::padded_name;

    #[test]
    fn a_name_makes_up_for_the_length_of_the_folder() {
        let all = |path: usize| path + padded_name("case", path).len();
        for path in [1, 40, 4091, 4092, 4093, 9000] {
            assert_eq!(all(path) % 4096, 0, "{path}");
            assert!(padded_name("case", path).ends_with(b"/case"));
        }
    }
}
