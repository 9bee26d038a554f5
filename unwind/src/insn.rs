//! Classifies the instructions that matter to a shadow stack: calls, returns, jumps through
//! pointers, system calls, and instructions that load rsp or write the word it points to.
//!
//! This is not a decoder. It reads only these opcodes (Intel SDM volume 2, chapter 2 and appendix
//! A), in 64-bit mode. Everything else is [`Insn::Other`].

/// The class of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Insn {
    /// Any other instruction. It may still move rsp by an offset.
    Other,
    /// A near call.
    Call {
        /// Length, bytes: the return address is the instruction's address plus this.
        len: u8,
        /// Whether the target is in a register or memory.
        indirect: bool,
    },
    /// A near return, `ret` or `ret imm16`.
    Ret,
    /// `jmp` to a displacement.
    Jump,
    /// `jmp` to a displacement, after code that loads the address right behind it into a register:
    /// a call through a register, perhaps. Only [`classify_at`] gives it.
    JumpLinked {
        /// The address and the register.
        link: Link,
    },
    /// `jmp` through a register or memory.
    JumpIndirect,
    /// A far call, far jump, far return or `iret`: it may go anywhere.
    Far,
    /// `syscall`. For `rt_sigreturn`, rax is [`SYS_RT_SIGRETURN`].
    Syscall,
    /// `sysenter`, `int 0x80`: a system call in the 32-bit convention.
    Syscall32,
    /// A push of a register, an immediate or memory.
    Push,
    /// A pop into a register other than rsp, or into memory other than the word at rsp.
    Pop,
    /// `pushf`. The pushed word contains the trap flag of a single-stepping host.
    Pushf,
    /// rsp is loaded with something other than rsp plus a constant: `mov`, `xchg`, `lea`, `leave`,
    /// `pop %rsp`, `cmov`.
    MoveSp,
    /// The word at rsp is written, but not by a push: as in a retpoline.
    StoreTop,
    /// The word at rsp is exchanged with a register: `xchg %rax, (%rsp)`.
    SwapTop,
    /// A word a little below rsp is written.
    StoreBelow {
        /// Its address, less rsp.
        offset: i8,
    },
    /// The word at rbp + 8 is written, where the return address is if rbp is a frame pointer.
    StoreFrame,
    /// `int3`, or `int 3`.
    Breakpoint,
}

/// An address right behind a jump, and the register that it was loaded into, in one byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Link(u8);

impl Link {
    /// A `back` that is greater does not fit.
    const BACK_MAX: i64 = 31;
    /// In place of a callee-saved register.
    const SCRATCH: u8 = 7;

    /// The address is `back` bytes behind the start of the jump; `register` has its number in an
    /// instruction. `None` if it is too far behind.
    pub fn new(back: i64, register: u8) -> Option<Link> {
        let saved = SAVED_NUMBERS.iter().position(|&saved| saved == register);
        let saved = saved.map_or(Link::SCRATCH, |index| index as u8);
        let fits = (0..=Link::BACK_MAX).contains(&back);
        fits.then_some(Link((back as u8) << 3 | saved))
    }

    /// The address, less that of the jump.
    pub const fn back(self) -> u8 {
        self.0 >> 3
    }

    /// The register's index in [`crate::regs::Reg::CALLEE_SAVED`]; `None` for one that a call may
    /// change.
    pub fn saved(self) -> Option<usize> {
        let index = self.0 & 7;
        (index != Link::SCRATCH).then_some(index.into())
    }
}

/// The numbers of the callee-saved registers in instructions, in the order of
/// [`crate::regs::Reg::CALLEE_SAVED`].
const SAVED_NUMBERS: [u8; 6] = [3, RBP, 12, 13, 14, 15];

/// The system call number of `rt_sigreturn` (Linux `arch/x86/entry/syscalls/syscall_64.tbl`).
pub const SYS_RT_SIGRETURN: u64 = 15;

/// The maximum length of an instruction, bytes (Intel SDM volume 2, section 2.3.11).
pub const INSN_BYTES_MAX: usize = 15;

const RSP: u8 = 4;
const RBP: u8 = 5;

/// An instruction without its prefixes.
struct Body<'a> {
    bytes: &'a [u8],
    /// Number of prefix bytes, including the REX prefix.
    prefixes: u8,
    rex: u8,
}

