//! pprof: a gzipped protocol buffer with samples, locations, functions and mappings.
//!
//! The format is `proto/profile.proto` of <https://github.com/google/pprof>. Each event or unwinder
//! has a value type for its samples and, where known, one for the events that they stand for, named
//! as by perf_to_profile. Addresses are those in the image, so a mapping starts at 0. Process,
//! thread and thread name are labels.

use super::protobuf::Message;
use crate::profile::gathered::{Count, EventInfo, NodePlace, Profile};
use flate2::{Compression, write::GzEncoder};
use std::collections::HashMap;
use std::io::{self, Write};

/// The field numbers of the messages.
mod field {
    pub(super) mod profile {
        pub(in super::super) const SAMPLE_TYPE: u32 = 1;
        pub(in super::super) const SAMPLE: u32 = 2;
        pub(in super::super) const MAPPING: u32 = 3;
        pub(in super::super) const LOCATION: u32 = 4;
        pub(in super::super) const FUNCTION: u32 = 5;
        pub(in super::super) const STRING_TABLE: u32 = 6;
        pub(in super::super) const TIME_NANOS: u32 = 9;
        pub(in super::super) const DURATION_NANOS: u32 = 10;
        pub(in super::super) const PERIOD_TYPE: u32 = 11;
        pub(in super::super) const PERIOD: u32 = 12;
    }
    pub(super) mod value_type {
        pub(in super::super) const TYPE: u32 = 1;
        pub(in super::super) const UNIT: u32 = 2;
    }
    pub(super) mod sample {
        pub(in super::super) const LOCATION_ID: u32 = 1;
        pub(in super::super) const VALUE: u32 = 2;
        pub(in super::super) const LABEL: u32 = 3;
    }
    pub(super) mod label {
        pub(in super::super) const KEY: u32 = 1;
        pub(in super::super) const STR: u32 = 2;
        pub(in super::super) const NUM: u32 = 3;
    }
    pub(super) mod mapping {
        pub(in super::super) const ID: u32 = 1;
        pub(in super::super) const MEMORY_LIMIT: u32 = 3;
        pub(in super::super) const FILENAME: u32 = 5;
        pub(in super::super) const BUILD_ID: u32 = 6;
        pub(in super::super) const HAS_FUNCTIONS: u32 = 7;
    }
    pub(super) mod location {
        pub(in super::super) const ID: u32 = 1;
        pub(in super::super) const MAPPING_ID: u32 = 2;
        pub(in super::super) const ADDRESS: u32 = 3;
        pub(in super::super) const LINE: u32 = 4;
    }
    pub(super) mod line {
        pub(in super::super) const FUNCTION_ID: u32 = 1;
    }
    pub(super) mod function {
        pub(in super::super) const ID: u32 = 1;
        pub(in super::super) const NAME: u32 = 2;
        pub(in super::super) const SYSTEM_NAME: u32 = 3;
    }
}

/// The string table; the first string is empty.
struct Strings {
    all: Vec<String>,
    numbers: HashMap<String, u64>,
}

impl Strings {
    fn new() -> Strings {
        let mut strings = Strings {
            all: Vec::new(),
            numbers: HashMap::new(),
        };
        strings.number("");
        strings
    }

    fn number(&mut self, text: &str) -> u64 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.all.len() as u64;
        self.all.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

/// Writes a profile of kind
/// [`GatherKind::Addresses`](crate::profile::gathered::GatherKind::Addresses).
pub(super) fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut message = Message::default();
    let mut strings = Strings::new();

    // The order does not depend on how the profile was gathered, so the same recording gives the
    // same bytes.
    let order = profile.ordered_nodes();
    // A recording need not say how many events a sample stands for.
    let with_events = order.iter().any(|&node| profile.counted(node).events != 0);

    let used = profile.used_series();
    for &series in &used {
        let series = profile
            .series
            .get(series as usize)
            .cloned()
            .unwrap_or_default();
        // Each series has its own unit: nanoseconds for clocks, else a count.
        let unit = unit(series.event.as_ref());
        let series = series.name;
        let samples = value_type(&mut strings, &format!("{series}_sample"), "count");
        message.data(field::profile::SAMPLE_TYPE, samples.bytes());

        if with_events {
            let events = value_type(&mut strings, &format!("{series}_event"), unit);
            message.data(field::profile::SAMPLE_TYPE, events.bytes());
        }
    }
    // Locations are numbered in the order of their frames, from 1.
    let frames = profile.table.ordered();
    let mut locations = vec![0u64; frames.len()];
    for (&frame, id) in frames.iter().zip(1..) {
        locations[frame as usize] = id;
    }

    // A sample has a value for each type, so the columns of other threads' series are 0.
    let columns = Columns { used, with_events };
    samples(
        profile,
        &order,
        &columns,
        &locations,
        &mut strings,
        &mut message,
    );
    places(profile, &frames, &mut strings, &mut message);
    times(profile, &mut strings, &mut message);

    // Everything before adds strings, so their table comes last.
    for text in &strings.all {
        message.data(field::profile::STRING_TABLE, text.as_bytes());
    }

    // A profile is a gzip-compressed message (pprof's `proto/README.md`).
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(message.bytes())?;
    gzip.finish()?;
    Ok(())
}

/// The unit of what an event counts.
fn unit(event: Option<&EventInfo>) -> &'static str {
    if event.is_some_and(|event| event.is_clock) {
        "nanoseconds"
    } else {
        "count"
    }
}

