//! Text output: one block for each sample, in the columns of `perf script`.

use super::bpf_output;
use super::digits;
use super::fields::{self, FieldError, Fields};
use super::frames::Lines;
use super::output::{Address, Head, Output};
use super::printer::Options;
use super::tasks::{self, Tasks};
use super::trace::Formats;
use crate::symbols::Symbols;
use unwind_sim_perf_data::event_name;
use unwind_sim_perf_data::{PerfFile, RecordId, Sample, feature, misc, sample_type as st};

/// The first address that perf takes for a kernel address (`machine__get_kernel_start` in
/// `tools/perf/util/machine.c`).
const KERNEL_START: u64 = 1 << 63;

/// How the samples of one event are printed.
#[derive(Debug)]
struct Column {
    fields: Fields,
    /// The event's `config`: the number of a tracepoint.
    config: u64,
    /// Whether its samples hold data written by BPF programs.
    bpf_output: bool,
    /// Whether its data addresses are printed with symbols.
    names_data: bool,
    /// Whether its samples have chains.
    has_chain: bool,
    /// The event's name, padded to the longest, with the colon and blank after it.
    name: Vec<u8>,
    /// Index of its [`Lines`].
    lines: usize,
    /// Index of the lines for an address that is not in a chain.
    address_lines: usize,
    /// Index of the [`Lines`] of its data addresses, which have no source lines.
    data_lines: usize,
}

/// Prints samples as text.
#[derive(Debug)]
pub struct Text {
    nanoseconds: bool,
    columns: Vec<Column>,
    formats: Formats,
    lines: Vec<Lines>,
}

impl Text {
    /// The text output of a file. Uses only the fields, the format of times, `hide_chains`,
    /// `unwound` and `inline` of `options`.
    ///
    /// # Errors
    /// If a requested field cannot be printed.
    pub fn new(file: &PerfFile<'_>, options: &Options) -> Result<Self, FieldError> {
        Fields::check(file, &options.fields)?;
        let with_chains = !options.hide_chains;
        let all = Fields::of_file(file, &options.fields, with_chains);

        // All names are as wide as the longest one.
        let named: Vec<String> = file.attrs().iter().map(event_name).collect();
        let width = named.iter().map(String::len).max().unwrap_or(0);

        // Events that print places alike share one cache of lines.
        let mut lines: Vec<Lines> = Vec::new();
        let events = file.attrs().iter().zip(&named);
        let columns = all.into_iter().zip(events).map(|(fields, (attr, name))| {
            let mut number = |fields, inline| {
                let same = lines
                    .iter()
                    .position(|lines| lines.shows() == (fields, inline));
                same.unwrap_or_else(|| {
                    lines.push(Lines::new(fields, inline));
                    lines.len() - 1
                })
            };

            // The data address never has a line of its source.
            let data_lines = number(fields.without(Fields::SOURCE_LINE), false);
            let name = format!("{name:>width$}: ").into_bytes();
            Column {
                fields,
                config: attr.config,
                bpf_output: fields::is_bpf_output(attr),
                names_data: fields::names_data(attr),
                has_chain: with_chains
                    && (attr.sample_type & st::CALLCHAIN != 0 || options.unwound),
                name,
                lines: number(fields, options.inline),
                address_lines: number(fields, false),
                data_lines,
            }
        });

        let columns = columns.collect();
        let features = file.features();

        Ok(Self {
            nanoseconds: options.nanoseconds,
            columns,
            formats: Formats::parse(features.section(feature::TRACING_DATA).unwrap_or(&[])),
            lines,
        })
    }