impl Body<'_> {
    fn byte(&self, index: usize) -> u8 {
        self.bytes.get(index).copied().unwrap_or(0)
    }

    /// The ModRM fields mod, reg and rm, without the bits added by REX, after `opcode` opcode
    /// bytes.
    fn modrm(&self, opcode: usize) -> (u8, u8, u8) {
        let byte = self.byte(opcode);
        (byte >> 6, (byte >> 3) & 7, byte & 7)
    }

    /// Whether the ModRM reg operand is rsp.
    fn reg_is_rsp(&self, opcode: usize) -> bool {
        self.modrm(opcode).1 == RSP && self.rex & 4 == 0
    }

    /// Whether the ModRM rm operand is the register rsp.
    fn rm_is_rsp(&self, opcode: usize) -> bool {
        let (mode, _, rm) = self.modrm(opcode);
        mode == 3 && rm == RSP && self.rex & 1 == 0
    }

    /// `Some` if the memory operand is rsp plus a constant. The inner value is the constant, if it
    /// is absent (0) or one byte.
    fn based_on_rsp(&self, opcode: usize) -> Option<Option<i8>> {
        let (mode, _, rm) = self.modrm(opcode);
        let sib = self.byte(opcode + 1);
        let no_index = (sib >> 3) & 7 == RSP && self.rex & 2 == 0;
        if mode == 3 || rm != RSP || sib & 7 != RSP || self.rex & 1 != 0 || !no_index {
            return None;
        }
        Some(match mode {
            0 => Some(0),
            1 => Some(self.byte(opcode + 2) as i8),
            _ => None,
        })
    }

    /// Whether the memory operand is 8(%rbp).
    fn is_above_frame_pointer(&self, opcode: usize) -> bool {
        let (mode, _, rm) = self.modrm(opcode);
        (mode, rm) == (1, RBP) && self.rex & 1 == 0 && self.byte(opcode + 1) == 8
    }

    /// The length of ModRM, SIB and displacement.
    fn modrm_len(&self, opcode: usize) -> u8 {
        let (mode, _, rm) = self.modrm(opcode);
        let sib = u8::from(mode != 3 && rm == RSP);
        let displacement = match mode {
            0 if rm == 5 => 4,
            0 if sib == 1 && self.byte(opcode + 1) & 7 == 5 => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        };
        1 + sib + displacement
    }
}

fn body(bytes: &[u8]) -> Body<'_> {
    let bytes = &bytes[..bytes.len().min(INSN_BYTES_MAX)];
    let legacy = |b: &u8| {
        matches!(
            b,
            0x66 | 0x67 | 0xf2 | 0xf3 | 0xf0 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65
        )
    };
    let mut at = bytes.iter().take_while(|b| legacy(b)).count();
    let mut rex = 0;
    if let Some(&b) = bytes.get(at).filter(|&&b| b & 0xf0 == 0x40) {
        rex = b;
        at += 1;
    }
    Body {
        bytes: &bytes[at..],
        prefixes: at as u8,
        rex,
    }
}

/// The class of the instruction at the start of `bytes`. Pass 15 bytes if available; missing bytes
/// read as zero.
pub fn classify(bytes: &[u8]) -> Insn {
    let body = body(bytes);
    let Some(&opcode) = body.bytes.first() else {
        return Insn::Other;
    };
    match opcode {
        // The one-byte opcode map (Intel SDM volume 2, appendix A).
        0xe8 => Insn::Call {
            len: body.prefixes + 5,
            indirect: false,
        },
        0xc3 | 0xc2 => Insn::Ret,
        0xe9 | 0xeb => Insn::Jump,
        // Far returns and `iret`.
        0xca | 0xcb | 0xcf => Insn::Far,
        0xff => group5(&body),
        0x0f => two_bytes(&body),
        0xcc => Insn::Breakpoint,
        0xcd => match body.byte(1) {
            0x80 => Insn::Syscall32,
            3 => Insn::Breakpoint,
            _ => Insn::Other,
        },
        0x9c => Insn::Pushf,
        0x50..=0x57 | 0x68 | 0x6a => Insn::Push,
        0xc9 => Insn::MoveSp,
        // `pop %rsp`, `xchg %rax, %rsp`, `mov $imm, %esp`; with REX.B they change r12.
        0x5c | 0x94 | 0xbc if body.rex & 1 == 0 => Insn::MoveSp,
        0x58..=0x5f => Insn::Pop,
        _ => moves_or_stores(&body, opcode),
    }
}

