//! Reads each profile format back as folded stacks: `thread;outermost;..;innermost` and a count.

use flate2::read::GzDecoder;
use prost::Message;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;

/// The count of each stack.
pub(crate) type Stacks = BTreeMap<String, u64>;

fn add(stacks: &mut Stacks, thread: &str, frames: &[String], count: u64) {
    let line = [thread, frames.join(";").as_str()].join(";");
    let line = line.trim_end_matches(';').to_owned();
    *stacks.entry(line).or_default() += count;
}

/// A name as it appears in folded stacks.
fn plain(name: &str) -> String {
    name.replace(';', ":")
}

/// What is shown if there is no symbol.
pub(crate) fn bracketed(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    if file.starts_with('[') {
        file.to_owned()
    } else {
        format!("[{file}]")
    }
}

pub(crate) fn unzipped(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut out).expect("gzip");
    out
}

/// Reads folded stacks.
pub(crate) fn folded(text: &str) -> Stacks {
    let mut stacks = Stacks::new();
    for line in text.lines() {
        let (stack, count) = line.rsplit_once(' ').expect("a stack and a count");
        let before = stacks.insert(stack.to_owned(), count.parse().expect("a count"));
        assert_eq!(before, None, "each stack is on one line");
    }
    stacks
}

/// Reads the text of `perf script`; also returns the sum of periods by event.
pub(crate) fn text(text: &str) -> (Stacks, BTreeMap<String, u64>) {
    let blocks = || text.split("\n\n").filter(|block| !block.trim().is_empty());
    let heads: Vec<SampleHeader> = blocks()
        .map(|block| head(block.lines().next().unwrap()))
        .collect();
    let several = heads.iter().any(|head| head.event != heads[0].event);
    let (mut stacks, mut periods) = (Stacks::new(), BTreeMap::new());
    for (block, head) in blocks().zip(heads) {
        let mut frames: Vec<String> = block.lines().skip(1).map(frame).collect();
        frames.reverse();
        let thread = if several {
            format!("{} [{}]", head.comm, head.event)
        } else {
            head.comm.clone()
        };
        add(&mut stacks, &thread, &frames, 1);
        *periods.entry(head.event).or_default() += head.period.unwrap_or(1);
    }
    (stacks, periods)
}

/// The event of the first sample in the text of `perf script`.
pub(crate) fn first_event(text: &str) -> String {
    head(text.lines().next().expect("a sample")).event
}

/// The period of the first sample in the text of `perf script`.
pub(crate) fn first_period(text: &str) -> u64 {
    head(text.lines().next().expect("a sample"))
        .period
        .unwrap_or(1)
}

struct SampleHeader {
    comm: String,
    event: String,
    period: Option<u64>,
}

/// Reads `comm  tid [cpu] seconds.micros:  period event: payload`; some parts may be missing.
fn head(line: &str) -> SampleHeader {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_time = |word: &&str| word.ends_with(':') && word.contains('.');
    let time = words.iter().position(is_time).expect("a time");
    let cpu = usize::from(words[time - 1].starts_with('['));
    let mut rest = &words[time + 1..];
    let period = rest.first().and_then(|word| word.parse().ok());
    if period.is_some() {
        rest = &rest[1..];
    }
    SampleHeader {
        comm: words[..time - 1 - cpu].join(" "),
        event: rest[0].trim_end_matches(':').to_owned(),
        period,
    }
}

/// Reads `address symbol+offset (path)`.
fn frame(line: &str) -> String {
    let (_, rest) = line
        .trim_start()
        .split_once(' ')
        .expect("an address and a name");
    let (name, path) = rest.rsplit_once(" (").expect("a name and a path");
    let path = path.strip_suffix(')').expect("a path");
    if name == "[unknown]" {
        return bracketed(path);
    }
    plain(name.rsplit_once("+0x").map_or(name, |(name, _)| name))
}

/// Reads speedscope's JSON.
pub(crate) fn speedscope(bytes: &[u8]) -> Stacks {
    let json: Value = serde_json::from_slice(bytes).expect("JSON");
    let frames = json["shared"]["frames"].as_array().expect("frames");
    let mut stacks = Stacks::new();
    for profile in json["profiles"].as_array().expect("profiles") {
        let name = profile["name"].as_str().expect("a name");
        let (thread, _) = name.rsplit_once(' ').expect("a thread and its numbers");
        let samples = profile["samples"].as_array().expect("samples");
        let weights = profile["weights"].as_array().expect("weights");
        assert_eq!(samples.len(), weights.len());
        let sum: u64 = weights.iter().map(|weight| weight.as_u64().unwrap()).sum();
        assert_eq!(profile["endValue"].as_u64(), Some(sum));
        for (sample, weight) in samples.iter().zip(weights) {
            let numbers = sample.as_array().expect("frames").iter();
            let name = |number: &Value| {
                let frame = &frames[number.as_u64().expect("a number") as usize];
                plain(frame["name"].as_str().expect("a name"))
            };
            let names: Vec<String> = numbers.map(name).collect();
            add(&mut stacks, thread, &names, weight.as_u64().unwrap());
        }
    }
    stacks
}

