//! Tests of the kernel's actions: programs, mappings, signals and system calls.

use super::*;
use crate::verify::NOWHERE;
use unwind_sim_emulator::linux::SystemCall;
use unwind_sim_emulator::state::Preserved;
use unwind_sim_unwind::truth::TrueKind;

/// A checker in f of [`CALLS`], after its push, and its machine.
fn in_f<'a>(engines: &'a [Engine]) -> (Checker<'a>, Machine) {
    let mut machine = machine(CALLS);
    let mut checker = checker(engines, &machine, CALLS, true);
    assert_eq!(machine.run(2, &mut checker), Exit::Limit);
    assert_eq!(machine.core.state.rip, CODE + 0x11);
    (checker, machine)
}

/// Runs to the end.
fn finish(mut checker: Checker<'_>, mut machine: Machine) -> Results {
    assert_eq!(machine.run(100, &mut checker), Exit::Halt);
    checker.finish().0
}

#[test]
fn a_program_that_begins_leaves_nothing_of_the_one_before_but_its_counts() {
    let engines = engines(vec![Rows::of(right())]);
    let (mut checker, machine) = in_f(&engines);
    assert_eq!(checker.stacks.tracker.frames().len(), 1);
    let program = super::machine(CALLS);
    checker.started(&program.core, STACK.end);
    assert!(checker.stacks.tracker.frames().is_empty());
    assert!(checker.mapped.space.mappings().is_empty());
    assert!(checker.stacks.site_count() == 0 && checker.stores.hits().is_empty());
    drop(machine);
    checker
        .mapped
        .map(mapping(CALLS), Permissions::READ_EXECUTE);
    let results = finish(checker, program);
    let truth = results.truth;
    assert_eq!((truth.calls, truth.returns), (1 + 4, 4));
    assert_eq!(results.instructions, 2 + 30);
    assert_eq!(told(&results), []);
    // The address is in another place, since the image is another one.
    assert_eq!(results.addresses, 2 + 14);
}

/// In f's loop, which runs 11 times, with all of its instructions known.
#[test]
fn rows_are_those_of_the_image_that_is_mapped_now() {
    let rows = Rows::of(right());
    let finds = rows.finds.clone();
    let engines = engines(vec![rows]);
    let (mut checker, mut machine) = in_f(&engines);

    let round = |checker: &mut Checker<'_>, machine: &mut Machine, instructions| {
        assert_eq!(machine.run(instructions, checker), Exit::Limit);
        assert_eq!(machine.core.state.rip, CODE + 0x16);
        finds.load(Relaxed)
    };

    round(&mut checker, &mut machine, 9);
    machine.core.state.set_gpr(3, 10);

    // The loop starts again as a separate block.
    round(&mut checker, &mut machine, 8);
    let known = round(&mut checker, &mut machine, 8);

    // Unmapping nothing forgets nothing.
    checker.unmapped(CODE_END..CODE_END + 0x1000);
    assert_eq!(round(&mut checker, &mut machine, 8), known);

    checker.unmapped(CODE..CODE_END);
    assert!(checker.mapped.space.mappings().is_empty());

    // From here on there is no row, and nothing to look one up in.
    let results = finish(checker, machine);
    assert_eq!(finds.load(Relaxed), known);
    let tally = results.tallies[0];
    assert_eq!((tally.checked, tally.wrong), (4 + 11 * 8, 7 * 8 + 2));

    let places: Vec<_> = results.findings.iter().map(|f| f.place).collect();
    assert!(!places.is_empty() && places.iter().all(|&place| place == NOWHERE));
}

