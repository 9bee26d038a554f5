//! Shows a trace: how it was made, its blocks, and what it holds.

use super::columns::{Columns, cells, field, per};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use unwind_sim_judge::hex::hex_bytes;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::model::{Item, RegionRole, Sample};
use unwind_sim_recordings::trace::{BlockType, TimeUnit, Trace};
use unwind_sim_unwind::image::{Image, SectionKind};
use unwind_sim_unwind::truth::Truth;

/// The text for `trace`. `file_bytes` is the size of its file, if it is in one.
pub(super) fn show(trace: &Trace, file_bytes: Option<u64>) -> String {
    let mut out = String::from("a trace\n");
    meta(&mut out, trace);
    if let Some(bytes) = file_bytes {
        field(&mut out, "file", counted(bytes, "byte"));
    }
    if let Some(cut) = trace.cut() {
        field(&mut out, "cut short", cut);
    }
    let sampled = blocks(&mut out, trace);
    images(&mut out, trace);
    items(&mut out, trace, sampled);
    out
}

/// A wait status in words, as `waitpid` encodes it.
fn status_text(status: u32) -> String {
    match status & 0x7f {
        0 => format!("exited with {}", status >> 8 & 0xff),
        signal => format!("ended by signal {signal}"),
    }
}

fn meta(out: &mut String, trace: &Trace) {
    // What a writer did not know is left out, not shown as empty.
    let meta = trace.meta();
    if !meta.command.is_empty() {
        field(out, "made by", meta.command.join(" "));
    }

    if !meta.program.is_empty() {
        field(out, "program", meta.program.join(" "));
    }

    field(out, "engine", meta.engine.as_str());
    let unit = match meta.time_unit {
        TimeUnit::Nanoseconds => "nanoseconds",
        TimeUnit::Instructions => "instructions",
    };
    field(out, "time", unit);

    let truth = if meta.truth.is_empty() {
        "unknown"
    } else {
        &meta.truth
    };
    field(out, "truth", truth);

    if meta.instructions > 0 {
        let (all, unknown) = (meta.instructions, meta.unknown_instructions);
        let text = format_args!("{all} under the tracker, {unknown} without the truth");
        field(out, "instructions", text);
    }

    if meta.lost_samples + meta.lost_events > 0 {
        let (samples, events) = (meta.lost_samples, meta.lost_events);
        field(
            out,
            "lost",
            format_args!(
                "{}, {}",
                counted(samples, "sample"),
                counted(events, "event")
            ),
        );
    }

    if let Some(status) = meta.status {
        field(out, "status", status_text(status));
    }

    // Keys that nothing here knows are shown as they are.
    for (key, value) in &meta.other {
        field(out, key, value);
    }
}

/// Writes the table of blocks. Returns the number of bytes stored for samples.
fn blocks(out: &mut String, trace: &Trace) -> u64 {
    #[derive(Default)]
    struct BlockTotals {
        blocks: u64,
        items: u64,
        stored: u64,
        plain: u64,
    }
    let mut sums: BTreeMap<u16, BlockTotals> = BTreeMap::new();

    let (mut sampled, mut data) = (0, 0);
    for block in trace.blocks() {
        let sum = sums.entry(block.number).or_default();

        let stored = u64::from(block.stored_bytes);
        sum.blocks += 1;
        sum.items += u64::from(block.count);
        sum.stored += stored;
        sum.plain += u64::from(block.plain_bytes);
        // Data belongs to the block that refers to it, which follows it.
        match block.block_type {
            Some(BlockType::Data) => data += stored,
            Some(BlockType::Image) => data = 0,
            Some(BlockType::Samples) => sampled += stored + std::mem::take(&mut data),
            _ => {}
        }
    }

    let mut table = Columns::new(&["block", "number", "items", "stored", "plain"]);
    for (number, sum) in &sums {
        // Blocks of unknown types are skipped by readers, but take room.
        let name = BlockType::from_number(*number).map_or_else(
            || format!("type {number}, unknown"),
            |t| t.as_str().to_owned(),
        );
        table.row(cells![name, sum.blocks, sum.items, sum.stored, sum.plain]);
    }

    out.push_str("\nblocks, bytes\n");
    table.write(out);
    sampled
}

/// `eh_frame 1234, sframe 56`: the tables of an image, with their bytes.
pub(super) fn tables_of(image: &Image) -> String {
    let tables = SectionKind::ALL
        .into_iter()
        .filter(|k| !matches!(k, SectionKind::Text | SectionKind::Got));
    let known = tables.filter_map(|kind| {
        let of_kind = image.sections().iter().filter(|s| s.kind == kind);
        let bytes: usize = of_kind.map(|s| s.data.len()).sum();
        (bytes > 0).then(|| format!("{} {bytes}", kind.as_str().trim_start_matches('.')))
    });
    let known: Vec<String> = known.collect();
    if known.is_empty() {
        "none".to_owned()
    } else {
        known.join(", ")
    }
}

