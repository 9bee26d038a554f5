//! Our own method: joins only what can be proven to belong together.
//!
//! A *stay* is the time from a thread's entry to the kernel to its return to user space, identified
//! by its cookie. A record belongs to the samples of its stay, both before and after the record,
//! even if the thread has several unfinished stays. It is kept until the thread is seen in another
//! stay or ends: the thread has then returned to user space, and no sample of the old stay can
//! follow.
//!
//! A cookie is reused after 2^31 requests on its CPU. Items later than [`COOKIE_ROUND_NS`] after
//! the first sample of a stay are therefore assigned to it only if it is still waiting for its
//! record, the thread was in no other stay in between, and nothing was lost. (If the stay's first
//! samples were lost as well, it is assumed to start with the first sample that is there.)
//!
//! An execve replaces the user stack in the middle of a stay: the record has the stack of the new
//! program. Samples from before, and those inside execve, have lost theirs. If the chain shows that
//! execve has returned (the kernel entry is the same, but it called something other than in all
//! samples of the stay so far), the sample belongs to the new program, and so does the record.
//!
//! A sample taken in user space has an address there. If the record starts with another address,
//! the thread continued before the record was made: it stepped over a probed instruction, or
//! received a signal. Its frames are then of another moment ([`Stitch::Moved`]).
//!
//! Without cookies (2023), a record is assigned to the waiting samples of its thread and event,
//! unless something was lost since. A loss reported later, and a request that the kernel left
//! unanswered, are undetectable.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::held::{SampleQueue, without_user};
use super::{DeliveredSamples, Item, ItemKind, MissingReason, Stitch, Stitched, deferral};
use crate::callchain::{PERF_CONTEXT_USER, is_marker};

/// The minimum time after which a CPU's cookie counter wraps around: 2^31 requests, each with a
/// kernel entry and an interrupt, of at least 100 ns.
pub const COOKIE_ROUND_NS: u64 = (1 << 31) * 100;

/// Maximum number of stays remembered per thread.
const STAYS_MAX: usize = 16;
/// Maximum number of calls remembered per kernel entry: entry work, the system call, exit work.
const CALLS_MAX: usize = 8;
/// Maximum bytes of buffered samples.
const HELD_BYTES_MAX: usize = 128 << 20;
/// Maximum words of records kept for samples that may still arrive (64 MiB).
const REMEMBERED_MAX: usize = 8 << 20;

/// The record of a stay.
#[derive(Debug)]
enum Record {
    /// It has not arrived.
    Awaited,
    /// It has arrived.
    Here {
        key: u64,
        frames: Arc<[u64]>,
        used: bool,
    },
    /// It has arrived and was dropped: the thread was seen in another stay, or memory is short.
    Forgotten,
}

/// Distinguishes the stays of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StayId {
    Cookie(u64),
    /// The event's ID: without cookies, each event has its own records.
    Event(u64),
}

impl StayId {
    fn new(cookie: Option<u64>, event: u64) -> Self {
        cookie.map_or(Self::Event(event), Self::Cookie)
    }

    fn cookie(self) -> Option<u64> {
        match self {
            Self::Cookie(cookie) => Some(cookie),
            Self::Event(_) => None,
        }
    }
}

/// A stay of a thread in the kernel.
#[derive(Debug)]
struct Stay {
    name: StayId,
    /// Time of its first sample or record, when the cookie was assigned; `None` if it may have
    /// started earlier.
    since: Option<u64>,
    /// [`OwnStitcher::losses`] at that time.
    losses: u64,
    /// The IDs of samples waiting for the record, and the user-space addresses at which they were
    /// taken.
    waiting: Vec<(u64, Option<u64>)>,
    /// How many of these, from the first, belong to the program before an execve, not to the
    /// record.
    replaced: usize,
    /// An execve started in this stay and was not seen to return.
    in_execve: bool,
    /// The kernel entry and its callee, for each sample so far.
    calls: Vec<Outermost>,
    record: Record,
}

/// The outermost two addresses of the kernel part of a chain: the kernel entry, and its callee.
/// They stay the same during a system call, and change on the way back to user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outermost {
    entry: u64,
    callee: u64,
}

