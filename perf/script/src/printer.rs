//! The printer: events in, samples with their frames out.

use super::asked::RequestedFields;
use super::call_stacks::CallStacks;
use super::fields::FieldError;
use super::filter::{Chosen, Filter};
use super::groups::Groups;
use super::joined::{PartialSample, SampleJoiner};
use super::losses::Losses;
use super::output::{Address, Head, Output};
use super::tasks::{self, Map, Tasks};
use super::text::Text;
use super::times::TimeError;
use crate::symbols::Symbols;
use std::fmt;
use unwind_sim_perf_data::callchain::{
    Callchain, Context, PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER, PERF_CONTEXT_USER_DEFERRED,
};
use unwind_sim_perf_data::stitch::{Mode, Stitch, Stitched};
use unwind_sim_perf_data::{
    Event, EventAttr, PerfFile, Record, RecordId, Sample, misc, sample_type as st,
};

/// Default limit of the frames of a chain (`PERF_MAX_STACK_DEPTH`).
const FRAMES_MAX: usize = 127;

/// Options of the printer.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The fields of each type of events.
    pub fields: RequestedFields,
    /// Print times in nanoseconds.
    pub nanoseconds: bool,
    /// How deferred user frames are joined with their samples; `None` prints them separately.
    pub join: Option<Mode>,
    /// Extend call stacks of branch records with those of earlier samples of the thread
    /// (`--stitch-lbr`).
    pub stitch_lbr: bool,
    /// Maximum number of frames of a chain (`--max-stack`); `None` for 127.
    pub frames_max: Option<usize>,
    /// Print the sampled address instead of the callchain (`-G`).
    pub hide_chains: bool,
    /// Print the chains of the [`Unwind`] in place of the user frames that were recorded, where a
    /// sample has user registers and a stack copy.
    pub unwound: bool,
    /// Show inlined functions as frames of their own.
    pub inline: bool,
    /// The filters that choose the printed samples.
    pub filter: Filter,
}

