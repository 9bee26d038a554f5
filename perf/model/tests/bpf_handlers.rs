//! Handlers of samples: what the shipped examples do, and the rules of attaching, by the numbers
//! of the requirements (seed 003: BPF at samples).

use unwind_sim_perf_data::callchain::{
    PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER, PERF_CONTEXT_USER_DEFERRED,
};
use unwind_sim_perf_data::regs::PERF_REG_X86_IP;
use unwind_sim_perf_model::bpf::maps::{Storage, kind};
use unwind_sim_perf_model::bpf::stackmap::{self, jhash2};
use unwind_sim_perf_model::bpf::{
    Attachment, Context, Errno, EventTraits, FaultKind, Guard, Handlers, Insn, Limits, MapDef,
    Object, PerfEventData, PlainEnv, SampleChain, Task, Verdict, raw_payload,
};

const IPRANGE: &[u8] = include_bytes!("../corpus/bpf/iprange.bpf.o");
const PROFILE: &[u8] = include_bytes!("../corpus/bpf/profile.bpf.o");
const LINES: &[u8] = include_bytes!("../corpus/bpf/lines.bpf.o");

fn load(bytes: &[u8]) -> Handlers {
    let object = Object::parse(bytes).unwrap();
    let mut handlers = Handlers::load(&object, Limits::default()).unwrap();
    handlers.maps.open_outputs(1);
    handlers
}

/// A handler that returns a number.
fn returns(value: i32) -> Handlers {
    let insns = [Insn::new(0xb7, 0, 0, 0, value), Insn::EXIT];
    let object = Object::from_insns("perf_event", &insns, &[]);
    Handlers::load(&object, Limits::default()).unwrap()
}

fn at(ip: u64, period: u64) -> PerfEventData {
    let mut data = PerfEventData::new();
    data.set_reg(PERF_REG_X86_IP, ip);
    data.set_sample_period(period);
    data
}

#[test]
fn r003_4_a_second_program_is_refused_and_the_first_stays() {
    let handlers = returns(0);
    let mut attachment = Attachment::default();
    assert_eq!(attachment.set(&handlers, 0), Ok(()));
    assert_eq!(attachment.set(&handlers, 0), Err(Errno::Eexist));
    assert_eq!(attachment.program(), Some(0));
    attachment.clear();
    assert_eq!(attachment.set(&handlers, 0), Ok(()));
}

#[test]
fn r003_4_events_with_another_handler_and_programs_for_others_are_refused() {
    let handlers = returns(0);
    let breakpoint = EventTraits {
        has_own_handler: true,
        ..EventTraits::default()
    };
    let refused = Attachment::new(breakpoint).set(&handlers, 0);
    assert_eq!(refused, Err(Errno::Einval));
    let insns = [Insn::new(0xb7, 0, 0, 0, 0), Insn::EXIT];
    let other = Object::from_insns("tracepoint/sched/sched_switch", &insns, &[]);
    let other = Handlers::load(&other, Limits::default()).unwrap();
    assert_eq!(Attachment::default().set(&other, 0), Err(Errno::Einval));
}

#[test]
fn precise_events_need_a_whole_chain_for_programs_that_walk_stacks() {
    let profile = load(PROFILE);
    let range = load(IPRANGE);
    let full = EventTraits {
        precise_ip: 2,
        has_callchain: true,
        ..EventTraits::default()
    };
    let none = EventTraits {
        has_callchain: false,
        ..full
    };
    let half = EventTraits {
        exclude_callchain_user: true,
        ..full
    };

    // A program that takes stacks needs both parts of the chain, the other one none.
    for (event, expected) in [
        (full, Ok(())),
        (none, Err(Errno::Eproto)),
        (half, Err(Errno::Eproto)),
    ] {
        assert_eq!(Attachment::new(event).set(&profile, 0), expected);
        assert_eq!(Attachment::new(event).set(&range, 0), Ok(()));
    }
}

