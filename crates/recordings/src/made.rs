//! How a recording was made, as far as the file says: what advice must not repeat.

use crate::file_kind::FileKind;
use crate::trace::Engine;
use unwind_sim_perf_data::{PerfFile, branch_sample_type, feature, sample_type};

/// The maximum number of words kept of a command line.
const WORDS_MAX: usize = 4096;

/// How a recording was made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Made {
    /// What made it.
    pub engine: Engine,
    /// perf's command line; empty if unknown.
    pub command: Vec<String>,
    /// The stack copy that was asked for, bytes; 0 for none.
    pub stack_copy: u32,
    /// The maximum number of addresses of a callchain that was asked for; 0 for the kernel's default.
    pub max_stack: u16,
    /// Callchains were recorded by the kernel.
    pub callchains: bool,
    /// Branch records in call-stack mode were recorded.
    pub branch_calls: bool,
    /// A core's file ends before its last segment.
    pub is_cut: bool,
    /// A core has no list of the mapped files (`NT_FILE`).
    pub lacks_file_list: bool,
    /// The processor as perf writes it: vendor, family, model, stepping; empty if unknown.
    pub processor: String,
}

impl Made {
    /// Whether the processor is AMD's, whose branch records have no call-stack mode.
    pub fn is_amd(&self) -> bool {
        self.processor.starts_with("AuthenticAMD")
    }

    /// What a perf.data says: its events' attributes, and perf's command line.
    pub fn of_perf(file: &PerfFile<'_>) -> Made {
        let command = file.features().command_line().ok().flatten();
        let words = command.unwrap_or_default().into_iter().take(WORDS_MAX);
        let mut made = Made {
            engine: Engine::Import(FileKind::PerfData),
            command: words
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect(),
            ..Made::default()
        };
        let processor = file.features().string(feature::CPUID).ok().flatten();
        made.processor = String::from_utf8_lossy(processor.unwrap_or_default()).into_owned();
        for attr in file.attrs() {
            let has = |bit| attr.sample_type & bit != 0;
            if has(sample_type::STACK_USER) {
                made.stack_copy = made.stack_copy.max(attr.sample_stack_user);
            }
            made.max_stack = made.max_stack.max(attr.sample_max_stack);
            made.callchains |= has(sample_type::CALLCHAIN);
            made.branch_calls |= has(sample_type::BRANCH_STACK)
                && attr.branch_sample_type & branch_sample_type::CALL_STACK != 0;
        }
        made
    }
}
