//! Finds why a chain is wrong: the frame, the rule and the row that are to blame.
//!
//! A chain shows where it diverges from the truth. The cause may be frames earlier, where a row
//! restored a register wrongly. Each true frame up to the divergence is checked separately, and the
//! nearest contradiction is the cause. For the frame pointer the cause is determined from code and
//! truth, never from a DWARF row.

use crate::check::{Class, Contradiction, Subject, true_frame};
use crate::precise::is_shifted;
use crate::whole::Known;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::Chain;
use unwind_sim_unwind::event::Event;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::frame::Frame;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::memory::Memory;
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::start::Start;
use unwind_sim_unwind::step::step;
use unwind_sim_unwind::verdict::{Ground, Verdict};
use unwind_sim_unwind::walk::WalkTarget;

/// Why a chain differs from the true one.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// The reason code.
    pub code: Code,
    /// The true frame whose rule is to blame, or else the one before the divergence.
    pub frame: usize,
    /// The pc of that frame.
    pub pc: CodeAddress,
    /// The contradiction of that frame's row, if one was found.
    pub contradiction: Option<Contradiction>,
}

/// A completed walk.
pub struct Walked<'a> {
    /// The chain that it found.
    pub chain: &'a Chain,
    /// The code with which it ended: [`end_code`].
    pub ended: Code,
    /// The start of the walk.
    pub start: &'a Start,
    /// Whether it started from fake registers.
    pub is_fake: bool,
    /// All frames are right, but the registers after the last one are not those of user space.
    pub left_wrong: bool,
    /// The address space and the memory that the walk saw.
    pub place: WalkTarget<'a, dyn Memory + 'a>,
}

/// The cause of `verdict` on a walk whose first frame is true frame `from`. `None` if the walk is
/// right or not judged.
pub fn diagnose(
    subject: &Subject<'_>,
    finder: Option<&dyn Finder>,
    walked: &Walked<'_>,
    verdict: Verdict,
    from: usize,
    cache: &mut Cache,
) -> Option<Diagnosis> {
    let chain = walked.chain;
    if verdict == Verdict::Looped {
        return Some(plain(subject, walked.ended, from));
    }

    if !verdict.is_wrong() {
        return match (verdict, finder) {
            (Verdict::Unsupported, _) => Some(plain(subject, walked.ended, from)),
            (Verdict::Ok, Some(finder)) => {
                let from = from + usize::from(is_shifted(&walked.start.regs, subject.space));
                latent(subject, finder, from, cache)
            }
            _ => None,
        };
    }

    // The registers are those of after the instruction, so the row of its address does not fit
    // them.
    if is_shifted(&walked.start.regs, subject.space) {
        return Some(plain(subject, Code::AfterInstruction, from));
    }

    // The kernel's part was right; it went on with other registers of user space than the true
    // ones.
    if walked.left_wrong {
        let last = subject.truth.frames().len().saturating_sub(1);
        return Some(plain(subject, Code::WrongUserRegs, last));
    }

    // Verdicts count from the first frame of the chain, the truth from the sampled function.
    let divergence = from + verdict.at().unwrap_or(0) as usize;
    let last_right = divergence.saturating_sub(1);
    // If no row is to blame, the cause is what ended the walk, or what was taken for a return
    // address.
    let code = match verdict {
        Verdict::Truncated { .. } => walked.ended,
        _ => Code::WrongReturnAddress,
    };

    let end = chain.end.reason;
    // The start itself is wrong, or lacks a register: no row has been used wrongly.
    if divergence == from || matches!(end, Reason::RegistersMissing { .. }) {
        return Some(plain(subject, walked.ended, from));
    }

    let Some(finder) = finder else {
        return Some(plain(subject, code, last_right));
    };

    // The chain goes on past the root: its row should have ended it.
    let past_root = divergence == subject.truth.frames().len();
    if past_root && let Some(contradiction) = subject.check_root(finder, cache) {
        return Some(blame(contradiction, None));
    }

    // The nearest frame first: the cause is the last contradiction before the chain went wrong.
    for index in (from..=last_right).rev() {
        let found = subject.check_frame(finder, index, cache);
        // In an inner frame only a register or the next lookup address can be to blame: with a
        // wrong CFA or return address the walk would have diverged there.
        let blamed = found
            .into_iter()
            .find(|c| index == last_right || c.reg != Reg::Rip || c.misread);

        if let Some(contradiction) = blamed {
            let row = contradiction.row.as_ref();
            let by_frame_pointer = row.is_some_and(|row| row.rule.by_frame_pointer);
            let cause = by_frame_pointer.then(|| frame_pointer_cause(subject, index, cache));
            return Some(blame(contradiction, cause.flatten()));
        }
    }

    // All rows are right, so the registers of the start may be those of another frame.
    if starts_wrong(subject, finder, walked, last_right, cache) {
        return Some(plain(subject, Code::WrongCfa, last_right));
    }

    let code = if past_root { walked.ended } else { code };
    Some(plain(subject, code, last_right))
}

