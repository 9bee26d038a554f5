//! Random code that changes its memory and itself, with random snapshots of the machine: a restored
//! machine must equal a copy made at that time, and so must everything it does afterwards.

use crate::random::Random;
use unwind_sim_emulator::{AddressSpace, Core, Exit, Machine, Permissions, RestoreError};

const PAGE: u64 = 4096;
/// Instructions that change themselves, followed by data with holes.
const CODE: u64 = 0x40_0000;
const CODE_PAGES: u64 = 4;
const DATA: u64 = 0x50_0000;
const DATA_PAGES: u64 = 8;
/// Maximum number of snapshots held.
const HELD_MAX: usize = 6;

/// Everything visible of a machine.
#[derive(PartialEq, Debug)]
struct MachineImage {
    gpr: Vec<u64>,
    rest: (u64, u64, u32, u64, usize),
    xmm: [u128; 16],
    fx: [u8; 512],
    /// The results of `peek` and `fetch`, page by page.
    memory: Vec<(Option<Vec<u8>>, bool)>,
    areas: String,
}

fn seen(machine: &Machine) -> MachineImage {
    let core = &machine.core;
    let memory = &core.memory;
    let pages = (0..CODE_PAGES).map(|n| CODE + n * PAGE);
    let pages = pages.chain((0..DATA_PAGES).map(|n| DATA + n * PAGE));

    // `peek` and `fetch` see different permissions, so both are asked.
    let page = |at| {
        let mut bytes = vec![0; PAGE as usize];
        let there = memory.peek(at, &mut bytes).is_ok();
        (there.then_some(bytes), memory.fetch(at, &mut [0]).is_ok())
    };

    MachineImage {
        gpr: (0..16).map(|n| core.state.gpr(n)).collect(),
        rest: (
            core.state.rip,
            core.state.rflags(),
            core.state.mxcsr,
            machine.executed(),
            memory.pages_in_use(),
        ),
        xmm: core.state.vectors.lower(),
        fx: core.fx_image(),
        memory: pages.map(page).collect(),
        areas: format!(
            "{:?}",
            memory
                .areas()
                .map(|(r, a)| (r, a.permissions()))
                .collect::<Vec<_>>()
        ),
    }
}

fn machine(random: &mut Random) -> Machine {
    let mut memory = AddressSpace::default();
    let code = CODE..CODE + CODE_PAGES * PAGE;
    memory
        .map(code.clone(), Permissions::ALL)
        .expect("user space");
    let data = DATA..DATA + DATA_PAGES * PAGE;
    memory
        .map(data, Permissions::READ_WRITE)
        .expect("user space");
    let bytes: Vec<u8> = (0..CODE_PAGES * PAGE / 8)
        .flat_map(|_| random.bits().to_le_bytes())
        .collect();
    memory.poke(CODE, &bytes).expect("mapped");
    let mut machine = Machine::new(Core::new(memory));
    scatter(&mut machine, random);
    machine
}

/// Moves to another instruction, with pointers to code and data in the registers.
fn scatter(machine: &mut Machine, random: &mut Random) {
    machine.core.state.rip = CODE + random.below_u64(CODE_PAGES * PAGE);
    for number in 0..16 {
        let pointer = match random.below_u64(3) {
            0 => CODE + random.below_u64(CODE_PAGES * PAGE),
            _ => DATA + random.below_u64(DATA_PAGES * PAGE),
        };
        machine.core.state.set_gpr(number, pointer);
    }
    machine.core.state.set_rflags(0x202);
}

/// Changes the machine, by running it or as a kernel or a debugger would.
fn advance(machine: &mut Machine, seed: u64) {
    let random = &mut Random::new(seed);
    let page = DATA + random.below_u64(DATA_PAGES) * PAGE;
    let pages = page..page + PAGE * (1 + random.below_u64(2));
    let code = CODE + random.below_u64(CODE_PAGES) * PAGE;
    let memory = &mut machine.core.memory;
    match random.below_u64(24) {
        0 => memory.unmap(pages).expect("user space"),
        1 => memory
            .map(pages, Permissions::READ_WRITE)
            .expect("user space"),
        // After the last page, or in a hole, it fails; that is a case too.
        2 => drop(memory.protect(pages, Permissions::READ)),
        3 => drop(memory.protect(pages, Permissions::READ_WRITE)),
        4 => memory.discard(pages).expect("user space"),
        5 => drop(memory.poke(page + 3, &random.bits().to_le_bytes())),
        6 => drop(memory.poke(
            code + random.below_u64(PAGE - 8),
            &random.bits().to_le_bytes(),
        )),
        7 => drop(memory.protect(code..code + PAGE, Permissions::READ)),
        8 => drop(memory.protect(code..code + PAGE, Permissions::ALL)),
        // Code of zero bytes, which adds al to memory at rax.
        9 => memory.discard(code..code + PAGE).expect("user space"),
        _ => {}
    }

    for _ in 0..8 {
        if machine.run(1 + random.below_u64(40), &mut ()) != Exit::Limit {
            scatter(machine, random);
        }
    }
}

