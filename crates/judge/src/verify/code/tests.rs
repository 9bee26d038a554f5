//! Tests of which instructions are known when a block starts again.

use super::*;
use crate::verify::claim::RSP;
use std::ops::Range;
use unwind_sim_emulator::Permissions;
use unwind_sim_emulator::machine::BlockId;
use unwind_sim_unwind::image::Mapping;
use unwind_sim_unwind::regs::{Reg, RegMask};
use unwind_sim_unwind::rule::{Rule, Value};

fn block(number: u32, generation: u64) -> Option<BlockId> {
    Some(BlockId { number, generation })
}

/// Executable memory with as many different bytes as fit.
const TEXT: Range<u64> = 0x40_0000..0x40_2000;

/// Code, and the memory and images in which its blocks are.
struct Fixture {
    code: Code,
    memory: AddressSpace,
    places: Places,
    space: image::AddressSpace,
}

impl Fixture {
    fn new() -> Fixture {
        let mut memory = AddressSpace::default();
        memory.map(TEXT, Permissions::ALL).expect("free");
        let mut fixture = Fixture {
            code: Code::new(),
            memory,
            places: Places::default(),
            space: image::AddressSpace::new(),
        };
        fixture.map();
        fixture
    }

    /// Maps code without an image.
    fn map(&mut self) {
        let mapping = Mapping {
            range: TEXT,
            bias: 0,
            image: None,
            name: String::new(),
        };
        self.places.mapped(&mapping);
        self.space.map(mapping);
        self.code.clear();
    }

    /// Starts a block of `len` bytes that is in its own place for each number.
    fn enter(&mut self, block: Option<BlockId>, operations: usize) -> bool {
        let number = block.map_or(99, |id| id.number);
        self.enter_at(block, TEXT.start + u64::from(number) * 16, operations)
    }

    fn enter_at(&mut self, block: Option<BlockId>, start: u64, operations: usize) -> bool {
        let is_known = self.code.enter(block, operations);
        if !is_known {
            let mut place_of = PlaceOf::new(&mut self.places, &self.space);
            let range = start..start + 16;
            let memory = &self.memory;
            self.code
                .enter_new(memory, block, range, operations, &mut place_of);
        }
        is_known
    }

    /// A set of no claims.
    fn nothing_claimed(&mut self) -> u32 {
        self.code.sets.number(Set {
            claims: [NONE; UNWINDERS_MAX],
            part_of: [None; UNWINDERS_MAX],
            depends_by: [0; UNWINDERS_MAX],
            depends: 0,
            has_slow: false,
            no_table: 0,
        })
    }

    /// Marks an instruction as looked up, with these claims.
    fn mark(&mut self, index: u32, claims: u32) {
        let known = self.code.known(index);
        known.expect("an instruction of the block").claims = claims;
    }

    fn marks(&mut self, count: u32) -> Vec<u32> {
        let claims = |index| self.code.known(index).map_or(7777, |known| known.claims);
        (0..count).map(claims).collect()
    }
}

#[test]
fn a_block_that_begins_again_is_known() {
    let mut all = Fixture::new();
    assert!(!all.enter(block(0, 0), 2));
    assert_eq!(all.marks(3), [NONE, NONE, 7777]);
    all.mark(1, 10);
    assert!(!all.enter(block(5, 0), 3));
    all.mark(0, 20);
    for _ in 0..2 {
        assert!(all.enter(block(0, 0), 2));
        assert_eq!(all.marks(2), [NONE, 10]);
        assert!(all.enter(block(5, 0), 3));
        assert_eq!(all.marks(3), [20, NONE, NONE]);
    }
    let lengths = (all.code.instructions.len(), all.code.met.blocks.len());
    assert_eq!(lengths, (5, 6));
}

/// In another generation the numbers belong to other blocks. A block is known if its bytes and
/// place are the same.
#[test]
fn a_block_is_known_under_another_number() {
    let mut all = Fixture::new();
    let here = TEXT.start + 0x100;

    all.enter_at(block(7, 0), here, 2);
    all.mark(1, 10);
    assert!(!all.enter_at(block(3, 1), here, 2));
    assert_eq!(all.marks(2), [NONE, 10]);
    assert_eq!(all.code.instructions.len(), 2);

    // After images were mapped elsewhere, and in another process.
    all.code.clear();
    assert!(!all.enter_at(block(3, 1), here, 2));
    assert_eq!(all.marks(2), [NONE, 10]);

    all.code.met = Met::default();
    assert!(!all.enter_at(block(0, 2), here, 2));
    assert_eq!(all.marks(2), [NONE, 10]);

    // Cut after another number of operations.
    all.enter_at(block(1, 2), here, 1);
    assert_eq!(all.marks(1), [NONE]);

    // At another address.
    all.enter_at(block(2, 2), here + 16, 2);
    assert_eq!(all.marks(2), [NONE; 2]);

    // With other bytes.
    all.memory.write(here + 15, &[1]).expect("writable");
    all.enter_at(block(3, 2), here, 2);
    assert_eq!(all.marks(2), [NONE; 2]);

    all.memory.write(here + 15, &[0]).expect("writable");
    all.enter_at(block(4, 2), here, 2);
    assert_eq!(all.marks(2), [NONE, 10]);

    // In memory that was mapped anew.
    all.map();
    all.enter_at(block(5, 2), here, 2);
    assert_eq!(all.marks(2), [NONE; 2]);
}

