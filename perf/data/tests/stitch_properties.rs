//! Stitching random streams whose truth is known: the user stack of each sample.
//!
//! A simulation of threads that enter and leave the kernel generates the stream; records are lost,
//! duplicated and delayed, cookies are reused, threads end. The truth is recorded independently of
//! the stitcher.

use crate::random::Random;
use std::collections::HashMap;

use quickcheck::{QuickCheck, TestResult};
use unwind_sim_perf_data::callchain::{
    PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER, PERF_CONTEXT_USER_DEFERRED, is_marker,
};
use unwind_sim_perf_data::stitch::{
    COOKIE_ROUND_NS, Counts, Item, ItemKind, MissingReason, Mode, Stitch, Stitched, Stitcher,
    stitch,
};

/// Frequency of each kind of trouble: once in this many chances, 0 for never.
#[derive(Clone, Copy)]
struct Troubles {
    lost: u64,
    doubled: u64,
    delayed: u64,
    exit: u64,
    exec: u64,
    /// Number of cookies per CPU.
    cookies: u64,
    has_cookies: bool,
}

const CALM: Troubles = Troubles {
    lost: 0,
    doubled: 0,
    delayed: 0,
    exit: 0,
    exec: 0,
    cookies: 1 << 31,
    has_cookies: true,
};

/// A thread's stay in the kernel.
#[derive(Default)]
struct Stay {
    cookie: u64,
    frames: Vec<u64>,
    recorded: bool,
    execed: bool,
    in_kernel: bool,
    samples: Vec<u64>,
}

struct World {
    random: Random,
    troubles: Troubles,
    time: u64,
    next_key: u64,
    counters: [u64; 2],
    items: Vec<Item>,
    /// Each sample's key and user stack; the stack is empty if the recording cannot have it.
    truth: HashMap<u64, Vec<u64>>,
    stays: Vec<Stay>,
    late: u64,
}

impl World {
    fn new(seed: u64, troubles: Troubles) -> Self {
        Self {
            random: Random::new(seed),
            troubles,
            time: 1000,
            next_key: 0,
            counters: [1, 1],
            items: Vec::new(),
            truth: HashMap::new(),
            stays: (0..4).map(|_| Stay::default()).collect(),
            late: 0,
        }
    }

    /// True once in `of` times, never for 0.
    fn one_in(&mut self, of: u64) -> bool {
        of != 0 && self.random.below_u64(of) == 0
    }

    fn emit(&mut self, tid: usize, what: ItemKind) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        self.items.push(Item {
            key,
            time: Some(self.time),
            tid: tid as i32,
            event: 0,
            what,
        });
        key
    }

    fn enter(&mut self, tid: usize) {
        let cpu = self.random.below(2);
        // The kernel's counter. When it wraps around, the time that this takes has passed.
        self.counters[cpu] += 2;
        if self.counters[cpu] > 2 * self.troubles.cookies {
            self.counters[cpu] = 3;
            self.time += COOKIE_ROUND_NS;
        }
        let cookie = self.counters[cpu] << 32 | (cpu as u64 + 1);
        let depth = self.random.below_u64(4);
        let frames = (0..depth)
            .map(|i| 0x400000 + self.next_key * 64 + i)
            .collect();
        self.stays[tid] = Stay {
            cookie,
            frames,
            in_kernel: true,
            ..Stay::default()
        };
    }

    fn sample(&mut self, tid: usize) {
        let stay = &self.stays[tid];
        let mut chain = vec![PERF_CONTEXT_KERNEL, 0xffff_ffff_8100_0000 + self.next_key];
        chain.push(PERF_CONTEXT_USER_DEFERRED);
        if self.troubles.has_cookies {
            chain.push(stay.cookie);
        }
        let frames = if stay.execed && !stay.recorded {
            Vec::new()
        } else {
            stay.frames.clone()
        };
        self.late += u64::from(stay.recorded);
        let key = self.emit(
            tid,
            ItemKind::Sample {
                defer: true,
                chain,
                ip: None,
            },
        );
        self.truth.insert(key, frames);
        self.stays[tid].samples.push(key);
    }

    fn record(&mut self, tid: usize) {
        self.stays[tid].recorded = true;
        let stay = &self.stays[tid];
        let record = ItemKind::Record {
            cookie: self.troubles.has_cookies.then_some(stay.cookie),
            frames: stay.frames.clone(),
        };
        if self.one_in(self.troubles.lost) {
            self.emit(tid, ItemKind::Lost { count: 1 });
            return;
        }
        if self.one_in(self.troubles.doubled) {
            self.emit(tid, record.clone());
        }
        self.emit(tid, record);
    }

    fn step(&mut self) {
        self.time += 1 + self.random.below_u64(50);
        let tid = self.random.below(self.stays.len());
        if !self.stays[tid].in_kernel {
            self.enter(tid);
            self.sample(tid);
            return;
        }
        let recorded = self.stays[tid].recorded;
        match self.random.below_u64(4) {
            // Without cookies, a sample after the record requests another one.
            0 if !recorded || self.troubles.has_cookies => self.sample(tid),
            1 if !recorded => self.record(tid),
            2 if recorded => self.stays[tid].in_kernel = false,
            3 if !recorded && self.one_in(self.troubles.exit) => {
                self.emit(tid, ItemKind::Exit);
                self.stays[tid].in_kernel = false;
                self.emit(tid, ItemKind::Fork);
            }
            3 if !recorded && self.one_in(self.troubles.exec) => self.exec(tid),
            _ => {}
        }
    }

    /// Replaces the program: the stacks of samples in this stay are lost.
    fn exec(&mut self, tid: usize) {
        self.emit(tid, ItemKind::Exec);
        for key in &self.stays[tid].samples {
            if let Some(frames) = self.truth.get_mut(key) {
                frames.clear();
            }
        }
        self.stays[tid].frames = vec![0x7000_0000 + self.next_key];
        self.stays[tid].execed = true;
        if self.one_in(2) {
            self.sample(tid);
        }
        self.emit(tid, ItemKind::Vdso);
    }

    /// Delays some records past the thread's next item, as skewed clocks do.
    fn delay_some(&mut self) {
        for at in 1..self.items.len() {
            let is_record = matches!(self.items[at - 1].what, ItemKind::Record { .. });
            let is_sample = matches!(self.items[at].what, ItemKind::Sample { .. });
            let is_near = self.items[at].time < self.items[at - 1].time.map(|time| time + 1000);
            if is_record && is_sample && is_near && self.one_in(self.troubles.delayed) {
                self.items.swap(at - 1, at);
                let time = self.items[at].time;
                self.items[at].time = self.items[at - 1].time;
                self.items[at - 1].time = time;
            }
        }
    }

    fn run(seed: u64, troubles: Troubles) -> Self {
        let mut world = Self::new(seed, troubles);
        for _ in 0..400 {
            world.step();
        }
        world.delay_some();
        world
    }
}

