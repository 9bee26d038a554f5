//! Programs at the edges of runs: what is counted in them is what is counted one by one.

use super::*;
use unwind_sim_emulator::machine::{BlockId, Executed};

/// The row of a function whose frame pointer is rbp.
fn by_rbp() -> Rule {
    Rule::call(Value::reg(Reg::Rbp, 16)).with_saved(Reg::Rbp, Value::at_cfa(-16))
}

/// Asks to be called at each instruction, as one does who notes where each is.
struct EachOne<'c, 'a>(&'c mut Checker<'a>);

impl Observer for EachOne<'_, '_> {
    fn enter(&mut self, core: &Core, block: Option<BlockId>, operations: usize, end: u64) -> usize {
        self.0.enter_block(core, block, operations, end);
        0
    }

    fn before(&mut self, core: &Core, insn: &Executed) {
        self.0.before(core, insn);
    }

    fn after(&mut self, core: &Core, insn: &Executed, next: u64) {
        self.0.after(core, insn, next);
    }
}

/// Runs `code` up to `hlt`, over traps. Returns the results and the shadow stack at the end.
fn results(code: &[u8], tables: Vec<Rows>, elide: bool, each: bool) -> (Results, String) {
    let engines = engines(tables);
    let mut machine = machine(code);
    let mut checker = checker(&engines, &machine, code, elide);
    for _ in 0..50 {
        let exit = if each {
            machine.run(10_000, &mut EachOne(&mut checker))
        } else {
            machine.run(10_000, &mut checker)
        };
        if !matches!(exit, Exit::Exception(_)) {
            assert_eq!(exit, Exit::Halt);
            break;
        }
    }
    checker.end_run();
    let tracker = format!("{:?}", checker.stacks.tracker);
    (checker.finish().0, tracker)
}

/// Compares what is counted in runs with what is counted one by one, and returns the latter.
fn compared(code: &[u8], tables: &dyn Fn() -> Vec<Rows>) -> Results {
    let (expected, stack) = results(code, tables(), false, false);
    for each in [false, true] {
        let (found, tracker) = results(code, tables(), true, each);
        assert_eq!(tracker, stack, "asked at each: {each}");
        assert_eq!(told(&found), told(&expected), "asked at each: {each}");
        assert_eq!(found.tallies, expected.tallies, "asked at each: {each}");
        assert_eq!(found.truth, expected.truth, "asked at each: {each}");
    }
    expected
}

/// A function returns for its caller, as its rows say, after many outcomes, of which the first are
/// forgotten if they are more than 1,024; those of a table that has no row there give no values.
#[test]
fn values_are_remembered_however_many_outcomes_without_values_are_met() {
    for rounds in [60, 250] {
        let mut code = vec![0xcc; 0x2f];

        // call 10; hlt
        code[..6].copy_from_slice(&[0xe8, 0x0b, 0, 0, 0, 0xf4]);

        // push rbp; mov rbp, rsp; call 20; leave; ret
        let h = [0x55, 0x48, 0x89, 0xe5, 0xe8, 7, 0, 0, 0, 0xc9, 0xc3];
        code[0x10..0x10 + h.len()].copy_from_slice(&h);

        // mov ecx, rounds; 25 nop; nop; nop; sub ecx, 1; jne 25; leave; ret
        let f = [
            0xb9, rounds, 0, 0, 0, 0x90, 0x90, 0x90, 0x83, 0xe9, 1, 0x75, 0xf8, 0xc9, 0xc3,
        ];
        code[0x20..].copy_from_slice(&f);

        let rows = || {
            vec![
                (0, Rule::OUTERMOST),
                (0x10, above(8)),
                (0x11, above(16).with_saved(Reg::Rbp, Value::at_cfa(-16))),
                (0x14, by_rbp()),
                (0x2e, above(8)),
            ]
        };

        let with_gap = || Rows {
            gap: 0x20..0x2e,
            ..Rows::of(rows())
        };

        let found = compared(&code, &|| vec![Rows::of(rows()), with_gap()]);
        // An outcome leaves as its row says if it does so each time it is met.
        let expected = if rounds == 60 { 60 * 5 + 2 } else { 1 };
        assert_eq!(found.tallies[0].target, expected, "{rounds} rounds");
    }
}

