//! Branch records: the ring by the manual's words, the kernel's switches by the shape of what was
//! reported in 2020, and `--stitch-lbr` by perf's text.

mod common;

use unwind_sim_perf::data::{BranchEntry, Order, Record};
use unwind_sim_perf::lbr::stitch::{LbrStitcher, Stack};
use unwind_sim_perf::lbr::{
    Branch, CONTEXT_HEADER_BYTES, Depth, Kernel, Kind, Layout, Mutation, Ring, Select, SelectError,
    Storage, branch_type,
};

fn branch(from: u64, to: u64, kind: Kind) -> Branch {
    Branch {
        from,
        to,
        kind,
        task: 1,
    }
}

fn call(n: u64) -> Branch {
    branch(
        0x400000 + 0x100 * n + 0x10,
        0x400000 + 0x100 * (n + 1),
        Kind::Call,
    )
}

fn ret(n: u64) -> Branch {
    branch(
        0x400000 + 0x100 * (n + 1) + 8,
        0x400000 + 0x100 * n + 0x15,
        Kind::Return,
    )
}

fn froms(branches: &[Branch]) -> Vec<u64> {
    branches.iter().map(|branch| branch.from).collect()
}

#[test]
fn calls_push_returns_pop_and_the_oldest_is_overwritten() {
    for depth in Depth::ALL {
        let n = depth.entries() as u64;
        let mut ring = Ring::new(depth, Select::CALL_STACK_USER);
        assert_eq!(ring.read(), []);
        for frame in 0..n + 3 {
            ring.branch(call(frame));
        }
        // Newest first; the three outermost calls are lost.
        let expected: Vec<u64> = (3..n + 3).rev().map(|frame| call(frame).from).collect();
        assert_eq!(froms(&ring.read()), expected);
        assert_eq!(ring.tos() as u64, (n + 3) % n);
        for frame in (n..n + 3).rev() {
            ring.branch(ret(frame));
        }
        // What was overwritten does not come back.
        assert_eq!(froms(&ring.read()), expected[3..]);
        assert_eq!(ring.tos(), 0);
        for frame in (0..n).rev() {
            ring.branch(ret(frame));
        }
        assert_eq!(ring.read(), []);
    }
}

#[test]
fn what_is_no_call_or_comes_while_frozen_is_not_recorded() {
    let mut ring = Ring::new(Depth::Eight, Select::CALL_STACK_USER);
    ring.branch(branch(0x401000, 0x401005, Kind::Call)); // call/pop: only the pc is wanted
    ring.branch(branch(0x401000, 0x402000, Kind::Jump));
    ring.branch(branch(0x401000, 0x402000, Kind::Conditional));
    ring.branch(branch(0x401000, 0xffff_ffff_8100_0000, Kind::Far));
    ring.branch(branch(
        0xffff_ffff_8100_0000,
        0xffff_ffff_8100_1000,
        Kind::Call,
    ));
    assert_eq!(ring.read(), []);
    ring.freeze(true);
    ring.branch(call(1));
    assert_eq!(ring.read(), []);
    ring.freeze(false);
    ring.branch(call(1));
    ring.branch(branch(0x400300, 0x400900, Kind::IndirectCall));
    assert_eq!(froms(&ring.read()), [0x400300, call(1).from]);
}

#[test]
fn filters_are_those_of_the_kernel() {
    use branch_type as bt;
    // LBR_SELECT as the kernel writes it: suppress all but what is wanted.
    let register = |asked| Select::new(asked).map(Select::register);
    assert_eq!(register(bt::ANY | bt::USER), Ok(0x001));
    assert_eq!(register(bt::ANY | bt::USER | bt::KERNEL), Ok(0));
    assert_eq!(register(bt::ANY_CALL | bt::USER), Ok(0x0e5));
    assert_eq!(register(bt::CALL_STACK | bt::USER), Ok(0x3c5));
    assert_eq!(
        Select::new(bt::CALL_STACK | bt::USER),
        Ok(Select::CALL_STACK_USER)
    );
    assert_eq!(
        register(bt::CALL_STACK | bt::ANY | bt::USER),
        Err(SelectError::CallStackWith(bt::ANY))
    );
    assert_eq!(register(1 << 40), Err(SelectError::Unsupported(1 << 40)));
    assert_eq!(register(bt::ANY), Err(SelectError::NoLevel));

    // In hardware far branches come with calls; a return to user space begins in the kernel, and
    // is dropped afterwards.
    let select = Select::new(bt::ANY_RETURN | bt::USER).unwrap();
    let mut ring = Ring::new(Depth::Eight, select);
    ring.branch(ret(1));
    ring.branch(branch(0xffff_ffff_8100_0000, 0x401000, Kind::Far));
    ring.branch(call(1));
    ring.branch(ret(2));
    assert_eq!(ring.tos(), 3);
    assert_eq!(froms(&ring.read()), [ret(2).from, ret(1).from]);
}