/// The user frames of a chain stitched by our own method.
fn user(sample: &Stitched) -> &[u64] {
    match sample
        .chain
        .iter()
        .position(|&word| word == PERF_CONTEXT_USER)
    {
        Some(at) => &sample.chain[at + 1..],
        None => &[],
    }
}

/// Checks that each sample is delivered once, in time order, with its kernel frame and either its
/// own user frames or a reason.
fn sound(world: &World, out: &[Stitched], counts: &Counts) -> Result<(), String> {
    if out.len() != world.truth.len() || counts.samples != out.len() as u64 {
        return Err(format!("{} of {} samples", out.len(), world.truth.len()));
    }

    // Our own method keeps the order of time.
    if !out.is_sorted_by_key(|sample| sample.time) || counts.out_of_order != 0 {
        return Err("not in time order".to_owned());
    }
    for sample in out {
        let truth = &world.truth[&sample.key];
        let kernel = [PERF_CONTEXT_KERNEL, 0xffff_ffff_8100_0000 + sample.key];
        if !sample.chain.starts_with(&kernel) {
            return Err(format!("{sample:?}: kernel frames of another"));
        }

        // User frames are those of the truth, or there are none and a reason.
        let found = user(sample);
        let is_sound = match sample.how {
            Stitch::Stitched { .. } | Stitch::Late { .. } => found == truth,
            Stitch::Empty { .. } => found.is_empty() && truth.is_empty(),
            Stitch::Missing(_) => found.is_empty() && sample.chain.len() == kernel.len(),
            Stitch::NotDeferred | Stitch::Moved { .. } => false,
        };
        if !is_sound {
            return Err(format!("{sample:?}: the truth is {truth:x?}"));
        }
    }
    Ok(())
}

fn check(seed: u64, troubles: Troubles) -> (World, Vec<Stitched>, Counts) {
    let world = World::run(seed, troubles);
    let (out, counts) = stitch(Mode::Own, world.items.iter().cloned());
    if let Err(wrong) = sound(&world, &out, &counts) {
        panic!("seed {seed}: {wrong}");
    }
    (world, out, counts)
}

/// Is this a sample that was still waiting at the end of the recording? That is unavoidable.
fn is_at_end(sample: &Stitched) -> bool {
    sample.how == Stitch::Missing(MissingReason::End)
}

#[test]
fn r000_2_every_sample_of_a_calm_world_gets_its_stack() {
    QuickCheck::new().tests(300).quickcheck(
        (|seed: u64| {
            let (_, out, counts) = check(seed, CALM);
            let all = out.iter().all(|s| s.how.record().is_some() || is_at_end(s));
            TestResult::from_bool(all && counts.conflicts == 0 && counts.duplicates == 0)
        }) as fn(u64) -> TestResult,
    );
}

