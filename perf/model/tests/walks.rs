//! A program that walks user stacks itself, on stacks of the model: by frame pointers it finds what
//! the kernel's own walk finds, and that is not always the truth.

use unwind_sim_perf_data::stitch::Mode;
use unwind_sim_perf_model::{
    Body, Pointers, Rule, Run, Scenario, UserMemory, UserStack, WalkVerdict, World, join,
};

const WALK: &[u8] = include_bytes!("../corpus/bpf/walk.bpf.o");
/// It writes an instruction pointer.
const IP_RANGE: &[u8] = include_bytes!("../corpus/bpf/iprange.bpf.o");
/// Frames that the program has room for.
const FRAMES_MAX: usize = 15;

/// A sample in user code on a stack, seen by a walker.
fn sampled(object: &[u8], stack: &str, leaf: &str, memory: Option<UserStack>) -> (World, Run) {
    let text = format!(
        "walker walk file\nevent cycles pmu no-defer program walk\nevent outputs bpf-output no-defer\n\
         stack other 0x1000\nstack work {stack}\ntask 1 other\nswitch 0 1\n\
         user 0 work {leaf}\nsample 0 cycles\n"
    );
    let mut scenario = Scenario::parse(&text).expect("a scenario");
    scenario.supply_object(0, object).expect("an object");
    if let Some(memory) = memory {
        scenario.supply(0, vec![memory]).expect("a stack");
    }
    let world = scenario.run().expect("it runs");
    let run = join(&world, Mode::Own);
    (world, run)
}

#[test]
fn r003_15_a_program_finds_what_the_kernels_walk_finds() {
    for depth in [1, 2, 3, 15, 16, 40] {
        for leaf in ["", "entry", "behind-push"] {
            let (world, run) = sampled(WALK, &format!("depth {depth} 0x401000"), leaf, None);
            let chain = world
                .records()
                .iter()
                .find_map(|record| match &record.body {
                    Body::Sample { chain, .. } => Some(chain),
                    _ => None,
                });

            // The first word of the chain is the marker.
            let kernels = &chain.expect("a sample")[1..];
            let [walk] = run.walks.as_slice() else {
                panic!("one walk: {:?}", run.walks);
            };
            let most = kernels.len().min(FRAMES_MAX);
            assert_eq!(walk.found, kernels[..most], "{depth} {leaf}");

            let expected = match (leaf, depth) {
                // The caller is hidden, if there is one; alone, it is as if the walk ended early.
                ("entry" | "behind-push", 2) => WalkVerdict::Truncated,
                ("entry" | "behind-push", 3..) => WalkVerdict::Missing,
                (_, 16..) => WalkVerdict::Truncated,
                _ => WalkVerdict::Right,
            };
            assert_eq!(walk.outcome(), expected, "{depth} {leaf}");
            assert_eq!(run.violations, []);
        }
    }
}

/// Recorded memory is what it is: frame pointers that lead elsewhere give wrong frames.
#[test]
fn r003_15_a_program_reads_the_memory_that_was_recorded() {
    // Two frames by frame pointers; the second one's saved rbp is zero.
    let words = [0x7000_0020u64, 0x40_2000, 0, 0, 0, 0x40_9000];
    let stack = |frames: &[u64]| UserStack {
        frames: frames.to_vec(),
        memory: Some(UserMemory {
            pointers: Pointers {
                sp: 0x7000_0000,
                bp: 0x7000_0000,
            },
            address: 0x7000_0000,
            bytes: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
        }),
    };

    // The memory is the same, and only the true chain differs.
    for (frames, expected) in [
        (&[0x40_1000, 0x40_2000, 0x40_9000][..], WalkVerdict::Right),
        (&[0x40_1000, 0x40_2000, 0x40_3000], WalkVerdict::Wrong(2)),
        (
            &[0x40_1000, 0x40_2000, 0x40_9000, 0x40_4000],
            WalkVerdict::Truncated,
        ),
    ] {
        let memory = Some(stack(frames));
        let (_, run) = sampled(WALK, "program file at 1", "", memory);
        assert_eq!(run.walks[0].outcome(), expected, "{frames:x?}");
    }
}

#[test]
fn what_is_not_a_list_of_frames_is_reported() {
    let text = "walker range file\nevent cycles pmu no-defer program range\n\
                event outputs bpf-output no-defer\nstack work 0x1000\ntask 1 work\nswitch 0 1\n\
                syscall 0\nkernel 0 0xffffffff81214c3c\nsample 0 cycles\n";
    let mut scenario = Scenario::parse(text).expect("a scenario");
    scenario.supply_object(0, IP_RANGE).expect("an object");
    let run = join(&scenario.run().expect("it runs"), Mode::Own);
    assert_eq!(run.walks, []);
    let rules: Vec<Rule> = run.violations.iter().map(|v| v.rule).collect();
    assert_eq!(rules, [Rule::Program]);
}
