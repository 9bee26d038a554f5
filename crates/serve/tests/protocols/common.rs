//! What is served to the clients.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use unwind_sim_judge::compare::GroupBy;
use unwind_sim_judge::engine::Setting;
use unwind_sim_judge::input::Input;
use unwind_sim_judge::run::{Against, Run};
use unwind_sim_judge::spec;
use unwind_sim_judge::states::{Index, States};
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_serve::debuggee::{Debuggee, Opened};

/// A trace with 5,000 samples of a C++ program that throws.
pub(crate) const THROWS: &str = "throws.bin";
/// A trace with few samples.
pub(crate) const SEED: &str = "seed-004.bin";

fn corpus(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/traces");
    folder.join(name)
}

/// The unwinders.
pub(crate) fn run() -> Run {
    let names = ["dwarf", "fp", "guess"].map(str::to_owned);
    Run {
        engines: spec::engines(&names).expect("unwinders"),
        variants: Vec::new(),
        setting: Setting::default(),
        against: Against::Truth,
        group_by: GroupBy::default(),
    }
}

/// A recording.
pub(crate) fn opened<'a>(name: &str, run: &'a Run) -> Opened<'a> {
    let input = Input::open(&corpus(name), &OpenOptions::default()).expect("a recording");
    Opened {
        run,
        states: States::of_recording(input),
        index: Index::of_recording(run),
        stop: Arc::default(),
        source: name.to_owned(),
        executable: None,
        first: 0,
    }
}

/// A recording at its first sample.
pub(crate) fn debuggee<'a>(name: &str, run: &'a Run) -> Debuggee<'a> {
    Debuggee::new(opened(name, run)).expect("a first sample")
}