/// The row at the end may be that of a return address, and the end may be in another image.
#[test]
fn a_block_is_new_if_another_image_is_at_its_end() {
    let mut all = Fixture::new();
    let last = TEXT.start + 0xff0;
    all.enter_at(block(0, 0), last, 2);
    all.mark(0, 10);
    // The block's 16 bytes end where this page starts.
    let behind = TEXT.start + 0x1000..TEXT.end;
    let mapping = Mapping {
        range: behind.clone(),
        bias: 0,
        image: None,
        name: "a file".to_owned(),
    };
    for mapped in [true, false] {
        if mapped {
            all.space.map(mapping.clone())
        } else {
            all.space.unmap(behind.clone())
        }
        all.places.unmapped(&behind);
        all.code.clear();
        all.enter_at(block(0, 0), last, 2);
        assert_eq!(all.marks(1), [NONE], "{mapped}");
        all.mark(0, 20);
    }
}

/// Bytes that cannot be fetched are not those that could be.
#[test]
fn a_block_that_is_cut_by_a_fault_is_another_block() {
    let mut all = Fixture::new();
    let last = TEXT.end - 8;
    all.enter_at(block(0, 0), last, 2);
    all.mark(0, 10);
    let more = TEXT.end..TEXT.end + 0x1000;
    all.memory.map(more, Permissions::ALL).expect("free");
    all.code.clear();
    all.enter_at(block(0, 0), last, 2);
    assert_eq!(all.marks(1), [NONE]);
}

#[test]
fn an_instruction_by_itself_is_not_a_block_of_one_instruction() {
    let mut all = Fixture::new();
    let here = TEXT.start;
    all.enter_at(block(0, 0), here, 1);
    all.mark(0, 10);
    for marked in [NONE, 30, 30] {
        all.enter_at(None, here, 1);
        assert_eq!(all.marks(1), [marked]);
        all.mark(0, 30);
        assert_eq!(all.code.instructions.len(), 2);
    }
    all.enter_at(None, here, 2);
    assert_eq!(all.marks(2), [NONE; 2]);
    assert!(all.enter_at(block(0, 0), here, 1));
    assert_eq!(all.marks(1), [10]);
}

/// Which outcomes were met is kept for each process, and until images change. An instruction by
/// itself has none that is met again.
#[test]
fn outcomes_are_those_of_a_process() {
    let mut all = Fixture::new();
    let here = TEXT.start + 0x100;
    all.code.findings_behind = vec![NONE; 4];

    for generation in 0..3 {
        all.enter_at(block(4, generation), here, 2);
        let code = &mut all.code;
        let (last, confirmed) = code.findings_mut(1).expect("an instruction");
        assert_eq!(*last, if generation == 0 { NONE } else { 7 });
        *last = 7;
        assert!(confirmed.is_some());

        let (last, confirmed) = code.findings_behind_mut(3).expect("a return address");
        *last = 8;
        confirmed.expect("those of the process").insert(8);
        let is_met = |(last, confirmed): (u32, &Confirmed)| (last, confirmed.contains(8));
        assert_eq!(is_met(code.findings_behind(3)), (8, true));
        assert_eq!(is_met(code.findings_behind(4)), (NONE, true));

        all.enter_at(None, here, 3);
        // By itself: nothing is confirmed, so that its outcome is looked up each time.
        let (last, confirmed) = all.code.findings_mut(2).expect("an instruction");
        assert!(*last == NONE && confirmed.is_none());
        assert!(all.enter_at(block(4, generation), here, 2));
        assert_eq!(is_met(all.code.findings(1)), (7, true));
        assert_eq!(is_met(all.code.findings(0)), (NONE, true));

        // The images change in the same process, and then another process runs.
        match generation {
            0 => all.code.clear(),
            _ => all.code.met = Met::default(),
        }

        assert!(!all.enter_at(block(4, generation), here, 2));
        assert_eq!(is_met(all.code.findings(1)), (7, false));
    }
}