#[test]
fn r003_5_zero_drops_the_sample_and_anything_else_keeps_it() {
    for (value, expected) in [
        (0, Verdict::Drop),
        (1, Verdict::Keep(1)),
        (-1, Verdict::Keep(u32::MAX)),
    ] {
        let mut handlers = returns(value);
        let mut attachment = Attachment::default();
        attachment.set(&handlers, 0).unwrap();
        let mut guard = Guard::default();
        let mut env = PlainEnv::default();
        let verdict = attachment.overflow(&mut handlers, &mut guard, &mut env, &at(1, 1));
        assert_eq!(verdict, expected);
        // Inside another program nothing runs, whatever it would return.
        assert!(guard.enter());
        let verdict = attachment.overflow(&mut handlers, &mut guard, &mut env, &at(1, 1));
        assert_eq!(verdict, Verdict::Recursion);
    }
}

#[test]
fn r003_5_what_a_program_writes_elsewhere_is_there_though_the_sample_is_dropped() {
    let mut handlers = load(IPRANGE);
    let mut attachment = Attachment::default();
    attachment.set(&handlers, 0).unwrap();
    let mut env = PlainEnv::default();
    let data = at(0xffff_ffff_8121_4c3c, 1);
    let verdict = attachment.overflow(&mut handlers, &mut Guard::default(), &mut env, &data);
    assert_eq!(verdict, Verdict::Drop);
    assert_eq!(env.outputs.len(), 1);
}

#[test]
fn r003_6_the_range_is_half_open_and_the_payload_is_the_seeds() {
    let mut handlers = load(IPRANGE);
    let mut env = PlainEnv::default();
    let (start, end) = (0xffff_ffff_8121_4b90_u64, 0xffff_ffff_8121_4cd0);

    // Right before the range, at both ends of it, right behind it, and in the middle.
    for ip in [start - 1, start, end - 1, end, 0xffff_ffff_8121_4c3c] {
        let data = at(ip, 1);
        handlers
            .run(0, &mut env, Context::PerfEvent(&data))
            .unwrap();
    }
    let ips: Vec<u64> = env
        .outputs
        .iter()
        .map(|(map, cpu, data)| {
            assert_eq!((map.as_str(), *cpu), ("channel", 0));
            u64::from_le_bytes(data.as_slice().try_into().unwrap())
        })
        .collect();
    assert_eq!(ips, [start, end - 1, 0xffff_ffff_8121_4c3c]);
    // The size before it says 12: eight bytes of address and four of padding.
    assert_eq!(
        raw_payload(&env.outputs[2].2),
        [0x3c, 0x4c, 0x21, 0x81, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]
    );
}

#[test]
fn r003_7_the_counts_of_stacks_sum_up_to_the_samples() {
    let mut handlers = load(PROFILE);
    let mut env = PlainEnv::default();
    let mut samples = 0;
    for (count, pid, kernel, user) in [
        (72, 10, vec![], vec![0x40_1000, 0x40_2000]),
        (75, 11, vec![0xffff_ffff_8100_0010], vec![0x40_1000]),
        (
            1,
            10,
            vec![0xffff_ffff_8100_0010],
            vec![0x40_1000, 0x40_2000],
        ),
    ] {
        env.task = Task {
            pid,
            tid: pid + 1,
            comm: *b"a name of 15 byt",
            ..Task::default()
        };

        // What the handler sees of the task and its stacks at each sample.
        (env.kernel_stack, env.user_stack) = (kernel, user);
        for _ in 0..count {
            let data = at(0x40_1000, 1);
            let outcome = handlers
                .run(0, &mut env, Context::PerfEvent(&data))
                .unwrap();
            assert_eq!(outcome.value(), 0);
            samples += 1;
        }
    }
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let counts = handlers.maps.named("counts").unwrap();
    let entries = counts.dump();
    let mut found: Vec<u64> = entries.iter().map(|(_, values)| word(values[0])).collect();
    found.sort_unstable();
    assert_eq!(found, [1, 72, 75]);
    assert_eq!(found.iter().sum::<u64>(), samples);

    // The handler counts what it could not store.
    let lost = handlers.maps.named(".bss").unwrap();
    assert_eq!(lost.value(0).map(word), Some(0));

    let Storage::Stacks(stacks) = &handlers.maps.named("stacks").unwrap().storage else {
        panic!("not stacks");
    };
    for (key, values) in &entries {
        let user = word(&key[8..]) as u32;
        assert!(stacks.get(user).unwrap().starts_with(&[0x40_1000]));
        let kernel = word(key) as i64;
        if word(values[0]) == 72 {
            // A sample in user mode has no kernel stack.
            assert_eq!(kernel, -14);
        } else {
            let stored = stacks.get(kernel as u32).unwrap();
            assert_eq!(stored, [0xffff_ffff_8100_0010]);
        }

        // The name is cut so that it ends with a NUL.
        assert_eq!(&key[20..36], b"a name of 15 by\0");
    }

    // Three stacks are stored once each; the kernel's is missing in 72 samples.
    let stats = stacks.stats();
    assert_eq!(
        (stats.stored, stats.collisions, stats.too_short),
        (3, 0, 72)
    );
}