/// Reads the Firefox Profiler's JSON, unzipped. A frame without a symbol has an address as its
/// name.
pub(crate) fn firefox(bytes: &[u8]) -> Stacks {
    let json: Value = serde_json::from_slice(bytes).expect("JSON");
    let libs = json["libs"].as_array().expect("libraries");

    let mut stacks = Stacks::new();
    for thread in json["threads"].as_array().expect("threads") {
        let strings = thread["stringArray"].as_array().expect("strings");

        // Tables are stored by column.
        let column = |table: &str, name: &str| -> Vec<Option<usize>> {
            let array = thread[table][name].as_array().expect("a column");
            assert_eq!(thread[table]["length"], array.len(), "{table}.{name}");
            array
                .iter()
                .map(|n| n.as_u64().map(|n| n as usize))
                .collect()
        };

        let frame_func = column("frameTable", "func");
        let func_name = column("funcTable", "name");
        let func_resource = column("funcTable", "resource");
        let resource_lib = column("resourceTable", "lib");
        let prefix = column("stackTable", "prefix");
        let frame = column("stackTable", "frame");
        // Not used: `column` checks its length.
        column("samples", "timeDeltas");

        let name = |frame: usize| {
            let func = frame_func[frame].expect("a function");
            let name = strings[func_name[func].expect("a name")]
                .as_str()
                .expect("a string");
            if !name.starts_with("0x") {
                return plain(name);
            }

            // Without a symbol, only the library is compared.
            let lib = resource_lib[func_resource[func].expect("a resource")].expect("a library");
            bracketed(libs[lib]["name"].as_str().expect("a name"))
        };

        for mut stack in column("samples", "stack") {
            let mut names = Vec::new();
            while let Some(at) = stack {
                names.push(name(frame[at].expect("a frame")));
                // Callers come first, so this ends.
                assert!(prefix[at].is_none_or(|caller| caller < at));
                stack = prefix[at];
            }
            names.reverse();
            add(
                &mut stacks,
                thread["name"].as_str().expect("a name"),
                &names,
                1,
            );
        }
    }

    stacks
}

