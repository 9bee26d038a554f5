//! Random functions that push, pop, and move rsp: what is counted in runs is what is counted one by
//! one.

use super::*;
use crate::random::Random;
use std::collections::BTreeMap;
use unwind_sim_unwind::fp::FramePointer;

/// The callee-saved registers, and rax: by hardware number.
const REGISTERS: [u8; 7] = [3, 5, 12, 13, 14, 15, 0];

/// The offset of the function; main is before it.
const F: u64 = 0x20;

/// A function while it is made.
pub(super) struct Function {
    pub(super) code: Vec<u8>,
    /// The distance from rsp to the CFA.
    offset: i32,
    /// Where the callee-saved registers are, from the CFA.
    saved: BTreeMap<Reg, i32>,
    /// Whether rbp is the frame pointer.
    by_rbp: bool,
    /// Whether it has several blocks, and wrong rows that follow each other.
    jumps: bool,
    /// Of so many rows, up to four are wrong.
    rows_of_wrong: u64,
    /// The kind of the last row: what is wrong with it.
    kind: u64,
    pub(super) rows: Vec<(u64, Rule)>,
}

impl Function {
    fn reg(number: u8) -> Option<Reg> {
        let at = REGISTERS.iter().position(|&n| n == number)?;
        Reg::CALLEE_SAVED.get(at).copied()
    }

    /// The row that a compiler would write for the next instruction.
    fn rule(&self) -> Rule {
        let rule = if self.by_rbp {
            Rule::call(Value::reg(Reg::Rbp, 16))
        } else {
            above(self.offset)
        };
        let saved = self.saved.iter();
        saved.fold(rule, |rule, (&reg, &slot)| {
            rule.with_saved(reg, Value::at_cfa(slot))
        })
    }

    fn step(&mut self, random: &mut Random) {
        let right = self.rule();
        if !self.jumps || !random.chance(1, 3) {
            self.kind = random.below_u64(self.rows_of_wrong);
        }

        // Each is wrong in another thing; the last one claims less, which is not wrong.
        let row = match self.kind {
            0 => above(self.offset + 8),
            1 => right.with_saved(Reg::Rbx, Value::at_cfa(-16)),
            2 => Rule::FRAME_POINTER,
            3 => right.with_saved(Reg::R12, Value::Undefined),
            _ => right,
        };
        self.rows.push((F + self.code.len() as u64, row));

        let register = random.pick(&REGISTERS);
        let (high, low) = (register >> 3, register & 7);

        match random.below_u64(if self.jumps { 13 } else { 11 }) {
            // push: 50+r, with REX.B for r8 to r15 (Intel SDM, volume 2).
            0..3 => {
                self.code.extend([0x40 | high, 0x50 | low]);
                self.offset += 8;
                if let Some(reg) = Self::reg(register) {
                    self.saved.entry(reg).or_insert(-self.offset);
                }
            }
            // It may take the return address.
            3..5 if self.offset > 8 || random.chance(1, 8) => {
                self.code.extend([0x40 | high, 0x58 | low]);
                let slot = -self.offset;
                self.offset -= 8;
                self.saved
                    .retain(|&reg, &mut at| at != slot || Self::reg(register) != Some(reg));
            }
            5 => {
                self.code.extend([0x48, 0x83, 0xec, 0x10]);
                self.offset += 16;
            }
            // add rsp, 16, or lea rsp, [rsp + 16].
            6 if self.offset > 24 => {
                if random.chance(1, 2) {
                    self.code.extend([0x48, 0x83, 0xc4, 0x10])
                } else {
                    self.code.extend([0x48, 0x8d, 0x64, 0x24, 0x10])
                }
                self.offset -= 16;
            }
            // mov rbp, rsp: only right behind the push of rbp does it make a frame pointer.
            7 if random.chance(1, 3) => {
                self.code.extend([0x48, 0x89, 0xe5]);
                self.by_rbp = self.offset == 16 && self.saved.contains_key(&Reg::Rbp);
            }
            // To or from a word of the frame, or the return address.
            8 | 9 => {
                let word = random.below_u64(self.offset as u64 / 8 + 1) * 8;
                let is_last = word + 8 >= self.offset as u64;
                let opcode = if random.chance(1, 3) && (!is_last || random.chance(1, 8)) {
                    0x89
                } else {
                    0x8b
                };
                self.code
                    .extend([0x48 | high << 2, opcode, 0x44 | low << 3, 0x24, word as u8]);
            }
            // The next instruction begins a block: a jump to it, or over nothing if equal.
            11 | 12 => self
                .code
                .extend([if random.chance(1, 2) { 0xeb } else { 0x74 }, 0]),
            // mov of a constant to a register, which may be one that the row calls unchanged.
            _ => {
                let constant = random.below_u64(1 << 20) as u32;
                self.code.extend([0x40 | high, 0xb8 | low]);
                self.code.extend(constant.to_le_bytes());
            }
        }
    }