/// The program of the report: `main` calls `f1`, `f1` `f2`, `f2` `f3`, again and again; each
/// function has some work before its call.
struct Chain {
    /// Calls that have not returned: which function runs, 0 being `_start`.
    depth: u64,
    up: bool,
    work: u64,
}

/// `_start`, `__libc_start_main`, `generic_start_main`, `main`, `f1`, `f2`, `f3`.
const F3: u64 = 6;
const MAIN: u64 = 3;

impl Chain {
    const fn new() -> Self {
        Self {
            depth: 0,
            up: true,
            work: 0,
        }
    }

    /// What the program does next: work, a call or a return.
    fn step(&mut self) -> Option<Branch> {
        self.work += 1;
        let work = match self.depth {
            F3 => 40,
            MAIN => 12,
            2 => 8,
            _ => 3,
        };
        if !self.work.is_multiple_of(work) {
            return None;
        }
        if self.depth == F3 {
            self.up = false;
        } else if self.depth == MAIN {
            self.up = true;
        }
        Some(if self.up {
            self.depth += 1;
            call(self.depth - 1)
        } else {
            self.depth -= 1;
            ret(self.depth)
        })
    }

    /// Where the calls were that have not returned, innermost first.
    fn truth(&self) -> Vec<u64> {
        (0..self.depth)
            .rev()
            .map(|frame| call(frame).from)
            .collect()
    }
}

/// Runs the program under a recording of the whole system, switched away now and then, and gives
/// how many samples in `f3` had chains of which length; the last is the whole one.
fn lengths(storage: Storage) -> Vec<u64> {
    let mut kernel = Kernel::new(2, Depth::ThirtyTwo, storage, Layout::V6_18, Mutation::None);
    kernel.start(1);
    kernel.start(2);
    kernel.attach_system();
    let mut program = Chain::new();
    let mut lengths = vec![0; F3 as usize + 1];
    let (mut cpu, mut random) = (0, 1u64);
    kernel.sched_task(cpu, 1);
    for step in 1..40_000u64 {
        if let Some(branch) = program.step() {
            kernel.branch(cpu, branch);
        }
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        if (random >> 33).is_multiple_of(150) {
            kernel.sched_task(cpu, 2);
            kernel.branch(
                cpu,
                Branch {
                    task: 2,
                    ..call(77)
                },
            );
            kernel.sched_task(cpu, 0);
            cpu = (random >> 50) as usize % 2;
            kernel.sched_task(cpu, 1);
        }
        if step.is_multiple_of(7) && program.depth == F3 {
            let chain = froms(&kernel.sample(cpu));
            let truth = program.truth();
            assert!(
                truth.starts_with(&chain),
                "{chain:x?} is not the leaf side of {truth:x?}"
            );
            lengths[chain.len()] += 1;
        }
    }
    lengths
}

#[test]
fn r002_1_r002_2_system_wide_chains_are_cut_where_nothing_is_saved() {
    let cut = lengths(Storage::PerContext);
    let of_any_length = cut.iter().filter(|&&count| count > 0).count();
    assert!(of_any_length >= 3, "{cut:?}");
    let (whole, all) = (cut[F3 as usize], cut.iter().sum::<u64>());
    // As in the report, whole chains (there 8.88 % with generic_start_main) are the fewest.
    assert!(whole * 100 < all * 20, "{cut:?}");
    assert!(
        cut[(F3 - MAIN) as usize] * 100 > all * 30,
        "main..f3 is the most: {cut:?}"
    );

    let whole = lengths(Storage::PerTask);
    assert_eq!(whole.iter().sum::<u64>(), whole[F3 as usize], "{whole:?}");
    assert_eq!(all, whole[F3 as usize], "the same samples");
}