#[test]
fn memory_without_a_file_is_a_place_from_when_it_is_code() {
    let engines = engines(vec![Rows::of(right())]);
    let (mut checker, _) = in_f(&engines);
    let jit = 0x50_0000..0x50_2000;

    let place = |checker: &mut Checker<'_>, address| checker.mapped.place(address);

    checker.mapped(jit.clone(), Permissions::READ_WRITE, None);
    assert_eq!(place(&mut checker, jit.start), NOWHERE);
    checker.protected(jit.clone(), Permissions::READ_EXECUTE, None);
    let first = place(&mut checker, jit.start);
    assert_ne!(first, NOWHERE);

    // Writable and back: the same code.
    checker.protected(jit.clone(), Permissions::READ_WRITE, None);
    checker.protected(jit.clone(), Permissions::READ_EXECUTE, None);
    assert_eq!(place(&mut checker, jit.end - 1), first);

    // After a new mapping it is other code.
    checker.mapped(jit.clone(), Permissions::READ_EXECUTE, None);
    let second = place(&mut checker, jit.start);
    assert!(second != first && second != NOWHERE);

    checker.unmapped(jit.clone());
    assert_eq!(place(&mut checker, jit.start), NOWHERE);

    checker.mapped(jit.clone(), Permissions::READ_WRITE, None);
    checker.protected(jit.clone(), Permissions::READ_EXECUTE, None);
    assert!(![first, second, NOWHERE].contains(&place(&mut checker, jit.start)));
}

/// Also in a block that has run so often that the run at its start is known.
#[test]
fn generated_code_without_a_table_is_counted_at_each_instruction() {
    let code = counting(10);
    let all = [true, false].map(|elide| {
        let rows = || Rows {
            gap: 0..code.len() as u64,
            ..Rows::of(right())
        };
        let engines = engines(vec![rows(), rows()]);

        let mut machine = machine(&code);
        let mut checker = Checker::new(&engines, Images::new(None), Setting::default(), elide);
        checker.started(&machine.core, STACK.end);
        // Without a file, as memory that a JIT compiler has written.
        checker.mapped(CODE..CODE_END, Permissions::READ_EXECUTE, None);
        assert_eq!(machine.run(1000, &mut checker), Exit::Halt);
        checker.finish().0
    });

    for results in &all {
        // All instructions of f: main has no caller.
        let counts = results
            .tallies
            .iter()
            .map(|t| (t.no_table, t.checked, t.wrong));
        assert!(counts.eq([(1 + 10 * 3 + 1, 0, 0); 2]));
    }

    let functions = all.map(|results| format!("{:?}", results.generated));
    assert_eq!(functions[0], functions[1]);
}

/// Starts g as a signal handler, further down on the same stack. Returns the interrupted pc.
fn signal(checker: &mut Checker<'_>, machine: &Machine) -> u64 {
    let interrupted = machine.core.state.preserved_at(machine.core.state.rip);
    let handler = Preserved {
        rip: CODE + 0x30,
        rsp: interrupted.rsp - 0x400,
        ..interrupted
    };
    checker.signal(11, &interrupted, &handler, CODE + 0x200);
    interrupted.rip
}

#[test]
fn a_handler_that_writes_where_it_goes_back_to_is_no_finding() {
    let engines = engines(vec![Rows::of(right())]);
    let (mut checker, machine) = in_f(&engines);
    let interrupted = signal(&mut checker, &machine);

    assert_eq!(checker.outcome.changed, claim::ALL);
    assert!(checker.walks.is_next());
    let frames = checker.stacks.tracker.frames();
    let at = frames.iter().find(|f| f.kind == TrueKind::Interrupted);
    let (slot, pc) = at.map(|f| (f.slot, f.pc)).expect("what was interrupted");
    assert_eq!(pc, interrupted);
    let outermost = frames[0];

    // What the checker sees of the handler: stores into that slot and into f's return address.
    let mut core = machine.core;
    // An address that a frame of f can have: behind its call of g.
    let to = CODE + 0x1b;
    let hit = |address, old| Hit {
        frame: 0,
        is_live: true,
        address,
        old,
        slot: Slot::ReturnAddress,
        owner: 0,
        owner_place: NOWHERE,
    };

    for (address, old) in [(slot, pc), (outermost.slot, outermost.pc)] {
        let bytes = to.to_le_bytes();
        core.memory.poke(address, &bytes).expect("the stack");
        checker.stores.hits().push(hit(address, old));
        checker.stored(&core, CODE + 0x30);
    }

    let frames = checker.stacks.tracker.frames();
    let at = frames.iter().find(|f| f.kind == TrueKind::Interrupted);
    assert_eq!(at.map(|f| f.pc), Some(to));
    assert_eq!(frames[0].pc, outermost.pc);

    let (results, _) = checker.finish();
    // A handler may change where it returns to; f's return address is not its own.
    let stores = results.stores.all.iter();
    let stores: Vec<_> = stores.map(|s| (s.address, s.owner, s.new)).collect();
    assert_eq!(stores, [(outermost.slot, CODE + 0x30, to)]);
}