fn group5(body: &Body<'_>) -> Insn {
    match body.modrm(1).1 {
        2 => Insn::Call {
            len: body.prefixes + 1 + body.modrm_len(1),
            indirect: true,
        },
        4 => Insn::JumpIndirect,
        3 | 5 => Insn::Far,
        6 => Insn::Push,
        _ => Insn::Other,
    }
}

fn two_bytes(body: &Body<'_>) -> Insn {
    match body.byte(1) {
        0x05 => Insn::Syscall,
        0x34 => Insn::Syscall32,
        0x40..=0x4f if body.reg_is_rsp(2) => Insn::MoveSp,
        _ => Insn::Other,
    }
}

fn moves_or_stores(body: &Body<'_>, opcode: u8) -> Insn {
    // `mov` in both directions, `xchg`, `lea`, `pop`, and `mov` of an immediate.
    let loads_rsp = match opcode {
        0x89 => body.rm_is_rsp(1),
        0x8b => body.reg_is_rsp(1),
        0x87 => body.rm_is_rsp(1) || body.reg_is_rsp(1),
        0x8d => body.reg_is_rsp(1) && body.based_on_rsp(1).is_none(),
        0x8f | 0xc7 => body.rm_is_rsp(1),
        _ => false,
    };

    if loads_rsp {
        return Insn::MoveSp;
    }

    // `pop (%rsp)` overwrites the next word, so it is a store at the top.
    if opcode == 0x8f && body.modrm(1).1 == 0 && body.based_on_rsp(1) != Some(Some(0)) {
        return Insn::Pop;
    }

    // Stores and read-modify-write with a memory destination; 0x81/0x83 with reg 7 is `cmp`.
    let stores = match opcode {
        0x01 | 0x09 | 0x11 | 0x19 | 0x21 | 0x29 | 0x31 | 0x87 | 0x89 | 0xc7 | 0x8f => true,
        0x81 | 0x83 => body.modrm(1).1 != 7,
        _ => false,
    };

    if stores {
        match body.based_on_rsp(1) {
            Some(Some(0)) if opcode == 0x87 => return Insn::SwapTop,
            Some(Some(0)) => return Insn::StoreTop,
            // An address of code is stored whole.
            Some(Some(offset)) if offset < 0 && body.rex & 8 != 0 && is_move(opcode) => {
                return Insn::StoreBelow { offset };
            }
            _ => {}
        }
    }

    if stores && body.is_above_frame_pointer(1) {
        return Insn::StoreFrame;
    }

    Insn::Other
}

const fn is_move(opcode: u8) -> bool {
    matches!(opcode, 0x89 | 0xc7)
}

/// How many bytes before an instruction [`classify_at`] looks at.
pub const BYTES_BEFORE: usize = 32;

/// How far behind a jump a return address may be: the assembler may put padding there.
const BEHIND_MAX: i64 = 16;

/// Like [`classify`], for the instruction at `address`, with up to [`BYTES_BEFORE`] bytes of the
/// code before it.
pub fn classify_at(address: u64, before: &[u8], bytes: &[u8]) -> Insn {
    let class = classify(bytes);
    if class != Insn::Jump {
        return class;
    }

    // An address behind the jump is at least its length away: prefixes, opcode and displacement.
    let body = body(bytes);
    let displacement = if body.byte(0) == 0xeb { 1 } else { 4 };
    let len = i64::from(body.prefixes) + 1 + displacement;

    let load = |at: usize| {
        let next = address.wrapping_sub((before.len() - at) as u64);
        let prefix = at.checked_sub(1).map_or(0, |last| before[last]);
        loaded_address(next, prefix, &before[at..])
    };

    // Every byte may be the start of an instruction, since code cannot be decoded backwards.
    let found = (0..before.len()).filter_map(|at| {
        let (register, loaded) = load(at)?;
        let back = loaded.wrapping_sub(address) as i64;
        let link = Link::new(back, register)?;
        let behind = at + LOAD_MIN;
        // `__builtin_setjmp` loads the address of a label, stores it, and loads 0 there.
        let is_lost = (behind..before.len()).any(|at| load(at).is_some_and(|l| l.0 == register));
        let is_kept = link.saved().is_some() || !may_call(&before[behind..]);
        let is_kept = is_kept && !is_lost;
        let is_behind = (len..=len + BEHIND_MAX).contains(&back);
        (is_behind && is_kept).then_some(link)
    });

    // A function that follows may be taken, too.
    match found.min_by_key(|link| link.back()) {
        Some(link) => Insn::JumpLinked { link },
        None => Insn::Jump,
    }
}