impl Outermost {
    /// From the words of a chain before the marker of deferred frames.
    fn of(kernel: &[u64]) -> Option<Self> {
        match *kernel {
            [.., callee, entry] if !is_marker(callee) => Some(Self { entry, callee }),
            _ => None,
        }
    }
}

/// The latest stays of a thread, finished or not. The last one is the newest; only its record can
/// still be used.
#[derive(Debug, Default)]
struct Thread {
    stays: VecDeque<Stay>,
    /// Between exec and the mapping of `[vdso]`, that is, still inside execve.
    in_exec: bool,
}

/// The stitcher; see the module documentation.
#[derive(Debug)]
pub(super) struct OwnStitcher {
    held: SampleQueue,
    threads: HashMap<i32, Thread>,
    /// Number of stays with waiting samples, by cookie.
    awaited: HashMap<u64, u32>,
    /// Number of words of records kept.
    remembered: usize,
    /// Number of losses.
    losses: u64,
    /// Was something lost at an unknown time?
    lost_sometime: bool,
    /// Does no event ask for records?
    pub(super) not_asked: bool,
    now: u64,
}

impl Default for OwnStitcher {
    fn default() -> Self {
        Self::within(HELD_BYTES_MAX)
    }
}

/// An item for which [`OwnStitcher`] determines the stay.
#[derive(Clone, Copy)]
struct StayObservation {
    tid: i32,
    name: StayId,
    time: u64,
}

/// What a sample shows apart from its chain's user part.
#[derive(Clone, Copy)]
struct SampleContext {
    outermost: Option<Outermost>,
    /// The user-space address at which it was taken; `None` in the kernel.
    ip: Option<u64>,
}

impl OwnStitcher {
    pub(super) fn within(held_bytes_max: usize) -> Self {
        Self {
            held: SampleQueue::new(held_bytes_max),
            threads: HashMap::new(),
            awaited: HashMap::new(),
            remembered: 0,
            losses: 0,
            lost_sometime: false,
            not_asked: false,
            now: 0,
        }
    }

    pub(super) fn push(&mut self, item: Item, out: &mut DeliveredSamples) {
        // Synthesized items have no time: they count as of the moment where they are.
        let time = item.time.unwrap_or(self.now);
        self.now = self.now.max(time);
        let tid = item.tid;

        match item.what {
            ItemKind::Sample { chain, ip, .. } => {
                let kernel = deferral(&chain).map_or(0, |found| found.kernel);
                let seen = SampleContext {
                    outermost: Outermost::of(&chain[..kernel]),
                    ip,
                };
                let sample = Stitched {
                    key: item.key,
                    time: item.time,
                    tid,
                    cookie: None,
                    chain,
                    how: Stitch::NotDeferred,
                };
                self.sample(sample, seen, item.event, out);
            }
            ItemKind::Record { cookie, frames } => {
                let name = StayId::new(cookie, item.event);
                let sight = StayObservation { tid, name, time };
                self.record(item.key, sight, frames.into(), out);
            }
            // A new thread with this number shows that the old one ended, even if its end was lost.
            ItemKind::Fork | ItemKind::Exit => self.end_of_thread(tid, out),
            ItemKind::Exec => {
                let thread = self.threads.entry(tid).or_default();
                thread.in_exec = true;
                thread.mark_exec();
            }
            ItemKind::Vdso => {
                // Execve has mapped the new program: samples since `Exec` were still inside it.
                if let Some(thread) = self.threads.get_mut(&tid)
                    && std::mem::take(&mut thread.in_exec)
                {
                    thread.mark_exec();
                }
            }
            // A loss without a time may have been anywhere.
            ItemKind::Lost { .. } if item.time.is_none() => self.lost_sometime = true,
            ItemKind::Lost { .. } => self.losses += 1,
        }

        // Release first: only what cannot be delivered yet counts against the limits.
        self.held.release(out);
        if let Some(first_held) = self.held.bound(out) {
            self.drop_given_up(first_held);
        }

        if self.remembered > REMEMBERED_MAX {
            self.forget_records(out);
        }
    }