/// A row that contradicts the truth although the chain is right: a wrong slot of a register that no
/// frame needed. A row that a derived table cannot represent, and a fallback provided, does not
/// hide a wrong row of another frame.
fn latent(
    subject: &Subject<'_>,
    finder: &dyn Finder,
    from: usize,
    cache: &mut Cache,
) -> Option<Diagnosis> {
    let mut found: Option<Contradiction> = None;
    let count = subject.truth.frames().len();
    let mut next = from;

    while let Some(frame) = subject.first_doubt(finder, next..count, cache) {
        next = frame + 1;
        let all = subject.check_frame(finder, frame, cache);
        let Some(worst) = all.into_iter().min_by_key(Contradiction::class) else {
            continue;
        };

        // Of several of one class the first stays: that of the innermost frame.
        let is_worse = |known: &Contradiction| worst.class() < known.class();
        if found.as_ref().is_none_or(is_worse) {
            found = Some(worst);
        }

        // No class is worse, so no other frame needs to be checked.
        if found.as_ref().is_some_and(|c| c.class() == Class::Wrong) {
            break;
        }
    }

    found.map(|contradiction| blame(contradiction, None))
}

/// Whether the first step gives a wrong CFA although its row is right. Then the walk started with
/// registers that are not those of the frame.
fn starts_wrong(
    subject: &Subject<'_>,
    finder: &dyn Finder,
    walked: &Walked<'_>,
    index: usize,
    cache: &mut Cache,
) -> bool {
    let frame = Frame::top(walked.start.regs);
    let Some(truth) = subject.truth.frames().get(index) else {
        return false;
    };
    if !walked.is_fake || walked.start.first_frame.is_some() || frame.pc.value() != truth.pc {
        return false;
    }
    let stepped = step(finder, &walked.place, &frame, cache);
    stepped
        .caller
        .is_ok_and(|caller| caller.regs.rsp() != truth.cfa)
}

/// The code with which a walk ended. If a walk by tables or frame pointers claims a root that is
/// not one, the code is [`Code::NotAtRoot`]; the code of a kernel's unwinder is kept.
pub fn end_code(chain: &Chain, verdict: Verdict, ground: &Ground) -> Code {
    let is_kernels = chain.events.iter().any(|e| matches!(e, Event::State(_)));
    let is_known = ground.complete || matches!(verdict, Verdict::Truncated { .. });
    let is_false = verdict.is_wrong() && is_known && !ground.at_last && !is_kernels;
    match chain.end.reason.code() {
        Code::RootReached if is_false => Code::NotAtRoot,
        code => code,
    }
}

/// A diagnosis that blames the row of `contradiction`. `cause`, if any, is more precise than the
/// contradiction's own code.
fn blame(contradiction: Contradiction, cause: Option<Code>) -> Diagnosis {
    Diagnosis {
        code: cause.unwrap_or(contradiction.code),
        frame: contradiction.frame,
        pc: contradiction.pc,
        contradiction: Some(contradiction),
    }
}

fn plain(subject: &Subject<'_>, code: Code, frame: usize) -> Diagnosis {
    let pc = true_frame(subject.truth, subject.live, frame)
        .map_or(CodeAddress::Instruction(subject.live.rip()), |f| f.pc);
    Diagnosis {
        code,
        frame,
        pc,
        contradiction: None,
    }
}

/// Why rbp is not the frame pointer of true frame `index`: US510, US511 or US512. `None` if it is.
pub fn frame_pointer_cause(subject: &Subject<'_>, index: usize, cache: &mut Cache) -> Option<Code> {
    let frame = true_frame(subject.truth, subject.live, index)?;
    let cfa = subject.truth.frames().get(index)?.cfa;
    if frame.regs.get(Reg::Rbp)? == cfa.wrapping_sub(16) {
        return None;
    }
    Some(cause_at(subject.space, frame.pc, cache))
}

