//! The text of `perf bpf`: counts, outputs, prints, maps.

use super::Handled;
use std::io::{self, Write};
use unwind_sim_perf_model::bpf::maps::{Map, Storage};
use unwind_sim_perf_model::bpf::raw_payload;
use unwind_sim_perf_model::bpf::stackmap::StackMap;
use unwind_sim_recordings::counted::counted;
use unwind_sim_unwind::printable::{Printable, printable};

/// Size in bytes of the shipped `profile`'s key: two stack ids, process, name, padding.
const PROFILE_KEY_SIZE: u32 = 40;

/// Bytes as 8-byte hexadecimal words if possible, otherwise as bytes.
fn words(bytes: &[u8]) -> String {
    match bytes.as_chunks::<8>() {
        (words, []) => {
            let words = words
                .iter()
                .map(|w| format!("{:#x}", u64::from_le_bytes(*w)));
            words.collect::<Vec<_>>().join(" ")
        }
        _ => hex(bytes),
    }
}

/// Bytes with spaces between them.
pub(super) fn hex(bytes: &[u8]) -> String {
    let bytes = bytes.iter().map(|byte| format!("{byte:02x}"));
    bytes.collect::<Vec<_>>().join(" ")
}

impl Handled {
    /// Prints the outcome of the samples and what the program left.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let program = &self.handlers.programs()[self.program];
        let Self {
            samples,
            kept,
            dropped,
            faults,
            ..
        } = self;
        writeln!(
            out,
            "{} ({}): {}, {kept} kept, {dropped} dropped, {faults} stopped by a \
             fault",
            program.name,
            program.section,
            counted(samples, "sample")
        )?;

        if let Some(fault) = &self.first_fault {
            writeln!(out, "first fault: {fault}")?;
        }

        // As `perf script --ns` prints it: the CPU in brackets, then seconds and nanoseconds.
        for output in &self.outputs {
            let (seconds, ns) = (output.time / 1_000_000_000, output.time % 1_000_000_000);
            let payload = if output.is_ring {
                output.data.clone()
            } else {
                // As in a recording: `PERF_SAMPLE_RAW` is padded, a record of a ring buffer is not.
                raw_payload(&output.data)
            };
            writeln!(
                out,
                "[{:03}] {seconds}.{ns:09}: {}: {} {}: {}",
                output.cpu,
                Printable::new(&output.map),
                if output.is_ring { "ring" } else { "raw" },
                payload.len(),
                hex(&payload)
            )?;
        }

        // `bpf_trace_printk` texts often end in a newline, but need not.
        for line in &self.printed {
            writeln!(
                out,
                "{}",
                printable(line.strip_suffix('\n').unwrap_or(line))
            )?;
        }

        // The shipped `profile` has these two maps; together they make a profile.
        let maps = &self.handlers.maps;
        let profile = maps.named("counts").zip(maps.named("stacks"));
        let profile = profile.filter(|(counts, _)| {
            counts.def.key_size == PROFILE_KEY_SIZE && counts.def.value_size == 8
        });

        // Maps that the profile is made of are not printed a second time as plain entries.
        for map in maps.iter() {
            match (&map.storage, profile) {
                (Storage::Stacks(stacks), None) => self.print_stacks(out, map, stacks)?,
                (Storage::Array(_) | Storage::Hash(_), profile)
                    if profile.is_none_or(|(counts, _)| counts.def.name != map.def.name) =>
                {
                    print_values(out, map)?;
                }
                _ => {}
            }

            let name = Printable::new(&map.def.name);
            for (count, _, what) in losses(map) {
                writeln!(out, "map {name}: {count} {what}")?;
            }
        }

        if let Some((counts, stacks)) = profile
            && let Storage::Stacks(stacks) = &stacks.storage
        {
            self.print_profile(out, counts, stacks)?;
        }
        Ok(())
    }
}

fn print_values(out: &mut dyn Write, map: &Map) -> io::Result<()> {
    let entries = map.dump();
    writeln!(
        out,
        "map {}: {}",
        Printable::new(&map.def.name),
        counted(entries.len(), "entry")
    )?;
    for (key, values) in entries {
        // Of the values for each processor, only those that are not zero.
        let is_set = |value: &&&[u8]| values.len() == 1 || value.iter().any(|byte| *byte != 0);
        let values: Vec<String> = values.iter().filter(is_set).map(|v| words(v)).collect();
        writeln!(out, "  {}: {}", words(&key), values.join(", "))?;
    }
    Ok(())
}

