//! Shows a perf.data: events, records by type, features, and what samples hold.

use super::columns::{Columns, cells, field, list, per};
use super::{InspectError, map};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use unwind_sim_perf_data::regs::RegsAbi;
use unwind_sim_perf_data::{
    EventAttr, Mode, Order, PerfFile, Record, Sample, Stop, feature, flag, record_type as rt,
    sample_type as st,
};
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::input_file::InputFile;

/// The text for a perf.data.
pub(super) fn show(file: &InputFile) -> Result<String, InspectError> {
    let owner = map(file)?;
    let bytes: &[u8] = (*owner).as_ref();

    // Only a damaged header is an error; damage further inside is listed with the rest.
    let file = PerfFile::parse(bytes).map_err(|source| InspectError::Perf {
        path: file.path().into(),
        source,
    })?;

    let mut out = String::from("a perf.data\n");

    // A file written to a pipe has its features as records, and its header has no offsets.
    let mode = match file.mode() {
        Mode::File => "to a file",
        Mode::Pipe => "to a pipe",
    };
    field(&mut out, "written", mode);
    field(&mut out, "file", counted(bytes.len(), "byte"));

    let data = file.data_range();
    let data_bytes = data.end - data.start;
    let text = format_args!("{} from {:#x} on", counted(data_bytes, "byte"), data.start);
    field(&mut out, "records", text);

    features(&mut out, &file);
    attrs(&mut out, &file);
    records(&mut out, &file);

    let problems: Vec<String> = file.problems().iter().map(ToString::to_string).collect();
    if !problems.is_empty() {
        out.push_str("\nproblems\n");
        list(&mut out, &problems, 20);
    }

    Ok(out)
}

/// Numbers and names of features (perf's `util/header.h`).
const FEATURES: [(u8, &str); 31] = [
    (feature::TRACING_DATA, "tracing data"),
    (feature::BUILD_ID, "build ids"),
    (feature::HOSTNAME, "host name"),
    (feature::OSRELEASE, "kernel"),
    (feature::VERSION, "perf"),
    (feature::ARCH, "arch"),
    (feature::NRCPUS, "cpus"),
    (feature::CPUDESC, "cpu"),
    (feature::CPUID, "cpu id"),
    (feature::TOTAL_MEM, "memory"),
    (feature::CMDLINE, "command line"),
    (feature::EVENT_DESC, "events"),
    (13, "cpu topology"),
    (14, "numa topology"),
    (15, "branch stack"),
    (16, "pmu mappings"),
    (17, "groups"),
    (18, "auxtrace"),
    (19, "stat"),
    (20, "caches"),
    (feature::SAMPLE_TIME, "sample time"),
    (22, "memory topology"),
    (feature::CLOCKID, "clock id"),
    (24, "directory format"),
    (25, "bpf programs"),
    (26, "bpf types"),
    (feature::COMPRESSED, "compression"),
    (feature::CPU_PMU_CAPS, "cpu capabilities"),
    (feature::CLOCK_DATA, "clock data"),
    (30, "hybrid topology"),
    (31, "pmu capabilities"),
];

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn features(out: &mut String, file: &PerfFile<'_>) {
    let features = file.features();

    // These four are strings of their own; the others have structure.
    for number in [
        feature::OSRELEASE,
        feature::VERSION,
        feature::ARCH,
        feature::CPUDESC,
    ] {
        let name = FEATURES.iter().find(|f| f.0 == number).map_or("", |f| f.1);
        match features.string(number) {
            Ok(Some(text)) => field(out, name, lossy(text)),
            Ok(None) => {}
            Err(error) => field(out, name, error),
        }
    }

    // Words are not quoted: the line is to be read, not run.
    match features.command_line() {
        Ok(Some(words)) => {
            let words: Vec<String> = words.into_iter().map(lossy).collect();
            field(out, "command line", words.join(" "));
        }
        Ok(None) => {}
        Err(error) => field(out, "command line", error),
    }

    match features.compression() {
        Ok(Some(c)) => {
            // 1 is `PERF_COMP_ZSTD`.
            let kind = if c.kind == 1 { "zstd" } else { "unknown" };
            let text = format_args!("{kind}, level {}, {} times", c.level, c.ratio);
            field(out, "compression", text);
        }
        Ok(None) => {}
        Err(error) => field(out, "compression", error),
    }

    // A feature without a name is shown by its number: newer versions of perf add some.
    let names: Vec<String> = features
        .numbers()
        .map(|n| match FEATURES.iter().find(|f| f.0 == n) {
            Some((_, name)) => (*name).to_owned(),
            None => format!("feature {n}"),
        })
        .collect();

    if !names.is_empty() {
        field(out, "features", names.join(", "));
    }
}