/// A run ends before an instruction with other claims, unless they follow from what is done with the
/// stack, and behind one that writes what they name.
#[test]
fn a_run_has_one_outcome() {
    let mut all = Fixture::new();
    all.enter(block(0, 0), 8);

    // They claim that rbx, the first register, is saved or unchanged, and nothing of rbp.
    let mut number = |offset, rbx| {
        let rule = Rule::call(Value::reg(Reg::Rsp, offset)).with_saved(Reg::Rbx, rbx);
        let claim = Claim::of(&rule, RegMask::of(&[Reg::Rsp, Reg::Rbx]));
        let set = Set {
            claims: [all.code.claims.number(claim); UNWINDERS_MAX],
            part_of: [None; UNWINDERS_MAX],
            depends_by: [claim.depends(); UNWINDERS_MAX],
            depends: claim.depends(),
            has_slow: false,
            no_table: 0,
        };
        all.code.sets.number(set)
    };

    let saved = Value::at_cfa(-24);
    let [one, two, pushed, moved] = [
        (16, Value::Same),
        (24, Value::Same),
        (24, saved),
        (40, saved),
    ]
    .map(|(offset, rbx)| number(offset, rbx));

    let plain = Known {
        claims: one,
        ..Known::NOTHING
    };

    let mut runs = |known: &[Known]| {
        for (index, known) in (0..).zip(known) {
            *all.code.known(index).expect("in the block") = *known;
        }
        all.code.run(0)
    };

    let writes = |writes| Known { writes, ..plain };
    let class = |class| Known { class, ..plain };
    let other = Known {
        claims: two,
        ..plain
    };
    let first = Known::NOTHING;

    assert_eq!(runs(&[plain; 8]), 8);
    // Other claims: the outcome of one says nothing of the other.
    assert_eq!(runs(&[plain, other]), 1);
    // The first bit is rbx, which the claims call unchanged; the second is rbp, which they do not
    // name.
    assert_eq!(runs(&[plain, plain, writes(1), plain]), 3);
    assert_eq!(runs(&[plain, plain, writes(2), plain, other]), 4);
    assert_eq!(runs(&[plain, writes(RSP as u8)]), 1);
    assert_eq!(runs(&[writes(RSP as u8)]), 0);
    // A jump may be the last one of a run; a return leaves the frame.
    assert_eq!(runs(&[plain, class(Insn::Jump), class(Insn::Ret)]), 2);
    assert_eq!(runs(&[plain, class(Insn::StoreTop)]), 1);

    // The program registers tables there: from then on the rows may be others.
    let hook = Known {
        more: HOOK,
        ..plain
    };
    assert_eq!(runs(&[plain, plain, hook]), 2);

    let anything = all.code.effects.number(Effect {
        stores: Stores::Anything,
        stack: Stack::Other,
    });

    let [push, pop, other_push, add] = [
        Stack::Push(3),
        Stack::Pop(3),
        Stack::Push(5),
        Stack::Add(-16),
    ]
    .map(|stack| {
        let stores = Stores::Nothing;
        all.code.effects.number(Effect { stores, stack })
    });

    let mut runs = |known: &[Known]| {
        for (index, known) in (0..).zip(known) {
            *all.code.known(index).expect("in the block") = *known;
        }
        all.code.run(0)
    };

    let stores = Known {
        more: anything,
        ..plain
    };
    assert_eq!(runs(&[plain, stores]), 1);

    // push rbx; sub rsp, 16; add rsp, 16; pop rbx, with the rows that they need.
    let moves = |class, claims, more| Known {
        claims,
        more,
        writes: (RSP | if more == pop { 1 } else { 0 }) as u8,
        class,
        ..plain
    };

    let push_rbx = moves(Insn::Push, one, push);
    let sub = moves(Insn::Other, pushed, add);
    let inside = Known {
        claims: moved,
        ..plain
    };
    let pop_rbx = moves(Insn::Pop, pushed, pop);

    assert_eq!(runs(&[push_rbx, sub, inside, class(Insn::Ret)]), 3);
    assert_eq!(runs(&[pop_rbx, plain, class(Insn::Ret)]), 2);
    // Without the `sub`, the next CFA is 16 bytes too high; and a row that forgets the `sub` or the
    // `pop` is wrong by as much as it moves rsp.
    assert_eq!(runs(&[push_rbx, inside]), 1);
    assert_eq!(runs(&[sub, pop_rbx]), 1);
    assert_eq!(runs(&[pop_rbx, other]), 1);

    // Another register is pushed, so rbx is not where the row says.
    let push_rbp = moves(Insn::Push, one, other_push);
    assert_eq!(runs(&[push_rbp, other, class(Insn::Ret)]), 2);
    assert_eq!(runs(&[push_rbp, pop_rbx]), 1);

    // An instruction that does more with rsp than is known.
    let unknown = Known {
        more: NO_EFFECT,
        ..push_rbx
    };
    assert_eq!(runs(&[unknown, pop_rbx]), 0);

    // The second one has two operations.
    assert_eq!(runs(&[plain, first, plain, other]), 2);

    // What has not been executed yet is looked at again.
    assert_eq!(
        runs(&[plain, first, first, first, first, first, first, first]),
        1
    );
    assert_eq!(runs(&[plain; 8]), 8);

    // It is computed once.
    *all.code.known(1).expect("in the block") = other;
    assert_eq!(all.code.run(0), 8);
    assert_eq!(all.code.next_index(0), 1);
}