#[test]
fn r000_2_never_a_wrong_stack_whatever_goes_wrong() {
    let mut hows: HashMap<&str, u64> = HashMap::new();
    for seed in 1..2000 {
        let troubles = Troubles {
            lost: 5,
            doubled: 4,
            delayed: 3,
            exit: 9,
            exec: 5,
            cookies: [8, 40, 1 << 31][seed as usize % 3],
            ..CALM
        };
        let (_, out, _) = check(seed, troubles);
        for sample in out {
            *hows.entry(sample.how.as_str()).or_default() += 1;
        }
    }
    // The simulations have covered all outcomes.
    for how in ["stitched", "late", "empty", "lost", "exited", "exec", "end"] {
        assert!(hows.contains_key(how), "{how} is missing: {hows:?}");
    }
}

#[test]
fn r001_4_without_cookies_only_known_losses_separate() {
    let troubles = Troubles {
        has_cookies: false,
        lost: 6,
        ..CALM
    };
    let mut wrong_in_2023 = 0;
    for seed in 1..300 {
        let (world, _, _) = check(seed, troubles);
        let (out, _) = stitch(Mode::Rfc2023, world.items.iter().cloned());
        wrong_in_2023 += out.iter().filter(|sample| differs(&world, sample)).count();
    }
    assert!(
        wrong_in_2023 > 100,
        "lost records bring wrong stacks: {wrong_in_2023}"
    );
}

/// Did perf's method give a sample other frames than its own?
fn differs(world: &World, sample: &Stitched) -> bool {
    let marker = sample
        .chain
        .iter()
        .position(|&w| w == PERF_CONTEXT_USER_DEFERRED);
    let after = marker.map_or(0, |at| at + 1);
    let found = &sample.chain[after..];
    sample.how.record().is_some() && found != world.truth[&sample.key]
}

#[test]
fn perf_7_2_loses_late_samples_and_those_after_another_cookie() {
    let (mut late, mut out_of_order) = (0, 0);
    for seed in 1..200 {
        let (world, own, _) = check(seed, CALM);
        let (out, counts) = stitch(Mode::Perf72, world.items.iter().cloned());

        // D1: late samples are never stitched; the cookie is left as a frame.
        let early = |out: &[Stitched]| {
            let is_early = |s: &&Stitched| matches!(s.how, Stitch::Stitched { .. });
            out.iter().filter(is_early).count()
        };
        assert_eq!(early(&out), early(&own), "seed {seed}");
        late += world.late;

        for sample in out.iter().filter(|s| s.how.record().is_none()) {
            let last = sample.chain.last().copied();
            assert_eq!(
                last, sample.cookie,
                "seed {seed}: D3, the cookie is the last frame"
            );
        }
        assert!(
            !out.iter().any(|sample| differs(&world, sample)),
            "seed {seed}"
        );

        // D5: the order is that of delivery.
        out_of_order += counts.out_of_order;
    }

    assert!(late > 100 && out_of_order > 100, "{late} {out_of_order}");
}

#[test]
fn held_back_samples_are_bounded() {
    // One thread sleeps in the kernel while another one is sampled.
    let sample = |key, tid, cookie| Item {
        key,
        time: Some(key),
        tid,
        event: 0,
        what: ItemKind::Sample {
            defer: true,
            chain: vec![PERF_CONTEXT_USER_DEFERRED, cookie],
            ip: None,
        },
    };
    let mut stitcher = Stitcher::own_within(10_000);
    stitcher.push(sample(0, 1, 0x3_0000_0001));

    // The other thread's samples each get their record at once.
    let mut taken = 0;
    for key in 1..1000 {
        let cookie = (2 * key + 3) << 32 | 1;
        stitcher.push(sample(2 * key, 2, cookie));
        stitcher.push(Item {
            key: 2 * key + 1,
            time: Some(2 * key + 1),
            tid: 2,
            event: 0,
            what: ItemKind::Record {
                cookie: Some(cookie),
                frames: vec![0x401000],
            },
        });
        while let Some(sample) = stitcher.pop() {
            assert!(sample.chain.iter().any(|&word| !is_marker(word)));
            taken += 1;
        }
        assert!(key - taken < 100, "{key} {taken}");
    }
    // Order was given up first; the sleeping thread still gets its record.
    stitcher.push(Item {
        key: 5000,
        time: Some(5000),
        tid: 1,
        event: 0,
        what: ItemKind::Record {
            cookie: Some(0x3_0000_0001),
            frames: vec![0x402000],
        },
    });
    stitcher.finish();
    let rest: Vec<_> = std::iter::from_fn(|| stitcher.pop()).collect();
    let sleeper = rest.iter().find(|sample| sample.tid == 1).unwrap();
    assert_eq!(sleeper.how, Stitch::Stitched { record: 5000 });
    assert_eq!(stitcher.counts().out_of_order, 1);

    // A thread that never returns is given up, the older half of its samples first.
    let mut stitcher = Stitcher::own_within(10_000);
    for key in 0..1000 {
        stitcher.push(sample(key, 1, 0x3_0000_0001));
    }
    let given_up = std::iter::from_fn(|| stitcher.pop()).count();
    assert!(given_up > 800, "{given_up}");
    stitcher.finish();
    assert_eq!(
        std::iter::from_fn(|| stitcher.pop()).count(),
        1000 - given_up
    );
}
