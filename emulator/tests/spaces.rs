//! Machines with several spaces: each runs its own code, also when it is changed from elsewhere.

use unwind_sim_emulator::address_space::ObjectId;
use unwind_sim_emulator::{AddressSpace, Core, Exit, Machine, Permissions};

const PAGE: u64 = 4096;
const CODE: u64 = 0x40_0000;
const ALIAS: u64 = 0x50_0000;
/// Where the number is in the code.
const NUMBER: u64 = 1;

/// `mov eax, NUMBER; hlt`.
fn code(number: u32) -> Vec<u8> {
    [&[0xb8][..], &number.to_le_bytes(), &[0xf4]].concat()
}

/// Runs the code at an address; returns the number.
fn run_at(machine: &mut Machine, address: u64) -> u64 {
    machine.core.state.rip = address;
    machine.core.state.set_gpr(0, u64::MAX);
    assert_eq!(machine.run(100, &mut ()), Exit::Halt);
    machine.core.state.gpr(0)
}

/// A machine whose code is in private memory.
fn private() -> Machine {
    let mut memory = AddressSpace::default();
    let range = CODE..CODE + PAGE;
    memory.map(range, Permissions::ALL).expect("free");
    memory.write(CODE, &code(1)).expect("mapped");
    Machine::new(Core::new(memory))
}

/// A machine whose code is in an object, mapped at `CODE` for execution and at `ALIAS` for writing.
fn shared() -> (Machine, ObjectId) {
    let mut memory = AddressSpace::default();
    let object = memory.create_object(code(1));
    for (at, permissions) in [
        (CODE, Permissions::READ_EXECUTE),
        (ALIAS, Permissions::READ_WRITE),
    ] {
        memory
            .map_shared(at..at + PAGE, permissions, object, 0)
            .expect("free");
    }
    (Machine::new(Core::new(memory)), object)
}

/// Code at `CODE + 0x800`, in the same page, that stores `ecx` at `[rdx]`: `mov [rdx], ecx; hlt`.
fn store_by_code(machine: &mut Machine, to: u64, number: u32) {
    machine.core.state.set_gpr(1, number.into());
    machine.core.state.set_gpr(2, to);
    machine.core.state.rip = CODE + 0x800;
    assert_eq!(machine.run(100, &mut ()), Exit::Halt);
}

#[test]
fn a_fork_changes_only_its_own_code() {
    let mut machine = private();
    assert_eq!(run_at(&mut machine, CODE), 1);
    let parent = machine.core.memory.id();
    let child = machine.core.memory.fork();
    machine.core.memory.switch_to(child);
    assert_eq!(run_at(&mut machine, CODE), 1);
    machine.core.memory.write(CODE, &code(2)).expect("mapped");
    assert_eq!(run_at(&mut machine, CODE), 2);
    machine.core.memory.switch_to(parent);
    assert_eq!(run_at(&mut machine, CODE), 1);
    machine.core.memory.write(CODE, &code(3)).expect("mapped");
    machine.core.memory.switch_to(child);
    assert_eq!(run_at(&mut machine, CODE), 2);
    // A debugger writes to a space that does not run.
    let written = machine
        .core
        .memory
        .with_space(parent, |memory| memory.poke(CODE, &code(4)));
    assert_eq!(written, Some(Ok(())));
    assert_eq!(run_at(&mut machine, CODE), 2);
    machine.core.memory.switch_to(parent);
    assert_eq!(run_at(&mut machine, CODE), 4);
}

#[test]
fn code_is_decoded_once_for_each_space() {
    let mut machine = private();
    run_at(&mut machine, CODE);
    let one = machine.code_bytes();
    let parent = machine.core.memory.id();

    let child = machine.core.memory.fork();
    machine.core.memory.switch_to(child);
    run_at(&mut machine, CODE);
    let both = machine.code_bytes();
    // What the second space has decoded is kept for a third.
    assert!(both > one);

    for _ in 0..3 {
        for space in [parent, child] {
            machine.core.memory.switch_to(space);
            run_at(&mut machine, CODE);
        }
    }
    assert_eq!(machine.code_bytes(), both);

    // That of a space that has ended goes with the next switch.
    machine.core.memory.switch_to(parent);
    machine.core.memory.remove_space(child);
    let other = machine.core.memory.create();
    machine.core.memory.switch_to(other);
    machine.run(0, &mut ());
    machine.core.memory.switch_to(parent);
    run_at(&mut machine, CODE);
    let left = machine.code_bytes();
    assert!(one < left && left < both, "{one} {left} {both}");
}