/// A block is looked up while it is executed for the first time, when its last instruction is still
/// unknown.
#[test]
fn a_run_of_two_instructions_is_found_when_both_have_been_executed() {
    let mut all = Fixture::new();
    let set = all.nothing_claimed();
    for first in [0, 1] {
        all.enter(block(first, 0), first as usize + 2);
        all.mark(first, set);
        assert_eq!(all.code.run(first), 1);
        all.mark(first + 1, set);
        assert_eq!(all.code.run(first), 2);
        // Used from the next time on that the block is entered.
        all.enter(block(first, 0), first as usize + 2);
        let head = all.code.first_run().expect("it is known");
        assert_eq!(head.wanted(), first + 2);
        *all.code.repeats_mut(first).expect("in the block").0 = 7 + first;
        assert_eq!(all.code.first_repeat(&head), 7 + first);
    }
}

/// A call is none of a run, but its check is, if the run has its outcome.
#[test]
fn what_is_seen_behind_a_run_is_checked_with_it() {
    let mut all = Fixture::new();
    let nothing = all.nothing_claimed();
    let slow = all.code.claims.number(Claim::Slow);
    let slow = all.code.sets.number(Set {
        claims: [slow; UNWINDERS_MAX],
        ..*all.code.set(nothing).expect("a set")
    });
    let call = Known {
        claims: nothing,
        class: Insn::Call {
            len: 5,
            indirect: false,
        },
        ..Known::NOTHING
    };
    let other = Known {
        claims: slow,
        ..call
    };
    let plain = Known {
        claims: nothing,
        ..Known::NOTHING
    };

    // One instruction before it is enough: together they are two.
    for (number, length, last, expected) in [
        (0, 1, call, (1, true, nothing)),
        (1, 3, call, (3, true, nothing)),
        (2, 3, other, (3, false, nothing)),
        (3, 1, other, (0, false, NONE)),
        (4, 0, call, (0, false, NONE)),
    ] {
        let operations = length + 1;
        all.enter(block(number, 0), operations as usize);
        (0..length).for_each(|at| *all.code.known(at).expect("in the block") = plain);

        // Whether it closes the run is known when it has been executed.
        if length > 0 {
            all.code.run(0);
            assert!(!all.code.closes(0), "{number}");
        }
        *all.code.known(length).expect("in the block") = last;
        assert_eq!(all.code.run(0), length, "{number}");

        all.enter(block(number, 0), operations as usize);
        let head = all.code.first_run();
        let head = head.map_or((0, false, NONE), |h| (h.len.into(), h.closes, h.end));
        assert_eq!(head, expected, "{number}");
        assert_eq!(all.code.closes(0), expected.1, "{number}");
    }
}

