//! Any state of a kernel of a few instructions is the same however it is reached.

use super::*;
use crate::answers::tests::{CALLCHAIN, CODE, HANDLER, WORK, boot, code, elf, image, places};
use unwind_sim_recordings::model::Sample;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind};

/// Checkpoints and snapshots so near to each other that all of them are used.
const SPACING: Spacing = Spacing {
    checkpoints: 8,
    snapshots: 2,
};

/// So near that ways over many checkpoints are joined.
const NEAR: Spacing = Spacing {
    checkpoints: 1,
    snapshots: 2,
};

fn start() -> ReversibleKernel {
    start_spaced(SPACING)
}

fn start_spaced(spacing: Spacing) -> ReversibleKernel {
    let subject = KernelSubject {
        image: image(""),
        path: PathBuf::from("vmlinux"),
        places: places(),
    };
    let file = elf(&code());
    ReversibleKernel::start_spaced(&boot(&file), subject, Arc::default(), spacing)
        .expect("it can be loaded")
}

/// What is compared of a state: the sample, and all of what the kernel writes to.
fn state(run: &ReversibleKernel) -> (Sample<'static>, Vec<u8>) {
    let mut memory = vec![0; 0x8000];
    let read = run.core().memory.peek(CODE, &mut memory);
    read.expect("it is mapped");
    (run.sample(), memory)
}

/// All states, one after the other.
fn forward(run: &mut ReversibleKernel) -> Vec<(Sample<'static>, Vec<u8>)> {
    let mut states = Vec::new();
    while run.go_to(states.len() as u64) == states.len() as u64 && !run.has_exited() {
        states.push(state(run));
    }
    states
}

fn place(run: &ReversibleKernel) -> u64 {
    run.core().state.rip - CODE
}

#[test]
fn a_state_is_the_same_from_both_sides() {
    let mut run = start();
    let states = forward(&mut run);
    assert!(states.len() > 30, "{}", states.len());
    let count = states.len() as u64;
    assert_eq!(run.end().map(|end| end.states), Some(count));
    for (number, (sample, _)) in states.iter().enumerate() {
        assert_eq!(sample.time, number as u64);
        assert!(sample.kernel.is_some());
    }
    // Without calls, the chain is that of the root.
    let deepest = states.iter().map(|(s, _)| s.truth.frames().len()).max();
    assert_eq!(deepest, Some(6));

    let again = |run: &mut ReversibleKernel, number: u64| {
        assert_eq!(run.go_to(number), number);
        assert_eq!(state(run), states[number as usize], "{number}");
    };
    let mut other = start();
    let mut near = start_spaced(NEAR);
    for run in [&mut run, &mut other, &mut near] {
        (0..count).rev().for_each(|number| again(run, number));
        // In no order: 7 and the number have no common factor.
        assert_ne!(count % 7, 0);
        (0..count).for_each(|number| again(run, number * 7 % count));
        run.thin();
        (0..count).for_each(|number| again(run, number * 11 % count));
        run.thin();
        (0..count).rev().for_each(|number| again(run, number));
    }
    assert!(other.checkpoints.last_at(u64::MAX) < run.executed() as usize + 8);

    // A way over many checkpoints has few parts.
    let mut near = start_spaced(NEAR);
    near.explore_to(u64::MAX);
    let last = near.checkpoints.last_at(u64::MAX);
    assert!(last > 33, "{last}");
    assert_eq!(near.checkpoints.ways(0, last).len(), last / 16 + last % 16);
    assert_eq!(near.checkpoints.ways(15, 33).len(), 3);
    assert_eq!(near.checkpoints.ways(1, 17).len(), 16);
}

#[test]
fn code_is_that_in_memory() {
    /// Where nothing is executed, far from what is.
    const FAR: u64 = 0x7000;
    // A file in which nothing is patched yet.
    let mut file = code();
    file[WORK as usize] = 0x90;
    file[FAR as usize] = 0x90;
    let mut kernel = image("");
    kernel.image = Arc::new(Image::new(ImageParts {
        name: "vmlinux".to_owned(),
        sections: vec![Section {
            kind: SectionKind::Text,
            address: CODE,
            data: Bytes::from_vec(file),
        }],
        symbols: kernel.image.symbols().to_vec(),
        ..ImageParts::default()
    }));
    kernel.range = CODE..CODE + 0x8000;
    let subject = KernelSubject {
        image: kernel,
        path: PathBuf::from("vmlinux"),
        places: places(),
    };
    let loaded = elf(&code());
    let mut run = ReversibleKernel::start_spaced(&boot(&loaded), subject, Arc::default(), SPACING)
        .expect("it can be loaded");
    let byte = |run: &ReversibleKernel, at: u64| {
        let space = run.world().space(run.sample().pid);
        let mapping = space.find(CODE + at).expect("it is mapped");
        let image = mapping.image.as_ref().expect("it has an image");
        image.text_bytes(mapping.svma(CODE + at), 1)[0]
    };
    let work = move |_: &Core, rip: u64, _: Task, _: &World| rip == CODE + WORK;
    let number = run.first(Box::new(work), 0).expect("it is executed");
    assert_eq!(run.go_to(number), number);
    assert_eq!(byte(&run, WORK), 0xcc);
    assert_eq!(byte(&run, FAR), 0x90);
}

