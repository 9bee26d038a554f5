//! What a recording itself reports as lost, in words.

use std::fmt::Write;
use unwind_sim_perf_data::{PerfFile, event_name};
use unwind_sim_perf_script::{Loss, Losses};
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::printable::PrintableName as _;

/// One line for each kind of loss and event of `file`.
pub(super) fn lines(losses: &Losses, file: &PerfFile<'_>) -> String {
    let mut out = String::new();
    for (at, loss) in losses.iter() {
        let name = file.attrs().get(at).map(event_name).unwrap_or_default();
        let name = name.printable();
        // Writing to a string does not fail.
        let _ = match loss {
            Loss::Records { times, records } => writeln!(
                out,
                "lost: {} of {name}; number of times a buffer was full: {times}",
                counted(records, "record")
            ),
            Loss::Samples(samples) => {
                writeln!(out, "lost: {} of {name}", counted(samples, "sample"))
            }
            Loss::Filtered(samples) => writeln!(
                out,
                "left out by the recording's filter: {} of {name}",
                counted(samples, "sample")
            ),
        };
    }
    out
}
