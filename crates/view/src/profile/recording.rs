//! What a perf.data says of all its samples: its events, its clock, and which kernel it is of.

use super::gathered::{Clock, EventInfo, Series};
use unwind_sim_judge::engine::Engine;
use unwind_sim_judge::input::Input;
use unwind_sim_perf_data::{EventAttr, KernelCode, PerfFile, event_name};
use unwind_sim_perf_script::symbols::Places;
use unwind_sim_recordings::input_file::InputFile;

/// What is known of a recording before it is read. Of other kinds than perf.data that is nothing.
#[derive(Default)]
pub(super) struct RecordingHeader {
    /// The attributes of its events.
    attrs: Vec<EventAttr>,
    /// Its clock; `None` if times are not nanoseconds.
    pub(super) clock: Option<Clock>,
    /// Build ID of the recorded kernel.
    kernel_build_id: Option<Vec<u8>>,
}

impl RecordingHeader {
    /// Reads the head of the recording. If it cannot be read, the walk over it says so.
    pub(super) fn of(input: &Input) -> RecordingHeader {
        let Some(bytes) = input.perf_data() else {
            return RecordingHeader::default();
        };
        let Ok(file) = PerfFile::parse((*bytes).as_ref()) else {
            return RecordingHeader::default();
        };
        let mut kernel = KernelCode::default();
        for id in file.build_ids().filter_map(Result::ok) {
            kernel.build_id(&id);
        }
        let modified = input.file().and_then(InputFile::modified);
        RecordingHeader {
            attrs: file.attrs().to_vec(),
            clock: Some(Clock::of(&file, modified)),
            kernel_build_id: kernel.core_build_id(),
        }
    }

    /// The number of events; 1 if there is none.
    pub(super) fn event_count(&self) -> usize {
        self.attrs.len().max(1)
    }

    /// The series of each event of each unwinder, event by event. They are named by the event, by
    /// the unwinder if there are several, and by both if there are several of both. If nothing is
    /// known of events, by the unwinder.
    pub(super) fn series(&self, engines: &[Engine]) -> Vec<Series> {
        let several_events = self.attrs.iter().filter(|attr| attr.is_sampled()).count() > 1;
        let several = engines.len() > 1;

        let of_engine = |engine: &Engine| {
            let unwinder = engine.name().to_owned();
            let named = move |attr: &EventAttr| {
                // A name that is the same for all series would only be noise.
                let event = EventInfo::of(attr);
                let name = match (several, several_events) {
                    (false, _) => event.name.clone(),
                    (true, false) => unwinder.clone(),
                    (true, true) => format!("{},{unwinder}", event.name),
                };
                Series {
                    name,
                    event: Some(event),
                }
            };

            // A recording of another kind than perf.data has no events, so the samples are of one
            // series.
            let mut series: Vec<Series> = self.attrs.iter().map(named).collect();
            if series.is_empty() {
                series.push(Series {
                    name: engine.name().to_owned(),
                    event: None,
                });
            }
            series
        };

        engines.iter().flat_map(of_engine).collect()
    }

    /// Where the kernel's symbols are looked up.
    pub(super) fn places(&self, input: &Input) -> Places {
        Places {
            symfs: input.options().symfs.clone(),
            kallsyms: None,
            kernel_build_id: self.kernel_build_id.clone(),
        }
    }
}

/// The names of the events of a perf.data, in the file's order; empty for other recordings. A `dummy`
/// event, which has no samples, has its name too.
pub fn events(input: &Input) -> Vec<String> {
    let known = RecordingHeader::of(input);
    known.attrs.iter().map(event_name).collect()
}
