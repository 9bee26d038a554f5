//! Tests of stores into live slots: the instruction, the slot, and what followed.

use super::*;

/// main calls f, which saves rbx, and executes `body` with it saved: the slot of rbx is at rsp,
/// that of the return address at rsp + 8. rbx is 0x77.
fn program(body: &[u8]) -> Vec<u8> {
    let main = [
        0xbb, 0x77, 0, 0, 0, // 00 mov ebx, 0x77
        0xe8, 6, 0, 0, 0,    // 05 call f
        0xf4, // 0a hlt
        0xf4, // 0b another end
        0xcc, 0xcc, 0xcc, 0xcc, //
        0x53, // 10 f: push rbx
    ];
    let end = [0x5b, 0xc3]; // pop rbx; ret
    [&main, body, &end].concat()
}

/// The offset of the body.
const BODY: u64 = 0x11;
/// The slot of rbx.
const RBX: u64 = SP - 16;

/// The rows of [`program`] with a body of `body` bytes.
fn rows(body: usize) -> Rows {
    Rows::of(vec![
        (0, Rule::OUTERMOST),
        (0x10, above(8)),
        (BODY, above(16).with_saved(Reg::Rbx, Value::at_cfa(-16))),
        (BODY + body as u64 + 1, above(8)),
    ])
}

fn results(body: &[u8]) -> Results {
    let code = program(body);
    let quick = run(&code, vec![rows(body.len())], true);
    let slow = run(&code, vec![rows(body.len())], false);
    assert_eq!(quick.stores, slow.stores);
    assert_eq!(told(&quick), told(&slow));
    quick
}

/// Writer, slot, and how often the value was changed, unchanged, taken and put back.
type Store = (u64, Slot, [u64; 4]);

fn stores(results: &Results) -> Vec<Store> {
    let one = |s: &SlotStore| {
        let counts = [s.count, s.same, s.taken, s.restored];
        (s.writer.address - CODE, s.slot, counts)
    };
    results.stores.all.iter().map(one).collect()
}

/// The slot of rbx, by its number in [`Reg::CALLEE_SAVED`].
const SAVED_RBX: Slot = Slot::Saved(0);

#[test]
fn a_store_into_the_slot_of_a_saved_register_is_told() {
    // mov qword [rsp], 5; mov qword [rsp], 0x77
    let body = [
        0x48, 0xc7, 0x04, 0x24, 5, 0, 0, 0, //
        0x48, 0xc7, 0x04, 0x24, 0x77, 0, 0, 0,
    ];
    let results = results(&body);
    // The first store changed the slot; after that it was not live.
    assert_eq!(stores(&results), [(BODY, SAVED_RBX, [1, 0, 0, 0])]);
    let store = &results.stores.all[0];
    assert_eq!((store.address, store.old, store.new), (RBX, 0x77, 5));
    // It is f's own slot, and the fourth instruction stored.
    assert_eq!((store.owner, store.first), (CODE + BODY, 3));
    assert_eq!(store.owner_place, store.writer.place);
    // While the slot was changed the row was wrong.
    let behind = (0, Check::Instruction, BODY + 8);
    let found: Vec<_> = told(&results).iter().map(|t| (t.0, t.1, t.2)).collect();
    assert_eq!(found, [behind]);
}

#[test]
fn a_store_of_what_is_there_changes_nothing() {
    // mov qword [rsp], 0x77; mov byte [rsp + 8], 0x0a, of the return address
    let body = [
        0x48, 0xc7, 0x04, 0x24, 0x77, 0, 0, 0, //
        0xc6, 0x44, 0x24, 8, 0x0a,
    ];
    let expected = [
        (BODY, SAVED_RBX, [0, 1, 0, 0]),
        (BODY + 8, Slot::ReturnAddress, [0, 1, 0, 0]),
    ];
    assert_eq!(stores(&results(&body)), expected);
}

#[test]
fn a_changed_return_address_is_taken_or_put_back() {
    // mov byte [rsp + 8], 0x0b
    let change = [0xc6, 0x44, 0x24, 8, 0x0b];
    let expected = [(BODY, Slot::ReturnAddress, [1, 0, 1, 0])];
    assert_eq!(stores(&results(&change)), expected);
    let back = [0xc6, 0x44, 0x24, 8, 0x0a];
    let both = [change, back].concat();
    let expected = [(BODY, Slot::ReturnAddress, [1, 0, 0, 1])];
    assert_eq!(stores(&results(&both)), expected);
}