#[test]
fn r002_3_a_task_that_migrates_keeps_its_records() {
    for (storage, kept) in [(Storage::PerTask, 2), (Storage::PerContext, 0)] {
        let mut kernel = Kernel::new(2, Depth::Sixteen, storage, Layout::V6_18, Mutation::None);
        kernel.start(1);
        kernel.attach_system();
        kernel.sched_task(0, 1);
        kernel.branch(0, call(0));
        kernel.branch(0, call(1));
        kernel.sched_task(0, 0);
        kernel.sched_task(1, 1);
        assert_eq!(kernel.sample(1).len(), kept, "{storage:?}");
    }
    // Events of the task itself had room with the old storage too.
    let mut kernel = Kernel::new(
        2,
        Depth::Sixteen,
        Storage::PerContext,
        Layout::V6_18,
        Mutation::None,
    );
    kernel.start(1);
    kernel.attach(1);
    kernel.sched_task(0, 1);
    kernel.branch(0, call(0));
    kernel.sched_task(0, 0);
    kernel.sched_task(1, 1);
    assert_eq!(kernel.sample(1).len(), 1);
}

#[test]
fn r002_4_ten_thousand_threads_cost_some_eight_megabytes_and_nothing_before_and_after() {
    assert_eq!(Layout::V2020.bytes(), 788);
    assert_eq!(Layout::V6_18.bytes(), 800);
    assert_eq!(Layout::Architectural(32).bytes(), 784);
    let mut kernel = Kernel::new(
        4,
        Depth::ThirtyTwo,
        Storage::PerTask,
        Layout::V2020,
        Mutation::None,
    );
    for tid in 1..=10_000 {
        kernel.start(tid);
    }
    assert_eq!(kernel.ledger().bytes, 0);
    kernel.attach_system();
    // 7.88 MB of records, and what holds them.
    let records = kernel.ledger().bytes - 10_000 * CONTEXT_HEADER_BYTES;
    assert_eq!(records, 7_880_000);
    kernel.detach_system();
    assert_eq!(kernel.ledger().bytes, 0);
    assert_eq!(kernel.ledger().allocated, kernel.ledger().freed);
}

#[test]
fn r002_5_memory_lives_as_long_as_its_last_user() {
    let mut kernel = Kernel::new(
        1,
        Depth::Sixteen,
        Storage::PerTask,
        Layout::V6_18,
        Mutation::None,
    );
    kernel.start(1);
    kernel.attach(1);
    kernel.attach(1);
    kernel.attach_system();
    assert_eq!(kernel.ledger().allocated, 1);
    kernel.detach(1);
    kernel.detach_system();
    assert_eq!(kernel.ledger().freed, 0);
    kernel.detach(1);
    assert_eq!(kernel.ledger().freed, 1);
    // A task made while the system is recorded has memory, and gives it back.
    kernel.attach_system();
    kernel.fork(1, 2, false);
    assert_eq!(kernel.ledger().allocated, 3);
    kernel.exit(2);
    kernel.exit(1);
    assert_eq!((kernel.ledger().freed, kernel.ledger().bytes), (3, 0));
}

#[test]
fn r002_5_memory_replaced_while_it_dies_is_freed_once() {
    let mut kernel = Kernel::new(
        1,
        Depth::Sixteen,
        Storage::PerTask,
        Layout::V6_18,
        Mutation::None,
    );
    kernel.start(1);
    kernel.attach(1);
    let dying = kernel.begin_detach(1).expect("the last user");
    kernel.attach(1);
    kernel.finish_detach(dying);
    let ledger = kernel.ledger();
    assert_eq!(
        (ledger.allocated, ledger.freed, ledger.freed_twice),
        (2, 1, 0)
    );
    kernel.detach(1);
    assert_eq!(kernel.ledger().bytes, 0);
}