#[test]
fn what_only_moves_rsp_is_quiet_while_it_stays_below_a_limit() {
    let mut all = Fixture::new();
    let plain = Known {
        claims: all.nothing_claimed(),
        ..Known::NOTHING
    };

    let effects = [
        (Stack::Pop(0), Insn::Pop),
        (Stack::Add(16), Insn::Other),
        (Stack::Add(-32), Insn::Other),
        (Stack::Push(0), Insn::Push),
    ];

    let [pop, add, sub, push] = effects.map(|(stack, class)| {
        let stores = Stores::Nothing;
        let more = all.code.effects.number(Effect { stores, stack });
        Known {
            more,
            class,
            ..plain
        }
    });

    // rsp is at 0, 0, 8, 24, 24, -8, 0, -8 before them.
    let block_of = [plain, pop, add, plain, sub, pop, push, plain];

    all.enter(block(0, 0), 8);
    for (index, known) in (0..).zip(block_of) {
        *all.code.known(index).expect("in the block") = known;
    }

    // Twice: the second time from what was noted at the first.
    for noted in [false, true] {
        let mut quiet = |index, most, room| all.code.quiet_from(index, most, room);
        assert_eq!(quiet(0, 8, 7), (0, 1), "{noted}");
        assert_eq!(quiet(0, 8, 23), (1, 2), "{noted}");
        // At most three: a limit of the question, which must not be noted.
        assert_eq!(quiet(0, 3, 24), (2, 3), "{noted}");
        assert_eq!(quiet(1, 8, 23), (1, 1), "{noted}");
        assert_eq!(quiet(0, 8, 24), (3, 4), "{noted}");
        assert_eq!(quiet(1, 8, 24), (3, 3), "{noted}");
        assert_eq!(quiet(4, 8, 0), (5, 2), "{noted}");
        assert_eq!(quiet(6, 1, 0), (6, 1), "{noted}");
    }

    let noted = all.code.known(0).map(|known| known.ahead);
    let (count, last, rise) = (4, 3, 24);
    assert_eq!(noted, Some(Ahead { count, last, rise }));
}

/// A block is executed up to an instruction that faults, and later to its end.
#[test]
fn what_is_quiet_in_a_part_of_a_run_is_not_noted() {
    let mut all = Fixture::new();
    let set = all.nothing_claimed();
    all.enter(block(0, 0), 6);
    for (marked, expected) in [(3, (0, 0)), (6, (6, 6))] {
        (0..marked).for_each(|at| all.mark(at, set));
        let run = all.code.run(0);
        assert_eq!(run, marked);
        assert_eq!(all.code.quiet_from(0, run, 0), (run - 1, run));
        let noted = all.code.known(0).map_or(0, |known| known.ahead.count);
        all.enter(block(0, 0), 6);
        let head = all.code.first_run();
        let head = head.map_or(0, |head| head.wanted());
        assert_eq!((u32::from(noted), head), expected);
    }
}

#[test]
fn a_call_is_new_in_each_process_and_after_images_have_changed() {
    let mut all = Fixture::new();
    let behind = Behind {
        inside: 0,
        after: 0,
    };
    all.code.returns = vec![behind; 70];
    let calls = [0, 69, 0, 69, 70, NONE];
    let first = [true, true, false, false, false, false];
    for round in 0..3 {
        assert_eq!(calls.map(|call| all.code.call(call)), first, "{round}");
        match round {
            0 => all.code.clear(),
            _ => all.code.met = Met::default(),
        }
    }
}

#[test]
fn what_is_known_is_measured() {
    let mut all = Fixture::new();
    let nothing = all.code.memory();
    assert_eq!((nothing.claims, nothing.met, nothing.rows), (0, 0, 0));

    all.enter(block(0, 0), 100);
    let code = &mut all.code;
    let known = code.memory().known - nothing.known;
    // The instructions, room for eight block numbers, and for eight blocks.
    assert_eq!(known, 100 * 20 + 8 * 32 + 8 * 20 + code.blocks.bytes());

    assert_eq!(code.memory().findings, 100 * 4);
    assert!(code.blocks.bytes() >= 24);

    for at in 0..100 {
        code.returns_by_address.insert((at, 0, 0), 0);
        code.addresses.insert(0, at * 0x1000);
        code.claims.number(Claim::Slow);
        code.claims.number(Claim::Missing);
    }

    let all = code.memory();
    let entry = size_of::<(u64, u32)>();
    // A hash table has more room than entries; how much is its own matter.
    let more = all.known - nothing.known - known;
    assert!((100 * entry..400 * entry).contains(&more), "{more}");
    assert_eq!(all.met, code.addresses.bytes());
    assert_eq!(all.claims, code.claims.bytes());

    let set = Set {
        claims: [0; UNWINDERS_MAX],
        part_of: [None; UNWINDERS_MAX],
        depends_by: [0; UNWINDERS_MAX],
        depends: 0,
        has_slow: false,
        no_table: 0,
    };
    code.sets.number(set);

    assert_eq!(
        code.memory().claims,
        code.claims.bytes() + code.sets.bytes()
    );
}

#[test]
fn a_call_stores_nothing_but_its_return_address() {
    let known = |class| Known {
        class,
        more: 5,
        ..Known::NOTHING
    };
    let call = known(Insn::Call {
        len: 5,
        indirect: false,
    });
    assert_eq!((call.effect(), call.behind()), (NO_EFFECT, 5));
    let other = known(Insn::Other);
    assert_eq!((other.effect(), other.behind()), (5, NONE));
}