#[test]
fn what_is_restored_is_what_a_copy_is() {
    let (mut restored, mut stored) = (0, 0);
    for seed in 0..12 {
        let random = &mut Random::new(seed);
        let mut machine = machine(random);
        let mut held = Vec::new();
        for step in 0..150 {
            match random.below_u64(5) {
                0 => {
                    held.push((machine.snapshot(), machine.clone()));
                    if held.len() > HELD_MAX {
                        held.remove(random.below(HELD_MAX));
                    }
                }
                1 if !held.is_empty() => {
                    let index = random.below(held.len());
                    let (snapshot, copy) = &held[index];
                    machine.restore(snapshot).expect("there is a way back");
                    assert_eq!(seen(&machine), seen(copy), "seed {seed}, step {step}");
                    for (newer, _) in held.drain(index + 1..) {
                        assert_eq!(machine.restore(&newer), Err(RestoreError::Undone));
                    }
                    // Both continue in the same way, which may differ from what the machine did
                    // before.
                    let mut copy = held[index].1.clone();
                    let future = random.bits();
                    advance(&mut machine, future);
                    advance(&mut copy, future);
                    assert_eq!(seen(&machine), seen(&copy), "seed {seed}, step {step}");
                    restored += 1;
                }
                _ => {
                    let before = machine.core.memory.history_bytes();
                    advance(&mut machine, random.bits());
                    stored += usize::from(machine.core.memory.history_bytes() > before);
                }
            }
        }

        // Without a snapshot nothing is kept, not even for one that was dropped just now.
        held.clear();
        drop(machine.snapshot());
        advance(&mut machine, random.bits());
        drop(machine.snapshot());
        assert_eq!(machine.core.memory.history_bytes(), 0, "no snapshot exists");
    }

    assert!(restored > 100 && stored > 100, "{restored} {stored}");
}

/// Stores to this number of data pages.
fn dirty(memory: &mut AddressSpace, pages: u64, byte: u8) {
    for page in 0..pages {
        memory
            .store_bytes(DATA + page * PAGE, [byte])
            .expect("mapped");
    }
}

#[test]
fn the_oldest_are_dropped_when_there_are_too_many_pages() {
    let mut memory = AddressSpace::default();
    memory
        .map(DATA..DATA + 10 * PAGE, Permissions::READ_WRITE)
        .expect("user space");
    let page = PAGE as usize;
    memory.set_history_max(8 * page + 1500);

    let first = memory.snapshot();
    // For a page that was not in use, little is kept.
    dirty(&mut memory, 8, 1);
    assert!(memory.history_bytes() < page);

    let second = memory.snapshot();
    dirty(&mut memory, 5, 2);
    assert!(memory.history_bytes() > 5 * page);

    let third = memory.snapshot();
    // Only the differences are kept.
    assert!(memory.history_bytes() < page);

    // Now the first one does not fit any more; the other two do.
    dirty(&mut memory, 8, 3);
    assert_eq!(memory.restore(&first), Err(RestoreError::Dropped));
    assert_eq!(memory.restore(&third), Ok(()));
    assert_eq!(memory.load_bytes(DATA), Some([2]));
    assert_eq!(memory.restore(&second), Ok(()));
    assert_eq!(memory.load_bytes(DATA), Some([1]));
    assert_eq!(memory.restore(&third), Err(RestoreError::Undone));

    // A single snapshot can be too large.
    memory.set_history_max(8 * page);
    dirty(&mut memory, 8, 4);
    assert_eq!(memory.history_bytes(), 0);
    assert_eq!(memory.restore(&second), Err(RestoreError::Dropped));

    let other = AddressSpace::default().snapshot();
    assert_eq!(memory.restore(&other), Err(RestoreError::Foreign));
    let copied = memory.snapshot();
    assert_eq!(memory.clone().restore(&copied), Err(RestoreError::Foreign));
}

#[test]
fn what_a_dropped_snapshot_kept_serves_the_one_before() {
    let mut memory = AddressSpace::default();
    memory
        .map(DATA..DATA + 10 * PAGE, Permissions::READ_WRITE)
        .expect("user space");
    dirty(&mut memory, 1, 1);
    let first = memory.snapshot();
    dirty(&mut memory, 2, 2);
    let second = memory.snapshot();
    dirty(&mut memory, 3, 3);
    assert!(memory.history_bytes() > 2 * PAGE as usize);
    drop(second);
    // This is noticed when the next page changes. Two pages were kept twice.
    dirty(&mut memory, 4, 4);
    assert!(memory.history_bytes() < 2 * PAGE as usize);
    assert_eq!(memory.restore(&first), Ok(()));
    assert_eq!(memory.pages_in_use(), 1);
    assert_eq!(memory.load_bytes(DATA), Some([1]));
    assert_eq!(memory.load_bytes(DATA + 2 * PAGE), Some([0]));
}

/// String instructions write to whole pages at once.
#[test]
fn pages_that_are_written_as_a_whole_are_kept() {
    let mut memory = AddressSpace::default();
    memory
        .map(DATA..DATA + 10 * PAGE, Permissions::READ_WRITE)
        .expect("user space");
    dirty(&mut memory, 3, 1);
    let snapshot = memory.snapshot();
    memory.writable(DATA).expect("mapped")[0] = 2;
    let copied = memory.copy_in_pages(DATA + PAGE, DATA, PAGE);
    assert_eq!(
        (copied, memory.load_bytes(DATA + PAGE)),
        (Some(PAGE), Some([2]))
    );
    memory.restore(&snapshot).expect("there is a way back");
    assert_eq!(memory.load_bytes(DATA), Some([1]));
    assert_eq!(memory.load_bytes(DATA + PAGE), Some([1]));
}
