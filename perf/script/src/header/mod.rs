//! The output of `--header`: when, where and how a recording was made, printed like
//! `perf_header__fprintf_info` and its callees (`tools/perf/util/header.c`, Linux 7.2).
//!
//! Times of day are in UTC. For features that perf prints only with `-I`, prints perf's line that
//! says so.

mod attribute;
mod words;

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};
use unwind_sim_perf_data::event_name;
use unwind_sim_perf_data::{Mode, PerfFile, feature, le};
use words::{FeatureCursor, printable};

/// Names of features, by number (`feat_ops`).
const NAMES: [&str; 35] = [
    "",
    "TRACING_DATA",
    "BUILD_ID",
    "HOSTNAME",
    "OSRELEASE",
    "VERSION",
    "ARCH",
    "NRCPUS",
    "CPUDESC",
    "CPUID",
    "TOTAL_MEM",
    "CMDLINE",
    "EVENT_DESC",
    "CPU_TOPOLOGY",
    "NUMA_TOPOLOGY",
    "BRANCH_STACK",
    "PMU_MAPPINGS",
    "GROUP_DESC",
    "AUXTRACE",
    "STAT",
    "CACHE",
    "SAMPLE_TIME",
    "MEM_TOPOLOGY",
    "CLOCKID",
    "DIR_FORMAT",
    "BPF_PROG_INFO",
    "BPF_BTF",
    "COMPRESSED",
    "CPU_PMU_CAPS",
    "CLOCK_DATA",
    "HYBRID_TOPOLOGY",
    "PMU_CAPS",
    "CPU_DOMAIN_INFO",
    "E_MACHINE",
    "CLN_SIZE",
];
/// Features that perf prints only with `-I`: topologies and caches.
const FULL_ONLY: [u8; 6] = [13, 14, 20, 22, 30, 32];
/// Names of clocks, by number (`tools/perf/util/clockid.c`).
const CLOCKS: [(u32, &str); 5] = [
    (1, "monotonic"),
    (4, "monotonic_raw"),
    (0, "realtime"),
    (7, "boottime"),
    (11, "tai"),
];
/// perf's advice for AMD processors whose core PMU has no precise events.
const IBS: &str = "# AMD systems uses ibs_op// PMU for some precise events, e.g.: cycles:p, see the \
                   'perf list' man page for further details.\n";

/// The whole header; without features for a recording from a pipe, whose features are records.
pub fn text(file: &PerfFile<'_>, bytes: &[u8], written: Option<SystemTime>) -> Vec<u8> {
    let mut out = String::from("# ========\n");

    // The time of the file, which is not in the file: 0 if it is not known.
    let written = written.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let written = written.map_or(0, |time| time.as_secs());
    line(
        &mut out,
        format_args!("captured on    : {}", ctime(written)),
    );

    let is_file = file.mode() == Mode::File;
    // As stored: a killed recorder leaves a size of 0.
    let word = |at| le::u64_at(bytes, at).filter(|_| is_file).unwrap_or(0);
    let (start, size) = (word(40), word(48));

    line(&mut out, format_args!("header version : 1"));
    line(&mut out, format_args!("data offset    : {start}"));
    line(&mut out, format_args!("data size      : {size}"));

    // The descriptors of the features follow the data.
    let behind = start.wrapping_add(size);
    line(&mut out, format_args!("feat offset    : {behind}"));

    if is_file {
        // A pipe has no table that could say what is missing.
        out += &all(file);
        out += "# missing features: ";
        let known: Vec<u8> = file.features().numbers().collect();
        for (number, name) in (0u8..).zip(NAMES).skip(1) {
            if !known.contains(&number) {
                out += name;
                out.push(' ');
            }
        }
        out.push('\n');
    }

    out += "# ========\n#\n";
    out.into_bytes()
}

/// Only the features, as perf prints them before the samples of a recording from a pipe.
pub fn features(file: &PerfFile<'_>) -> Vec<u8> {
    all(file).into_bytes()
}

fn all(file: &PerfFile<'_>) -> String {
    let mut out = String::new();
    for number in file.features().numbers() {
        let name = NAMES.get(usize::from(number)).copied();
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            continue;
        };

        // In a pipe, an empty feature marks the end of the features.
        let is_empty = file.features().section(number).is_none_or(<[u8]>::is_empty);
        if is_empty && file.mode() == Mode::Pipe {
            continue;
        }

        if FULL_ONLY.contains(&number) {
            let more = format_args!("{name} info available, use -I to display");
            line(&mut out, more);
            continue;
        }

        // A damaged feature may have printed its first lines before the damage was seen.
        let begin = out.len();
        if print(file, number, &mut out).is_none() {
            out.truncate(begin);
            line(&mut out, format_args!("{name} info is damaged"));
        }
    }

    out
}