#[test]
fn r002_6_a_switch_under_way_keeps_the_memory() {
    let used_after_free = |mutation| {
        let mut kernel = Kernel::new(1, Depth::Sixteen, Storage::PerTask, Layout::V6_18, mutation);
        kernel.start(1);
        kernel.attach(1);
        kernel.sched_task(0, 1);
        kernel.branch(0, call(1));
        let saving = kernel.begin_switch(0).expect("a CPU");
        kernel.detach(1);
        let freed = kernel.ledger().freed;
        kernel.finish_switch(saving, 0);
        let ledger = kernel.ledger();
        assert_eq!((ledger.freed, ledger.bytes), (1, 0));
        (freed, ledger.used_after_free)
    };
    assert_eq!(used_after_free(Mutation::None), (0, 0));
    assert_eq!(used_after_free(Mutation::FreeAtOnce), (1, 1));
}

#[test]
fn r002_7_contexts_that_are_swapped_leave_the_records_with_the_task() {
    let leaks = |storage, mutation| {
        let mut kernel = Kernel::new(1, Depth::Sixteen, storage, Layout::V6_18, mutation);
        kernel.start(1);
        kernel.attach(1);
        kernel.fork(1, 2, true);
        let mut leaks = 0;
        for round in 0..4 {
            for tid in [1, 2] {
                kernel.sched_task(0, tid);
                leaks += kernel.sample(0).iter().filter(|b| b.task != tid).count();
                kernel.branch(
                    0,
                    Branch {
                        task: tid,
                        ..call(round)
                    },
                );
            }
        }
        leaks
    };
    assert_eq!(leaks(Storage::PerContext, Mutation::None), 0);
    assert_eq!(leaks(Storage::PerTask, Mutation::None), 0);
    assert!(leaks(Storage::PerContext, Mutation::SwapWithoutData) > 0);
    // Memory of tasks has nothing to swap.
    assert_eq!(leaks(Storage::PerTask, Mutation::SwapWithoutData), 0);
}

#[test]
fn r002_8_a_fork_shares_no_memory() {
    let mut kernel = Kernel::new(
        1,
        Depth::Sixteen,
        Storage::PerTask,
        Layout::V6_18,
        Mutation::None,
    );
    kernel.start(1);
    kernel.attach(1);
    kernel.fork(1, 2, false);
    assert_eq!(kernel.ledger().allocated, 1);
    kernel.fork(1, 3, true);
    assert_eq!(kernel.ledger().allocated, 2);
    kernel.exit(1);
    assert_eq!(kernel.ledger().freed, 1);
}

/// Linux 7.2, as read: whoever restores the ring does not forget whose records were saved from it
/// last. If nothing is saved from it afterwards, because the task ends, the task saved before is
/// taken for the one whose records are still there.
#[test]
fn records_of_a_task_that_ends_are_taken_for_those_of_the_task_before() {
    let leaks = |mutation| {
        let mut kernel = Kernel::new(2, Depth::Sixteen, Storage::PerTask, Layout::V6_18, mutation);
        kernel.start(1);
        kernel.start(2);
        kernel.attach_system();
        let run = |kernel: &mut Kernel, cpu: usize, tid, n| {
            kernel.sched_task(cpu, tid);
            kernel.branch(
                cpu,
                Branch {
                    task: tid,
                    ..call(n)
                },
            );
        };
        run(&mut kernel, 1, 2, 20); // has records of its own, on another CPU
        kernel.sched_task(1, 0);
        run(&mut kernel, 0, 1, 10); // is saved when the other comes
        kernel.sched_task(0, 2);
        kernel.exit(2); // nothing is saved for it any more
        kernel.sched_task(0, 1);
        kernel.sample(0).iter().filter(|b| b.task != 1).count()
    };
    assert_eq!(leaks(Mutation::None), 1);
    assert_eq!(leaks(Mutation::RestoreForgets), 0);
}

/// The branch stacks of the recording, stitched.
#[test]
fn stitch_lbr_is_as_perf_does_it() {
    let bytes = common::recording("LBR-stitch-grow.data");
    let file = unwind_sim_perf::PerfFile::parse(&bytes).unwrap();
    let caps = file.features().cpu_pmu_caps().unwrap().unwrap();
    let (_, depth) = caps.iter().find(|(name, _)| *name == b"branches").unwrap();
    let depth: u32 = std::str::from_utf8(depth).unwrap().parse().unwrap();
    let mut stitcher: LbrStitcher<BranchEntry> = LbrStitcher::new(depth);
    let mut found = String::new();
    common::each(&bytes, Order::Time, |event| {
        let Record::Sample(sample) = event.record else {
            return;
        };
        let branches = sample.branch_stack().unwrap().unwrap();
        let stack = Stack {
            entries: branches.entries().collect(),
            hw_index: branches.hw_index.unwrap(),
        };
        for address in stitcher.chain(sample.ip().unwrap(), stack) {
            found += &format!("{address:x} ");
        }
        found.push('\n');
    });
    // `perf script --stitch-lbr` 7.2 says so.
    let expected = [
        "400820 400710 400610 400510 400410 400310 400210 400110 400010 \n",
        "400b20 400a10 400910 400810 400710 400610 400510 400410 400310 400210 400110 400010 \n",
        "400d20 400c10 400b10 400a10 400910 400810 400710 400610 400510 400410 400310 400210 \
         400110 400010 \n",
    ];
    assert_eq!(found, expected.concat());
}

