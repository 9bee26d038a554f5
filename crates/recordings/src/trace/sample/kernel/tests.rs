//! Every field round-trips, each limit is exact, and unknown bits are rejected.

use super::*;
use unwind_sim_unwind::regs::Reg;

const NOTHING: StackInfo = StackInfo {
    kind: StackType::Unknown,
    begin: 0,
    end: 0,
    next_sp: 0,
};

fn stack(kind: StackType, begin: u64) -> StackInfo {
    StackInfo {
        kind,
        begin,
        end: begin + 0x4000,
        next_sp: begin + 8,
    }
}

fn written(kernel: &KernelSample) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_kernel(kernel, &mut bytes);
    bytes
}

fn reread(bytes: &[u8]) -> Result<KernelSample, &'static str> {
    let mut records = Cursor::new(bytes, 0);
    let kernel = read(&mut records).map_err(|bad| bad.what)?;
    assert_eq!(records.left(), 0, "all is read");
    Ok(kernel)
}

#[track_caller]
fn comes_back(kernel: &KernelSample) {
    assert_eq!(reread(&written(kernel)).as_ref(), Ok(kernel));
}

/// A kernel part with nothing but a task modified by `change`.
fn of_task(change: impl FnOnce(&mut Task)) -> KernelSample {
    let mut kernel = KernelSample::default();
    kernel.task.is_current = false;
    change(&mut kernel.task);
    kernel
}

#[test]
fn each_part_of_a_task_comes_back_by_itself() {
    comes_back(&of_task(|_| {}));
    comes_back(&of_task(|task| task.is_current = true));
    comes_back(&of_task(|task| task.on_other_cpu = true));
    comes_back(&of_task(|task| {
        (task.is_current, task.on_other_cpu) = (true, true);
    }));
    comes_back(&of_task(|task| task.thread_sp = u64::MAX));
    comes_back(&of_task(|task| task.top_padding = 16));

    for encoding in Encoding::ALL {
        comes_back(&of_task(|task| task.encoding = Some(encoding)));
    }

    comes_back(&of_task(|task| {
        // At falling addresses, so that the differences to the stack before are negative, too.
        let kinds = StackType::ALL.into_iter().zip(0u64..);
        let stacks = kinds.map(|(kind, i)| stack(kind, 0xffff_c900_0000_0000 - i * 0x1_0000));
        task.stacks = stacks.collect();
    }));
    comes_back(&of_task(|task| {
        // Not as many of the one as of the other, because the two counts stand next to each other.
        task.graph = vec![
            GraphReturn { ret: 1, retp: 2 },
            GraphReturn { ret: 3, retp: 4 },
        ];
        task.rethooks = vec![Rethook {
            ret_addr: 5,
            frame: 6,
        }];
    }));

    // The version is not written: a reader takes it from the release.
    let release = "6.1.0-50-cloud-amd64";
    let mut named = of_task(|task| task.version = Version::from_name(release));
    named.release = release.into();
    comes_back(&named);
}

#[test]
fn each_part_of_a_state_comes_back_by_itself() {
    let orc = OrcState::default();
    let fp = FpState::default();
    let (at, start) = (RegsPtr::At(0xffff_c900_0000_3f58), RegsPtr::Start);
    // Two numbers, so that they cannot change places.
    let cursors = Cursors {
        graph_idx: 3,
        rethook: 4,
    };
    let stack = stack(StackType::Irq, 0xffff_c900_0001_0000);

    // One state for each field, so that no field can stand in for another.
    let mut states = vec![
        State::Orc(orc),
        State::Orc(OrcState { stack, ..orc }),
        State::Orc(OrcState {
            stack_mask: 6,
            ..orc
        }),
        State::Orc(OrcState { cursors, ..orc }),
        State::Orc(OrcState { error: true, ..orc }),
        State::Orc(OrcState {
            signal: true,
            ..orc
        }),
        State::Orc(OrcState {
            full_regs: true,
            ..orc
        }),
        State::Orc(OrcState { sp: 1, ..orc }),
        State::Orc(OrcState { bp: 2, ..orc }),
        State::Orc(OrcState { ip: 3, ..orc }),
        State::Fp(fp),
        State::Fp(FpState { stack, ..fp }),
        State::Fp(FpState {
            stack_mask: 6,
            ..fp
        }),
        State::Fp(FpState { cursors, ..fp }),
        State::Fp(FpState { error: true, ..fp }),
        State::Fp(FpState {
            got_irq: true,
            ..fp
        }),
        State::Fp(FpState { bp: 1, ..fp }),
        State::Fp(FpState { orig_sp: 2, ..fp }),
        State::Fp(FpState { ip: 3, ..fp }),
        State::Fp(FpState { next_bp: 4, ..fp }),
        State::Guess(GuessState::default()),
        State::Guess(GuessState {
            stack,
            stack_mask: 2,
            sp: 9,
        }),
    ];

    for regs in [at, start] {
        states.push(State::Orc(OrcState { regs, ..orc }));
        let prev_regs = regs;
        states.push(State::Orc(OrcState { prev_regs, ..orc }));
        states.push(State::Fp(FpState { regs, ..fp }));
    }

    for state in &states {
        let mut one = of_task(|_| {});
        one.states = vec![*state];
        comes_back(&one);
    }

    // All together: each stack is encoded relative to the previous one.
    let mut all = of_task(|task| task.stacks = vec![stack]);
    all.states = states;
    comes_back(&all);
}