const SAMPLE_TYPES: [(u64, &str); 20] = [
    (st::IDENTIFIER, "identifier"),
    (st::IP, "ip"),
    (st::TID, "tid"),
    (st::TIME, "time"),
    (st::ADDR, "addr"),
    (st::ID, "id"),
    (st::STREAM_ID, "stream_id"),
    (st::CPU, "cpu"),
    (st::PERIOD, "period"),
    (st::READ, "read"),
    (st::CALLCHAIN, "callchain"),
    (st::RAW, "raw"),
    (st::BRANCH_STACK, "branch_stack"),
    (st::REGS_USER, "regs_user"),
    (st::STACK_USER, "stack_user"),
    (st::WEIGHT, "weight"),
    (st::DATA_SRC, "data_src"),
    (st::REGS_INTR, "regs_intr"),
    (st::PHYS_ADDR, "phys_addr"),
    (st::CGROUP, "cgroup"),
];

fn attrs(out: &mut String, file: &PerfFile<'_>) {
    let _ = writeln!(out, "\n{}", counted(file.attrs().len(), "event"));
    for (i, attr) in file.attrs().iter().enumerate() {
        let name = attr
            .name
            .clone()
            .unwrap_or_else(|| format!("type {} config {:#x}", attr.kind, attr.config));
        field(out, &i.to_string(), name);
        field(out, "", rate(attr));
        let fields = SAMPLE_TYPES
            .iter()
            .filter(|(bit, _)| attr.sample_type & bit != 0);
        let fields: Vec<&str> = fields.map(|(_, name)| *name).collect();
        field(out, "", format_args!("samples hold {}", fields.join(" ")));
        if attr.sample_type & st::STACK_USER != 0 {
            let (bytes, regs) = (attr.sample_stack_user, attr.sample_regs_user.count_ones());
            let text = format_args!(
                "{} of stack, {regs} user registers requested",
                counted(bytes, "byte")
            );
            field(out, "", text);
        }
    }
}

fn rate(attr: &EventAttr) -> String {
    let deferred = if attr.flags & flag::DEFER_CALLCHAIN != 0 {
        ", callchains deferred"
    } else {
        ""
    };
    if attr.flags & flag::FREQ != 0 {
        format!("{} Hz{deferred}", attr.sample_period)
    } else {
        format!("every {}{deferred}", attr.sample_period)
    }
}

/// The name of a record type.
fn record_name(kind: u32) -> String {
    const NAMES: [(u32, &str); 42] = [
        (rt::MMAP, "MMAP"),
        (rt::LOST, "LOST"),
        (rt::COMM, "COMM"),
        (rt::EXIT, "EXIT"),
        (rt::THROTTLE, "THROTTLE"),
        (rt::UNTHROTTLE, "UNTHROTTLE"),
        (rt::FORK, "FORK"),
        (rt::READ, "READ"),
        (rt::SAMPLE, "SAMPLE"),
        (rt::MMAP2, "MMAP2"),
        (rt::AUX, "AUX"),
        (rt::ITRACE_START, "ITRACE_START"),
        (rt::LOST_SAMPLES, "LOST_SAMPLES"),
        (rt::SWITCH, "SWITCH"),
        (rt::SWITCH_CPU_WIDE, "SWITCH_CPU_WIDE"),
        (rt::NAMESPACES, "NAMESPACES"),
        (rt::KSYMBOL, "KSYMBOL"),
        (rt::BPF_EVENT, "BPF_EVENT"),
        (rt::CGROUP, "CGROUP"),
        (rt::TEXT_POKE, "TEXT_POKE"),
        (rt::AUX_OUTPUT_HW_ID, "AUX_OUTPUT_HW_ID"),
        (rt::CALLCHAIN_DEFERRED, "CALLCHAIN_DEFERRED"),
        (rt::HEADER_ATTR, "HEADER_ATTR"),
        (rt::HEADER_EVENT_TYPE, "HEADER_EVENT_TYPE"),
        (rt::HEADER_TRACING_DATA, "HEADER_TRACING_DATA"),
        (rt::HEADER_BUILD_ID, "HEADER_BUILD_ID"),
        (rt::FINISHED_ROUND, "FINISHED_ROUND"),
        (rt::ID_INDEX, "ID_INDEX"),
        (rt::AUXTRACE_INFO, "AUXTRACE_INFO"),
        (rt::AUXTRACE, "AUXTRACE"),
        (rt::AUXTRACE_ERROR, "AUXTRACE_ERROR"),
        (rt::THREAD_MAP, "THREAD_MAP"),
        (rt::CPU_MAP, "CPU_MAP"),
        (rt::STAT_CONFIG, "STAT_CONFIG"),
        (rt::STAT, "STAT"),
        (rt::STAT_ROUND, "STAT_ROUND"),
        (rt::EVENT_UPDATE, "EVENT_UPDATE"),
        (rt::TIME_CONV, "TIME_CONV"),
        (rt::HEADER_FEATURE, "HEADER_FEATURE"),
        (rt::COMPRESSED, "COMPRESSED"),
        (rt::FINISHED_INIT, "FINISHED_INIT"),
        (rt::COMPRESSED2, "COMPRESSED2"),
    ];
    let known = NAMES.iter().find(|(n, _)| *n == kind);
    known.map_or_else(|| format!("type {kind}"), |(_, name)| (*name).to_owned())
}

