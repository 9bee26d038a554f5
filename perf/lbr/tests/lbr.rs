//! Branch records: the ring by the manual's words, the kernel's switches by the shape of what was
//! reported in 2020, and stitched stacks by the true calls.

#[path = "common/random.rs"]
mod random;

use random::Random;
use unwind_sim_perf_data::lbr_stitch::{LbrStitcher, Stack};
use unwind_sim_perf_lbr::{
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

#[test]
fn r002_4_ten_thousand_threads_cost_some_eight_megabytes_and_nothing_before_and_after() {
    let mut kernel = Kernel::new(
        4,
        Depth::ThirtyTwo,
        Storage::PerTask,
        Layout::V2020,
        Mutation::None,
    );
    for tid in 1..=10_000 {
        kernel.start(tid, None);
    }
    assert_eq!(kernel.ledger().bytes, 0);
    kernel.attach_system(None);
    // 7.88 MB of members, as the patch has it; padding; and what holds them.
    assert_eq!(10_000 * Layout::V2020.member_bytes(), 7_880_000);
    let records = kernel.ledger().bytes - 10_000 * CONTEXT_HEADER_BYTES;
    assert_eq!(records, 7_920_000);
    kernel.detach_system(None);
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

    // Two users of one thread, and the system: the thread's memory is that of all three.
    kernel.start(1, None);
    kernel.attach(1);
    kernel.attach(1);
    kernel.attach_system(None);
    assert_eq!(kernel.ledger().allocated, 1);
    kernel.detach(1);
    kernel.detach_system(None);
    assert_eq!(kernel.ledger().freed, 0);

    // Only the last user frees it.
    kernel.detach(1);
    assert_eq!(kernel.ledger().freed, 1);
    // A task made while the system is recorded has memory, and gives it back.
    kernel.attach_system(None);
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
    kernel.start(1, None);
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

/// Whatever a file says of its branch stacks: no panic, and chains within a bound.
#[test]
fn stitching_of_hostile_branch_stacks_is_bounded() {
    const LONGEST: usize = 1 + 40 + 1024;
    let mut longest = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let depth = random.pick(&[0, 1, 8, 32, u32::MAX]);

        // A depth of 0 and indexes beyond it come from a damaged file.
        let mut stitcher: LbrStitcher<Branch> = LbrStitcher::new(depth);
        for _ in 0..200 {
            let hw_index = match random.below_u64(8) {
                0 => u64::MAX - random.below_u64(3),
                _ => random.below_u64(u64::from(depth.min(40)) + 2),
            };
            let entry = |from| Branch {
                from,
                to: 0x400000,
                kind: Kind::Call,
                task: 1,
            };
            let len = random.below_u64(41);

            // Only two different branches, so that stacks often seem to continue each other.
            let entries = (0..len).map(|_| entry(random.below_u64(2))).collect();
            let chain = stitcher.chain(0x1, Stack { entries, hw_index });
            assert!(chain.len() <= LONGEST, "seed {seed}");
            longest = longest.max(chain.len());
        }
    }
    assert!(longest > 60, "nothing was stitched: {longest}");
}
