//! What the instructions of a function say: whether it sets up rbp, where it jumps to, whether it
//! can return.

use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};
use std::ops::Range;
use unwind_sim_unwind::image::{Image, Symbol};
use unwind_sim_unwind::insn::INSN_BYTES_MAX;

/// How far behind the start of a function its prologue is looked for, bytes. Compilers schedule moves
/// in between.
const PROLOGUE_MAX: usize = 48;
/// How far an entry function is followed, bytes.
const ENTRY_MAX: usize = 256;
/// How far behind a return address its end is looked for, and a system call before it, bytes.
const NEAR: usize = 64;
/// The longest function that is read for its jumps, bytes.
const FUNCTION_MAX: u64 = 64 << 10;
/// How many functions are read on the way from a call to the function that it led to.
const FUNCTIONS_MAX: usize = 16;

fn decode(code: &[u8], at: u64) -> impl Iterator<Item = Instruction> {
    let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
    std::iter::from_fn(move || {
        let insn = decoder.can_decode().then(|| decoder.decode())?;
        (!insn.is_invalid()).then_some(insn)
    })
}

/// Whether rbp is the frame pointer at `pc`, in the function that begins at `start`: it was pushed
/// first, then loaded with rsp, and is not restored yet. `None` where a jump through a register or
/// memory may be one out of the function. All are the image's own addresses.
pub(super) fn has_frame_pointer(image: &Image, start: u64, pc: u64) -> Option<bool> {
    match set_up(image, start) {
        Some(set_up) if set_up <= pc => {
            is_restored(image, start, pc).map(|is_restored| !is_restored)
        }
        _ => Some(false),
    }
}

/// The first address at which the function's prologue has loaded rbp.
fn set_up(image: &Image, start: u64) -> Option<u64> {
    let code = image.text_bytes(start, PROLOGUE_MAX);
    let mut is_pushed = false;
    for insn in decode(code, start) {
        let is_rbp = insn.op0_register() == Register::RBP;
        match insn.mnemonic() {
            Mnemonic::Push if !is_pushed && is_rbp => is_pushed = true,
            Mnemonic::Enter if !is_pushed => return Some(insn.next_ip()),
            Mnemonic::Mov if is_pushed && is_rbp => {
                return (insn.op1_register() == Register::RSP).then(|| insn.next_ip());
            }
            Mnemonic::Lea if is_pushed && is_rbp => {
                let is_rsp = insn.memory_base() == Register::RSP
                    && insn.memory_index() == Register::None
                    && insn.memory_displacement64() == 0;
                return is_rsp.then(|| insn.next_ip());
            }
            // Compilers load it right behind its push. Behind another push, or room for locals, rbp
            // is only one of the saved registers.
            Mnemonic::Push => return None,
            Mnemonic::Sub if is_pushed => return None,
            _ if insn.flow_control() != FlowControl::Next => return None,
            _ => {}
        }
    }
    None
}

/// Whether `pop %rbp` or `leave` was executed before `pc`: the function returns there, or jumps to
/// another one. `None` if the jump's target is not known.
fn is_restored(image: &Image, start: u64, pc: u64) -> Option<bool> {
    let insn = decode(image.text_bytes(pc, INSN_BYTES_MAX), pc).next()?;
    match insn.flow_control() {
        FlowControl::Return => Some(true),
        FlowControl::IndirectBranch => None,
        FlowControl::UnconditionalBranch => {
            let target = function(image, insn.near_branch_target());
            Some(target.is_some_and(|target| target.address != start))
        }
        _ => Some(false),
    }
}

/// Whether rsp was loaded with the address of another stack on the way from `start` to `pc`: from
/// memory or from a register that is not the frame pointer. The image's own addresses.
pub(super) fn moves_stack(image: &Image, start: u64, pc: u64) -> bool {
    let length = pc.saturating_sub(start).min(FUNCTION_MAX) as usize;
    let mut is_moved = false;
    for insn in decode(image.text_bytes(start, length), start) {
        let is_load = match insn.mnemonic() {
            Mnemonic::Mov => insn.op0_register() == Register::RSP,
            Mnemonic::Xchg => [insn.op0_register(), insn.op1_register()].contains(&Register::RSP),
            _ => false,
        };
        let source = insn.op1_register();
        if is_load && source != Register::RBP {
            is_moved = true;
        } else if matches!(
            insn.flow_control(),
            FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
        ) {
            // What follows is reached from elsewhere.
            is_moved = false;
        }
    }
    is_moved
}

/// The extent of the entry function at `entry`, from its instructions: up to the first that never
/// goes on. The image's own addresses.
pub(super) fn entry_function(image: &Image, entry: u64) -> Range<u64> {
    let symbols = image.symbols();
    let named = symbols.iter().find(|s| s.address == entry && s.size > 0);
    if let Some(named) = named {
        return entry..entry.saturating_add(named.size);
    }
    let code = image.text_bytes(entry, ENTRY_MAX);
    let mut end = entry;
    for insn in decode(code, entry) {
        end = insn.next_ip();
        let goes_on = !matches!(
            insn.flow_control(),
            FlowControl::IndirectBranch | FlowControl::Return | FlowControl::Exception
        );
        if !goes_on || insn.mnemonic() == Mnemonic::Hlt {
            break;
        }
    }
    entry..end
}

/// Whether the code in `range` calls or jumps to `target`. The image's own addresses.
pub(super) fn calls(image: &Image, range: Range<u64>, target: u64) -> bool {
    let length = range.end.saturating_sub(range.start).min(FUNCTION_MAX) as usize;
    let mut insns = decode(image.text_bytes(range.start, length), range.start);
    insns.any(|insn| {
        let is_direct = matches!(
            insn.flow_control(),
            FlowControl::Call | FlowControl::UnconditionalBranch
        );
        is_direct && insn.near_branch_target() == target
    })
}