/// Losses of a map: the count, and the reason as a word and as a phrase.
pub(super) fn losses(map: &Map) -> Vec<(u64, &'static str, &'static str)> {
    // A helper that fails only returns an error to the program: without these, losses would not
    // show.
    let all = match &map.storage {
        Storage::Stacks(stacks) => {
            let stats = stacks.stats();
            vec![
                (
                    stats.collisions,
                    "collision",
                    "stacks lost: their bucket holds another (EEXIST)",
                ),
                (
                    stats.replaced,
                    "replaced",
                    "stacks replaced by others in the same bucket",
                ),
                (
                    stats.no_memory,
                    "no-memory",
                    "stacks lost: all buckets are in use (ENOMEM)",
                ),
                (
                    stats.too_short,
                    "no-stack",
                    "stacks requested that the sample does not have (EFAULT)",
                ),
            ]
        }
        Storage::Ring(ring) => {
            // Discarding is the program's choice; only a record without room is a loss against its
            // will.
            let stats = ring.stats();
            vec![
                (
                    stats.discarded,
                    "discarded",
                    "records discarded by the program",
                ),
                (
                    stats.lost,
                    "no-room",
                    "records lost: there was no room (EAGAIN)",
                ),
            ]
        }
        Storage::Hash(hash) => {
            // A plain hash map refuses what has no room, an LRU map evicts
            // (`kernel/bpf/hashtab.c`).
            let stats = hash.stats();
            vec![
                (
                    stats.full,
                    "full",
                    "entries refused: the map is full (E2BIG)",
                ),
                (
                    stats.evicted,
                    "evicted",
                    "entries that made room for others",
                ),
            ]
        }
        _ => Vec::new(),
    };

    all.into_iter().filter(|(count, ..)| *count != 0).collect()
}

impl Handled {
    fn print_stacks(&self, out: &mut dyn Write, map: &Map, stacks: &StackMap) -> io::Result<()> {
        writeln!(
            out,
            "map {}: {}",
            Printable::new(&map.def.name),
            counted(stacks.ids().count(), "stack")
        )?;
        for id in stacks.ids() {
            let frames = stacks.get(id).unwrap_or_default();
            let frame = |ip: &u64| match self.name(*ip, None) {
                Some(name) => format!("{ip:#x} {}", printable(name)),
                None => format!("{ip:#x}"),
            };
            let frames: Vec<String> = frames.iter().map(frame).collect();
            writeln!(
                out,
                "  {id}: {}",
                frames.join(if self.names.is_some() { "; " } else { " " })
            )?;
        }
        Ok(())
    }

    /// Prints counts like bcc's `profile`: kernel frames, user frames, name and process, count; the
    /// most frequent last.
    fn print_profile(
        &self,
        out: &mut dyn Write,
        counts: &Map,
        stacks: &StackMap,
    ) -> io::Result<()> {
        let mut entries: Vec<(u64, Vec<u8>)> = counts
            .dump()
            .into_iter()
            .map(|(key, values)| {
                let count = values.iter().filter_map(|value| value.first_chunk::<8>());
                (count.map(|count| u64::from_le_bytes(*count)).sum(), key)
            })
            .collect();

        // By count, then by key, so that the order does not depend on the hash map.
        entries.sort();
        for (count, key) in entries {
            // `bpf_get_stackid` gives an id or a negative error (`kernel/bpf/stackmap.c`).
            let word = |at: usize| {
                let bytes = key.get(at..).and_then(|rest| rest.first_chunk::<8>());
                bytes.map_or(0, |bytes| i64::from_le_bytes(*bytes))
            };

            writeln!(out)?;
            // The offsets are those of `struct key` in `corpus/bpf/profile.bpf.c`: two 64-bit ids,
            // a 32-bit pid, the name.
            let pid = word(16) as u32;

            for (kind, id) in [("kernel", word(0)), ("user", word(8))] {
                match u32::try_from(id).ok().and_then(|id| stacks.get(id)) {
                    Some(frames) => {
                        for ip in frames {
                            let name = self.name(ip, Some(pid));
                            let name = name
                                .map_or_else(String::new, |name| format!(" {}", printable(name)));
                            writeln!(out, "    {ip:#x}{name}")?;
                        }
                    }
                    // -EFAULT: there is no stack. Any other error means that one was lost.
                    None if id == -14 => {}
                    None => writeln!(out, "    [{kind} stack lost: error {}]", -id)?,
                }
            }

            // `TASK_COMM_LEN` bytes with zeros behind the name (`include/linux/sched.h`).
            let name = key.get(20..36).unwrap_or_default();
            let end = name
                .iter()
                .rposition(|&byte| byte != 0)
                .map_or(0, |last| last + 1);
            let name = Printable::new(&name[..end]);
            writeln!(out, "    {:<16} {name} ({pid})\n        {count}", "-")?;
        }

        Ok(())
    }
}