    fn sample(
        &mut self,
        mut stitched: Stitched,
        seen: SampleContext,
        event: u64,
        out: &mut DeliveredSamples,
    ) {
        // Not deferred: it only waits for its turn.
        let Some(found) = deferral(&stitched.chain) else {
            self.held.add(stitched, false, out);
            return;
        };

        stitched.cookie = found.cookie;
        let tid = stitched.tid;
        // Cookies alone are ambiguous: two of one CPU are equal after its counter wraps around.
        if tid < 0 {
            without_user(&mut stitched, MissingReason::NoThread);
            self.held.add(stitched, false, out);
            return;
        }

        let sight = StayObservation {
            tid,
            name: StayId::new(stitched.cookie, event),
            time: stitched.time.unwrap_or(self.now),
        };

        // The stay is opened by whatever shows it first, a sample or the record.
        let place = self.open(sight, out);
        let Some(stay) = stay_of(&mut self.threads, tid, place) else {
            return;
        };

        match &mut stay.record {
            Record::Awaited => {
                // Counted once for each stay, because its record removes one (`no_longer_awaited`).
                if let (true, Some(cookie)) = (stay.waiting.is_empty(), sight.name.cookie()) {
                    *self.awaited.entry(cookie).or_default() += 1;
                }
                let id = self.held.add(stitched, true, out);
                stay.wait(id, seen);
            }
            Record::Here {
                key, frames, used, ..
            } => {
                // The record has come before, so this sample was taken on the way back to user
                // space.
                *used = true;
                let how = Stitch::Late { record: *key };
                with_user(&mut stitched, frames, how, seen.ip);
                self.held.add(stitched, false, out);
            }
            Record::Forgotten => {
                without_user(&mut stitched, MissingReason::GivenUp);
                self.held.add(stitched, false, out);
            }
        }
    }

    fn record(
        &mut self,
        key: u64,
        sight: StayObservation,
        frames: Arc<[u64]>,
        out: &mut DeliveredSamples,
    ) {
        // Without a thread, there is no stay that it could belong to.
        if sight.tid < 0 {
            out.counts.orphans += 1;
            return;
        }

        // Asked before `open`, which may end the stay that waits for this cookie.
        let elsewhere = sight
            .name
            .cookie()
            .and_then(|cookie| self.awaited.get(&cookie));
        let is_awaited = elsewhere.is_some();

        let place = self.open(sight, out);
        let Some(stay) = stay_of(&mut self.threads, sight.tid, place) else {
            return;
        };

        match &mut stay.record {
            Record::Awaited => {}
            // Every event that asks for records gets one.
            Record::Here { frames: known, .. } if *known == frames => {
                out.counts.duplicates += 1;
                return;
            }
            Record::Here {
                frames: known,
                key: known_key,
                ..
            } => {
                // Later samples get the latest frames.
                out.counts.conflicts += 1;
                *known_key = key;
                let words = known.len();
                *known = Arc::clone(&frames);
                self.remembered = self.remembered - words + frames.len();
                return;
            }
            Record::Forgotten => {
                out.counts.duplicates += 1;
                return;
            }
        }

        let waiting = std::mem::take(&mut stay.waiting);
        let replaced = std::mem::take(&mut stay.replaced);
        let used = !waiting.is_empty();
        stay.record = Record::Here {
            key,
            frames: Arc::clone(&frames),
            used,
        };
        self.remembered += frames.len();

        // Nobody waits here, but some thread waits for this cookie: the record names another
        // thread.
        if used {
            self.no_longer_awaited(sight.name.cookie());
        } else {
            out.counts.foreign += u64::from(is_awaited);
        }

        // The first `replaced` samples are from before an execve, which replaced their stack.
        for (place, (id, ip)) in waiting.into_iter().enumerate() {
            self.held.settle(id, |stitched| {
                if place < replaced {
                    without_user(stitched, MissingReason::Exec);
                } else {
                    with_user(stitched, &frames, Stitch::Stitched { record: key }, ip);
                }
            });
        }

        // Only the newest stay can have late samples; without cookies there are none.
        let Some(thread) = self.threads.get_mut(&sight.tid) else {
            return;
        };

        if sight.name.cookie().is_none() {
            if let Some(stay) = thread.stays.remove(place) {
                self.forget(stay, MissingReason::NotWritten, out);
            }
        } else if place + 1 < thread.stays.len() {
            self.remembered -= thread.stays[place].forget_record(out);
        }
    }