    /// Appends the fields before the event's name.
    fn start(
        &self,
        tasks: &Tasks,
        fields: Fields,
        with_chain: bool,
        id: &RecordId<'_>,
        out: &mut Vec<u8>,
    ) {
        let tid = id.tid().unwrap_or(-1);

        if fields.has(Fields::COMM) {
            let unnamed;
            let name = match tasks.name(tid) {
                Some(name) => name,
                None => {
                    // The name that `thread__new` gives (`tools/perf/util/thread.c`).
                    unnamed = format!(":{tid}").into_bytes();
                    &unnamed
                }
            };
            // perf aligns names only in lines without a chain.
            digits::padded(out, name, if with_chain { 0 } else { 16 }, b' ');
            out.push(b' ');
        }

        // One column for both, if both are asked for.
        if fields.has(Fields::PID) && fields.has(Fields::TID) {
            digits::signed(out, id.pid().unwrap_or(-1).into(), 7);
            out.extend_from_slice(format!("/{tid:<7} ").as_bytes());
        } else if fields.has(Fields::PID) {
            digits::signed(out, id.pid().unwrap_or(-1).into(), 7);
            out.push(b' ');
        } else if fields.has(Fields::TID) {
            digits::signed(out, tid.into(), 7);
            out.push(b' ');
        }

        if fields.has(Fields::CPU) {
            out.push(b'[');
            // An unknown CPU is -1, and padded like the others.
            match id.cpu().unwrap_or(u32::MAX).cast_signed() {
                cpu @ 0.. => digits::decimal(out, cpu.unsigned_abs().into(), 3, b'0'),
                cpu => out.extend_from_slice(format!("{cpu:03}").as_bytes()),
            }
            out.extend_from_slice(b"] ");
        }

        if fields.has(Fields::TIME) {
            let time = id.time().unwrap_or(0);
            let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
            let width = 5;
            digits::decimal(out, seconds, width, b' ');
            out.push(b'.');

            // Cut to microseconds, not rounded.
            if self.nanoseconds {
                digits::decimal(out, rest, 9, b'0');
            } else {
                digits::decimal(out, rest / 1000, 6, b'0');
            }
            out.extend_from_slice(b": ");
        }
    }
}

impl Text {
    /// Appends the data address, with its symbol if the event is a page fault.
    fn data_address(
        &mut self,
        sample: &Sample<'_>,
        id: &RecordId<'_>,
        event: usize,
        tasks: &Tasks,
        symbols: &mut dyn Symbols,
        out: &mut Vec<u8>,
    ) {
        let column = &self.columns[event];
        let address = sample.address().unwrap_or(0);
        if !column.names_data {
            return digits::hexadecimal(out, address, 16);
        }

        // Which of the two address spaces is meant depends on both the mode and the address.
        let maps = tasks.maps(id.tid().unwrap_or(-1));
        // Kernel code may access user data, and the reverse (`machine__addr_cpumode`).
        let mut kernel = || tasks.kernel_map(address, symbols);
        let map = match (sample.cpumode(), address >= KERNEL_START) {
            (misc::CPUMODE_KERNEL, true) => kernel(),
            (misc::CPUMODE_USER, false) => tasks::find(maps, address).copied(),
            (misc::CPUMODE_KERNEL, false) => {
                kernel().or_else(|| tasks::find(maps, address).copied())
            }
            (misc::CPUMODE_USER, true) => {
                let user = tasks::find(maps, address).copied();
                user.or_else(kernel)
            }
            _ => None,
        };

        let lines = &mut self.lines[column.data_lines];
        out.extend_from_slice(lines.place(tasks, symbols, map.as_ref(), address));
    }
}

impl Output for Text {
    type Piece = Vec<u8>;

    fn shows(&self, event: usize) -> bool {
        !self.columns[event].fields.is_empty()
    }

    fn shows_places(&self, event: usize) -> bool {
        self.columns[event].fields.has(Fields::IP)
    }