/// Prints a feature; `None` if it is damaged.
fn print(file: &PerfFile<'_>, number: u8, out: &mut String) -> Option<()> {
    let features = file.features();
    // Features without a constant are known by their number only.
    let mut words = FeatureCursor(features.section(number)?);
    let text = |number| Some(printable(features.string(number).ok()??));

    // Each feature has a line, or several; perf's words are kept even where they are wrong.
    match number {
        feature::HOSTNAME => line(out, format_args!("hostname : {}", text(number)?)),
        feature::OSRELEASE => line(out, format_args!("os release : {}", text(number)?)),
        feature::VERSION => line(out, format_args!("perf version : {}", text(number)?)),
        feature::ARCH => line(out, format_args!("arch : {}", text(number)?)),
        feature::CPUDESC => line(out, format_args!("cpudesc : {}", text(number)?)),
        feature::CPUID => line(out, format_args!("cpuid : {}", text(number)?)),
        feature::NRCPUS => {
            let (available, online) = features.cpus().ok()??;
            line(out, format_args!("nrcpus online : {online}"));
            line(out, format_args!("nrcpus avail : {available}"));
        }
        feature::TOTAL_MEM => line(out, format_args!("total memory : {} kB", words.u64()?)),
        feature::CMDLINE => command_line(file, out)?,
        feature::EVENT_DESC => events(file, out)?,
        15 => line(out, format_args!("contains samples with branch stack")),
        16 => pmu_mappings(&mut words, out)?,
        17 => groups(file, &mut words, out)?,
        feature::AUXTRACE => line(
            out,
            format_args!("contains AUX area data (e.g. instruction trace)"),
        ),
        19 => line(out, format_args!("contains stat data")),
        feature::SAMPLE_TIME => sample_time(file, out)?,
        feature::CLOCKID => {
            // perf calls it a frequency: it is the resolution in nanoseconds, times 1000.
            let frequency = words.u64()?.wrapping_mul(1000);
            line(out, format_args!("clockid frequency: {frequency} MHz"));
        }
        24 => line(
            out,
            format_args!("directory data version : {}", words.u64()?),
        ),
        25 => programs(&mut words, out)?,
        26 => types(&mut words, out)?,
        feature::COMPRESSED => compression(file, out)?,
        // The old feature is for the core's PMU alone.
        feature::CPU_PMU_CAPS => {
            let list = words.pairs()?;
            capabilities("cpu", &list, out);
        }
        feature::CLOCK_DATA => clock_data(&mut words, out)?,
        31 => pmu_capabilities(file, &mut words, out)?,
        33 => {
            line(out, format_args!("e_machine : {}", words.u32()?));
            line(out, format_args!("e_flags : {}", words.u32()?));
        }
        34 => line(out, format_args!("cacheline size: {}", words.u32()?)),
        // Tracepoint formats and build ids are not printed.
        _ => {}
    }

    Some(())
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# {text}");
}

fn command_line(file: &PerfFile<'_>, out: &mut String) -> Option<()> {
    out.push_str("# cmdline : ");
    for word in file.features().command_line().ok()?? {
        *out += &printable(word).replace('\'', "\\'");
        out.push(' ');
    }
    out.push('\n');
    Some(())
}

fn events(file: &PerfFile<'_>, out: &mut String) -> Option<()> {
    let pmus = file.features().section(16).map(FeatureCursor);
    let pmus = pmus
        .and_then(|mut words| words.numbered())
        .unwrap_or_default();
    for event in file.features().events().ok()?? {
        let _ = write!(out, "# event : name = {}, ", printable(event.name));
        if !event.ids.is_empty() {
            let ids: Vec<String> = event.ids.iter().map(|id| format!(" {id}")).collect();
            let _ = write!(out, ", id = {{{} }}", ids.join(","));
        }
        attribute::print(event.attr, &pmus, out);
        out.push('\n');
    }
    Some(())
}

fn pmu_mappings(words: &mut FeatureCursor<'_>, out: &mut String) -> Option<()> {
    let pmus = words.numbered()?;
    let list: Vec<String> = pmus
        .iter()
        .map(|(number, name)| format!("{name} = {number}"))
        .collect();
    match list.as_slice() {
        [] => line(out, format_args!("pmu mappings: not available")),
        _ => line(out, format_args!("pmu mappings: {}", list.join(", "))),
    }
    Some(())
}

/// Groups of events: name, number of the leader, and number of events.
fn groups(file: &PerfFile<'_>, words: &mut FeatureCursor<'_>, out: &mut String) -> Option<()> {
    for _ in 0..words.u32()? {
        let name = words.string()?;
        let (leader, members) = (words.u32()? as usize, words.u32()? as usize);
        let end = leader.checked_add(members)?;
        let events = file.attrs().get(leader..end)?;
        let names: Vec<String> = events.iter().map(event_name).collect();
        // perf's name for an unnamed group.
        let name = if name == "{anon_group}" { "" } else { &name };
        line(out, format_args!("group: {name}{{{}}}", names.join(",")));
    }
    Some(())
}

fn sample_time(file: &PerfFile<'_>, out: &mut String) -> Option<()> {
    let (first, last) = file.features().sample_time().ok()??;
    for (name, time) in [("first", first), ("last", last)] {
        let (seconds, us) = (time / 1_000_000_000, time % 1_000_000_000 / 1000);
        line(
            out,
            format_args!("time of {name} sample : {seconds}.{us:06}"),
        );
    }
    let ms = last.wrapping_sub(first) as f64 / 1e6;
    line(out, format_args!("sample duration : {ms:10.3} ms"));
    Some(())
}