    /// The index of the stay that an item belongs to: an existing or a new one.
    fn open(&mut self, sight: StayObservation, out: &mut DeliveredSamples) -> usize {
        let losses = self.losses;
        let stays = &mut self.threads.entry(sight.tid).or_default().stays;
        let found = stays.iter().position(|stay| stay.name == sight.name);
        let is_newest = found.is_some_and(|place| place + 1 == stays.len());

        if let Some(place) = found
            && stays[place].is_same(sight, is_newest, losses)
        {
            return place;
        }

        // A known name in a new stay: the counter wrapped around, or there are no cookies.
        let mut over = Vec::new();
        match found {
            Some(place) => over.extend(stays.remove(place)),
            None if stays.len() >= STAYS_MAX => over.extend(stays.pop_front()),
            None => {}
        }

        // The thread has continued, so no sample of the previous stay can follow.
        if let Some(newest) = stays.back_mut() {
            self.remembered -= newest.forget_record(out);
        }

        stays.push_back(Stay {
            name: sight.name,
            // A name that is known from long ago: the stay may have begun before this item.
            since: (found.is_none() || sight.name.cookie().is_none()).then_some(sight.time),
            losses,
            waiting: Vec::new(),
            replaced: 0,
            in_execve: false,
            calls: Vec::new(),
            record: Record::Awaited,
        });

        // After the push, so that the index is that of the new stay.
        let place = stays.len() - 1;
        for stay in over {
            self.forget(stay, MissingReason::NotWritten, out);
        }
        place
    }

    /// Ends a stay: its waiting samples will not get a record.
    fn forget(&mut self, mut stay: Stay, why: MissingReason, out: &mut DeliveredSamples) {
        self.remembered -= stay.forget_record(out);
        if stay.waiting.is_empty() {
            return;
        }

        // One stay less waits for this cookie.
        self.no_longer_awaited(stay.name.cookie());

        // In the form of 2023, without cookies, no event has to ask.
        let has_none = self.not_asked && stay.name.cookie().is_some() && out.counts.records == 0;
        let why = if has_none {
            MissingReason::NotAsked
        } else if stay.since.is_none() {
            MissingReason::Ambiguous
        } else if stay.losses != self.losses || self.lost_sometime {
            MissingReason::Lost
        } else {
            why
        };

        // Samples from before an execve have lost their stack, whatever else is missing.
        for (place, (id, _)) in stay.waiting.into_iter().enumerate() {
            let why = if place < stay.replaced {
                MissingReason::Exec
            } else {
                why
            };
            self.held.settle(id, |stitched| without_user(stitched, why));
        }
    }

    /// No sample below this ID is waiting any more.
    fn drop_given_up(&mut self, first_held: u64) {
        let mut over = Vec::new();
        for stay in self.threads.values_mut().flat_map(|t| &mut t.stays) {
            if !stay.waiting.is_empty() {
                let given_up = stay.waiting.partition_point(|&(id, _)| id < first_held);
                stay.waiting.drain(..given_up);
                stay.replaced = stay.replaced.saturating_sub(given_up);
                over.extend(stay.name.cookie().filter(|_| stay.waiting.is_empty()));
            }
        }
        for cookie in over {
            self.no_longer_awaited(Some(cookie));
        }
    }

    fn no_longer_awaited(&mut self, cookie: Option<u64>) {
        if let Some(cookie) = cookie
            && let Some(count) = self.awaited.get_mut(&cookie)
        {
            *count -= 1;
            if *count == 0 {
                self.awaited.remove(&cookie);
            }
        }
    }

    fn end_of_thread(&mut self, tid: i32, out: &mut DeliveredSamples) {
        if let Some(thread) = self.threads.remove(&tid) {
            for stay in thread.stays {
                self.forget(stay, MissingReason::Exited, out);
            }
        }
    }

