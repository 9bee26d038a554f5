//! The printer: events in, text out.

use super::call_stacks::CallStacks;
use super::digits;
use super::fields::Fields;
use super::frames::Lines;
use super::joined::{Joining, Waiting};
use super::names;
use super::objects::Symbols;
use super::tasks::{self, Map, Tasks};
use super::trace::Formats;
use crate::callchain::{Callchain, Context, PERF_CONTEXT_USER, PERF_CONTEXT_USER_DEFERRED};
use crate::data::{
    Event, EventAttr, PerfFile, Record, RecordId, Sample, feature, misc, sample_type as st,
};
use crate::stitch::{Mode, Stitch, Stitched};

/// Frames of a chain that are shown (`PERF_MAX_STACK_DEPTH`).
const FRAMES_MAX: usize = 127;

/// How to print.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// These fields, of every event; `None` for those that fit its type.
    pub fields: Option<Fields>,
    /// Times with nanoseconds.
    pub nanoseconds: bool,
    /// How deferred user frames are joined with their samples; `None` prints them by themselves.
    pub join: Option<Mode>,
    /// Stacks of branches are made longer by what earlier samples of the thread had
    /// (`--stitch-lbr`).
    pub stitch_lbr: bool,
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
    pub(super) file: &'f PerfFile<'f>,
    columns: Vec<Column>,
    /// Whether chains are shown at all.
    chains: bool,
    pub(super) tasks: Tasks,
    formats: Formats,
    lines: Vec<Lines>,
    symbols: &'s mut dyn Symbols,
    unwind: Option<&'s mut dyn Unwind>,
    /// Space for unwound chains.
    unwound: Vec<u64>,
    joining: Option<Box<Joining>>,
    lbr: CallStacks,
}

/// Which chain is printed of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) enum Chain<'c> {
    /// Its own.
    Own,
    /// Its own up to the marker of deferred user frames, without an end.
    Kernel,
    /// This one, in which a record's frames follow the marker.
    Joined(&'c [u64]),
}

impl<'f, 's> Script<'f, 's> {
    /// A printer at the recording's beginning.
    pub fn new(
        file: &'f PerfFile<'f>,
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
            file,
            columns,
            chains: attrs
                .iter()
                .any(|attr| attr.sample_type & st::CALLCHAIN != 0),
            tasks: Tasks::new(file),
            formats: Formats::parse(
                file.features()
                    .section(feature::TRACING_DATA)
                    .unwrap_or(&[]),
            ),
            lines,
            symbols,
            unwind,
            unwound: Vec::new(),
            joining: Joining::of(file, options.join).map(Box::new),
            lbr: CallStacks::new(file, options.stitch_lbr),
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
        if let Some(mut joining) = self.joining.take() {
            joining.event(self, event, out);
            self.joining = Some(joining);
        } else {
            match event.record {
                Record::Sample(sample) => {
                    self.sample(&sample, &event.id(), Chain::Own, out);
                }
                Record::CallchainDeferred { cookie, chain } => {
                    self.deferred(event, cookie, chain, out);
                }
                _ => {}
            }
        }
        let misc = event.raw.misc;
        match event.record {
            Record::Comm(comm) => self.tasks.comm(&comm),
            Record::Mmap(mmap) => self.tasks.mmap(&mmap, misc),
            Record::Fork(task) => self.tasks.fork(&task, misc),
            Record::Exit(task) => self.tasks.exit(&task),
            Record::Ksymbol(symbol) => self.tasks.ksymbol(&symbol),
            _ => {}
        }
    }