/// What a second fork decodes again is kept, so that for the next ones only lists need memory.
#[test]
fn code_is_not_decoded_for_each_fork() {
    let mut machine = private();
    run_at(&mut machine, CODE);
    let parent = machine.core.memory.id();
    let mut before = machine.code_bytes();

    let growth = [1, 2, 3, 4].map(|_| {
        machine.core.memory.switch_to(parent);
        let child = machine.core.memory.fork();
        machine.core.memory.switch_to(child);
        assert_eq!(run_at(&mut machine, CODE), 1);
        let after = machine.code_bytes();
        after - std::mem::replace(&mut before, after)
    });
    assert!(growth[2] < growth[0] && growth[2] < growth[1], "{growth:?}");
    assert_eq!(growth[2], growth[3]);
}

#[test]
fn code_that_is_written_through_another_mapping_is_decoded_again() {
    let (mut machine, object) = shared();
    let memory = &mut machine.core.memory;
    memory
        .write(ALIAS + 0x800, &[0x89, 0x0a, 0xf4])
        .expect("mapped");
    assert_eq!(run_at(&mut machine, CODE), 1);
    // By the program itself, by the kernel, by a write to the file.
    for round in 0..3 {
        let number = 10 * round + 2;
        store_by_code(&mut machine, ALIAS + NUMBER, number);
        assert_eq!(run_at(&mut machine, CODE), number.into());
        let memory = &mut machine.core.memory;
        memory.write(ALIAS, &code(number + 1)).expect("mapped");
        assert_eq!(run_at(&mut machine, CODE), u64::from(number) + 1);
        let memory = &mut machine.core.memory;
        memory
            .write_object(object, 0, &code(number + 2))
            .expect("room");
        assert_eq!(run_at(&mut machine, CODE), u64::from(number) + 2);
    }
}

#[test]
fn code_that_another_space_writes_is_decoded_again() {
    let (mut machine, _) = shared();
    let store = [0x89, 0x0a, 0xf4];
    machine
        .core
        .memory
        .write(ALIAS + 0x800, &store)
        .expect("mapped");
    let parent = machine.core.memory.id();
    assert_eq!(run_at(&mut machine, CODE), 1);
    let child = machine.core.memory.fork();
    for number in 2..6 {
        machine.core.memory.switch_to(child);
        store_by_code(&mut machine, ALIAS + NUMBER, 2 * number);
        assert_eq!(run_at(&mut machine, CODE), u64::from(2 * number));
        machine.core.memory.switch_to(parent);
        assert_eq!(run_at(&mut machine, CODE), u64::from(2 * number));
        store_by_code(&mut machine, ALIAS + NUMBER, 2 * number + 1);
        machine.core.memory.switch_to(child);
        assert_eq!(run_at(&mut machine, CODE), u64::from(2 * number + 1));
    }
}

#[test]
fn a_private_mapping_of_code_follows_the_object_until_it_is_written() {
    let (mut machine, object) = shared();
    let private = 0x60_0000;
    let range = private..private + PAGE;
    machine
        .core
        .memory
        .map_private(range, Permissions::ALL, object, 0)
        .expect("free");
    assert_eq!(run_at(&mut machine, private), 1);
    machine.core.memory.write(ALIAS, &code(2)).expect("mapped");
    assert_eq!(run_at(&mut machine, private), 2);
    machine
        .core
        .memory
        .write(private, &code(3))
        .expect("mapped");
    assert_eq!(run_at(&mut machine, private), 3);
    assert_eq!(run_at(&mut machine, CODE), 2);
    machine.core.memory.write(ALIAS, &code(4)).expect("mapped");
    assert_eq!(run_at(&mut machine, private), 3);
    assert_eq!(run_at(&mut machine, CODE), 4);
}