/// Why rbp is not the frame pointer at `pc`; what was found before is kept with its image.
fn cause_at(space: &AddressSpace, pc: CodeAddress, cache: &mut Cache) -> Code {
    let address = pc.symbol_address();
    // A return address may be the end of a mapping: then the code behind it is another image's.
    let mapping = space.find(address);
    let mapping = mapping.filter(|mapping| mapping.range.contains(&pc.value()));
    let Some((mapping, image)) = mapping.and_then(|m| Some((m, m.image.as_ref()?))) else {
        return without_frame_pointer(space, pc);
    };
    let place = (mapping.svma(address), pc.is_instruction());
    let known = Known::of_image(image, cache);
    known.cause(place, || without_frame_pointer(space, pc))
}

/// Why rbp is not the frame pointer before the instruction at `address`, as far as the code tells that by
/// itself: the function sets none up, has not done so yet, or has given it up. `None` where it has one.
pub fn frame_pointer_at(space: &AddressSpace, address: u64) -> Option<Code> {
    let pc = CodeAddress::Instruction(address);
    prologue(space, pc)
        .is_none_or(|set_up| address < set_up || torn_down(space, pc))
        .then(|| without_frame_pointer(space, pc))
}

/// Why the code at `pc` has no frame pointer in rbp.
fn without_frame_pointer(space: &AddressSpace, pc: CodeAddress) -> Code {
    match prologue(space, pc) {
        Some(set_up) if pc.value() < set_up => Code::FramePointerNotYet,
        Some(_) if torn_down(space, pc) => Code::FramePointerGone,
        _ => Code::NoFramePointer,
    }
}

/// `push rbp; mov rbp, rsp` in both encodings, and `enter n, 0`.
const SETS_UP: [&[u8]; 2] = [&[0x55, 0x48, 0x89, 0xe5], &[0x55, 0x48, 0x8b, 0xec]];
const ENTER: u8 = 0xc8;
const ENTER_LEN: u64 = 4;
/// How far from the start of a function a prologue is searched for, in bytes. This allows for
/// endbr64 and a few pushes and moves that the compiler's scheduler put before it.
const PROLOGUE_MAX: usize = 32;

/// The first address at which the frame pointer of the function at `pc` is set up; `None` if the
/// function has no such prologue.
fn prologue(space: &AddressSpace, pc: CodeAddress) -> Option<u64> {
    let mapping = space.find(pc.symbol_address())?;
    let image = mapping.image.as_ref()?;
    let function = image.symbol(mapping.svma(pc.symbol_address()))?;
    let (start, size) = (function.address, function.size);
    let len = if size == 0 {
        PROLOGUE_MAX
    } else {
        PROLOGUE_MAX.min(size as usize)
    };
    let code = image.text_bytes(start, len);
    let pushed = SETS_UP.iter().find_map(|bytes| {
        let at = code.windows(bytes.len()).position(|w| w == *bytes)?;
        Some(at as u64 + bytes.len() as u64)
    });
    let entered = || (code.first() == Some(&ENTER)).then_some(ENTER_LEN);
    Some(
        start
            .wrapping_add(pushed.or_else(entered)?)
            .wrapping_add(mapping.bias),
    )
}

/// Whether the function returns within the next few instructions without touching rbp. Then `leave`
/// or `pop rbp` was executed before.
fn torn_down(space: &AddressSpace, pc: CodeAddress) -> bool {
    let Some(mapping) = space.find(pc.value()) else {
        return false;
    };
    let Some(image) = mapping.image.as_ref() else {
        return false;
    };
    let code = image.text_bytes(mapping.svma(pc.value()), 16);
    epilogue_rest(code)
}

/// Whether the code is only pops of other registers, followed by `ret` or a tail jump.
fn epilogue_rest(mut code: &[u8]) -> bool {
    loop {
        match code {
            [0xc3 | 0xc2 | 0xe9 | 0xeb, ..] | [0xf3, 0xc3, ..] | [0xff, 0xe0..=0xe7, ..] => {
                return true;
            }
            [0x41, 0x58..=0x5f, rest @ ..] => code = rest,
            [0x58..=0x5c | 0x5e | 0x5f, rest @ ..] => code = rest,
            [0x48, 0x83, 0xc4, _, rest @ ..] => code = rest,
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests;