/// A thread whose calls go through a ring of eight, sampled and stitched.
struct Stitched {
    ring: Ring,
    stitcher: LbrStitcher<Branch>,
    truth: Vec<u64>,
}

impl Stitched {
    fn new() -> Self {
        Self {
            ring: Ring::new(Depth::Eight, Select::CALL_STACK_USER),
            stitcher: LbrStitcher::new(8),
            truth: Vec::new(),
        }
    }

    fn call(&mut self, n: u64) {
        self.ring.branch(call(n));
        self.truth.insert(0, call(n).from);
    }

    fn ret(&mut self, n: u64) {
        self.ring.branch(ret(n));
        self.truth.remove(0);
    }

    /// `longjmp`: frames go without returns.
    fn longjmp(&mut self, frames: usize) {
        self.truth.drain(..frames);
    }

    fn sample(&mut self) -> Vec<u64> {
        let stack = Stack {
            entries: self.ring.read(),
            hw_index: self.ring.tos() as u64,
        };
        self.stitcher.chain(0x1, stack).split_off(1)
    }
}

#[test]
fn stitching_finds_what_the_ring_has_lost() {
    let mut thread = Stitched::new();
    for n in 0..20 {
        thread.call(n);
        let chain = thread.sample();
        assert_eq!(chain, thread.truth, "sampled at each call nothing is lost");
    }
    // The way back: what returned is popped, and the ring does not reach down to what is
    // stitched.
    for n in (12..20).rev() {
        thread.ret(n);
    }
    assert_eq!(
        thread.sample(),
        [0u64; 0],
        "an empty ring cannot be stitched"
    );
    assert_eq!(thread.truth.len(), 12);
}

#[test]
fn stitching_misses_frames_where_too_many_calls_lie_between_two_samples() {
    let mut thread = Stitched::new();
    (0..8).for_each(|n| thread.call(n));
    assert_eq!(thread.sample(), thread.truth);
    (8..16).for_each(|n| thread.call(n));
    // No record is in both samples.
    assert_eq!(thread.sample(), thread.truth[..8]);
}

#[test]
fn stitching_invents_frames_where_recursion_makes_equal_records() {
    // Two different descents through the same call site leave the same records at the same
    // places of the ring.
    let mut thread = Stitched::new();
    thread.call(1);
    (0..7).for_each(|_| thread.call(5));
    assert_eq!(thread.sample(), thread.truth);
    // Back to the start without being sampled, and down again by another way.
    (0..7).for_each(|_| thread.ret(5));
    thread.ret(1);
    thread.call(2);
    (0..8).for_each(|_| thread.call(5));
    let chain = thread.sample();
    let truth = &thread.truth;
    assert_eq!(chain.len(), truth.len());
    assert_eq!(chain[..8], truth[..8]);
    // The outermost frame is that of the first descent.
    assert_eq!((chain[8], truth[8]), (call(1).from, call(2).from));
}

#[test]
fn longjmp_leaves_records_of_frames_that_are_gone() {
    let mut thread = Stitched::new();
    (0..6).for_each(|n| thread.call(n));
    assert_eq!(thread.sample(), thread.truth);
    thread.longjmp(4);
    thread.call(30);
    let chain = thread.sample();
    // The hardware pops on returns only: the four frames stand below the new one.
    assert_eq!(thread.truth.len(), 3);
    assert_eq!(chain.len(), 7);
    assert_eq!(chain[0], call(30).from);
    assert_eq!(chain[1..5], [5, 4, 3, 2].map(|n| call(n).from));
}