/// The length of the shortest instruction that loads an address.
const LOAD_MIN: usize = 5;

/// Whether there may be a call in this code, of which the first bytes may belong to the instruction
/// before it.
fn may_call(code: &[u8]) -> bool {
    let is_call = |bytes: &[u8]| matches!(classify(bytes), Insn::Call { .. });
    (0..code.len()).any(|at| is_call(&code[at..]))
}

/// The register that the instruction at `address` loads an address into, and the address:
/// `lea X(%rip), %reg` or `mov $X, %reg`. `prefix` is the byte before it.
fn loaded_address(address: u64, prefix: u8, bytes: &[u8]) -> Option<(u8, u64)> {
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(word.try_into().ok()?))
    };

    let [first, second, third, ..] = *bytes else {
        return None;
    };

    match (first, second, third) {
        // `lea` with mod 0 and rm 5: relative to rip (Intel SDM volume 2, 2.2.1.6).
        (0x48 | 0x4c, 0x8d, modrm) if modrm & 0xc7 == 5 => {
            let displacement = word(3)? as i32;
            let register = modrm >> 3 & 7 | (first & 4) << 1;
            Some((
                register,
                address.wrapping_add_signed(7 + i64::from(displacement)),
            ))
        }
        // `mov` with an immediate of 32 bits, extended by its sign.
        (0x48 | 0x49, 0xc7, modrm) if modrm & 0xf8 == 0xc0 => {
            let register = modrm & 7 | (first & 1) << 3;
            Some((register, i64::from(word(3)? as i32) as u64))
        }
        // The only instruction with an immediate of 64 bits.
        (0x48 | 0x49, 0xb8..=0xbf, _) => {
            let register = second & 7 | (first & 1) << 3;
            Some((register, u64::from(word(2)?) | u64::from(word(6)?) << 32))
        }
        // With REX.W, the immediate is longer.
        (0xb8..=0xbf, ..) if prefix & 0xf8 != 0x48 => {
            let high = if prefix & 0xf1 == 0x41 { 8 } else { 0 };
            Some((first & 7 | high, word(1)?.into()))
        }
        _ => None,
    }
}

/// Whether `before`, the 8 bytes before a pc, end with a call. Used where a pc must be a return
/// address. Another instruction that ends with the same bytes is mistaken for a call.
pub fn ends_with_call(before: [u8; 8]) -> bool {
    if before[3] == 0xe8 {
        return true;
    }
    (0..=6usize).any(|start| {
        let bytes = &before[start..];
        matches!(classify(bytes), Insn::Call { len, indirect: true }
            if usize::from(len) == bytes.len())
    })
}