    /// Appends what was held back to the end.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(mut joining) = self.joining.take() {
            joining.finish(self, out);
            self.joining = Some(joining);
        }
    }

    fn column(&self, attr: &EventAttr) -> usize {
        let attrs = self.file.attrs();
        let place = attrs.iter().position(|other| std::ptr::eq(other, attr));
        place.unwrap_or(0)
    }

    /// A sample, and the number of its event.
    pub(super) fn sample(
        &mut self,
        sample: &Sample<'_>,
        id: &RecordId<'_>,
        chain: Chain<'_>,
        out: &mut Vec<u8>,
    ) -> usize {
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
        if fields.has(Fields::TRACE)
            && let Ok(Some(raw)) = sample.raw_data()
        {
            let (tasks, symbols) = (&self.tasks, &mut *self.symbols);
            let mut functions = |address| kernel_function(tasks, symbols, address);
            self.formats.print(attr.config, raw, &mut functions, out);
        }
        if fields.has(Fields::IP) {
            self.place(at, sample, id, chain, out);
        }
        if !matches!(chain, Chain::Kernel) {
            out.push(b'\n');
        }
        at
    }

    /// The address or the callchain.
    fn place(
        &mut self,
        at: usize,
        sample: &Sample<'_>,
        id: &RecordId<'_>,
        chain: Chain<'_>,
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
            let map = map_at(&self.tasks, self.tasks.maps(tid), context, address);
            let lines = &mut self.lines[self.columns[at].lines];
            out.extend_from_slice(lines.line(&self.tasks, self.symbols, map, address));
            return;
        };
        out.push(b'\n');
        let start = out.len();
        let whole = match chain {
            Chain::Joined(words) => self.chain(at, tid, words.iter().copied(), false, out),
            Chain::Own => match self.lbr.chain(sample, own) {
                Some(words) => self.chain(at, tid, words.into_iter(), false, out),
                None => self.chain(at, tid, own.words(), true, out),
            },
            Chain::Kernel => {
                let kernel = own
                    .words()
                    .take_while(|&word| word != PERF_CONTEXT_USER_DEFERRED);
                self.chain(at, tid, kernel, false, out)
            }
        };
        if !whole {
            out.truncate(start);
            return;
        }
        if let Some(unwind) = &mut self.unwind {
            let mut unwound = std::mem::take(&mut self.unwound);
            unwound.clear();
            unwind.unwind(sample, FRAMES_MAX, &mut unwound);
            self.chain(at, tid, unwound.iter().copied(), false, out);
            self.unwound = unwound;
        }
    }

    /// The lines of a chain. `false` if it has a marker that nobody knows: then perf shows none
    /// of it. `with_cookie`: what follows the marker of deferred frames is no address.
    fn chain(
        &mut self,
        at: usize,
        tid: i32,
        words: impl Iterator<Item = u64>,
        with_cookie: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        let lines = &mut self.lines[self.columns[at].lines];
        let maps = self.tasks.maps(tid);
        let mut context = Context::User;
        let mut cookie = false;
        let mut left = FRAMES_MAX;
        for word in words {
            if left == 0 {
                break;
            }
            match Context::from_marker(word) {
                Some(Context::User | Context::UserDeferred) => {
                    cookie = with_cookie && word == PERF_CONTEXT_USER_DEFERRED;
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
            left -= 1;
            out.push(b'\t');
            if std::mem::take(&mut cookie) {
                self::special(lines.fields(), word, b"(cookie)", out);
                continue;
            }
            let map = map_at(&self.tasks, maps, context, word);
            out.extend_from_slice(lines.line(&self.tasks, self.symbols, map, word));
            out.push(b'\n');
        }
        true
    }

    /// Appends the user frames of a sample that waited for them, and its end.
    pub(super) fn user_frames(
        &mut self,
        waiting: &Waiting,
        stitched: &Stitched,
        out: &mut Vec<u8>,
    ) {
        let fields = self.columns[waiting.column].fields;
        if let (Stitch::Missing(why), true) = (stitched.how, fields.has(Fields::IP)) {
            out.push(b'\t');
            let why = format!("[no user frames: {}]", why.as_str());
            special(fields, stitched.cookie.unwrap_or(0), why.as_bytes(), out);
        } else if fields.has(Fields::IP) && stitched.how != Stitch::NotDeferred {
            let lines = &mut self.lines[self.columns[waiting.column].lines];
            let user = stitched
                .chain
                .iter()
                .skip_while(|&&word| word != PERF_CONTEXT_USER);
            for &address in user.skip(1).take(FRAMES_MAX) {
                let map = map_at(&self.tasks, &waiting.maps, Context::User, address);
                out.push(b'\t');
                out.extend_from_slice(lines.line(&self.tasks, self.symbols, map, address));
                out.push(b'\n');
            }
        }
        out.push(b'\n');
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
            self.chain(at, id.tid().unwrap_or(-1), chain.words(), false, out);
        }
        out.push(b'\n');
    }
}

/// A line that stands in place of user frames.
fn special(fields: Fields, cookie: u64, text: &[u8], out: &mut Vec<u8>) {
    digits::hexadecimal(out, cookie, 16);
    if fields.has(Fields::SYM) {
        out.push(b' ');
        out.extend_from_slice(text);
    }
    if fields.has(Fields::DSO) {
        out.extend_from_slice(b" ([unknown])");
    }
    out.push(b'\n');
}

/// The mapping at an address of a context.
#[inline]
fn map_at<'m>(
    tasks: &'m Tasks,
    maps: &'m [Map],
    context: Context,
    address: u64,
) -> Option<&'m Map> {
    match context {
        Context::Kernel => tasks.kernel_map(address),
        Context::User => tasks::find(maps, address),
        _ => None,
    }
}

/// The function of the kernel at an address: its name and where it begins.
fn kernel_function(
    tasks: &Tasks,
    symbols: &mut dyn Symbols,
    address: u64,
) -> Option<(Vec<u8>, u64)> {
    let map = tasks.kernel_map(address)?;
    let object = tasks.object(map.object)?;
    let symbol = symbols.symbol(&object, address.wrapping_add(map.bias))?;
    let start = symbol.range.start.wrapping_sub(map.bias);
    Some((symbol.name.to_vec(), start))
}
