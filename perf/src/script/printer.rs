//! The printer: events in, text out.

use super::digits;
use super::fields::Fields;
use super::frames::Lines;
use super::names;
use super::objects::Symbols;
use super::tasks::{Map, Tasks};
use crate::callchain::{Callchain, Context, PERF_CONTEXT_USER_DEFERRED};
use crate::data::{Event, EventAttr, PerfFile, Record, RecordId, Sample, misc, sample_type as st};

/// Frames of a chain that are shown (`PERF_MAX_STACK_DEPTH`).
const FRAMES_MAX: usize = 127;

/// How to print.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// These fields, of every event; `None` for those that fit its type.
    pub fields: Option<Fields>,
    /// Times with nanoseconds.
    pub nanoseconds: bool,
}

/// Unwinds the copy of a user stack.
pub trait Unwind {
    /// Sees every event before it is printed.
    fn event(&mut self, event: &Event<'_>);

    /// Appends the addresses of the sample's user stack, innermost first, at most `frames_max`.
    fn unwind(&mut self, sample: &Sample<'_>, frames_max: usize, chain: &mut Vec<u64>);
}

/// What is printed of one event.
#[derive(Debug)]
struct Column {
    fields: Fields,
    /// The event's name, padded to the longest, with what follows it.
    name: Vec<u8>,
    /// The number of its [`Lines`].
    lines: usize,
}

/// The printer of a recording.
pub struct Script<'f, 's> {
    options: Options,
    attrs: &'f [EventAttr],
    columns: Vec<Column>,
    /// Whether chains are shown at all.
    chains: bool,
    tasks: Tasks,
    lines: Vec<Lines>,
    symbols: &'s mut dyn Symbols,
    unwind: Option<&'s mut dyn Unwind>,
    /// Space for unwound chains.
    unwound: Vec<u64>,
}

impl<'f, 's> Script<'f, 's> {
    /// A printer at the recording's beginning.
    pub fn new(
        file: &'f PerfFile<'_>,
        options: Options,
        symbols: &'s mut dyn Symbols,
        unwind: Option<&'s mut dyn Unwind>,
    ) -> Self {
        let attrs = file.attrs();
        let all = Fields::of_file(file, options.fields);
        let named: Vec<String> = attrs.iter().map(names::name).collect();
        let width = named.iter().map(String::len).max().unwrap_or(0);
        let mut lines: Vec<Lines> = Vec::new();
        let columns = all.into_iter().zip(&named).map(|(fields, name)| {
            let same = lines.iter().position(|lines| lines.fields() == fields);
            let lines = same.unwrap_or_else(|| {
                lines.push(Lines::new(fields));
                lines.len() - 1
            });
            let name = format!("{name:>width$}: ").into_bytes();
            Column {
                fields,
                name,
                lines,
            }
        });
        let columns = columns.collect();
        Self {
            options,
            attrs,
            columns,
            chains: attrs
                .iter()
                .any(|attr| attr.sample_type & st::CALLCHAIN != 0),
            tasks: Tasks::new(),
            lines,
            symbols,
            unwind,
            unwound: Vec::new(),
        }
    }

    /// The tasks as they are now.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Takes an event and appends what is printed of it.
    pub fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        if let Some(unwind) = &mut self.unwind {
            unwind.event(event);
        }
        let misc = event.raw.misc;
        match event.record {
            Record::Sample(sample) => self.sample(&sample, &event.id(), None, out),
            Record::Comm(comm) => self.tasks.comm(&comm),
            Record::Mmap(mmap) => self.tasks.mmap(&mmap, misc),
            Record::Fork(task) => self.tasks.fork(&task, misc),
            Record::Exit(task) => self.tasks.exit(&task),
            Record::Ksymbol(symbol) => self.tasks.ksymbol(&symbol),
            Record::CallchainDeferred { cookie, chain } => {
                self.deferred(event, cookie, chain, out);
            }
            _ => {}
        }
    }

    fn column(&self, attr: &EventAttr) -> usize {
        let place = self
            .attrs
            .iter()
            .position(|other| std::ptr::eq(other, attr));
        place.unwrap_or(0)
    }

    /// A sample; with `chain` in place of its own callchain.
    pub fn sample(
        &mut self,
        sample: &Sample<'_>,
        id: &RecordId<'_>,
        chain: Option<&[u64]>,
        out: &mut Vec<u8>,
    ) {
        let attr = sample.attr();
        let at = self.column(attr);
        let fields = self.columns[at].fields;
        self.tasks
            .thread(id.pid().unwrap_or(-1), id.tid().unwrap_or(-1));
        let has_chain = attr.sample_type & st::CALLCHAIN != 0 && fields.has(Fields::IP);
        self.start(fields, has_chain && self.chains, id, out);
        if fields.has(Fields::PERIOD) {
            let period = sample.period().unwrap_or(attr.sample_period);
            digits::decimal(out, period, 10, b' ');
            out.push(b' ');
        }
        if fields.has(Fields::EVENT) {
            out.extend_from_slice(&self.columns[at].name);
        }
        if fields.has(Fields::IP) {
            self.place(at, sample, id, chain, out);
        }
        out.push(b'\n');
    }

    /// The address or the callchain.
    fn place(
        &mut self,
        at: usize,
        sample: &Sample<'_>,
        id: &RecordId<'_>,
        chain: Option<&[u64]>,
        out: &mut Vec<u8>,
    ) {
        let tid = id.tid().unwrap_or(-1);
        let own = sample.callchain().ok().flatten().filter(|_| self.chains);
        let Some(own) = own else {
            out.push(b' ');
            let address = sample.ip().unwrap_or(0);
            let context = match sample.cpumode() {
                misc::CPUMODE_KERNEL => Context::Kernel,
                misc::CPUMODE_USER => Context::User,
                _ => Context::Hypervisor,
            };
            let map = map_at(&self.tasks, tid, context, address);
            let lines = &mut self.lines[self.columns[at].lines];
            out.extend_from_slice(lines.line(&self.tasks, self.symbols, map, address));
            return;
        };
        out.push(b'\n');
        let mut left = FRAMES_MAX;
        let start = out.len();
        let whole = match chain {
            Some(words) => self.chain(at, tid, words.iter().copied(), &mut left, out),
            None => self.chain(at, tid, own.words(), &mut left, out),
        };
        if !whole {
            out.truncate(start);
            return;
        }
        if let Some(unwind) = &mut self.unwind {
            let mut unwound = std::mem::take(&mut self.unwound);
            unwound.clear();
            unwind.unwind(sample, FRAMES_MAX, &mut unwound);
            left = FRAMES_MAX;
            self.chain(at, tid, unwound.iter().copied(), &mut left, out);
            self.unwound = unwound;
        }
    }

    /// The lines of a chain. `false` if it has a marker that nobody knows: then perf shows none
    /// of it.
    fn chain(
        &mut self,
        at: usize,
        tid: i32,
        words: impl Iterator<Item = u64>,
        left: &mut usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let lines = &mut self.lines[self.columns[at].lines];
        let mut context = Context::User;
        let mut cookie = false;
        for word in words {
            if *left == 0 {
                break;
            }
            match Context::from_marker(word) {
                Some(Context::User | Context::UserDeferred) => {
                    cookie = word == PERF_CONTEXT_USER_DEFERRED;
                    context = Context::User;
                    continue;
                }
                Some(known @ (Context::Kernel | Context::Hypervisor)) => {
                    context = known;
                    continue;
                }
                Some(_) => return false,
                None => {}
            }
            *left -= 1;
            out.push(b'\t');
            if std::mem::take(&mut cookie) {
                self::cookie(lines.fields(), word, out);
                continue;
            }
            let map = map_at(&self.tasks, tid, context, word);
            out.extend_from_slice(lines.line(&self.tasks, self.symbols, map, word));
            out.push(b'\n');
        }
        true
    }

    /// The fields before the event's name.
    fn start(&mut self, fields: Fields, with_chain: bool, id: &RecordId<'_>, out: &mut Vec<u8>) {
        let tid = id.tid().unwrap_or(-1);
        if fields.has(Fields::COMM) {
            let unnamed;
            let name = match self.tasks.name(tid) {
                Some(name) => name,
                None => {
                    unnamed = format!(":{tid}").into_bytes();
                    &unnamed
                }
            };
            digits::padded(out, name, if with_chain { 0 } else { 16 }, b' ');
            out.push(b' ');
        }
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
            if self.options.nanoseconds {
                digits::decimal(out, rest, 9, b'0');
            } else {
                digits::decimal(out, rest / 1000, 6, b'0');
            }
            out.extend_from_slice(b": ");
        }
    }