/// `r0 = *(size *)(r1 + offset)` and the end.
/// `get_branch_snapshot` of `size` bytes: its result.
fn snapshot(branches: Option<Vec<u8>>, size: i32, flags: i32) -> i64 {
    let insns = [
        Insn::new(0xbf, 1, 10, 0, 0),
        Insn::new(0x07, 1, 0, 0, -48),
        Insn::new(0xb7, 2, 0, 0, size),
        Insn::new(0xb7, 3, 0, 0, flags),
        Insn::new(0x85, 0, 0, 0, 176),
        Insn::EXIT,
    ];
    let object = Object::from_insns("perf_event", &insns, &[]);
    let mut handlers = Handlers::load(&object, Limits::default()).unwrap();
    let mut env = PlainEnv {
        branches,
        ..PlainEnv::default()
    };
    let outcome = handlers.run(0, &mut env, Context::PerfEvent(&at(1, 1)));
    outcome.unwrap().r0 as i64
}

/// `bpf_get_branch_snapshot` of `kernel/trace/bpf_trace.c`.
#[test]
fn r002_9_a_snapshot_has_whole_branches() {
    let branches = || Some((0..96).collect());
    assert_eq!(snapshot(branches(), 48, 0), 48);
    assert_eq!(snapshot(branches(), 47, 0), 24);
    assert_eq!(snapshot(branches(), 23, 0), -2);
    assert_eq!(snapshot(branches(), 48, 1), -22);
    assert_eq!(snapshot(None, 48, 0), -2);
}

fn context_read(code: u8, offset: i16) -> Handlers {
    let insns = [Insn::new(code, 0, 1, offset, 0), Insn::EXIT];
    let object = Object::from_insns("perf_event", &insns, &[]);
    Handlers::load(&object, Limits::default()).unwrap()
}

#[test]
fn r003_8_registers_are_read_whole_and_period_and_address_in_parts() {
    let mut data = PerfEventData::new();

    // Every word is different, so that a wrong offset gives a wrong value.
    for offset in (0..184).step_by(8) {
        data.set_word(offset, 0x0807_0605_0403_0201 + offset as u64);
    }

    // Loads of one, two, four and eight bytes, at all offsets and around both ends.
    for (code, size) in [(0x71, 1_u64), (0x69, 2), (0x61, 4), (0x79, 8)] {
        for offset in -8..200_i16 {
            let mut handlers = context_read(code, offset);
            let mut env = PlainEnv::default();
            let result = handlers.run(0, &mut env, Context::PerfEvent(&data));
            let is_allowed = (0..184).contains(&offset)
                && (offset as u64).is_multiple_of(size)
                && (size == 8 || offset >= 168);
            match result {
                Ok(outcome) => {
                    assert!(is_allowed, "{size} at {offset}");
                    let word = 0x0807_0605_0403_0201 + (offset as u64 & !7);
                    let bytes = &word.to_le_bytes()[offset as usize % 8..][..size as usize];
                    assert_eq!(&outcome.r0.to_le_bytes()[..size as usize], bytes);
                }
                Err(fault) => {
                    assert!(!is_allowed, "{size} at {offset}: {fault}");
                    let offset = i64::from(offset);
                    assert_eq!(fault.kind, FaultKind::Context { offset, size });
                }
            }
        }
    }
}