#[test]
fn a_frame_that_is_used_again_is_not_taken_for_the_same_code() {
    let (mut machine, object) = shared();
    let parent = machine.core.memory.id();
    assert_eq!(run_at(&mut machine, CODE), 1);
    let child = machine.core.memory.fork();
    machine.core.memory.switch_to(child);
    assert_eq!(run_at(&mut machine, CODE), 1);
    // Freed, and allocated again by the first touch.
    machine
        .core
        .memory
        .truncate_object(object, 0)
        .expect("there");
    machine.core.memory.write(ALIAS, &code(2)).expect("mapped");
    assert_eq!(run_at(&mut machine, CODE), 2);
    machine.core.memory.switch_to(parent);
    assert_eq!(run_at(&mut machine, CODE), 2);
}

#[test]
fn restored_spaces_run_the_code_of_that_time() {
    let (mut machine, object) = shared();
    let parent = machine.core.memory.id();
    let child = machine.core.memory.fork();

    // Both spaces map the same object at the same address, so both must see a change of its code.
    let run_both = |machine: &mut Machine| {
        [parent, child].map(|space| {
            assert!(machine.core.memory.switch_to(space));
            run_at(machine, CODE)
        })
    };
    assert_eq!(run_both(&mut machine), [1, 1]);

    let snapshot = machine.snapshot();
    machine
        .core
        .memory
        .write_object(object, 0, &code(2))
        .expect("room");
    assert_eq!(run_both(&mut machine), [2, 2]);

    // Decoded code of the time between must be gone, in the space that runs and in the one that
    // rests.
    machine.restore(&snapshot).expect("there is a way back");
    assert_eq!(machine.core.memory.id(), child);
    assert_eq!(run_both(&mut machine), [1, 1]);

    // The child ends, and comes back with code of its own.
    let memory = &mut machine.core.memory;
    memory
        .map(CODE..CODE + PAGE, Permissions::ALL)
        .expect("in range");
    memory.write(CODE, &code(7)).expect("mapped");
    assert_eq!(run_at(&mut machine, CODE), 7);

    let with_own = machine.snapshot();
    machine.core.memory.write(CODE, &code(8)).expect("mapped");
    assert_eq!(run_both(&mut machine), [1, 8]);

    machine.core.memory.switch_to(parent);

    // A space that has ended comes back, with its number.
    machine.core.memory.remove_space(child);
    machine.restore(&with_own).expect("there is a way back");
    assert_eq!(run_both(&mut machine), [1, 7]);
}

#[test]
fn restored_code_is_decoded_again_where_it_differs() {
    for mut machine in [private(), shared().0] {
        assert_eq!(run_at(&mut machine, CODE), 1);
        let snapshot = machine.snapshot();
        let memory = &mut machine.core.memory;
        memory.poke(CODE, &code(2)).expect("mapped");
        assert_eq!(run_at(&mut machine, CODE), 2);
        machine.restore(&snapshot).expect("there is a way back");
        assert_eq!(run_at(&mut machine, CODE), 1);
    }

    // A page that shows another frame since, though neither frame has changed.
    let (mut machine, object) = shared();
    let memory = &mut machine.core.memory;
    let range = CODE..CODE + PAGE;
    memory
        .map_private(range.clone(), Permissions::ALL, object, 0)
        .expect("in range");
    // 0xb8 is `mov $N, %eax`.
    assert_eq!(memory.load_bytes(ALIAS), Some([0xb8]));
    memory.write(CODE, &code(3)).expect("mapped");
    assert_eq!(run_at(&mut machine, CODE), 3);

    let snapshot = machine.snapshot();
    machine.core.memory.discard(range).expect("in range");
    assert_eq!(run_at(&mut machine, CODE), 1);

    machine.restore(&snapshot).expect("there is a way back");
    assert_eq!(run_at(&mut machine, CODE), 3);
}

#[test]
fn code_that_is_cut_off_is_gone() {
    let (mut machine, object) = shared();
    assert_eq!(run_at(&mut machine, CODE), 1);
    machine
        .core
        .memory
        .truncate_object(object, 2)
        .expect("there");
    machine.core.state.rip = CODE;
    // Zeros are `add [rax], al`.
    assert!(matches!(machine.run(100, &mut ()), Exit::Exception(_)));
    assert_eq!(machine.core.state.rip, CODE + 5);
}