    fn forget_records(&mut self, out: &mut DeliveredSamples) {
        for stay in self.threads.values_mut().flat_map(|t| &mut t.stays) {
            stay.forget_record(out);
        }
        self.remembered = 0;
    }

    pub(super) fn finish(&mut self, out: &mut DeliveredSamples) {
        for thread in std::mem::take(&mut self.threads).into_values() {
            let newest = thread.stays.len().wrapping_sub(1);
            for (place, stay) in thread.stays.into_iter().enumerate() {
                let why = if place == newest || stay.name.cookie().is_none() {
                    MissingReason::End
                } else {
                    MissingReason::NotWritten
                };
                self.forget(stay, why, out);
            }
        }
        self.held.release(out);
    }
}

impl Thread {
    /// Samples without a record are from before the new program, or inside execve.
    fn mark_exec(&mut self) {
        for stay in &mut self.stays {
            if matches!(stay.record, Record::Awaited) {
                stay.replaced = stay.waiting.len();
                stay.in_execve = true;
            }
        }
    }
}

impl Stay {
    /// Adds a sample that waits for the record.
    fn wait(&mut self, id: u64, seen: SampleContext) {
        self.waiting.push((id, seen.ip));
        let has_returned = |now: Outermost| {
            let differs = |then: &Outermost| then.entry == now.entry && then.callee != now.callee;
            !self.calls.is_empty() && self.calls.iter().all(differs)
        };
        if self.in_execve && seen.outermost.is_some_and(has_returned) {
            self.in_execve = false;
        }
        if self.in_execve {
            self.replaced = self.waiting.len();
        }
        if let Some(outermost) = seen.outermost
            && !self.calls.contains(&outermost)
            && self.calls.len() < CALLS_MAX
        {
            self.calls.push(outermost);
        }
    }

    /// Drops the record, if there is one, and returns its number of words.
    fn forget_record(&mut self, out: &mut DeliveredSamples) -> usize {
        let Record::Here { frames, used, .. } = &self.record else {
            return 0;
        };
        let words = frames.len();
        out.counts.orphans += u64::from(!used);
        self.record = Record::Forgotten;
        words
    }

    /// Does an item with this stay's cookie necessarily belong to this stay?
    fn is_same(&self, sight: StayObservation, is_newest: bool, losses: u64) -> bool {
        if sight.name.cookie().is_none() {
            return losses == self.losses;
        }
        let Some(since) = self.since else {
            return false;
        };
        let is_near = sight.time.abs_diff(since) < COOKIE_ROUND_NS;
        let is_awaited = matches!(self.record, Record::Awaited);
        is_near || (is_awaited && is_newest && losses == self.losses)
    }
}

fn stay_of(threads: &mut HashMap<i32, Thread>, tid: i32, place: usize) -> Option<&mut Stay> {
    threads.get_mut(&tid)?.stays.get_mut(place)
}

/// Is the innermost frame elsewhere than at `ip`?
fn is_elsewhere(ip: u64, frames: &[u64]) -> bool {
    let innermost = frames.iter().find(|&&word| !is_marker(word));
    innermost.is_some_and(|&frame| frame != ip)
}

/// Replaces the marker and cookie by the user frames. `ip` is the user-space address at which the
/// sample was taken.
fn with_user(stitched: &mut Stitched, frames: &[u64], how: Stitch, ip: Option<u64>) {
    if let Some(found) = deferral(&stitched.chain) {
        stitched.chain.truncate(found.kernel);
    }
    stitched.how = match how.record() {
        Some(record) if frames.is_empty() => Stitch::Empty { record },
        Some(record) if ip.is_some_and(|ip| is_elsewhere(ip, frames)) => Stitch::Moved { record },
        _ => how,
    };
    if !frames.is_empty() {
        if !frames.first().is_some_and(|&word| is_marker(word)) {
            stitched.chain.push(PERF_CONTEXT_USER);
        }
        stitched.chain.extend_from_slice(frames);
    }
}

#[cfg(test)]
mod tests;