#[test]
fn r003_8_nothing_of_the_context_can_be_written() {
    let insns = [
        Insn::new(0xb7, 0, 0, 0, 0),
        Insn::new(0x7b, 1, 0, 168, 0),
        Insn::EXIT,
    ];
    let object = Object::from_insns("perf_event", &insns, &[]);
    let mut handlers = Handlers::load(&object, Limits::default()).unwrap();
    let data = at(1, 1);
    let fault = handlers
        .run(0, &mut PlainEnv::default(), Context::PerfEvent(&data))
        .unwrap_err();
    assert!(matches!(fault.kind, FaultKind::ReadOnly(_)), "{fault}");
    assert_eq!(fault.insn, 1);
}

#[test]
fn r003_11_samples_are_counted_by_cache_line() {
    let mut handlers = load(LINES);
    let mut env = PlainEnv::default();
    for ip in [0x1000, 0x103f, 0x1040, 0x107f, 0x1000] {
        let data = at(ip, 10_000);
        let outcome = handlers
            .run(0, &mut env, Context::PerfEvent(&data))
            .unwrap();
        assert_eq!(outcome.value(), 1);
    }
    let lines = handlers.maps.named("lines").unwrap();
    let found: Vec<(u64, u64, u64)> = lines
        .dump()
        .iter()
        .map(|(key, values)| {
            let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
            let (samples, period) = values[0].split_at(8);
            (word(key), word(samples), word(period))
        })
        .collect();
    assert_eq!(found, [(0x1000, 3, 30_000), (0x1040, 2, 20_000)]);
}

#[test]
fn r003_12_the_program_sees_the_samples_own_thread() {
    let insns = [Insn::new(0x85, 0, 0, 0, 14), Insn::EXIT];
    let object = Object::from_insns("perf_event", &insns, &[]);
    let mut handlers = Handlers::load(&object, Limits::default()).unwrap();
    for (pid, tid) in [(1, 1), (10, 11), (u32::MAX, 7)] {
        let mut env = PlainEnv::default();
        (env.task.pid, env.task.tid) = (pid, tid);
        let data = at(1, 1);
        let outcome = handlers
            .run(0, &mut env, Context::PerfEvent(&data))
            .unwrap();
        assert_eq!(outcome.r0, u64::from(pid) << 32 | u64::from(tid));
    }
}

#[test]
fn r003_14_one_handler_serves_events_of_any_kind() {
    let mut handlers = load(IPRANGE);
    let mut env = PlainEnv::default();
    for event in [
        EventTraits::default(),
        EventTraits {
            precise_ip: 3,
            ..EventTraits::default()
        },
    ] {
        let mut attachment = Attachment::new(event);
        attachment.set(&handlers, 0).unwrap();
        let data = at(0xffff_ffff_8121_4b90, 1);
        attachment.overflow(&mut handlers, &mut Guard::default(), &mut env, &data);
    }
    assert_eq!(env.outputs.len(), 2);
}

/// A handler that returns `get_stackid(ctx, stacks, flags)`.
fn stackid(flags: u64, frames: u32, entries: u32) -> Handlers {
    let map = MapDef {
        name: "stacks".to_owned(),
        kind: kind::STACK_TRACE,
        key_size: 4,
        value_size: 8 * frames,
        max_entries: entries,
        flags: 0,
        initial: Vec::new(),
        inner: Vec::new(),
    };
    let insns = [
        Insn::new(0x18, 2, 1, 0, 0),
        Insn::new(0, 0, 0, 0, 0),
        Insn::new(0xb7, 3, 0, 0, flags as i32),
        Insn::new(0x85, 0, 0, 0, 27),
        Insn::EXIT,
    ];
    let object = Object::from_insns("perf_event", &insns, &[map]);
    Handlers::load(&object, Limits::default()).unwrap()
}

fn run_stackid(handlers: &mut Handlers, env: &mut PlainEnv) -> i64 {
    let data = at(1, 1);
    let outcome = handlers.run(0, env, Context::PerfEvent(&data));
    outcome.unwrap().r0 as i64
}

