//! Filters of system calls: programs of classic BPF. Not here: what their answers mean
//! (`calls::seccomp`).
//!
//! Source: Linux 6.12 `kernel/seccomp.c`, `net/core/filter.c` (`bpf_check_classic`).

use std::rc::Rc;

/// A `struct sock_filter`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    k: u32,
}

impl Instruction {
    /// The instruction in a word of memory.
    pub(super) fn from_word(word: u64) -> Instruction {
        Instruction {
            code: word as u16,
            if_true: (word >> 16) as u8,
            if_false: (word >> 24) as u8,
            k: (word >> 32) as u32,
        }
    }
}

/// A filter; those of a thread are all asked.
pub(super) type Filter = Rc<[Instruction]>;

/// `BPF_MAXINSNS`, and `BPF_MEMWORDS`.
pub(super) const INSTRUCTIONS_MAX: u16 = 4096;
const WORDS: u32 = 16;
/// Size of `struct seccomp_data`, bytes.
const DATA: u32 = 64;
/// What a jump compares: `BPF_JEQ` and the like, with the constant or with X.
fn compares(code: u16, a: u32, b: u32) -> Option<bool> {
    Some(match code & !8 {
        0x15 => a == b,
        0x25 => a > b,
        0x35 => a >= b,
        0x45 => a & b != 0,
        _ => return None,
    })
}

/// The result of an arithmetic instruction; `None` if it divides by 0.
fn computes(code: u16, a: u32, b: u32) -> Option<u32> {
    Some(match code & 0xf0 {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        0x30 => a.checked_div(b)?,
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a.wrapping_shl(b),
        0x70 => a.wrapping_shr(b),
        0x80 => a.wrapping_neg(),
        _ => a ^ b,
    })
}

/// Whether the kernel takes the program as a filter.
pub(super) fn is_valid(program: &[Instruction]) -> bool {
    const SHIFTS: [u16; 2] = [0x64, 0x74];
    let length = program.len();
    // For each instruction, the words of memory that are set when it is reached.
    let mut set = vec![u16::MAX; length];
    let mut now = 0_u16;

    for (at, instruction) in program.iter().enumerate() {
        let Instruction {
            code,
            if_true,
            if_false,
            k,
        } = *instruction;

        // Where paths meet, only what all of them have set counts.
        now &= set[at];
        let target = |by: usize| at + 1 + by;

        let is_right = match code {
            // Only whole words of `struct seccomp_data` (`seccomp_check_filter`).
            0x20 => k < DATA && k % 4 == 0,
            // ld len, ldx len, ld imm, ldx imm, ret, tax, txa, neg.
            0x80 | 0x81 | 0x00 | 0x01 | 0x06 | 0x16 | 0x07 | 0x87 | 0x84 => true,
            // 0x03|st, stx.
            0x02 | 0x03 if k < WORDS => {
                now |= 1 << k;
                true
            }
            // Memory is written before it is read (`check_load_and_stores`).
            0x60 | 0x61 => k < WORDS && now & 1 << k != 0,
            // ja.
            0x05 => {
                let to = usize::try_from(k).map_or(length, target);
                set.get_mut(to).is_some_and(|set| {
                    *set &= now;
                    now = u16::MAX;
                    true
                })
            }
            // A division by a constant.
            0x34 => k != 0,
            // A shift by a constant.
            code if SHIFTS.contains(&code) => k < 32,
            0x04 | 0x0c | 0x14 | 0x1c | 0x24 | 0x2c | 0x3c | 0x44 | 0x4c | 0x54 | 0x5c | 0x6c
            | 0x7c | 0xa4 | 0xac => true,
            code if compares(code, 0, 0).is_some() => {
                let targets = [if_true, if_false].map(|by| target(by.into()));
                let inside = targets.iter().all(|&to| to < length);
                for to in targets.into_iter().filter(|_| inside) {
                    set[to] &= now;
                }
                // The next instruction can be reached by jumps only.
                now = u16::MAX;
                inside
            }
            _ => false,
        };

        if !is_right {
            return false;
        }
    }

    // Jumps go forward only, so a last instruction that returns ends every path.
    program
        .last()
        .is_some_and(|last| matches!(last.code, 0x06 | 0x16))
}

/// What a valid filter says of a call.
pub(super) fn run(program: &[Instruction], data: &[u32; 16]) -> u32 {
    let (mut a, mut x) = (0_u32, 0_u32);
    let mut memory = [0_u32; WORDS as usize];
    let mut at = 0;

    // Jumps go forward only.
    while let Some(&Instruction {
        code,
        if_true,
        if_false,
        k,
    }) = program.get(at)
    {
        at += 1;
        // `BPF_X`: the operand is the index register.
        let operand = if code & 8 == 0 { k } else { x };

        match code {
            0x20 => a = data[k as usize / 4],
            0x80 => a = DATA,
            0x81 => x = DATA,
            0x00 => a = k,
            0x01 => x = k,
            0x06 => return k,
            0x16 => return a,
            0x07 => x = a,
            0x87 => a = x,
            0x02 => memory[k as usize] = a,
            0x03 => memory[k as usize] = x,
            0x60 => a = memory[k as usize],
            0x61 => x = memory[k as usize],
            0x05 => at += k as usize,
            code => match compares(code, a, operand) {
                Some(is_true) => at += usize::from(if is_true { if_true } else { if_false }),
                None => match computes(code, a, operand) {
                    Some(result) => a = result,
                    None => return 0,
                },
            },
        }
    }

    // A valid filter ends with a return.
    0
}