    fn head(
        &mut self,
        head: &Head<'_>,
        tasks: &Tasks,
        symbols: &mut dyn Symbols,
        out: &mut Vec<u8>,
    ) {
        let Head {
            sample,
            id,
            event,
            period,
            chains,
        } = *head;

        // The order is that of perf's columns.
        // A chain is printed on lines of its own, which changes how the first line looks.
        let fields = self.columns[event].fields;
        let has_chain = self.columns[event].has_chain && fields.has(Fields::IP);
        self.start(tasks, fields, has_chain && chains, id, out);

        if fields.has(Fields::PERIOD) {
            digits::decimal(out, period, 10, b' ');
            out.push(b' ');
        }
        if fields.has(Fields::EVENT) {
            out.extend_from_slice(&self.columns[event].name);
        }

        // A payload that cannot be read is left out, as a field without a value.
        if fields.has(Fields::TRACE)
            && let Ok(Some(raw)) = sample.raw_data()
        {
            let mut functions = |address| kernel_function(tasks, symbols, address);
            self.formats
                .print(self.columns[event].config, raw, &mut functions, out);
        }

        if fields.has(Fields::ADDRESS) {
            self.data_address(sample, id, event, tasks, symbols, out);
        }
    }

    fn deferred(
        &mut self,
        tasks: &Tasks,
        id: &RecordId<'_>,
        event: usize,
        cookie: u64,
        out: &mut Vec<u8>,
    ) -> bool {
        let Column {
            fields, has_chain, ..
        } = self.columns[event];
        let has_chain = has_chain && fields.has(Fields::IP);
        self.start(tasks, fields, has_chain, id, out);
        out.extend_from_slice(b"DEFERRED CALLCHAIN [cookie: ");
        digits::hexadecimal(out, cookie, 0);
        out.push(b']');
        true
    }

    fn place(&mut self, at: &Address<'_>, symbols: &mut dyn Symbols, out: &mut Vec<u8>) {
        let lines = &mut self.lines[self.columns[at.event].address_lines];
        out.push(b' ');
        out.extend_from_slice(lines.place(at.tasks, symbols, at.map, at.value));
    }

    fn chain(&mut self, out: &mut Vec<u8>) -> usize {
        out.push(b'\n');
        out.len()
    }

    fn cut(&mut self, begin: usize, out: &mut Vec<u8>) {
        out.truncate(begin);
    }

    #[inline]
    fn frame(&mut self, at: &Address<'_>, symbols: &mut dyn Symbols, out: &mut Vec<u8>) {
        let lines = &mut self.lines[self.columns[at.event].lines];
        lines.append(at.tasks, symbols, at.map, at.value, out);
    }

    /// As in perf, a cookie looks like an address if symbols are not printed.
    fn cookie(&mut self, event: usize, word: u64, out: &mut Vec<u8>) {
        if self.columns[event].fields.has(Fields::SYM) {
            return self.instead(event, word, "(cookie)", out);
        }
        out.push(b'\t');
        digits::hexadecimal(out, word, 16);
        if self.columns[event].fields.has(Fields::DSO) {
            out.extend_from_slice(b" ([unknown])");
        }
        out.push(b'\n');
    }

    fn instead(&mut self, event: usize, word: u64, text: &str, out: &mut Vec<u8>) {
        let fields = self.columns[event].fields;
        out.push(b'\t');
        digits::hexadecimal(out, word, 16);
        out.push(b' ');
        out.extend_from_slice(text.as_bytes());
        if fields.has(Fields::DSO) {
            out.extend_from_slice(b" ([unknown])");
        }
        out.push(b'\n');
    }

    fn tail(&mut self, head: &Head<'_>, out: &mut Vec<u8>) {
        let column = &self.columns[head.event];
        if column.bpf_output
            && column.fields.has(Fields::BPF_OUTPUT)
            && let Ok(Some(raw)) = head.sample.raw_data()
        {
            bpf_output::print(raw, out);
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        out.push(b'\n');
    }

    fn append(&mut self, part: &Vec<u8>, out: &mut Vec<u8>) {
        out.extend_from_slice(part);
    }
}

/// The name and start address of the kernel function at an address.
fn kernel_function(
    tasks: &Tasks,
    symbols: &mut dyn Symbols,
    address: u64,
) -> Option<(Vec<u8>, u64)> {
    let map = tasks.kernel_map(address, symbols)?;
    let object = tasks.object(map.object)?;
    let symbol = symbols.symbol(&object, address.wrapping_add(map.bias))?;
    let start = symbol.range.start.wrapping_sub(map.bias);
    Some((symbol.name.to_vec(), start))
}