    /// A function of some instructions, which leaves by `ret`.
    pub(super) fn new(random: &mut Random, jumps: bool, rows_of_wrong: u64) -> Function {
        let mut function = Function {
            code: Vec::new(),
            offset: 8,
            saved: BTreeMap::new(),
            by_rbp: false,
            jumps,
            rows_of_wrong,
            kind: 11,
            rows: vec![(0, Rule::OUTERMOST)],
        };

        for _ in 0..4 + random.below_u64(24) {
            function.step(random);
        }

        let rule = function.rule();
        function.rows.push((F + function.code.len() as u64, rule));

        let up = function.offset - 8;
        // add rsp, imm32: up to the return address, whatever the steps left on the stack.
        function.code.extend([0x48, 0x81, 0xc4]);
        function.code.extend(up.to_le_bytes());
        function
            .rows
            .push((F + function.code.len() as u64, above(8)));
        function.code.push(0xc3);

        function
    }
}

/// What was found and counted, and the shadow stack at the end.
fn results(seed: u64, slice: u64, elide: bool) -> (Vec<Told>, String, Results) {
    let mut random = Random::new(seed);
    // Where most rows are right, the frame pointer, which is not, is left out.
    let is_right = seed % 2 == 1;
    let function = Function::new(&mut random, seed < 100, if is_right { 50 } else { 12 });
    let sp = if seed.is_multiple_of(3) {
        // A push may fault.
        STACK.start + 8 * (seed % 16)
    } else {
        SP
    };
    results_of(function, !is_right, sp, slice, elide)
}

fn results_of(
    function: Function,
    frame_pointer: bool,
    sp: u64,
    slice: u64,
    elide: bool,
) -> (Vec<Told>, String, Results) {
    let code = main_of(&[], &function.code);
    // With fewer registers, its claims are a part of the other table's.
    let frame = Rows {
        carries: RegMask::FRAME,
        ..Rows::of(function.rows.clone())
    };
    let mut engines = engines(vec![Rows::of(function.rows), frame]);
    if frame_pointer {
        engines.push(Engine::Table(Box::new(FramePointer)));
    }

    let mut machine = machine(&code);
    machine.core.state.set_gpr(4, sp);
    // rbp points into the stack, so that rows which wrongly count from it can read there.
    machine.core.state.set_gpr(5, SP - 64);
    let mut checker = checker(&engines, &machine, &code, elide);

    let mut left = 1000;
    while left > 0 && machine.run(slice.min(left), &mut checker) == Exit::Limit {
        left -= slice.min(left);
    }

    checker.end_run();
    let tracker = format!("{:?}", checker.stacks.tracker);
    let results = checker.finish().0;
    (told(&results), tracker, results)
}

#[test]
fn runs_over_pushes_and_pops_count_what_their_instructions_would() {
    let (mut quick, mut all) = (0, 0);
    // The last one stores above all frames, where a wrong row reads.
    for seed in (0..100).chain([1114]) {
        for slice in [u64::MAX, 3, 7] {
            let (expected, stack, one_by_one) = results(seed, slice, false);
            let (told, tracker, results) = results(seed, slice, true);
            let what = format!("seed {seed}, {slice} instructions at a time");
            assert_eq!((told, tracker), (expected, stack), "{what}");
            assert_eq!(results.tallies, one_by_one.tallies, "{what}");
            assert_eq!(results.stores, one_by_one.stores, "{what}");
            assert_eq!(results.truth, one_by_one.truth, "{what}");
            assert_eq!(results.instructions, one_by_one.instructions, "{what}");
            // A slice cuts runs short, so only whole ones say how much work they save.
            if slice == u64::MAX {
                quick += results.work.frames;
                all += one_by_one.work.frames;
            }
        }
    }
    assert!(quick < all * 9 / 10, "evaluated at {quick} of {all}");
}