/// Whether code begins with the system call `rt_sigreturn`, which a signal handler returns to.
/// glibc and Go write `mov $15,%rax`, musl `mov $15,%eax`; gdb knows them by their bytes, too
/// (`amd64_linux_sigtramp_start`).
pub fn is_sigreturn(code: &[u8]) -> bool {
    const TRAMPOLINES: [&[u8]; 2] = [
        &[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05],
        &[0xb8, 15, 0, 0, 0, 0x0f, 0x05],
    ];
    TRAMPOLINES.iter().any(|bytes| code.starts_with(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], want: Insn) {
        assert_eq!(classify(bytes), want, "{bytes:02x?}");
    }

    #[test]
    fn calls_and_their_length() {
        let call = |len, indirect| Insn::Call { len, indirect };
        check(&[0xe8, 1, 2, 3, 4], call(5, false));
        check(&[0x66, 0x48, 0xe8, 1, 2, 3, 4], call(7, false));
        check(&[0xff, 0xd0], call(2, true));
        check(&[0x41, 0xff, 0xd3], call(3, true));
        check(&[0xff, 0x15, 1, 2, 3, 4], call(6, true));
        check(&[0xff, 0x50, 8], call(3, true));
        check(&[0xff, 0x14, 0xc5, 1, 2, 3, 4], call(7, true));
        check(&[0xff, 0x94, 0xc4, 1, 2, 3, 4], call(7, true));
        check(&[0x41, 0xff, 0x14, 0x24], call(4, true));
        check(&[0x3e, 0xff, 0xd0], call(3, true));
        check(&[0xff, 0x18], Insn::Far);
        check(&[0xff, 0xd4], call(2, true)); // call *%rsp
        check(&[0xff, 0x10, 5], call(2, true)); // call *(%rax), and one more byte
    }

    #[test]
    fn returns_and_jumps() {
        check(&[0xc3], Insn::Ret);
        check(&[0xf3, 0xc3], Insn::Ret);
        check(&[0xf2, 0xc3], Insn::Ret);
        check(&[0xc2, 8, 0], Insn::Ret);
        check(&[0x48, 0xcb], Insn::Far);
        check(&[0x48, 0xcf], Insn::Far);
        check(&[0x3e, 0xff, 0xe0], Insn::JumpIndirect);
        check(&[0xf2, 0xff, 0x25, 0, 0, 0, 0], Insn::JumpIndirect);
        check(&[0xeb, 0xfe], Insn::Jump);
        check(&[0x0f, 0x05], Insn::Syscall);
        check(&[0xcd, 0x80], Insn::Syscall32);
        check(&[0x0f, 0x34], Insn::Syscall32);
        check(&[0x0f, 0x0b], Insn::Other); // ud2
        check(&[0xff, 0xc0], Insn::Other); // inc %eax
    }

    #[test]
    fn breakpoints_in_one_byte_and_in_two() {
        check(&[0xcc], Insn::Breakpoint);
        check(&[0xcd, 3], Insn::Breakpoint);
        check(&[0xcd, 4], Insn::Other); // int $4
    }

    #[test]
    fn instructions_that_load_rsp() {
        check(&[0x48, 0x89, 0xec], Insn::MoveSp); // mov %rbp, %rsp
        check(&[0x48, 0x8b, 0x27], Insn::MoveSp); // mov (%rdi), %rsp
        check(&[0x4c, 0x89, 0xc4], Insn::MoveSp); // mov %r8, %rsp
        check(&[0x49, 0x89, 0xc4], Insn::Other); // mov %rax, %r12
        check(&[0x4c, 0x8b, 0x27], Insn::Other); // mov (%rdi), %r12
        check(&[0x48, 0x87, 0xe0], Insn::MoveSp); // xchg %rsp, %rax
        check(&[0x48, 0x94], Insn::MoveSp); // xchg %rsp, %rax
        check(&[0x5c], Insn::MoveSp); // pop %rsp
        check(&[0x41, 0x5c], Insn::Pop); // pop %r12
        check(&[0xc9], Insn::MoveSp); // leave
        check(&[0x48, 0x8d, 0x65, 0xd8], Insn::MoveSp); // lea -40(%rbp), %rsp
        check(&[0x48, 0x8d, 0x64, 0x24, 8], Insn::Other); // lea 8(%rsp), %rsp
        check(&[0x48, 0x8d, 0x24, 0x04], Insn::MoveSp); // lea (%rsp,%rax), %rsp
        check(&[0x48, 0x0f, 0x44, 0xe0], Insn::MoveSp); // cmove %rax, %rsp
        check(&[0x48, 0x0f, 0x44, 0xc4], Insn::Other); // cmove %rsp, %rax
        check(&[0x8f, 0xc4], Insn::MoveSp); // pop %rsp, the long form
        check(&[0x48, 0xc7, 0xc4, 0, 0, 1, 0], Insn::MoveSp); // mov $0x10000, %rsp
        check(&[0x48, 0x8d, 0x44, 0x24, 8], Insn::Other); // lea 8(%rsp), %rax
        check(&[0x48, 0x8d, 0x47, 8], Insn::Other); // lea 8(%rdi), %rax
        check(&[0x4a, 0x8d, 0x24, 0x24], Insn::MoveSp); // lea (%rsp,%r12), %rsp
        check(&[0x48, 0x8d, 0x24, 0x20], Insn::MoveSp); // lea (%rax), %rsp, with a SIB byte
    }

    #[test]
    fn instructions_that_write_the_top_word() {
        check(&[0x48, 0x89, 0x04, 0x24], Insn::StoreTop); // mov %rax, (%rsp)
        check(&[0x4c, 0x89, 0x1c, 0x24], Insn::StoreTop); // mov %r11, (%rsp)
        check(&[0x48, 0x87, 0x04, 0x24], Insn::SwapTop); // xchg %rax, (%rsp)
        check(&[0x48, 0x83, 0x04, 0x24, 4], Insn::StoreTop); // addq $4, (%rsp)
        check(&[0x48, 0x83, 0x3c, 0x24, 4], Insn::Other); // cmpq $4, (%rsp)
        check(&[0x49, 0x89, 0x04, 0x24], Insn::Other); // mov %rax, (%r12)
        check(&[0x48, 0x89, 0x03, 0x24], Insn::Other); // mov %rax, (%rbx), and one more byte
        check(&[0x48, 0x89, 0x44, 0x24, 8], Insn::Other); // mov %rax, 8(%rsp)
        check(&[0x48, 0x89, 0x44, 0x24, 0], Insn::StoreTop); // mov %rax, 0(%rsp), with a zero byte
        check(&[0x48, 0x89, 0x04, 0x04], Insn::Other); // mov %rax, (%rsp,%rax)
        check(&[0x50], Insn::Push);
        check(&[0x5f], Insn::Pop);
        check(&[0x41, 0x57], Insn::Push);
        check(&[0xff, 0x35, 0, 0, 0, 0], Insn::Push);
        check(&[0x9c], Insn::Pushf);
        check(&[0x8f, 2], Insn::Pop); // pop (%rdx)
        check(&[0x8f, 0x45, 8], Insn::Pop); // pop 8(%rbp)
        check(&[0x8f, 4, 0x24], Insn::StoreTop); // pop (%rsp)
        check(&[0x8f, 0xc0], Insn::Pop); // pop %rax, the long form
    }

    #[test]
    fn instructions_that_write_a_word_below_rsp() {
        let below = |offset| Insn::StoreBelow { offset };
        check(&[0x48, 0x89, 0x44, 0x24, 0xf8], below(-8)); // mov %rax, -8(%rsp)
        check(&[0x4c, 0x89, 0x5c, 0x24, 0xf0], below(-16)); // mov %r11, -16(%rsp)
        check(&[0x48, 0xc7, 0x44, 0x24, 0xf8, 1, 0, 0, 0], below(-8)); // movq $1, -8(%rsp)
        check(&[0x89, 0x44, 0x24, 0xf8], Insn::Other); // mov %eax, -8(%rsp)
        check(&[0x48, 0x89, 0x44, 0x24, 8], Insn::Other); // mov %rax, 8(%rsp)
        check(&[0x49, 0x89, 0x44, 0x24, 0xf8], Insn::Other); // mov %rax, -8(%r12)
        check(&[0x48, 0x01, 0x44, 0x24, 0xf8], Insn::Other); // add %rax, -8(%rsp)
        check(&[0x48, 0x8b, 0x44, 0x24, 0xf8], Insn::Other); // mov -8(%rsp), %rax
    }

    #[test]
    fn a_jump_behind_which_an_address_was_taken() {
        const AT: u64 = 0x40_1000;
        let lea = [0x4c, 0x8d, 0x2d, 5, 0, 0, 0]; // lea 5(%rip), %r13
        let near = [0xe9, 0, 1, 0, 0];
        let by = |back, register| {
            let link = Link::new(back, register).expect("it fits");
            assert_eq!(i64::from(link.back()), back);
            let saved = SAVED_NUMBERS.iter().position(|&saved| saved == register);
            assert_eq!(link.saved(), saved);
            Insn::JumpLinked { link }
        };

        let linked = |back| by(back, 13);
        let at = |before: &[u8], bytes: &[u8]| classify_at(AT, before, bytes);

        // Right behind the jump, or inside of it.
        assert_eq!(at(&lea, &near), linked(5));
        assert_eq!(at(&[&lea[..], &[0x90; 3]].concat(), &near), Insn::Jump);

        // The address in rax, some bytes before a near jump, a short one and an indirect one.
        let lea = [0x48, 0x8d, 0x05, 9, 0, 0, 0, 0x90, 0x90];
        assert_eq!(at(&lea, &near), by(7, 0));
        assert_eq!(at(&lea, &[0xeb, 0x20]), by(7, 0));
        assert_eq!(at(&lea, &[0xff, 0xe0]), Insn::JumpIndirect);

        // Of two addresses, the nearest one behind the jump.
        let two = [
            0x48, 0x8d, 0x05, 0x10, 0, 0, 0, 0x4c, 0x8d, 0x2d, 5, 0, 0, 0,
        ];
        assert_eq!(at(&two, &near), linked(5));

        // A call in between changes rax, but not r13.
        let call = [0xff, 0xd0];
        let lea = [&[0x4c, 0x8d, 0x2d, 7, 0, 0, 0], &call[..]].concat();
        assert_eq!(at(&lea, &near), linked(5));
        let lea = [&[0x48, 0x8d, 0x05, 7, 0, 0, 0], &call[..]].concat();
        assert_eq!(at(&lea, &near), Insn::Jump);
        let lea = [0x48, 0x8d, 0x05, 0x80, 0, 0, 0];
        assert_eq!(at(&lea, &near), Insn::Jump);

        // Absolute addresses, as in code that is not position-independent.
        let back = (AT as u32 + 6).to_le_bytes();
        for opcodes in [&[0xb9][..], &[0x48, 0xc7, 0xc1]] {
            assert_eq!(at(&[opcodes, &back].concat(), &near), by(6, 1));
        }
        let high = [&[0x41, 0xbd][..], &back].concat();
        assert_eq!(at(&high, &near), linked(6));

        // A jump of five bytes covers the address, one of two does not.
        let wide = [&[0x49, 0xbd][..], &(AT + 2).to_le_bytes()].concat();
        assert_eq!(at(&wide, &[0xeb, 0x20]), linked(2));
        assert_eq!(at(&wide, &near), Insn::Jump);
    }

    #[test]
    fn instructions_that_write_the_word_above_the_frame_pointer() {
        check(&[0x48, 0x89, 0x45, 8], Insn::StoreFrame); // mov %rax, 8(%rbp)
        check(&[0x48, 0xc7, 0x45, 8, 1, 0, 0, 0], Insn::StoreFrame); // movq $1, 8(%rbp)
        check(&[0x48, 0x89, 0x45, 0xf8], Insn::Other); // mov %rax, -8(%rbp)
        check(&[0x49, 0x89, 0x45, 8], Insn::Other); // mov %rax, 8(%r13)
        check(&[0x48, 0x8b, 0x45, 8], Insn::Other); // mov 8(%rbp), %rax
        check(&[0x48, 0x89, 0xe8], Insn::Other); // mov %rbp, %rax
    }

    #[test]
    fn vex_and_truncated_bytes_are_other() {
        check(&[], Insn::Other);
        check(&[0x48], Insn::Other);
        check(&[0x66, 0x66], Insn::Other);
        check(&[0xc5, 0xf8, 0x77], Insn::Other);
        check(&[0x66; 15], Insn::Other);
    }

    #[test]
    fn a_return_address_follows_a_call() {
        assert!(ends_with_call([0, 0, 0, 0xe8, 1, 2, 3, 4]));
        assert!(ends_with_call([0, 0, 0, 0, 0, 0, 0xff, 0xd0]));
        assert!(ends_with_call([0, 0, 0xff, 0x15, 1, 2, 3, 4]));
        assert!(!ends_with_call([0x90; 8]));
        assert!(is_sigreturn(&[0xb8, 15, 0, 0, 0, 0x0f, 0x05, 0x90]));
        assert!(!is_sigreturn(&[0xb8, 60, 0, 0, 0, 0x0f, 0x05, 0x90]));
        assert!(!ends_with_call([0, 0, 0, 0, 0, 0, 0xff, 0xe0]));
    }
}