#[test]
fn each_part_of_user_space_comes_back_by_itself() {
    let mut regs = Regs::frame(0x40_1000, 0x7ffe_0000, 7);
    regs.set(Reg::Cs, 0x33);
    for regs in [None, Some(regs)] {
        for uprobe in [None, Some([0x55, 0x48, 0x89, 0xe5])] {
            let mut kernel = of_task(|_| {});
            let pid = 77;
            kernel.user = Some(UserSpace {
                regs,
                pid,
                uprobe,
                ..UserSpace::default()
            });
            comes_back(&kernel);
        }
    }
}

#[test]
fn the_user_boundary_comes_back_with_and_without_its_frame() {
    for pushed_at in [None, Some(0xffff_c900_0000_3fd8)] {
        let mut kernel = of_task(|_| {});
        let (ip, sp) = (0x40_1000, 0x7ffe_0000);
        kernel.boundary = Some(UserBoundary { ip, sp, pushed_at });
        comes_back(&kernel);
        kernel.user = Some(UserSpace {
            pid: 77,
            ..UserSpace::default()
        });
        comes_back(&kernel);
        // All bits of the head.
        (kernel.task.is_current, kernel.task.on_other_cpu) = (true, true);
        comes_back(&kernel);
    }
}

#[test]
fn limits_hold_in_both_directions_and_are_not_one_too_low() {
    // Any state will do: the limit is on their number.
    let states = |n| {
        let mut kernel = of_task(|_| {});
        kernel.states = vec![State::Guess(GuessState::default()); n];
        kernel
    };

    let stacks = |n| of_task(|task| task.stacks = vec![NOTHING; n]);
    let taken = |graph, rethooks| {
        of_task(|task| {
            task.graph = vec![GraphReturn { ret: 1, retp: 2 }; graph];
            let hook = Rethook {
                ret_addr: 1,
                frame: 2,
            };
            task.rethooks = vec![hook; rethooks];
        })
    };
    let release = |n: usize| KernelSample {
        release: "x".repeat(n),
        ..of_task(|_| {})
    };

    for most in [
        states(256),
        stacks(64),
        taken(256, 0),
        taken(0, 256),
        // 256 together.
        taken(156, 100),
        release(4096),
    ] {
        assert!(check(&most).is_ok());
        comes_back(&most);
    }

    for (more, what) in [
        (states(257), "too many states"),
        (stacks(65), "too many stacks"),
        (taken(257, 0), "too many return addresses taken by tracers"),
        (taken(0, 257), "too many return addresses taken by tracers"),
        // Both kinds are counted together.
        (
            taken(157, 100),
            "too many return addresses taken by tracers",
        ),
        (
            release(4097),
            "a name or field is longer than the format allows",
        ),
    ] {
        assert!(check(&more).is_err(), "{what}");
        assert_eq!(reread(&written(&more)), Err(what));
    }
}

#[test]
fn unknown_values_are_refused() {
    // An empty release, then the task's head, encoding, sp, padding and four counts.
    let task = |head, encoding| [0, head, encoding, 0, 0, 0, 0, 0, 0];
    assert!(reread(&task(3, 0)).is_ok());

    // 0x10 qualifies what 8 announces.
    for head in [0x10, 0x13, 0x20, 0x40] {
        assert_eq!(reread(&task(head, 0)), Err("a task has unknown bits"));
    }

    let encodings = Encoding::ALL.len() as u8;
    assert!(reread(&task(0, encodings)).is_ok());
    let what = "ORC entries of an unknown encoding";
    assert_eq!(reread(&task(0, encodings + 1)), Err(what));

    let user = |bytes: &[u8]| reread(&[&task(4, 0)[..], bytes].concat());
    assert!(user(&[0, 7]).is_ok());
    for bits in [4, 8, 0x40] {
        assert_eq!(user(&[bits, 7]), Err("user space has unknown bits"));
    }

    let mut masks = vec![1, 7];
    // Registers are numbered from 0 to 18.
    put(&mut masks, 1 << 19);
    assert_eq!(user(&masks), Err("registers that do not exist"));

    // Types of stacks are numbered from 0 to 10.
    let one_stack = [0, 0, 0, 0, 0, 1, 11, 0, 0, 0, 0, 0, 0];
    assert_eq!(reread(&one_stack), Err("a stack of unknown type"));
    let one_state = [0, 0, 0, 0, 0, 0, 0, 0, 1, 3];
    assert_eq!(reread(&one_state), Err("a state of an unknown unwinder"));
}

#[test]
fn the_size_of_a_kernel_sample_is_counted() {
    let empty = size_of::<KernelSample>() as u64;
    assert_eq!(weight(&of_task(|_| {})), empty);
    let stacks = of_task(|task| task.stacks = vec![NOTHING; 3]);
    assert_eq!(weight(&stacks), empty + 3 * size_of::<StackInfo>() as u64);
    let taken = of_task(|task| {
        task.graph = vec![GraphReturn { ret: 1, retp: 2 }; 2];
        let hook = Rethook {
            ret_addr: 1,
            frame: 2,
        };
        task.rethooks = vec![hook; 3];
    });
    assert_eq!(weight(&taken), empty + 5 * 16);
    let mut states = of_task(|_| {});
    states.states = vec![State::Guess(GuessState::default()); 2];
    states.release = "6.1".into();
    assert_eq!(weight(&states), empty + 2 * size_of::<State>() as u64 + 3);
}