/// f is interrupted after g has returned once. The row of the call of g must not be used for f's
/// slots, since it describes another place in f.
#[test]
fn a_call_that_returned_says_nothing_of_a_handlers_caller() {
    let engines = engines(vec![Rows::of(right())]);
    let (mut checker, mut machine) = in_f(&engines);
    assert_eq!(machine.run(8, &mut checker), Exit::Limit);
    assert_eq!(machine.core.state.rip, CODE + 0x1e);
    let saved = SP - 16..SP - 8;
    let set = checker.outcome.set;
    checker.store(&machine.core, set, saved.clone());
    assert_eq!(checker.stores.hits().len(), 1, "of f while it runs");
    checker.stores.hits().clear();
    signal(&mut checker, &machine);
    assert_eq!(checker.stacks.site_count(), 2);
    checker.store(&machine.core, set, saved);
    assert!(checker.stores.hits().is_empty());
}

/// A system call writes into the slot of rbx.
#[test]
fn what_the_kernel_stores_is_the_calls() {
    // f pushes rbx and makes a system call, with main as its caller.
    const CODE_OF_CALL: &[u8] = &[
        0xe8, 1, 0, 0, 0,    // 00 call f
        0xf4, // 05 hlt
        0x53, // 06 f: push rbx
        0x0f, 0x05, // 07 syscall
        0x5b, // 09 pop rbx
        0xc3, // 0a ret
    ];

    let rows = Rows::of(vec![
        (0, Rule::OUTERMOST),
        (6, above(8)),
        (7, above(16).with_saved(Reg::Rbx, Value::at_cfa(-16))),
        (0xa, above(8)),
    ]);

    let engines = engines(vec![rows]);
    let mut machine = machine(CODE_OF_CALL);
    let mut checker = checker(&engines, &machine, CODE_OF_CALL, true);
    let exit = machine.run(100, &mut checker);
    assert!(matches!(exit, Exit::Kernel(_)), "{exit:?}");

    // rsp is where f has saved rbx.
    let slot = machine.core.state.gpr(4);
    let memory = &mut machine.core.memory;
    memory.poke(slot, &5u64.to_le_bytes()).expect("the stack");

    // The machine stopped at the call, and this test is its kernel.
    let call = SystemCall {
        number: 0,
        name: "read",
        args: [0, slot, 8, 0, 0, 0],
        result: 8,
        returns: true,
        before: machine.core.state.preserved_at(machine.core.state.rip),
    };

    checker.system_call(&call, &machine.core);
    assert_eq!(checker.outcome.changed, claim::ALL);

    let results = finish(checker, machine);
    let store = &results.stores.all[..];
    assert_eq!(store.len(), 1, "{store:?}");
    let writer = store[0].writer;
    assert_eq!((writer.call, writer.address), (Some("read"), CODE + 7));

    let values = (store[0].slot, store[0].old, store[0].new, store[0].first);
    assert_eq!(values, (Slot::Saved(0), 0, 5, 2));
    assert_eq!(results.truth.instructions, results.instructions);

    // f pops a value that is not its caller's.
    let found: Vec<_> = told(&results).iter().map(|t| (t.1, t.2)).collect();
    let at = |offset| (Check::Instruction, offset);
    assert_eq!(found, [at(9), at(0xa)]);
}