#[test]
fn functions_are_found_in_both_directions() {
    struct At(u64);
    impl Look for At {
        fn is_there(&mut self, _: &Core, rip: u64, _: Task, _: &World) -> bool {
            rip == self.0
        }
        fn addresses(&mut self, _: &World) -> Option<Vec<u64>> {
            Some(vec![self.0])
        }
    }
    let mut run = start();
    let states = forward(&mut run);
    let is_at = |place: u64| {
        let all = (0..).zip(&states);
        let there = all.filter(move |(_, (s, _))| s.regs.live().map(|r| r.rip()) == Some(place));
        there.map(|(number, _)| number).collect::<Vec<u64>>()
    };
    for at in [WORK, HANDLER, CALLCHAIN, CALLCHAIN + 5] {
        let at = CODE + at;
        let found = is_at(at);
        assert!(!found.is_empty());
        let looks: [fn(u64) -> Box<dyn Look>; 2] = [
            |at| Box::new(At(at)),
            |at| Box::new(move |_: &Core, rip: u64, _: Task, _: &World| rip == at),
        ];
        for look in looks {
            for from in 0..states.len() as u64 {
                let next = found.iter().copied().find(|&number| number > from);
                assert_eq!(run.first(look(at), from), next, "{at:#x} from {from}");
                let last = found.iter().copied().rfind(|&number| number < from);
                assert_eq!(run.last(look(at), from), last, "{at:#x} before {from}");
            }
        }
    }
    // What is nowhere is not looked for.
    struct Nowhere;
    impl Look for Nowhere {
        fn is_there(&mut self, _: &Core, _: u64, _: Task, _: &World) -> bool {
            true
        }
        fn addresses(&mut self, _: &World) -> Option<Vec<u64>> {
            Some(Vec::new())
        }
    }
    assert_eq!(run.first(Box::new(Nowhere), 0), None);
}

/// The instruction that an NMI interrupts, and the handler's first one, are states of their own.
#[test]
fn an_nmi_is_a_state_and_comes_once() {
    let mut run = start();
    let plain = forward(&mut run);
    let int3 = run.entry(0, true).expect("int3 is executed");
    assert_eq!((int3.vector, int3.from_user), (Some(3), false));
    assert_eq!(run.entry(int3.number, true), None);
    assert_eq!(run.entry(int3.number, false), None);
    assert_eq!(run.entry(u64::MAX, false), Some(int3));
    assert_eq!(run.go_to(int3.number), int3.number);
    assert_eq!(place(&run), HANDLER);

    // In the handler of `int3`, behind its first instruction.
    let at = int3.number + 1;
    run.send_nmi(at);
    assert_eq!(run.go_to(at), at);
    assert_eq!(state(&run), plain[at as usize]);
    assert_eq!(run.go_to(at + 1), at + 1);
    assert_eq!(place(&run), HANDLER);
    let nmi = run.entry(int3.number, true).expect("it came");
    assert_eq!((nmi.number, nmi.vector), (at + 1, Some(2)));
    assert_eq!(run.entry(nmi.number, true), None);
    // The interrupted handler is behind the NMI's.
    let frames = run.sample().truth.frames().to_vec();
    assert_eq!(frames[1].pc, CODE + HANDLER + 7);

    let with = forward(&mut run);
    assert!(with.len() > plain.len());
    let back = with[at as usize + 1..].iter().position(|(s, _)| {
        s.regs.live().map(|r| r.rip()) == Some(CODE + HANDLER + 7)
            && s.truth.frames().len() == frames.len() - 1
    });
    assert!(back.is_some());
    (0..with.len() as u64).rev().for_each(|number| {
        assert_eq!(run.go_to(number), number);
        assert_eq!(state(&run), with[number as usize], "{number}");
    });
}