/// The parts of pprof's `profile.proto` that are read here.
mod pprof {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub(super) sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub(super) sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub(super) mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub(super) location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub(super) function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub(super) string_table: Vec<String>,
        #[prost(int64, tag = "9")]
        pub(super) time_nanos: i64,
        #[prost(int64, tag = "10")]
        pub(super) duration_nanos: i64,
        #[prost(message, optional, tag = "11")]
        pub(super) period_type: Option<ValueType>,
        #[prost(int64, tag = "12")]
        pub(super) period: i64,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ValueType {
        #[prost(int64, tag = "1")]
        pub(super) r#type: i64,
        #[prost(int64, tag = "2")]
        pub(super) unit: i64,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub(super) location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub(super) value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub(super) label: Vec<Label>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Label {
        #[prost(int64, tag = "1")]
        pub(super) key: i64,
        #[prost(int64, tag = "2")]
        pub(super) str: i64,
        #[prost(int64, tag = "3")]
        pub(super) num: i64,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Mapping {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(uint64, tag = "3")]
        pub(super) memory_limit: u64,
        #[prost(int64, tag = "5")]
        pub(super) filename: i64,
        #[prost(int64, tag = "6")]
        pub(super) build_id: i64,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Location {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(uint64, tag = "2")]
        pub(super) mapping_id: u64,
        #[prost(uint64, tag = "3")]
        pub(super) address: u64,
        #[prost(message, repeated, tag = "4")]
        pub(super) line: Vec<Line>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Line {
        #[prost(uint64, tag = "1")]
        pub(super) function_id: u64,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Function {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(int64, tag = "2")]
        pub(super) name: i64,
        #[prost(int64, tag = "3")]
        pub(super) system_name: i64,
    }
}

/// Reads pprof's protocol buffer, unzipped; also returns the sums of its columns by name.
pub(crate) fn pprof(bytes: &[u8]) -> (Stacks, BTreeMap<String, u64>) {
    let profile = pprof::Profile::decode(bytes).expect("a profile");
    // As `profile.proto` requires.
    assert_eq!(profile.string_table[0], "");
    let string = |at: i64| profile.string_table[at as usize].as_str();
    let types: Vec<&str> = profile
        .sample_type
        .iter()
        .map(|t| string(t.r#type))
        .collect();
    let units: Vec<&str> = profile.sample_type.iter().map(|t| string(t.unit)).collect();
    assert!(
        units
            .iter()
            .all(|unit| ["count", "nanoseconds"].contains(unit))
    );

    let events = |kind: &&str| kind.ends_with("_sample");

    // With several events, each one is a column of its own.
    let several = types.iter().filter(|kind| events(kind)).count() > 1;

    let locations: BTreeMap<u64, &pprof::Location> =
        profile.location.iter().map(|l| (l.id, l)).collect();
    let functions: BTreeMap<u64, &pprof::Function> =
        profile.function.iter().map(|f| (f.id, f)).collect();
    let mappings: BTreeMap<u64, &pprof::Mapping> =
        profile.mapping.iter().map(|m| (m.id, m)).collect();

    // Each id occurs once and is not 0 (`profile.proto`).
    assert_eq!(locations.len(), profile.location.len());
    assert_eq!(functions.len(), profile.function.len());
    assert!(
        !locations.contains_key(&0) && !functions.contains_key(&0) && !mappings.contains_key(&0)
    );

    // Everything that a location refers to must be there.
    let name = |id: &u64| {
        let location = locations[id];
        if location.mapping_id != 0 {
            let mapping = mappings[&location.mapping_id];
            assert!(location.address < mapping.memory_limit);
            assert_ne!(string(mapping.filename), "");
            assert!(
                string(mapping.build_id)
                    .bytes()
                    .all(|b| b.is_ascii_hexdigit())
            );
        }

        // Inlined functions would be further lines.
        assert_eq!(location.line.len(), 1);
        plain(string(functions[&location.line[0].function_id].name))
    };

    let (mut stacks, mut sums) = (Stacks::new(), BTreeMap::new());
    for sample in &profile.sample {
        assert_eq!(sample.value.len(), types.len());
        let mut names: Vec<String> = sample.location_id.iter().map(name).collect();
        // The innermost frame is first (`profile.proto`).
        names.reverse();
        let keys: Vec<&str> = sample.label.iter().map(|label| string(label.key)).collect();
        assert_eq!(keys, ["pid", "tid", "comm"]);
        let comm = string(sample.label[2].str);
        for (&kind, &value) in types.iter().zip(&sample.value) {
            *sums.entry(kind.to_owned()).or_default() += value as u64;
            let Some(event) = kind.strip_suffix("_sample").filter(|_| value != 0) else {
                continue;
            };
            let thread = if several {
                format!("{comm} [{event}]")
            } else {
                comm.to_owned()
            };
            add(&mut stacks, &thread, &names, value as u64);
        }
    }

    (stacks, sums)
}

/// What a pprof profile says besides its samples.
pub(crate) struct PprofFacts {
    pub(crate) time_nanos: i64,
    pub(crate) duration_nanos: i64,
    pub(crate) period: i64,
    /// Type and unit.
    pub(crate) period_type: (String, String),
    /// Name and system name of each function.
    pub(crate) functions: Vec<(String, String)>,
    /// File name and build id of each mapping.
    pub(crate) files: Vec<(String, String)>,
}

/// Reads them from pprof's protocol buffer, unzipped.
pub(crate) fn pprof_facts(bytes: &[u8]) -> PprofFacts {
    let profile = pprof::Profile::decode(bytes).expect("a profile");
    let string = |at: i64| profile.string_table[at as usize].clone();
    let period_type = profile.period_type.as_ref().expect("a type of period");
    let functions = profile.function.iter();
    let mappings = profile.mapping.iter();
    PprofFacts {
        time_nanos: profile.time_nanos,
        duration_nanos: profile.duration_nanos,
        period: profile.period,
        period_type: (string(period_type.r#type), string(period_type.unit)),
        functions: functions
            .map(|f| (string(f.name), string(f.system_name)))
            .collect(),
        files: mappings
            .map(|m| (string(m.filename), string(m.build_id)))
            .collect(),
    }
}

/// Removes the frame that says why a walk stopped; also returns the number of stacks that had one.
pub(crate) fn without_reasons(stacks: Stacks) -> (Stacks, u64) {
    let (mut out, mut stopped) = (Stacks::new(), 0);
    for (stack, count) in stacks {
        let (thread, frames) = stack.split_once(';').unwrap_or((&stack, ""));
        let kept: Vec<&str> = frames
            .split(';')
            .filter(|frame| !frame.is_empty() && !frame.starts_with("[stopped: US"))
            .collect();
        let had = frames
            .split(';')
            .filter(|f| f.starts_with("[stopped: "))
            .count();
        stopped += had as u64 * count;
        let line = [&[thread], &kept[..]].concat().join(";");
        *out.entry(line).or_default() += count;
    }
    (out, stopped)
}