/// When and for how long was sampled, and how often: what the first used event asked for.
fn times(profile: &Profile, strings: &mut Strings, message: &mut Message) {
    use field::profile::{DURATION_NANOS, PERIOD, PERIOD_TYPE, TIME_NANOS};
    message.number(TIME_NANOS, profile.started_ns().unwrap_or(0));
    message.number(DURATION_NANOS, profile.duration_ns().unwrap_or(0));
    let Some(event) = profile.used_events().next() else {
        return;
    };
    let kind = value_type(strings, &event.name, unit(Some(event)));
    message.data(PERIOD_TYPE, kind.bytes());
    // Of a clock, a frequency is a period too.
    let of_frequency = event.interval_ns.filter(|_| event.is_clock);
    message.number(PERIOD, event.period.or(of_frequency).unwrap_or(0));
}

/// The values of a sample.
struct Columns {
    /// The series that have threads.
    used: Vec<u32>,
    /// Whether each series also has the number of events.
    with_events: bool,
}

impl Columns {
    fn values(&self, series: u32, count: Count) -> impl Iterator<Item = u64> {
        self.used.iter().flat_map(move |&other| {
            let Count { samples, events } = if other == series {
                count
            } else {
                Count::default()
            };
            [Some(samples), self.with_events.then_some(events)]
                .into_iter()
                .flatten()
        })
    }
}

fn value_type(strings: &mut Strings, kind: &str, unit: &str) -> Message {
    let mut message = Message::default();
    message.number(field::value_type::TYPE, strings.number(kind));
    message.number(field::value_type::UNIT, strings.number(unit));
    message
}

fn samples(
    profile: &Profile,
    order: &[u32],
    columns: &Columns,
    locations: &[u64],
    strings: &mut Strings,
    message: &mut Message,
) {
    // Labels of a key are numbered strings, and the keys are the same for all samples.
    let [pid, tid, comm] = ["pid", "tid", "comm"].map(|key| strings.number(key));

    let nodes = profile.tree.nodes();
    let mut thread = None;
    for &node in order {
        // A thread's node comes before its stacks.
        if let NodePlace::Thread(number) = NodePlace::of(nodes[node as usize].frame) {
            thread = profile.threads.get(number as usize);
        }

        // A node without samples of its own is only the way to others.
        let count = profile.counted(node);
        let Some(thread) = thread.filter(|_| count.samples != 0) else {
            continue;
        };

        let mut sample = Message::default();

        // Innermost first, as the format has it.
        let ids = profile.stack(node).map(|frame| locations[frame as usize]);
        sample.numbers(field::sample::LOCATION_ID, ids);
        sample.numbers(field::sample::VALUE, columns.values(thread.series, count));

        for (key, number) in [(pid, thread.pid), (tid, thread.tid)] {
            let mut label = Message::default();
            label.number(field::label::KEY, key);
            label.number(field::label::NUM, number.into());
            sample.data(field::sample::LABEL, label.bytes());
        }

        let mut label = Message::default();
        label.number(field::label::KEY, comm);
        label.number(field::label::STR, strings.number(&thread.name));
        sample.data(field::sample::LABEL, label.bytes());
        message.data(field::profile::SAMPLE, sample.bytes());
    }
}

/// Mappings, locations and functions.
fn places(profile: &Profile, frames: &[u32], strings: &mut Strings, message: &mut Message) {
    let table = &profile.table;
    let images = table.images();

    // Mappings are sorted by their images, so that the numbers do not depend on what was met first.
    let mut order: Vec<usize> = (0..images.len()).collect();
    order.sort_by_key(|&at| &images[at]);

    let mut mappings = vec![0u64; images.len()];
    let mut limits = vec![0u64; images.len()];
    // The sizes of images are not known here; the limits only have to include all addresses.
    for frame in table.frames() {
        if let Some(limit) = frame.image.and_then(|at| limits.get_mut(at as usize)) {
            *limit = frame.address.saturating_add(1).max(*limit);
        }
    }

    for (at, id) in order.into_iter().zip(1..) {
        mappings[at] = id;
        let image = &images[at];
        let hex: String = image.build_id.iter().map(|b| format!("{b:02x}")).collect();
        let mut mapping = Message::default();
        mapping.number(field::mapping::ID, id);
        mapping.number(field::mapping::MEMORY_LIMIT, limits[at]);
        mapping.number(field::mapping::FILENAME, strings.number(&image.path));
        mapping.number(field::mapping::BUILD_ID, strings.number(&hex));
        // Otherwise pprof would look for the files and symbolize again.
        mapping.number(field::mapping::HAS_FUNCTIONS, 1);
        message.data(field::profile::MAPPING, mapping.bytes());
    }

    let mut functions: HashMap<(u32, u32), u64> = HashMap::new();
    for (&at, id) in frames.iter().zip(1..) {
        let frame = table.frames()[at as usize];
        let next = functions.len() as u64 + 1;
        let number = *functions.entry((frame.name, frame.symbol)).or_insert(next);
        // One function for each name, however many locations are in it.
        if number == next {
            let name = strings.number(table.name(frame.name));
            let mut function = Message::default();
            function.number(field::function::ID, number);
            function.number(field::function::NAME, name);
            let symbol = strings.number(table.name(frame.symbol));
            function.number(field::function::SYSTEM_NAME, symbol);
            message.data(field::profile::FUNCTION, function.bytes());
        }

        let mut line = Message::default();
        line.number(field::line::FUNCTION_ID, number);
        let mut location = Message::default();
        location.number(field::location::ID, id);

        // 0 means no mapping in this format.
        let mapping = frame.image.map_or(0, |image| mappings[image as usize]);
        location.number(field::location::MAPPING_ID, mapping);
        location.number(field::location::ADDRESS, frame.address);
        location.data(field::location::LINE, line.bytes());
        message.data(field::profile::LOCATION, location.bytes());
    }
}