/// Whether the code at `at` cannot return: it runs straight into a `hlt`, `ud2`, or the system call
/// that ends a thread or a process, at most a few calls later.
pub(super) fn never_returns(image: &Image, at: u64) -> bool {
    const EXITS: [u64; 2] = [60, 231];
    let mut number = None;
    for insn in decode(image.text_bytes(at, NEAR), at) {
        let is_eax = matches!(
            insn.op0_register(),
            Register::EAX | Register::RAX | Register::AL
        );
        match insn.mnemonic() {
            Mnemonic::Hlt | Mnemonic::Ud2 => return true,
            Mnemonic::Mov if is_eax && is_immediate(&insn) => number = Some(insn.immediate(1)),
            Mnemonic::Syscall => return number.is_some_and(|n| EXITS.contains(&n)),
            _ => {}
        }
        match insn.flow_control() {
            FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => {}
            _ => return false,
        }
    }
    false
}

fn is_immediate(insn: &Instruction) -> bool {
    matches!(
        insn.op1_kind(),
        OpKind::Immediate8
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate32to64
            | OpKind::Immediate8to64
            | OpKind::Immediate8to32
    )
}

/// Whether a system call stands shortly before `at`, as where a thread was made.
pub(super) fn follows_syscall(image: &Image, at: u64) -> bool {
    let near = before(image, at, NEAR);
    near.windows(2).any(|w| w == [0x0f, 0x05])
}

/// The last bytes before `at`, at most so many: the code may begin there.
pub(super) fn before(image: &Image, at: u64, most: usize) -> &[u8] {
    let bytes = |len: usize| image.text_bytes(at.wrapping_sub(len as u64), len);
    let mut lengths = (1..=most).rev();
    let all = lengths.find(|&len| bytes(len).len() == len);
    all.map_or(&[], bytes)
}

/// Whether a call of `target` may have led to the function `to` by jumps alone. True also where that
/// cannot be told.
pub(super) fn may_lead(image: &Image, target: u64, to: &Symbol) -> bool {
    let inside = to.address..to.address.saturating_add(to.size);
    let mut left = vec![target];
    let mut seen: Vec<u64> = Vec::new();

    while let Some(at) = left.pop() {
        if inside.contains(&at) {
            return true;
        }

        // Without the function's bounds its jumps cannot be listed, so nothing is ruled out.
        let Some(function) = function(image, at) else {
            return true;
        };
        if function.address == to.address {
            return true;
        }

        // Functions may jump to each other in a circle.
        if seen.contains(&function.address) {
            continue;
        }

        seen.push(function.address);

        // A file may have any number of jumps from function to function.
        let is_too_much = function.size > FUNCTION_MAX || seen.len() > FUNCTIONS_MAX;
        if is_too_much || !jumps(image, function, &mut left) {
            return true;
        }
    }

    false
}

/// The function that states its size and holds `at`. Parts that a compiler put elsewhere are none.
pub(super) fn function(image: &Image, at: u64) -> Option<&Symbol> {
    let symbol = image.symbol(at)?;
    let is_part = Symbol::is_named_as_part(&symbol.name);
    (symbol.size > 0 && !is_part).then_some(symbol)
}

/// Adds where `function` jumps to outside of itself. False if it may go anywhere.
fn jumps(image: &Image, function: &Symbol, out: &mut Vec<u64>) -> bool {
    let end = function.address.saturating_add(function.size);
    let code = image.text_bytes(function.address, function.size as usize);
    // Without all of its bytes, any jump may be missing.
    if (code.len() as u64) < function.size {
        return false;
    }

    let mut goes_on = true;
    for insn in decode(code, function.address) {
        goes_on = !matches!(
            insn.flow_control(),
            FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::Exception
        ) && !matches!(
            insn.mnemonic(),
            Mnemonic::Hlt | Mnemonic::Int3 | Mnemonic::Nop
        );

        // A call as the last instruction does not return.
        goes_on &= !matches!(
            insn.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        );

        let is_branch = insn.flow_control() == FlowControl::UnconditionalBranch
            || insn.condition_code() != ConditionCode::None && insn.is_jcc_short_or_near();
        if is_branch {
            let target = insn.near_branch_target();
            if !(function.address..end).contains(&target) {
                out.push(target);
            }
            continue;
        }

        // A thunk for indirect branches (`-mindirect-branch=thunk`) puts the target in place of the
        // return address.
        let loads_top = insn.memory_base() == Register::RSP
            && insn.memory_index() == Register::None
            && insn.memory_displacement64() == 0
            && insn.op0_kind() == OpKind::Memory
            && insn.mnemonic() == Mnemonic::Mov;
        let is_push_before_ret =
            insn.mnemonic() == Mnemonic::Push && next_is_ret(&insn, code, function.address);

        if insn.flow_control() == FlowControl::IndirectBranch
            || loads_top && is_thunk(function)
            || is_push_before_ret
        {
            return false;
        }
    }

    // Execution may fall through into the next function.
    if goes_on {
        out.push(end);
    }

    true
}

/// Whether a function is so short that a store to the top of the stack can only be its target.
const fn is_thunk(function: &Symbol) -> bool {
    const THUNK_MAX: u64 = 64;
    function.size <= THUNK_MAX
}

fn next_is_ret(insn: &Instruction, code: &[u8], start: u64) -> bool {
    let at = (insn.next_ip() - start) as usize;
    matches!(code.get(at..), Some([0xc3, ..] | [0xf3, 0xc3, ..]))
}
