//! Samples whose user frames come in a later record, printed when that record arrives.
//!
//! perf's mode prints a sample with the names and mappings of that later time, as perf does; our
//! own mode prints it with those of the sample's time.

use super::output::Output;
use super::printer::{Chain, Script};
use super::tasks::Maps;
use std::collections::HashMap;
use unwind_sim_perf_data::stitch::{Feed, MissingReason, Mode, Stitch, Stitched, Stitcher};
use unwind_sim_perf_data::{Event, PerfFile, RawRecord, Record, flag};

/// Maximum size in bytes of the items that the stitcher holds back; their text is several times
/// larger.
const HELD_BYTES_MAX: usize = 32 << 20;

/// A sample printed except for its user frames.
#[derive(Debug)]
pub(super) struct PartialSample<P> {
    piece: P,
    /// The number of its event.
    pub(super) event: usize,
    /// The mappings of its process at its time.
    pub(super) maps: Maps,
    /// Maximum number of user frames after the kernel's.
    pub(super) room: usize,
}

/// A sample's record that waits for its user frames.
#[derive(Debug)]
struct HeldRecord {
    kind: u32,
    misc: u16,
    offset: u64,
    body: Vec<u8>,
}

/// The waiting samples, by the stitcher's key.
#[derive(Debug)]
enum Samples<P> {
    /// As records: perf's mode.
    Records(HashMap<u64, HeldRecord>),
    /// As partly printed samples: our own mode.
    Begun(HashMap<u64, PartialSample<P>>),
}

/// Joins samples with the records of their user frames.
#[derive(Debug)]
pub(super) struct SampleJoiner<P> {
    feed: Feed,
    stitcher: Stitcher,
    samples: Samples<P>,
}

impl<P: Default> SampleJoiner<P> {
    /// A joiner without waiting samples; `None` without a mode, or if the file has no deferred
    /// frames.
    pub(super) fn of(file: &PerfFile<'_>, mode: Option<Mode>) -> Option<Self> {
        let mode = mode?;
        let deferred = flag::DEFER_CALLCHAIN | flag::DEFER_OUTPUT;
        if file.attrs().iter().all(|attr| attr.flags & deferred == 0) {
            return None;
        }
        let (mut stitcher, samples) = match mode {
            Mode::Own => (
                Stitcher::own_within(HELD_BYTES_MAX),
                Samples::Begun(HashMap::new()),
            ),
            _ => (Stitcher::new(mode), Samples::Records(HashMap::new())),
        };
        stitcher.events(file.attrs());
        Some(Self {
            feed: Feed::default(),
            stitcher,
            samples,
        })
    }

    /// Takes an event and prints the samples that are now complete.
    pub(super) fn event<O: Output<Piece = P>>(
        &mut self,
        script: &mut Script<'_, '_, O>,
        event: &Event<'_>,
        out: &mut P,
    ) {
        let Some(item) = self.feed.item(event) else {
            return;
        };

        if let Record::Sample(sample) = event.record {
            match &mut self.samples {
                // Kept as raw bytes, because the record borrows from the reader's buffer.
                Samples::Records(held) => {
                    let RawRecord {
                        kind, misc, offset, ..
                    } = event.raw;
                    let body = event.raw.body.to_vec();
                    let record = HeldRecord {
                        kind,
                        misc,
                        offset,
                        body,
                    };
                    held.insert(item.key, record);
                }
                Samples::Begun(waiting) => {
                    // The kernel's part is printed now, in its order; the rest follows when the
                    // record is there.
                    let (mut piece, id) = (P::default(), event.id());
                    let event = script.sample(&sample, &id, Chain::Kernel, &mut piece);
                    if let Some(event) = event {
                        let maps = script.tasks.shared_maps(id.tid().unwrap_or(-1));
                        let room = script.room;
                        let sample = PartialSample {
                            piece,
                            event,
                            maps,
                            room,
                        };
                        waiting.insert(item.key, sample);
                    }
                }
            }
        }

        // `print` looks up what is delivered, which may be this sample: it must be kept by now.
        self.stitcher.push(item);
        self.print(script, out);
    }

    /// Prints the samples that still wait at the end of the recording.
    pub(super) fn finish<O: Output<Piece = P>>(
        &mut self,
        script: &mut Script<'_, '_, O>,
        out: &mut P,
    ) {
        self.stitcher.finish();
        self.print(script, out);
    }

    fn print<O: Output<Piece = P>>(&mut self, script: &mut Script<'_, '_, O>, out: &mut P) {
        while let Some(stitched) = self.stitcher.pop() {
            match &mut self.samples {
                Samples::Records(held) => {
                    if let Some(held) = held.remove(&stitched.key) {
                        held.print(script, &stitched, out);
                    }
                }
                Samples::Begun(waiting) => {
                    if let Some(waiting) = waiting.remove(&stitched.key) {
                        script.output.append(&waiting.piece, out);
                        script.user_frames(&waiting, &stitched, out);
                    }
                }
            }
        }
    }
}

impl HeldRecord {
    fn print<O: Output>(
        &self,
        script: &mut Script<'_, '_, O>,
        stitched: &Stitched,
        out: &mut O::Piece,
    ) {
        let raw = RawRecord {
            kind: self.kind,
            misc: self.misc,
            unpacked: false,
            offset: self.offset,
            body: &self.body,
        };

        let file = script.file;
        let Ok(event) = file.decode(raw) else {
            return;
        };

        if let Record::Sample(sample) = event.record {
            // perf prints the cookie as an address if a record removed the sample from its list,
            // and as a cookie if the sample waited until the end of the recording.
            let chain = match stitched.how {
                Stitch::NotDeferred | Stitch::Missing(MissingReason::End) => Chain::Own,
                _ => Chain::Joined(&stitched.chain),
            };
            script.sample(&sample, &event.id(), chain, out);
        }
    }
}