/// The return address is changed, popped and jumped to, as in `__builtin_eh_return`.
#[test]
fn a_jump_to_a_changed_return_address_takes_it() {
    let body = [
        0xc6, 0x44, 0x24, 8, 0x0b, // mov byte [rsp + 8], 0x0b
        0x5b, // pop rbx
        0x59, // pop rcx
        0xff, 0xe1, // jmp rcx
    ];
    let expected = [(BODY, Slot::ReturnAddress, [1, 0, 1, 0])];
    assert_eq!(stores(&results(&body)), expected);
}

/// The range of a string store is its start and end.
#[test]
fn a_string_hits_what_it_reaches() {
    let string = |from: i8, count: u8| {
        let body = [
            0x48, 0x8d, 0x7c, 0x24, from as u8, // lea rdi, [rsp + from]
            0xb8, 0, 0, 0, 0, // mov eax, 0
            0xb9, count, 0, 0, 0, // mov ecx, count
            0xf3, 0x48, 0xab, // rep stosq
            0xb8, 0x77, 0, 0, 0, // mov eax, 0x77
            0x48, 0x89, 0x04, 0x24, // mov [rsp], rax
        ];

        let results = results(&body);
        let frames = results.work.frames;
        let at = BODY + 15;
        let of_string = stores(&results).into_iter().filter(|s| s.0 == at);
        let slots: Vec<_> = of_string.map(|(_, slot, counts)| (slot, counts)).collect();
        (slots, frames)
    };

    let changed = (SAVED_RBX, [1, 0, 0, 0]);
    // Four words from rsp - 40 on end 8 bytes below rsp.
    let (nothing, frames) = string(-40, 4);
    assert_eq!(nothing, []);

    // A store that ends where the slot starts changes no outcome.
    assert_eq!(string(-32, 4), (vec![], frames));
    assert_eq!(string(-24, 4).0, [changed]);
    assert_eq!(string(0, 0).0, []);
    assert_eq!(string(0, 1).0, [changed]);
    assert_eq!(string(16, 4).0, []);
}

/// A function two calls below changes slots of the frames above it.
#[test]
fn the_slots_of_callers_are_found_by_their_calls_rows() {
    let code = [
        0xbb, 0x77, 0, 0, 0, // 00 mov ebx, 0x77
        0xe8, 2, 0, 0, 0, // 05 call f
        0xf4, 0xcc, // 0a hlt
        0x53, // 0c f: push rbx
        0xe8, 2, 0, 0, 0,    // 0d call g
        0x5b, // 12 pop rbx
        0xc3, // 13 ret
        0x48, 0xc7, 0x44, 0x24, 8, 5, 0, 0, 0, // 14 g: mov qword [rsp + 8], 5
        0x48, 0xc7, 0x44, 0x24, 8, 0x77, 0, 0, 0, // 1d mov qword [rsp + 8], 0x77
        0x80, 0x44, 0x24, 16, 0,    // 26 add byte [rsp + 16], 0
        0xc3, // 2b ret
    ];

    // The row of f's `ret` holds in g as well, which saves nothing.
    let rows = || {
        Rows::of(vec![
            (0, Rule::OUTERMOST),
            (0xc, above(8)),
            (0xd, above(16).with_saved(Reg::Rbx, Value::at_cfa(-16))),
            (0x13, above(8)),
        ])
    };

    for elide in [true, false] {
        let results = run(&code, vec![rows()], elide);
        // g's second store puts rbx's value back, into a slot that is not live any more.
        let expected = [
            (0x14, SAVED_RBX, [1, 0, 0, 0]),
            (0x26, Slot::ReturnAddress, [0, 1, 0, 0]),
        ];
        assert_eq!(stores(&results), expected);

        // The slots are f's, which is in its call.
        let owners: Vec<_> = results.stores.all.iter().map(|s| s.owner).collect();
        assert_eq!(owners, [CODE + 0x11; 2]);
    }
}