/// An option that does not fit the recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OptionError {
    /// An invalid `-F`.
    Field(FieldError),
    /// An invalid `--time`.
    Time(TimeError),
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(error) => error.fmt(f),
            Self::Time(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OptionError {}

impl From<FieldError> for OptionError {
    fn from(error: FieldError) -> Self {
        Self::Field(error)
    }
}

impl From<TimeError> for OptionError {
    fn from(error: TimeError) -> Self {
        Self::Time(error)
    }
}

/// Unwinds the copy of a user stack.
pub trait Unwind {
    /// Sees every event before it is printed.
    fn event(&mut self, event: &Event<'_>);

    /// Appends the addresses of the sample's user stack, innermost first, at most `frames_max`: for
    /// a return address, the address before it. `false` if the sample has no registers or no stack.
    fn unwind(&mut self, sample: &Sample<'_>, frames_max: usize, chain: &mut Vec<u64>) -> bool;
}

/// What the words of a chain are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChainKind {
    /// A callchain: in each context the first address is that of an instruction, and return
    /// addresses follow.
    Called,
    /// The same, with a cookie after the marker of deferred frames.
    WithCookie,
    /// Kernel frames as in a callchain, and then addresses of calls: branch records.
    Branches,
    /// Addresses of instructions.
    Exact,
}

/// The printer of a recording.
///
/// ```
/// use std::ops::ControlFlow;
/// use unwind_sim_perf_data::{Order, PerfFile};
/// use unwind_sim_perf_script::symbols::NoSymbols;
/// use unwind_sim_perf_script::{Options, Script};
///
/// let bytes = std::fs::read("corpus/perfdata/dwarf.data")?;
/// let file = PerfFile::parse(&bytes)?;
/// // `symbols::Files` finds names in the files that were mapped.
/// let mut symbols = NoSymbols;
/// let mut script = Script::new(&file, &Options::default(), &mut symbols, None)?;
///
/// let mut text = Vec::new();
/// file.for_each(Order::Time, |event| {
///     script.event(&event, &mut text);
///     ControlFlow::Continue(())
/// });
/// script.finish(&mut text);
/// assert!(!text.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Script<'f, 's, O: Output = Text> {
    pub(super) file: &'f PerfFile<'f>,
    pub(super) output: O,
    /// Whether chains are shown at all.
    chains: bool,
    /// Maximum number of frames of a chain.
    frames_max: usize,
    /// How many more frames fit into the last printed chain.
    pub(super) room: usize,
    /// Whether records of deferred chains are printed separately.
    prints_deferred: bool,
    chosen: Chosen,
    pub(super) tasks: Tasks,
    symbols: &'s mut dyn Symbols,
    unwind: Option<&'s mut dyn Unwind>,
    /// Whether its chains replace recorded ones.
    unwound_only: bool,
    /// Number of samples that kept their recorded chain, because they cannot be unwound.
    kept: u64,
    /// A reused buffer for unwound chains.
    unwound: Vec<u64>,
    joining: Option<Box<SampleJoiner<O::Piece>>>,
    lbr: CallStacks,
    groups: Groups,
    /// Number of samples of guests, which are not printed.
    guests: u64,
    losses: Losses,
}

/// The chain that is printed for a sample.
#[derive(Clone, Copy, Debug)]
pub(super) enum Chain<'c> {
    /// The sample's own chain.
    Own,
    /// The sample's own chain up to the marker of deferred user frames; leaves the sample open.
    Kernel,
    /// A chain joined with the user frames of a later record.
    Joined(&'c [u64]),
}

impl<'f, 's> Script<'f, 's> {
    /// A printer of text, at the start of the recording.
    ///
    /// # Errors
    /// If the recording lacks a field, or the times that `--time` needs.
    pub fn new(
        file: &'f PerfFile<'f>,
        options: &Options,
        symbols: &'s mut dyn Symbols,
        unwind: Option<&'s mut dyn Unwind>,
    ) -> Result<Self, OptionError> {
        let text = Text::new(file, options)?;
        Ok(Self::with_output(file, options, text, symbols, unwind)?)
    }
}

impl<'f, 's, O: Output> Script<'f, 's, O> {
    /// A printer that writes to `output`, at the start of the recording.
    ///
    /// # Errors
    /// If the recording lacks the times that `--time` needs.
    pub fn with_output(
        file: &'f PerfFile<'f>,
        options: &Options,
        output: O,
        symbols: &'s mut dyn Symbols,
        unwind: Option<&'s mut dyn Unwind>,
    ) -> Result<Self, TimeError> {
        let with_chain = |attr: &EventAttr| attr.sample_type & st::CALLCHAIN != 0;
        let frames_max = options.frames_max.unwrap_or(FRAMES_MAX);

        // Our own mode keeps the order of samples: without chains, no sample has to wait.
        let needless = options.hide_chains && options.join == Some(Mode::Own);

        Ok(Self {
            file,
            output,
            chains: !options.hide_chains
                && (file.attrs().iter().any(with_chain) || options.unwound),
            frames_max,
            room: frames_max,
            prints_deferred: options.join.is_none(),
            chosen: Chosen::of(file, &options.filter)?,
            tasks: Tasks::new(file),
            symbols,
            unwound_only: options.unwound,
            unwind,
            kept: 0,
            unwound: Vec::new(),
            joining: SampleJoiner::of(file, options.join.filter(|_| !needless)).map(Box::new),
            lbr: CallStacks::new(file, options.stitch_lbr),
            groups: Groups::new(file),
            guests: 0,
            losses: Losses::default(),
        })
    }

    /// Number of samples of guests so far, which are not printed.
    pub fn guests(&self) -> u64 {
        self.guests
    }

    /// Number of samples so far that kept their recorded chain, because they have no registers or
    /// no stack copy to unwind.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// The output that samples are written to.
    pub fn output(&mut self) -> &mut O {
        &mut self.output
    }

    /// Consumes the printer; returns its output.
    pub fn into_output(self) -> O {
        self.output
    }

    /// The tasks after the last event.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// The losses that the recording has reported so far.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Takes an event and appends its output.
    pub fn event(&mut self, event: &Event<'_>, out: &mut O::Piece) {
        // Counted first, even if nothing is printed of it.
        self.losses.event(self.file, event);

        if let Some(unwind) = &mut self.unwind {
            unwind.event(event);
        }

        // Taken out, because it prints through this printer.
        if let Some(mut joining) = self.joining.take() {
            joining.event(self, event, out);
            self.joining = Some(joining);
        } else {
            match event.record {
                // A record with the values of a group is a sample for each of its events
                // (`deliver_sample_group` in `tools/perf/util/session.c`).
                Record::Sample(sample) if sample.attr().sample_type & st::READ != 0 => {
                    let counted = self.groups.split(&sample);
                    for (at, period) in counted {
                        self.sample_of(at, period, &sample, &event.id(), Chain::Own, out);
                    }
                }
                Record::Sample(sample) => {
                    self.sample(&sample, &event.id(), Chain::Own, out);
                }
                Record::CallchainDeferred { cookie, chain } if self.prints_deferred => {
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

    /// Appends the samples held back until the end.
    pub fn finish(&mut self, out: &mut O::Piece) {
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

    /// Prints a sample; returns the number of its event, or `None` if the sample is not printed.
    pub(super) fn sample(
        &mut self,
        sample: &Sample<'_>,
        id: &RecordId<'_>,
        chain: Chain<'_>,
        out: &mut O::Piece,
    ) -> Option<usize> {
        let attr = sample.attr();
        let at = self.column(attr);
        let period = sample.period().unwrap_or(attr.sample_period);
        self.sample_of(at, period, sample, id, chain, out)
            .then_some(at)
    }

    /// Prints a sample as one of event `at`. `false` if it is not printed: a filter drops it, its
    /// event has no fields, or it is a guest's, which perf prints only with `--guest`.
    fn sample_of(
        &mut self,
        at: usize,
        period: u64,
        sample: &Sample<'_>,
        id: &RecordId<'_>,
        chain: Chain<'_>,
        out: &mut O::Piece,
    ) -> bool {
        if !self.chosen.has_time(id) {
            return false;
        }

        let is_guest = matches!(
            sample.cpumode(),
            misc::CPUMODE_GUEST_KERNEL | misc::CPUMODE_GUEST_USER
        );

        self.guests += u64::from(is_guest);
        if is_guest || !self.output.shows(at) {
            return false;
        }
        if !self.has_task(id) {
            return false;
        }

        let head = Head {
            sample,
            id,
            event: at,
            period,
            chains: self.chains,
        };
        self.output.head(&head, &self.tasks, self.symbols, out);

        if self.output.shows_places(at) {
            self.place(at, sample, id, chain, out);
        }

        // The user frames of such a sample come later, and end it (`user_frames`).
        if !matches!(chain, Chain::Kernel) {
            self.output.tail(&head, out);
            self.output.end(out);
        }

        true
    }

    /// Creates the thread if it is new; returns whether the filters pass it.
    fn has_task(&mut self, id: &RecordId<'_>) -> bool {
        let (pid, tid) = (id.pid().unwrap_or(-1), id.tid().unwrap_or(-1));
        self.tasks.thread(pid, tid);
        self.chosen.has_task(&self.tasks, tid)
    }

    /// Prints the sample's address or callchain.
    fn place(
        &mut self,
        at: usize,
        sample: &Sample<'_>,
        id: &RecordId<'_>,
        chain: Chain<'_>,
        out: &mut O::Piece,
    ) {
        // Only if the user asks for it are recorded user frames ignored.
        let tid = id.tid().unwrap_or(-1);
        if self.unwound_only && self.chains && matches!(chain, Chain::Own) {
            if self.unwound_place(at, sample, tid, out) {
                return;
            }
            self.kept += 1;
        }

        // Without a chain, the sample has one address, in the mode in which it was taken.
        let own = sample.callchain().ok().flatten().filter(|_| self.chains);
        let Some(own) = own else {
            let address = sample.ip().unwrap_or(0);
            let context = match sample.cpumode() {
                misc::CPUMODE_KERNEL => Context::Kernel,
                misc::CPUMODE_USER => Context::User,
                _ => Context::Hypervisor,
            };
            return self.address(at, tid, context, address, out);
        };

        // Where the chain starts, so that all of it can be taken back.
        let (begin, max) = (self.output.chain(out), self.frames_max);

        let whole = match chain {
            Chain::Joined(words) => {
                self.chain(at, tid, words.iter().copied(), ChainKind::Called, max, out)
            }
            Chain::Own => match self.lbr.chain(sample, own, max) {
                // perf does not limit frames of branch records.
                Some(words) => self.chain(
                    at,
                    tid,
                    words.into_iter(),
                    ChainKind::Branches,
                    usize::MAX,
                    out,
                ),
                None => self.chain(at, tid, own.words(), ChainKind::WithCookie, max, out),
            },
            Chain::Kernel => {
                let kernel = own
                    .words()
                    .take_while(|&word| word != PERF_CONTEXT_USER_DEFERRED);
                self.chain(at, tid, kernel, ChainKind::Called, max, out)
            }
        };

        // A chain with an unknown marker: perf prints none of it.
        if !whole {
            self.output.cut(begin, out);
            return;
        }

        // perf appends the frames that it unwinds to those recorded.
        if let Some(unwind) = self.unwind.as_mut().filter(|_| !self.unwound_only) {
            let mut unwound = std::mem::take(&mut self.unwound);
            unwound.clear();
            unwind.unwind(sample, max, &mut unwound);

            let words = unwound.iter().copied();
            self.chain(at, tid, words, ChainKind::Exact, max, out);
            self.unwound = unwound;
        }
    }

    /// Prints the kernel's frames as recorded, and the user frames that the unwinder finds. `false`
    /// if the sample cannot be unwound.
    fn unwound_place(
        &mut self,
        at: usize,
        sample: &Sample<'_>,
        tid: i32,
        out: &mut O::Piece,
    ) -> bool {
        // The buffer is kept for the next sample.
        let (mut unwound, max) = (std::mem::take(&mut self.unwound), self.frames_max);
        unwound.clear();

        let unwind = self.unwind.as_mut();
        let walked = unwind.is_some_and(|unwind| unwind.unwind(sample, max, &mut unwound));

        if walked {
            self.output.chain(out);
            // Without a chain the sampled address is all that is known of the kernel's part.
            let own = sample.callchain().ok().flatten();
            let sampled = sample.ip().filter(|_| own.is_none());
            let sampled = sampled.filter(|_| sample.cpumode() == misc::CPUMODE_KERNEL);

            let kernel = own.into_iter().flat_map(|own| {
                let kernel = own.frames_of(Context::Kernel);
                kernel.collect::<Vec<_>>()
            });
            let kernel: Vec<u64> = kernel.chain(sampled).collect();

            // The marker says what the addresses are, as in a recorded chain.
            let words = std::iter::once(PERF_CONTEXT_KERNEL).chain(kernel);
            self.chain(at, tid, words, ChainKind::Called, max, out);
            let words = unwound.iter().copied();
            self.chain(at, tid, words, ChainKind::Exact, max, out);
        }

        self.unwound = unwound;
        walked
    }

    /// Prints one address instead of a chain.
    fn address(&mut self, at: usize, tid: i32, context: Context, address: u64, out: &mut O::Piece) {
        let maps = self.tasks.maps(tid);
        let map = map_at(&self.tasks, maps, context, address, self.symbols);
        let at = Address {
            tasks: &self.tasks,
            event: at,
            map: map.as_ref(),
            value: address,
            is_return: false,
        };
        self.output.place(&at, self.symbols, out);
    }

    /// Prints the frames of a chain. `false` if it has an unknown marker: then perf prints none of
    /// the chain.
    fn chain(
        &mut self,
        at: usize,
        tid: i32,
        words: impl Iterator<Item = u64>,
        kind: ChainKind,
        frames_max: usize,
        out: &mut O::Piece,
    ) -> bool {
        let maps = self.tasks.maps(tid);
        let mut context = Context::User;
        let mut cookie = false;
        // Whether the next address is not the first of its context.
        let mut called = false;
        // The mapping of the last address.
        let mut near: Option<Map> = None;

        self.room = frames_max;
        for word in words {
            if self.room == 0 {
                break;
            }

            match Context::from_marker(word) {
                Some(Context::User | Context::UserDeferred) => {
                    cookie = kind == ChainKind::WithCookie && word == PERF_CONTEXT_USER_DEFERRED;
                    (context, near, called) = (Context::User, None, false);
                    continue;
                }
                Some(known @ (Context::Kernel | Context::Hypervisor)) => {
                    (context, near, called) = (known, None, false);
                    continue;
                }
                Some(_) => return false,
                None => {}
            }

            self.room -= 1;
            if std::mem::take(&mut cookie) {
                self.output.cookie(at, word, out);
                continue;
            }

            // Neighbours are often in the same file.
            let is_near = |map: &Map| context == Context::User && map.has(word);
            if !near.as_ref().is_some_and(is_near) {
                near = map_at(&self.tasks, maps, context, word, self.symbols);
            }

            // The first address of a context is where it was interrupted; all further ones are
            // return addresses. Branch records have the addresses of the calls themselves.
            let at = Address {
                tasks: &self.tasks,
                event: at,
                map: near.as_ref(),
                value: word,
                is_return: match kind {
                    ChainKind::Called | ChainKind::WithCookie => called,
                    ChainKind::Branches => called && context != Context::User,
                    ChainKind::Exact => false,
                },
            };

            called = true;
            self.output.frame(&at, self.symbols, out);
        }

        true
    }

    /// Appends the user frames of a sample that waited for them, and ends it.
    pub(super) fn user_frames(
        &mut self,
        waiting: &PartialSample<O::Piece>,
        stitched: &Stitched,
        out: &mut O::Piece,
    ) {
        // Nothing of a chain is shown if its event shows no places.
        let (event, shown) = (waiting.event, self.output.shows_places(waiting.event));

        if let (Stitch::Missing(why), true) = (stitched.how, shown) {
            let why = format!("[no user frames: {}]", why.as_str());
            let cookie = stitched.cookie.unwrap_or(0);
            self.output.instead(event, cookie, &why, out);
        } else if shown && stitched.how != Stitch::NotDeferred {
            let user = stitched
                .chain
                .iter()
                .skip_while(|&&word| word != PERF_CONTEXT_USER);
            // The first is where user space entered the kernel, all others are return addresses.
            for (number, &address) in user.skip(1).take(waiting.room).enumerate() {
                let map = tasks::find(&waiting.maps, address);
                let at = Address {
                    tasks: &self.tasks,
                    event,
                    map,
                    value: address,
                    is_return: number != 0,
                };
                self.output.frame(&at, self.symbols, out);
            }
        }

        self.output.end(out);
    }

    /// Prints a record of deferred user frames that is not joined with its samples.
    fn deferred(
        &mut self,
        event: &Event<'_>,
        cookie: u64,
        chain: Callchain<'_>,
        out: &mut O::Piece,
    ) {
        let id = event.id();
        let (at, tid) = (self.column(event.attr), id.tid().unwrap_or(-1));

        // The same filters as for a sample, since the record is printed in its place.
        let is_wanted = self.output.shows(at) && self.chosen.has_time(&id) && self.has_task(&id);
        if !is_wanted || !self.output.deferred(&self.tasks, &id, at, cookie, out) {
            return;
        }
        if self.output.shows_places(at) {
            if self.chains {
                self.output.chain(out);
                self.chain(
                    at,
                    tid,
                    chain.words(),
                    ChainKind::Called,
                    self.frames_max,
                    out,
                );
            } else {
                // The record has no address: perf prints 0.
                self.address(at, tid, Context::User, 0, out);
            }
        }
        self.output.end(out);
    }
}

/// The mapping that contains `address`, in the kernel or the process.
#[inline]
fn map_at(
    tasks: &Tasks,
    maps: &[Map],
    context: Context,
    address: u64,
    symbols: &mut dyn Symbols,
) -> Option<Map> {
    match context {
        Context::Kernel => tasks.kernel_map(address, symbols),
        Context::User => tasks::find(maps, address).copied(),
        _ => None,
    }
}