#[test]
fn stack_ids_are_the_hash_and_collisions_are_errors_or_replace() {
    // Two buckets: of three stacks two want the same.
    let stacks: Vec<Vec<u64>> = (1..=3).map(|ip| vec![ip * 0x1000, 7]).collect();
    let bucket = |stack: &[u64]| i64::from(jhash2(stack) & 1);

    for flags in [0, stackmap::REUSE_STACKID, stackmap::FAST_STACK_CMP] {
        // Room for four frames, in two buckets.
        let mut handlers = stackid(flags, 4, 2);
        let mut held: [Option<&Vec<u64>>; 2] = [None, None];
        for stack in stacks.iter().chain(&stacks) {
            let mut env = PlainEnv {
                kernel_stack: stack.clone(),
                ..PlainEnv::default()
            };

            let id = run_stackid(&mut handlers, &mut env);
            let place = &mut held[bucket(stack) as usize];
            let both = place.is_some_and(|held| held != stack);
            let used = held.iter().flatten().count();
            let place = &mut held[bucket(stack) as usize];

            if both && flags != stackmap::REUSE_STACKID {
                assert_eq!(id, -17);
            } else if both && used == 2 {
                // The new bucket is taken before the old one is given back.
                assert_eq!(id, -12);
            } else {
                assert_eq!(id, bucket(stack));
                *place = Some(stack);
            }
        }
    }
}

#[test]
fn stacks_are_cut_to_the_value_and_short_ones_are_bad_addresses() {
    // Ten frames, of which an entry of the map holds four.
    let mut env = PlainEnv {
        kernel_stack: (1..=10).map(|ip| ip * 16).collect(),
        ..PlainEnv::default()
    };

    for (skip, expected) in [
        (0, Some(1..=4)),
        (6, Some(7..=10)),
        (7, Some(8..=10)),
        (10, None),
    ] {
        let mut handlers = stackid(skip, 4, 64);
        let id = run_stackid(&mut handlers, &mut env);
        let Storage::Stacks(stacks) = &handlers.maps.get(0).unwrap().storage else {
            panic!("not stacks");
        };
        match expected {
            Some(range) => {
                let frames: Vec<u64> = range.map(|ip| ip * 16).collect();
                assert_eq!(stacks.get(id as u32).unwrap(), frames, "skip {skip}");
            }
            None => assert_eq!(id, -14),
        }
    }

    // No such flag for ids: USER_BUILD_ID, and none above.
    for flags in [stackmap::USER_BUILD_ID, 1 << 12] {
        let mut handlers = stackid(flags, 4, 64);
        assert_eq!(run_stackid(&mut handlers, &mut env), -22);
    }
}

#[test]
fn r000_13_a_deferred_chain_leaves_no_user_stack_and_its_cookie_in_the_kernels() {
    let cookie = 0x3_0000_0001;
    let words = vec![
        PERF_CONTEXT_KERNEL,
        0xffff_ffff_8100_0010,
        PERF_CONTEXT_USER_DEFERRED,
        cookie,
    ];
    let mut env = PlainEnv {
        user_stack: vec![0x40_1000],
        sample_chain: SampleChain::Words(words.clone()),
        ..PlainEnv::default()
    };

    // The user part is not there, and the kernel's has the cookie as if it were a frame.
    let mut user = stackid(stackmap::USER_STACK, 8, 64);
    assert_eq!(run_stackid(&mut user, &mut env), -14);
    let mut kernel = stackid(0, 8, 64);
    let id = run_stackid(&mut kernel, &mut env);
    let Storage::Stacks(stacks) = &kernel.maps.get(0).unwrap().storage else {
        panic!("not stacks");
    };
    assert_eq!(stacks.get(id as u32).unwrap(), words);
    // An event without a chain of its own is walked at once, deferred or not.
    env.sample_chain = SampleChain::NotSampled;
    assert!(run_stackid(&mut user, &mut env) >= 0);
    // And one whose chain has a user part gives it with its marker.
    let whole = [
        PERF_CONTEXT_KERNEL,
        0xffff_ffff_8100_0010,
        PERF_CONTEXT_USER,
        0x40_1000,
    ];
    env.sample_chain = SampleChain::Words(whole.to_vec());
    let id = run_stackid(&mut user, &mut env);
    let Storage::Stacks(stacks) = &user.maps.get(0).unwrap().storage else {
        panic!("not stacks");
    };
    assert_eq!(stacks.get(id as u32).unwrap(), whole[2..]);
}