/// A row that names a slot below rsp, which a push then hits.
#[test]
fn a_push_hits_a_slot_that_is_named_too_early() {
    let code = program(&[0x6a, 5, 0x58]); // push 5; pop rax
    let early = || {
        let mut rows = rows(3);
        // The word there was pushed before and is the true value: rbp, 0.
        let rule = rows.rows[2].1.with_saved(Reg::Rbp, Value::at_cfa(-24));
        rows.rows[2].1 = rule;
        rows
    };
    for elide in [true, false] {
        let results = run(&code, vec![early()], elide);
        assert_eq!(stores(&results), [(BODY, Slot::Saved(1), [1, 0, 0, 0])]);
        let store = &results.stores.all[0];
        assert_eq!((store.address, store.old, store.new), (RBX - 8, 0, 5));
        assert_eq!(store.first, 3);
    }
}

/// The same with a row that should have ended before the push, so that the CFA is wrong after it.
#[test]
fn a_push_over_such_a_slot_changes_rsp_too() {
    let body = [0x6a, 5, 0x58]; // push 5; pop rax
    let code = program(&body);
    let early = || {
        let mut rows = rows(body.len());
        rows.rows[2].1 = rows.rows[2].1.with_saved(Reg::Rbp, Value::at_cfa(-24));
        rows
    };
    let found = [true, false].map(|elide| told(&run(&code, vec![early()], elide)));
    assert_eq!(found[0], found[1]);
    let wrong = found[0]
        .iter()
        .any(|t| (t.2, t.3) == (BODY + 2, ReasonCode::WrongCfa));
    assert!(wrong, "{:?}", found[0]);
    // After an instruction that changes neither rsp nor memory, nothing is evaluated.
    let frames = |body: &[u8]| {
        let mut rows = rows(body.len());
        rows.rows[2].1 = rows.rows[2].1.with_saved(Reg::Rbp, Value::at_cfa(-24));
        run(&program(body), vec![rows], true).work.frames
    };
    assert_eq!(frames(&[0x90]), frames(&[0x90; 5]));
}

/// `bts` computes its address from a register's bits, so which slots it hits is not known in advance.
#[test]
fn behind_a_store_to_anywhere_every_slot_is_read_again() {
    let body = [
        0xb8, 3, 0, 0, 0, // mov eax, 3
        0x48, 0x0f, 0xab, 0x04, 0x24, // bts qword [rsp], rax
        0x90, // nop
    ];
    let results = results(&body);
    assert_eq!(stores(&results), []);
    let found: Vec<_> = told(&results).iter().map(|t| (t.1, t.2, t.4)).collect();
    let at = |offset| (Check::Instruction, offset, Reg::Rbx);
    assert_eq!(found, [at(BODY + 10), at(BODY + 11), at(BODY + 12)]);
}

/// A table that does not carry all registers is not used to find slots.
#[test]
fn the_first_table_that_carries_all_registers_says_where_they_are() {
    let body = [0x48, 0xc7, 0x04, 0x24, 5, 0, 0, 0];
    let code = program(&body);
    let few = || Rows {
        carries: RegMask::FRAME,
        ..rows(body.len())
    };
    let found = |tables| stores(&run(&code, tables, true));
    assert_eq!(found(vec![few()]), []);
    let all = [(BODY, SAVED_RBX, [1, 0, 0, 0])];
    assert_eq!(found(vec![few(), rows(body.len())]), all);
}

/// A store that ends where the lowest slot starts, and one above all frames, change no outcome.
#[test]
fn a_store_that_hits_no_slot_changes_no_outcome() {
    let frames = |body: &[u8]| results(body).work.frames;
    let nop = [0x90; 9];
    let without = frames(&nop);
    // mov qword [rsp - 8], 0; mov qword [rsp + 16], 0
    for at in [0xf8, 16] {
        let body = [0x48, 0xc7, 0x44, 0x24, at, 0, 0, 0, 0];
        assert_eq!(frames(&body), without, "{at:#x}");
    }
    // mov qword [rsp - 7], 0 reaches into rbx's slot; mov byte [rsp + 15], 0 into the return
    // address
    let reaches = [0x48, 0xc7, 0x44, 0x24, 0xf9, 0, 0, 0, 0];
    assert_eq!(frames(&reaches), without + 1);
    let reaches = [0xc6, 0x44, 0x24, 15, 0, 0x90, 0x90, 0x90, 0x90];
    assert_eq!(frames(&reaches), without + 1);
}