#[derive(Default)]
struct Samples {
    number: u64,
    with_regs: u64,
    bits_32: u64,
    with_stack: u64,
    stack_asked: u64,
    stack_bytes: u64,
    with_chain: u64,
    chain_words: u64,
    with_branches: u64,
    branches: u64,
    damaged: u64,
}

impl Samples {
    fn add(&mut self, sample: &Sample<'_>) {
        self.number += 1;
        // What `check` refuses would be counted by parts that make no sense.
        if sample.check().is_err() {
            self.damaged += 1;
            return;
        }

        // A sample of a thread without user space has registers of no ABI.
        if let Ok(Some(regs)) = sample.user_regs() {
            match regs.abi {
                RegsAbi::Bits64 => self.with_regs += 1,
                RegsAbi::Bits32 => self.bits_32 += 1,
                RegsAbi::None | RegsAbi::Unknown(_) => {}
            }
        }

        // perf stores as much of the stack as it could copy, which may be less than was asked for.
        if let Ok(Some(stack)) = sample.user_stack() {
            self.with_stack += u64::from(!stack.bytes.is_empty());
            self.stack_asked += stack.size;
            self.stack_bytes += stack.bytes.len() as u64;
        }

        if let Ok(Some(chain)) = sample.callchain() {
            self.with_chain += u64::from(!chain.is_empty());
            self.chain_words += chain.len() as u64;
        }

        if let Ok(Some(branches)) = sample.branch_stack() {
            self.with_branches += u64::from(!branches.is_empty());
            self.branches += branches.len() as u64;
        }
    }

    fn write(&self, out: &mut String) {
        let _ = writeln!(out, "\n{}", counted(self.number, "sample"));

        // What no sample has gets no line, instead of a line with 0.
        let lines = [
            ("user regs", self.with_regs, String::new()),
            ("32-bit regs", self.bits_32, String::new()),
            (
                "user stack",
                self.with_stack,
                format!(
                    ", {} each of {} requested",
                    counted(per(self.stack_bytes, self.with_stack), "byte"),
                    per(self.stack_asked, self.with_stack)
                ),
            ),
            (
                "callchain",
                self.with_chain,
                format!(
                    ", {} each",
                    counted(per(self.chain_words, self.with_chain), "word")
                ),
            ),
            (
                "branches",
                self.with_branches,
                format!(", {} each", per(self.branches, self.with_branches)),
            ),
            ("damaged", self.damaged, String::new()),
        ];

        for (name, count, more) in lines {
            if count > 0 {
                field(out, name, format_args!("{count}{more}"));
            }
        }
    }
}

fn records(out: &mut String, file: &PerfFile<'_>) {
    #[derive(Default)]
    struct RecordTotals {
        stored: u64,
        unpacked: u64,
        bytes: u64,
    }
    let mut sums: BTreeMap<u32, RecordTotals> = BTreeMap::new();
    // As stored in the file; the records inside compressed ones are counted below.
    for raw in file.records().map_while(Result::ok) {
        let sum = sums.entry(raw.kind).or_default();
        sum.stored += 1;
        // With the header, `struct perf_event_header`, which has 8 bytes.
        sum.bytes += raw.body.len() as u64 + 8;
    }

    let mut samples = Samples::default();

    // Records in the order of the file: sorting them by time would need all of them at once.
    let summary = file.for_each(Order::File, |event| {
        // Records that were stored plainly have been counted above.
        if event.raw.unpacked {
            let sum = sums.entry(event.raw.kind).or_default();
            sum.unpacked += 1;
            sum.bytes += event.raw.body.len() as u64 + 8;
        }
        if let Record::Sample(sample) = &event.record {
            samples.add(sample);
        }
        ControlFlow::Continue(())
    });

    let mut table = Columns::new(&["record", "stored", "unpacked", "bytes"]);
    // One line for each type, by number, so that two files can be compared line by line.
    for (kind, sum) in &sums {
        table.row(cells![
            record_name(*kind),
            sum.stored,
            sum.unpacked,
            sum.bytes
        ]);
    }
    out.push_str("\nrecords\n");
    table.write(out);
    samples.write(out);

    if summary.skipped > 0 {
        let first = summary
            .first_skipped
            .map_or_else(String::new, |e| format!(", first {e}"));
        field(
            out,
            "unreadable",
            format_args!("{}{first}", counted(summary.skipped, "record")),
        );
    }

    if let Stop::Error(error) = summary.stop {
        field(out, "cut short", error);
    }
}