/// Ids of BPF programs. perf also shows their names and the addresses of their code.
fn programs(words: &mut FeatureCursor<'_>, out: &mut String) -> Option<()> {
    let mut ids = Vec::new();
    for _ in 0..words.u32()? {
        let (info, data) = (words.u32()?, words.u32()?);
        words.u64()?;
        let info = words.bytes(info as usize)?;
        words.bytes(data as usize)?;
        ids.push(le::u32_at(info, 4)?);
    }
    numbers("bpf_prog_info empty", "bpf_prog_info of id", ids, out);
    Some(())
}

/// Ids of type descriptions (BTF).
fn types(words: &mut FeatureCursor<'_>, out: &mut String) -> Option<()> {
    let mut ids = Vec::new();
    for _ in 0..words.u32()? {
        ids.push(words.u32()?);
        let size = words.u32()?;
        words.bytes(size as usize)?;
    }
    numbers("btf info empty", "btf info of id", ids, out);
    Some(())
}

fn numbers(none: &str, some: &str, mut ids: Vec<u32>, out: &mut String) {
    if ids.is_empty() {
        line(out, format_args!("{none}"));
    }
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        line(out, format_args!("{some} {id}"));
    }
}

fn compression(file: &PerfFile<'_>, out: &mut String) -> Option<()> {
    let packed = file.features().compression().ok()??;
    let kind = if packed.kind == 1 { "Zstd" } else { "Unknown" };
    let (level, ratio) = (packed.level, packed.ratio);
    line(
        out,
        format_args!("compressed : {kind}, level = {level}, ratio = {ratio}"),
    );
    Some(())
}

fn capabilities(pmu: &str, list: &[(String, String)], out: &mut String) {
    let list: Vec<String> = list.iter().map(|(name, v)| format!("{name}={v}")).collect();
    match list.as_slice() {
        [] => line(out, format_args!("{pmu} pmu capabilities: not available")),
        _ => line(
            out,
            format_args!("{pmu} pmu capabilities: {}", list.join(", ")),
        ),
    }
}

fn pmu_capabilities(
    file: &PerfFile<'_>,
    words: &mut FeatureCursor<'_>,
    out: &mut String,
) -> Option<()> {
    for _ in 0..words.u32()? {
        let list = words.pairs()?;
        let name = words.string()?;
        capabilities(&name, &list, out);
    }

    // The advice below is for the machine, not for one PMU.
    let features = file.features();
    let of_x86 = |arch: &[u8]| arch == b"x86_64" || (arch.len() == 4 && arch.ends_with(b"86"));
    let arch = features.string(feature::ARCH).ok().flatten();
    let pmus = features.section(16).map(FeatureCursor);
    let pmus = pmus
        .and_then(|mut words| words.numbered())
        .unwrap_or_default();
    let core = features.cpu_pmu_caps().ok().flatten().unwrap_or_default();
    let imprecise = |&(name, value): &(&[u8], &[u8])| name == b"max_precise" && value == b"0";

    // The advice is only for a core without precise events beside an IBS PMU.
    if arch.is_some_and(of_x86)
        && pmus.iter().any(|(_, name)| name == "ibs_op")
        && core.iter().any(imprecise)
    {
        *out += IBS;
    }
    Some(())
}

fn clock_data(words: &mut FeatureCursor<'_>, out: &mut String) -> Option<()> {
    let _version = words.u32()?;
    let (clock, day, time) = (words.u32()?, words.u64()?, words.u64()?);
    let name = CLOCKS.iter().find(|(number, _)| *number == clock);
    let name = name.map_or("(not found)", |(_, name)| name);
    line(out, format_args!("clockid: {name} ({clock})"));
    let second = 1_000_000_000;
    let (seconds, us) = (day / second, day % second / 1000);
    let date = date(seconds);
    line(
        out,
        format_args!(
            "reference time: {date}.{us:06} = {seconds}.{us:06} (TOD) = {}.{:09} ({name})",
            time / second,
            time % second
        ),
    );
    Some(())
}

/// Converts days since 1970 to year, month, day, and day of the week, where Sunday is 0 (Howard
/// Hinnant's `civil_from_days`).
fn civil(days: u64) -> (u64, u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    (year, month, day, (days + 4) % 7)
}

/// `2026-11-23 14:00:20`.
fn date(seconds: u64) -> String {
    let (year, month, day, _) = civil(seconds / 86_400);
    format!("{year}-{month:02}-{day:02} {}", clock(seconds))
}

/// `Mon Nov 23 14:00:20 2026`.
fn ctime(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (year, month, day, weekday) = civil(seconds / 86_400);
    let (weekday, month) = (DAYS[weekday as usize], MONTHS[month as usize - 1]);
    format!("{weekday} {month} {day:2} {} {year}", clock(seconds))
}

fn clock(seconds: u64) -> String {
    let second = seconds % 86_400;
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{hour:02}:{minute:02}:{:02}", second % 60)
}

#[cfg(test)]
mod tests;
