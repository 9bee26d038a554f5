//! The decode table: which group has a mnemonic. Not here: the groups.
//!
//! A group's `select` may change the operation although it does not know the instruction, so an
//! instruction is shown to as few as possible.

use super::*;
use Mnemonic::*;
use iced_x86::{EncodingKind, Mnemonic};

/// A group's function that finds the function of an instruction.
type Select = fn(&Instruction, &mut Op) -> Option<Run>;

/// The function of an instruction whose operands are in `op`. `None` if it is not modelled.
pub(crate) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    let group = TABLE.get(insn.mnemonic() as usize);
    match group.and_then(|group| GROUPS.get(usize::from(*group))) {
        Some((select, _)) => select(insn, op),
        None => vectors(insn, op),
    }
}

/// The instructions with vector registers, and those that share a mnemonic with one.
fn vectors(insn: &Instruction, op: &mut Op) -> Option<Run> {
    match insn.encoding() {
        EncodingKind::Legacy => sse::select(insn, op).or_else(|| mmx::select(insn, op)),
        EncodingKind::VEX => avx::select(insn, op),
        _ => None,
    }
}

/// `mov` of any registers.
fn moves(insn: &Instruction, op: &mut Op) -> Option<Run> {
    mov::select(insn, op)
        .or_else(|| segment::select(insn, op))
        .or_else(|| system::select(insn, op))
}

/// `push` and `pop` of any registers.
fn pushes(insn: &Instruction, op: &mut Op) -> Option<Run> {
    stack::select(insn, op).or_else(|| segment::select(insn, op))
}

/// Near and far calls and jumps.
fn branches(insn: &Instruction, op: &mut Op) -> Option<Run> {
    branch::select(insn, op).or_else(|| far::select(insn, op))
}

/// `movsd` and `cmpsd`: of strings, or of vector registers.
fn strings(insn: &Instruction, op: &mut Op) -> Option<Run> {
    string::select(insn, op).or_else(|| vectors(insn, op))
}

/// More than there are mnemonics.
const COUNT: usize = 2048;

/// The group of every mnemonic, by its number in [`GROUPS`]; another number for [`vectors`].
static TABLE: [u8; COUNT] = table();

const fn table() -> [u8; COUNT] {
    let mut table = [u8::MAX; COUNT];
    let mut group = 0;
    while group < GROUPS.len() {
        let mnemonics = GROUPS[group].1;
        let mut number = 0;
        while number < mnemonics.len() {
            let entry = &mut table[mnemonics[number] as usize];
            assert!(*entry == u8::MAX, "a mnemonic is in two groups");
            *entry = group as u8;
            number += 1;
        }
        group += 1;
    }
    table
}