/// rsp is a number that is lowered below 0.
#[test]
fn a_run_ends_where_rsp_wraps_around() {
    let code = main_of(
        &[],
        &[
            0x48, 0x89, 0xe3, // 20 mov rbx, rsp
            0x89, 0xc8, // 23 mov eax, ecx
            0x48, 0x89, 0xc4, // 25 mov rsp, rax
            0xeb, 0,    // 28 jmp 2a
            0x90, // 2a nop
            0x48, 0x83, 0xec, 0x0b, // 2b sub rsp, 11
            0x90, // 2f nop
            0x48, 0x83, 0xc4, 0x0b, // 30 add rsp, 11
            0x48, 0x89, 0xdc, // 34 mov rsp, rbx
            0xc3, // 37 ret
        ],
    );

    // rsp is the round's number there, at most 12, so the rows count from rbx.
    let by_rbx = Rule::call(Value::reg(Reg::Rbx, 8)).with_saved(Reg::Rbx, Value::Undefined);
    let rows = vec![
        (0, Rule::OUTERMOST),
        (0x20, above(8)),
        (0x23, by_rbx),
        (0x37, above(8).with_saved(Reg::Rbx, Value::Undefined)),
    ];

    let found = compared(&code, &|| vec![Rows::of(rows.clone())]);
    assert_eq!(found.truth.switches, 1);
}

/// A `ret` goes to an address that was stored, but not pushed.
#[test]
fn nothing_is_checked_from_where_the_truth_is_in_doubt() {
    // At 0: `call 10; hlt`. Between the functions is `int3`.
    let mut code = vec![0xe8, 0x0b, 0, 0, 0, 0xf4];
    code.resize(0x10, 0xcc);

    code.extend([
        0x55, // 10 push rbp
        0x48, 0x89, 0xe5, // 11 mov rbp, rsp
        0x48, 0x8d, 0x05, 0x11, 0, 0, 0, // 14 lea rax, [2c]
        0x48, 0x8d, 0x4c, 0x24, 0xf8, // 1b lea rcx, [rsp - 8]
        0x48, 0x89, 0x01, // 20 mov [rcx], rax
        0x48, 0x83, 0xec, 8,    // 23 sub rsp, 8
        0xc3, // 27 ret
        0xcc, 0xcc, 0xcc, 0xcc, //
        0x90, 0x90, 0x90, // 2c nop
        0xc9, // 2f leave
        0xc3, // 30 ret
    ]);

    let rows = vec![
        (0, Rule::OUTERMOST),
        (0x10, above(8)),
        (0x11, above(16).with_saved(Reg::Rbp, Value::at_cfa(-16))),
        (0x14, by_rbp()),
        (0x30, above(8)),
    ];

    let found = compared(&code, &|| vec![Rows::of(rows.clone())]);
    assert!(found.tallies[0].checked < found.instructions);
}

/// A function pushes an address and returns to it; between, there is a trap or nothing.
#[test]
fn a_push_of_a_run_is_told_though_the_run_is_asked_about_again() {
    let middles: [&[u8]; 3] = [
        &[],
        // nop; int1
        &[0x90, 0xf1],
        // nop; push rdx; pop rdx; nop; int1
        &[0x90, 0x52, 0x5a, 0x90, 0xf1],
    ];

    for middle in middles {
        let target = middle.len() as u8 + 3;
        let mut function = vec![0x48, 0x8d, 0x05, target, 0, 0, 0]; // 20 lea rax, [target]
        function.extend([0x90, 0x50]); // 27 nop; push rax
        function.extend(middle);
        function.extend([0xc3, 0xc3]);

        // push rax: each call is at another depth.
        let code = main_of(&[0x50], &function);

        let mut rows = vec![(0, Rule::OUTERMOST), (0x20, above(8)), (0x29, above(16))];
        if middle.len() > 2 {
            rows.extend([(0x2b, above(24)), (0x2c, above(16))]);
        }
        rows.push((code.len() as u64 - 1, above(8)));

        let found = compared(&code, &|| vec![Rows::of(rows.clone())]);
        // The last one pushes another word after it.
        let truth = &found.truth;
        assert_eq!((truth.trampolines + truth.returns, truth.unheld), (24, 0));
    }
}