    /// A record of deferred user frames that is not joined with its samples.
    fn deferred(
        &mut self,
        event: &Event<'_>,
        cookie: u64,
        chain: Callchain<'_>,
        out: &mut Vec<u8>,
    ) {
        let id = event.id();
        let at = self.column(event.attr);
        let fields = self.columns[at].fields;
        self.tasks
            .thread(id.pid().unwrap_or(-1), id.tid().unwrap_or(-1));
        self.start(fields, true, &id, out);
        out.extend_from_slice(b"DEFERRED CALLCHAIN [cookie: ");
        digits::hexadecimal(out, cookie, 0);
        out.extend_from_slice(b"]\n");
        if fields.has(Fields::IP) {
            let mut left = FRAMES_MAX;
            self.chain(at, id.tid().unwrap_or(-1), chain.words(), &mut left, out);
        }
        out.push(b'\n');
    }
}

/// The line of a cookie in place of user frames.
fn cookie(fields: Fields, cookie: u64, out: &mut Vec<u8>) {
    digits::hexadecimal(out, cookie, 16);
    if fields.has(Fields::SYM) {
        out.extend_from_slice(b" (cookie)");
    }
    if fields.has(Fields::DSO) {
        out.extend_from_slice(b" ([unknown])");
    }
    out.push(b'\n');
}

/// The mapping at an address of a context.
#[inline]
fn map_at(tasks: &Tasks, tid: i32, context: Context, address: u64) -> Option<&Map> {
    match context {
        Context::Kernel => tasks.kernel_map(address),
        Context::User => tasks.user_map(tid, address),
        _ => None,
    }
}