fn images(out: &mut String, trace: &Trace) {
    let mut table = Columns::new(&["image", "build id", "text", "symbols", "tables, bytes"]);
    for image in trace.images() {
        let sections = image.sections().iter();
        let text = sections.filter(|s| s.kind == SectionKind::Text);
        let text: usize = text.map(|s| s.data.len()).sum();
        let id = match hex_bytes(image.build_id()) {
            id if id.is_empty() => "-".to_owned(),
            id => id,
        };
        let symbols = image.symbols().len();
        table.row(cells![image.name(), id, text, symbols, tables_of(image)]);
    }
    if !table.is_empty() {
        let _ = writeln!(out, "\n{}", counted(trace.images().len(), "image"));
        table.write(out);
    }
}

#[derive(Default)]
struct TraceCounts {
    samples: u64,
    fake: u64,
    threads: BTreeSet<(u32, u32)>,
    time: Option<(u64, u64)>,
    truths: [u64; 3],
    true_frames: u64,
    regions: [(u64, u64); 4],
    recorded: BTreeMap<String, u64>,
    raw_bytes: u64,
    damaged: Vec<String>,
}

/// The size of a register set in a plain dump: 16 registers, rip, rflags.
const REGISTERS_BYTES: u64 = 18 * 8;

impl TraceCounts {
    fn add(&mut self, sample: &Sample<'_>) {
        self.samples += 1;
        self.fake += u64::from(sample.regs.is_fake());
        self.threads.insert((sample.pid, sample.tid));

        // Samples of several threads need not be in order, so both ends are looked for.
        let (first, last) = self.time.unwrap_or((sample.time, sample.time));
        self.time = Some((first.min(sample.time), last.max(sample.time)));

        let truth = match sample.truth {
            Truth::Complete(_) => 0,
            Truth::Known(_) => 1,
            Truth::Unknown => 2,
        };
        self.truths[truth] += 1;
        self.true_frames += sample.truth.frames().len() as u64;

        // A plain dump would have all registers and all memory of each sample.
        self.raw_bytes += REGISTERS_BYTES * (1 + u64::from(sample.regs.own.is_some()));

        for region in &sample.regions {
            let role = match region.role {
                RegionRole::Stack => 0,
                RegionRole::OtherStack => 1,
                RegionRole::Data => 2,
                RegionRole::User => 3,
            };
            let bytes = region.bytes.len() as u64;
            self.regions[role].0 += 1;
            self.regions[role].1 += bytes;
            self.raw_bytes += bytes;
        }

        for chain in &sample.recorded {
            *self.recorded.entry(chain.source.clone()).or_default() += 1;
        }
    }
}

fn items(out: &mut String, trace: &Trace, stored: u64) {
    let mut sums = TraceCounts::default();

    // Each chunk is read by itself, so a damaged one does not hide those behind it.
    for chunk in trace.chunks() {
        let mut reader = match chunk.read() {
            Ok(reader) => reader,
            Err(error) => {
                sums.damaged.push(error.to_string());
                continue;
            }
        };
        while let Some(item) = reader.next() {
            match item {
                Ok(Item::Sample(sample)) => sums.add(&sample),
                Ok(Item::Event(_)) => {}

                // Within a chunk, what follows a damaged item cannot be told apart.
                Err(error) => {
                    sums.damaged.push(error.to_string());
                    break;
                }
            }
        }
    }

    let n = sums.samples;
    let _ = writeln!(
        out,
        "\n{}, {}",
        counted(n, "sample"),
        counted(trace.events(), "event")
    );

    let processes: BTreeSet<u32> = sums.threads.iter().map(|(pid, _)| *pid).collect();
    let (threads, processes) = (sums.threads.len(), processes.len());
    field(
        out,
        "threads",
        format_args!("{threads} in {}", counted(processes, "process")),
    );

    if let Some((first, last)) = sums.time {
        field(out, "time", format_args!("{first} to {last}"));
    }
    let fake = sums.fake;
    field(
        out,
        "started",
        format_args!("{} hardware, {fake} fake", n - fake),
    );

    let [complete, known, unknown] = sums.truths;
    let text = format_args!("{complete} complete, {known} to a depth, {unknown} unknown");
    field(out, "truth", text);
    if complete + known > 0 {
        let frames = per(sums.true_frames, complete + known);
        field(out, "true frames", format_args!("{frames} per sample"));
    }

    let names = ["stack", "other stacks", "data", "user"];
    for (name, (regions, bytes)) in names.into_iter().zip(sums.regions) {
        if regions > 0 {
            let each = per(bytes, regions);
            field(
                out,
                name,
                format_args!(
                    "{}, {} each",
                    counted(regions, "region"),
                    counted(each, "byte")
                ),
            );
        }
    }

    for (source, chains) in &sums.recorded {
        field(
            out,
            "recorded",
            format_args!("{} by {source}", counted(chains, "chain")),
        );
    }

    // What the samples would take if nothing were shared or compressed, for comparison.
    if n > 0 {
        // A damaged trace may have no stored bytes.
        let (raw, kept) = (per(sums.raw_bytes, n), per(stored, n));
        let ratio = sums.raw_bytes as f64 / stored.max(1) as f64;
        let text = format_args!(
            "{} per sample; {raw} as a plain dump, {ratio:.1} times as much",
            counted(kept, "byte")
        );
        field(out, "stored", text);
    }

    if !sums.damaged.is_empty() {
        out.push_str("  damaged\n");
        super::columns::list(out, &sums.damaged, 20);
    }
}