/// A return address is taken off the stack in a run, and put back; a push of a run faults; and the
/// rows of a block are wrong, but not those of the block before, also where they would be right
/// before the push in that block.
#[test]
fn a_run_ends_before_a_frame_is_left() {
    // The code, and the distance from rsp to the CFA at its instructions.
    type Made<'a> = (&'a [u8], &'a [(u64, i32)]);
    let functions: [Made<'_>; 8] = [
        // push rax; nop; call f
        (
            &[0x50, 0x90, 0xe8, 0xf9, 0xff, 0xff, 0xff],
            &[(0, 8), (1, 16)],
        ),
        // pop rax; nop; push rax; ret
        (&[0x58, 0x90, 0x50, 0xc3], &[(0, 8), (1, 0), (2, 0), (3, 8)]),
        // nop; add rsp, 8; sub rsp, 8; ret
        (
            &[0x90, 0x48, 0x83, 0xc4, 8, 0x48, 0x83, 0xec, 8, 0xc3],
            &[(0, 8), (1, 8), (5, 0), (9, 8)],
        ),
        // nop; add rsp, 24; nop; sub rsp, 24; ret
        (
            &[0x90, 0x48, 0x83, 0xc4, 24, 0x90, 0x48, 0x83, 0xec, 24, 0xc3],
            &[(0, 8), (5, -16), (10, 8)],
        ),
        // push rax; pop rax; pop rax; pop rcx; nop; push rcx; push rax; ret
        (
            &[0x50, 0x58, 0x58, 0x59, 0x90, 0x51, 0x50, 0xc3],
            &[(0, 8), (1, 16), (2, 8), (3, 0), (4, -8), (6, 0), (7, 8)],
        ),
        // mov eax, eax; jmp 4; pop rax; pop rcx; nop; push rcx; push rax; ret
        (
            &[0x89, 0xc0, 0xeb, 0, 0x58, 0x59, 0x90, 0x51, 0x50, 0xc3],
            &[(0, 8), (5, 0), (6, -8), (8, 0), (9, 8)],
        ),
        // nop; nop; jmp 4; nop; nop; ret
        (
            &[0x90, 0x90, 0xeb, 0, 0x90, 0x90, 0xc3],
            &[(0, 8), (4, 16), (6, 8)],
        ),
        // nop; jmp 3; push rax; nop; jmp 7; nop; nop; pop rax; ret
        (
            &[0x90, 0xeb, 0, 0x50, 0x90, 0xeb, 0, 0x90, 0x90, 0x58, 0xc3],
            &[(0, 8), (4, 16), (7, 8), (9, 16), (10, 8)],
        ),
    ];

    for (code, rows) in functions {
        let sp = STACK.start + 0x108;
        let rows = rows.iter().map(|&(at, offset)| (F + at, above(offset)));
        let function = || Function {
            code: code.to_vec(),
            offset: 8,
            saved: BTreeMap::new(),
            by_rbp: false,
            jumps: false,
            rows_of_wrong: 0,
            kind: 0,
            rows: std::iter::once((0, Rule::OUTERMOST))
                .chain(rows.clone())
                .collect(),
        };

        for frame_pointer in [true, false] {
            let (expected, stack, one_by_one) =
                results_of(function(), frame_pointer, sp, u64::MAX, false);
            let (told, tracker, results) =
                results_of(function(), frame_pointer, sp, u64::MAX, true);
            assert_eq!((told, tracker), (expected, stack));
            assert_eq!(results.tallies, one_by_one.tallies);
            assert_eq!(results.truth, one_by_one.truth);
        }
    }
}