/// The groups, and their mnemonics.
#[rustfmt::skip]
const GROUPS: &[(Select, &[Mnemonic])] = &[
    (moves, &[Mov]),
    (pushes, &[Push, Pop]),
    (branches, &[Jmp, Call]),
    (strings, &[Movsd, Cmpsd]),
    (alu::select, &[
        Adc, Add, And, Cmp, Dec, Inc, Neg, Not, Or, Sbb, Sub, Test, Xor,
    ]),
    (mov::select, &[
        Bswap, Cbw, Cdq, Cdqe, Cldemote, Clflush, Clflushopt, Clwb, Cmova, Cmovae, Cmovb,
        Cmovbe, Cmove, Cmovg, Cmovge, Cmovl, Cmovle, Cmovne, Cmovno, Cmovnp, Cmovns, Cmovo,
        Cmovp, Cmovs, Cqo, Cwd, Cwde, Endbr32, Endbr64, Lea, Lfence, Mfence, Movbe, Movsx,
        Movsxd, Movzx, Nop, Pause, Prefetch, Prefetchit0, Prefetchit1, Prefetchnta,
        Prefetcht0, Prefetcht1, Prefetcht2, Prefetchw, Prefetchwt1, Rdsspd, Rdsspq,
        Reservednop, Seta, Setae, Setb, Setbe, Sete, Setg, Setge, Setl, Setle, Setne, Setno,
        Setnp, Setns, Seto, Setp, Sets, Sfence, Xchg,
    ]),
    (branch::select, &[
        Ja, Jae, Jb, Jbe, Je, Jecxz, Jg, Jge, Jl, Jle, Jne, Jno, Jnp, Jns, Jo, Jp, Jrcxz,
        Js, Loop, Loope, Loopne, Ret,
    ]),
    (stack::select, &[
        Enter, Leave, Popf, Popfq, Pushf, Pushfq,
    ]),
    (|insn, _| shift::select(insn), &[
        Rcl, Rcr, Rol, Ror, Sal, Sar, Shl, Shld, Shr, Shrd,
    ]),
    (|insn, _| muldiv::select(insn), &[
        Div, Idiv, Imul, Mul,
    ]),
    (|insn, _| bits::select(insn), &[
        Bsf, Bsr, Bt, Btc, Btr, Bts, Crc32, Lzcnt, Popcnt, Tzcnt,
    ]),
    (bmi::select, &[
        Rorx, Adcx, Adox, Andn, Bextr, Blsi, Blsmsk, Blsr, Bzhi, Mulx, Pdep, Pext, Sarx, Shlx,
        Shrx,
    ]),
    (string::select, &[
        Cmpsb, Cmpsq, Cmpsw, Lodsb, Lodsd, Lodsq, Lodsw, Movsb, Movsq, Movsw, Scasb, Scasd,
        Scasq, Scasw, Stosb, Stosd, Stosq, Stosw, Xlatb,
    ]),
    (|insn, _| atomic::select(insn), &[
        Cmpxchg, Cmpxchg16b, Cmpxchg8b, Xadd,
    ]),
    (|insn, _| flag::select(insn), &[
        Clc, Cld, Cmc, Lahf, Sahf, Stc, Std,
    ]),
    (segment::select, &[
        Rdfsbase, Rdgsbase, Wrfsbase, Wrgsbase,
    ]),
    (|insn, _| cpuid::select(insn), &[
        Cpuid, Rdpid, Rdtsc, Rdtscp, Xgetbv,
    ]),
    (|insn, _| random::select(insn), &[
        Rdrand, Rdseed,
    ]),
    (x87::select, &[
        F2xm1, Fabs, Fadd, Faddp, Fbld, Fbstp, Fchs, Fcmovb, Fcmovbe, Fcmove, Fcmovnb,
        Fcmovnbe, Fcmovne, Fcmovnu, Fcmovu, Fcom, Fcomi, Fcomip, Fcomp, Fcompp, Fcos,
        Fdecstp, Fdiv, Fdivp, Fdivr, Fdivrp, Ffree, Ffreep, Fiadd, Ficom, Ficomp, Fidiv,
        Fidivr, Fild, Fimul, Fincstp, Fist, Fistp, Fisttp, Fisub, Fisubr, Fld, Fld1, Fldcw,
        Fldenv, Fldl2e, Fldl2t, Fldlg2, Fldln2, Fldpi, Fldz, Fmul, Fmulp, Fnclex, Fndisi,
        Fneni, Fninit, Fnop, Fnsave, Fnsetpm, Fnstcw, Fnstenv, Fnstsw, Fpatan, Fprem,
        Fprem1, Fptan, Frndint, Frstor, Fscale, Fsin, Fsincos, Fsqrt, Fst, Fstp, Fstpnce,
        Fsub, Fsubp, Fsubr, Fsubrp, Ftst, Fucom, Fucomi, Fucomip, Fucomp, Fucompp, Fxam,
        Fxch, Fxtract, Fyl2x, Fyl2xp1, Wait,
    ]),
    (save::select, &[
        Fxrstor, Fxrstor64, Fxsave, Fxsave64, Xrstor, Xrstor64, Xrstors, Xrstors64, Xsave,
        Xsave64, Xsavec, Xsavec64, Xsaveopt, Xsaveopt64, Xsaves, Xsaves64,
    ]),
    (system::select, &[
        Clac, Cli, Clrssbsy, Clts, Clzero, Hlt, In, Incsspd, Incsspq, Insb, Insd, Insw, Int,
        Int1, Int3, Invd, Invlpg, Lar, Lfs, Lgdt, Lgs, Lidt, Lldt, Lmsw, Lsl, Lss, Ltr, Monitor,
        Mwait, Out, Outsb, Outsd, Outsw, Rdmsr, Rdpmc, Rsm, Rstorssp, Saveprevssp, Setssbsy,
        Sgdt, Sidt, Sldt, Smsw, Stac, Sti, Str, Swapgs, Syscall, Sysenter, Sysexit, Sysexitq,
        Sysret, Sysretq, Ud0, Ud1, Ud2, Verr, Verw, Wbinvd, Wrmsr, Wrssd, Wrssq, Wrussd, Wrussq,
        Xsetbv,
    ]),
    (far::select, &[
        Iret, Iretd, Iretq, Retf,
    ]),
    (crypto::select, &[
        Aesdec, Aesdeclast, Aesenc, Aesenclast, Aesimc, Aeskeygenassist, Gf2p8affineinvqb,
        Gf2p8affineqb, Gf2p8mulb, Pclmulqdq, Sha1msg1, Sha1msg2, Sha1nexte, Sha1rnds4,
        Sha256msg1, Sha256msg2, Sha256rnds2, Vaesdec, Vaesdeclast, Vaesenc, Vaesenclast,
        Vaesimc, Vaeskeygenassist, Vgf2p8affineinvqb, Vgf2p8affineqb, Vgf2p8mulb, Vpclmulqdq,
    ]),
    (|insn, _| sse4a::select(insn), &[
        Extrq, Insertq, Movntsd, Movntss,
    ]),
];
