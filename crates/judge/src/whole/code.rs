//! What the code at an address says of the frame there, kept for each image.

use super::flow;
use super::known::Known;
use super::root::{self, Root};
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_recordings::runtime::{self, Runtime};
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::{CodeAddress, Lookup};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::image::{Image, Mapping, SectionKind};
use unwind_sim_unwind::insn::{INSN_BYTES_MAX, ends_with_call, is_sigreturn};
use unwind_sim_unwind::memory::Memory as _;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::Row;
use unwind_sim_unwind::rule::{Base, RuleKind, Value};
use unwind_sim_unwind::step::find_row;

/// What is at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Nothing is mapped there, or it is not executable.
    Nowhere,
    /// The bytes of the code are not there.
    NoCode,
    /// Code.
    Code,
}

/// What stands before a return address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Before {
    /// The bytes are not there, or the address is that of an instruction.
    Unknown,
    /// No call.
    NoCall,
    /// A call through a register or memory.
    IndirectCall,
    /// A call of this address (svma).
    Call(u64),
}

/// What the code at an address says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Facts {
    pub(super) place: Place,
    pub(super) before: Before,
    /// Whether rbp is the frame pointer there, if anything says so.
    pub(super) frame_pointer: Option<bool>,
    /// The root that a frame there may be.
    pub(super) root: Option<Root>,
    /// What signal handlers return to.
    pub(super) is_trampoline: bool,
}

const NOWHERE: Facts = Facts {
    place: Place::Nowhere,
    before: Before::Unknown,
    frame_pointer: None,
    root: None,
    is_trampoline: false,
};

/// The tables and images of a sample.
pub(super) struct Tables<'v, 'c> {
    view: &'v View<'v>,
    dwarf: Dwarf,
    cache: &'c mut Cache,
}

impl<'v, 'c> Tables<'v, 'c> {
    pub(super) fn new(view: &'v View<'_>, cache: &'c mut Cache) -> Tables<'v, 'c> {
        Tables {
            view,
            dwarf: Dwarf::new(),
            cache,
        }
    }

    /// The mapping to which `pc` belongs: a return address may be the end of one.
    fn mapping(&self, pc: CodeAddress) -> Option<&'v Mapping> {
        self.view.space.find(pc.symbol_address())
    }

    /// What the code at `pc` says.
    pub(super) fn facts(&mut self, pc: CodeAddress) -> Facts {
        let Some(mapping) = self
            .mapping(pc)
            .or_else(|| self.view.space.find(pc.value()))
        else {
            return NOWHERE;
        };
        // A heap image of Lisp is a file, but none of ELF.
        let is_generated = runtime::generated(mapping).is_some() || mapping.name.ends_with(".core");
        let Some(image) = &mapping.image else {
            return self.without_image(is_generated, pc);
        };
        let known = Known::of_image(image, self.cache);
        let key = (mapping.svma(pc.value()), pc.is_instruction());
        if let Some(facts) = known.facts(key) {
            return facts;
        }
        let mut facts = self.find(mapping, image, pc);
        if facts.place == Place::NoCode && is_generated {
            facts = self.without_image(true, pc);
        }
        known.keep_facts(key, facts);
        facts
    }

    /// What is known of code without a file: generated code, whose bytes a core has.
    fn without_image(&self, is_generated: bool, pc: CodeAddress) -> Facts {
        let nothing = Facts {
            place: Place::NoCode,
            ..NOWHERE
        };
        if !is_generated {
            return nothing;
        }

        let memory = self.view.sample.memory();
        let mut last = [0; 8];
        let before = match pc {
            CodeAddress::Return(ret) if memory.read(ret.wrapping_sub(8), &mut last).is_ok() => {
                by_bytes(last, ret)
            }
            _ => Before::Unknown,
        };

        let keeps = || Runtime::of_space(self.view.space).is_some_and(keeps_frame_pointers);
        Facts {
            before: match before {
                // Where the call leads is not known by its number alone.
                Before::Call(_) => Before::IndirectCall,
                before => before,
            },
            // The runtime's convention holds for all the code that it generates.
            frame_pointer: keeps().then_some(true),
            ..nothing
        }
    }

    fn find(&mut self, mapping: &Mapping, image: &Arc<Image>, pc: CodeAddress) -> Facts {
        let svma = mapping.svma(pc.value());
        let at = mapping.svma(pc.symbol_address());
        let is_there = !image.text_bytes(at, 1).is_empty();

        let (before, starts) = match pc {
            CodeAddress::Instruction(_) => (Before::Unknown, true),
            CodeAddress::Return(_) => {
                let before = before(image, svma);
                (before, before == Before::NoCall)
            }
        };

        let inside = self.row(mapping, pc.lookup(Lookup::InsideCall));
        // What no call precedes is looked up as it is: a frame that somebody made by hand.
        let exact = starts.then(|| self.row(mapping, pc.value())).flatten();
        let row = if starts { exact.or(inside) } else { inside };
        let kind = row.as_ref().map(|row| row.rule.kind);

        let function = flow::function(image, at);
        Facts {
            // Code whose bytes were not recorded is not the same as an address outside of all code.
            place: match is_there {
                true => Place::Code,
                false if image.is_text(at) => Place::NoCode,
                false => Place::Nowhere,
            },
            before,
            frame_pointer: if is_there {
                by_name(image.symbol(at).map_or("", |s| s.name.as_str()), pc).or_else(|| {
                    frame_pointer(image, svma, function.map(|f| f.address), row.as_ref())
                })
            } else {
                None
            },
            root: self.root(image, (svma, at), before, kind),
            // By its row or, where it has none, by what it does: it makes the system call
            // rt_sigreturn.
            is_trampoline: kind == Some(RuleKind::Signal)
                || is_sigreturn(image.text_bytes(svma, INSN_BYTES_MAX)),
        }
    }

    /// The root that a frame at `svma` may be; `at` is the address that its function holds.
    fn root(
        &mut self,
        image: &Arc<Image>,
        (svma, at): (u64, u64),
        before: Before,
        row: Option<RuleKind>,
    ) -> Option<Root> {
        // What no call precedes may be the first address of its function.
        let also = (before == Before::NoCall).then_some(svma);
        let names = std::iter::once(at)
            .chain(also)
            .filter_map(|at| image.symbol(at));
        let mut names = names.map(|symbol| symbol.name.as_str());

        // First: the entry is known by its address alone, also in a file without names and rows.
        if entry(image, self.cache).contains(&at) {
            return Some(Root::Entry);
        }
        if let Some(root) = names.find_map(root::by_name) {
            return Some(root);
        }

        match before {
            Before::NoCall if row == Some(RuleKind::Outermost) => Some(Root::Coroutine),
            _ if row == Some(RuleKind::Outermost) => Some(Root::Outermost),
            // No call pushed this return address, so whoever made the stack put it there.
            Before::NoCall if flow::never_returns(image, svma) => Some(Root::Coroutine),
            // Behind `clone` the new thread calls its function, and ends the thread when that
            // returns.
            Before::IndirectCall | Before::Call(_)
                if flow::follows_syscall(image, svma) && flow::never_returns(image, svma) =>
            {
                Some(Root::Thread)
            }
            _ => None,
        }
    }

    fn row(&mut self, mapping: &Mapping, address: u64) -> Option<Row> {
        find_row(&self.dwarf, mapping, address, self.cache).ok()
    }

    /// Whether the call before the return address `ret` may have led to the function at `pc`. The
    /// target of the call is the image's own address.
    pub(super) fn may_lead(&mut self, ret: CodeAddress, target: u64, pc: CodeAddress) -> bool {
        let (Some(from), Some(to)) = (self.mapping(ret), self.mapping(pc)) else {
            return true;
        };
        let (Some(image), Some(of)) = (&from.image, &to.image) else {
            return true;
        };

        // Calls into another image go through an indirect jump.
        if image.id() != of.id() {
            return true;
        }

        let at = to.svma(pc.symbol_address());
        // It calls the function whose prologue called it, and its rows leave the prologue's frame out.
        if image
            .symbol(at)
            .is_some_and(|symbol| symbol.name.starts_with("__morestack"))
        {
            return true;
        }

        let Some(function) = flow::function(image, at) else {
            return true;
        };

        let known = Known::of_image(image, self.cache);
        let key = (target, function.address);
        known.leads(key, || flow::may_lead(image, target, function))
    }

    /// The name of the function at `address`, as it is.
    fn name(&self, address: u64) -> Option<&'v str> {
        let mapping = self.view.space.find(address)?;
        let symbol = mapping.image.as_ref()?.symbol(mapping.svma(address))?;
        Some(&symbol.name)
    }

    /// Whether no call made the return address `caller`, although it is right.
    pub(super) fn is_made(&self, callee: CodeAddress, caller: CodeAddress) -> bool {
        let callee = self.name(callee.symbol_address()).unwrap_or_default();
        root::is_made(callee, self.name(caller.value()).unwrap_or_default())
    }

    /// Whether the frame at `pc` stands for that of another function.
    pub(super) fn is_stand_in(&self, pc: CodeAddress) -> bool {
        self.name(pc.value()).is_some_and(root::is_stand_in)
    }

    /// Whether the code at `pc` runs on another stack than its function was entered with, although
    /// the row there counts from rsp.
    pub(super) fn is_on_other_stack(&mut self, pc: CodeAddress) -> bool {
        let Some(mapping) = self.mapping(pc) else {
            return false;
        };
        let Some(image) = &mapping.image else {
            return false;
        };
        let counts_from_rsp = |row: Row| {
            let Value::Offset { base, .. } = row.rule.cfa else {
                return false;
            };
            base == Base::Reg(Reg::Rsp)
        };
        let row = self.row(mapping, pc.lookup(Lookup::InsideCall));
        let function = flow::function(image, mapping.svma(pc.symbol_address()));
        row.is_some_and(counts_from_rsp)
            && function
                .is_some_and(|f| flow::moves_stack(image, f.address, mapping.svma(pc.value())))
    }

    /// Whether a word is the address behind a call in code that is there.
    pub(super) fn is_behind_call(&self, word: u64) -> bool {
        let mapping = self.view.space.find(word.wrapping_sub(1));
        let Some((mapping, image)) = mapping.and_then(|m| Some((m, m.image.as_ref()?))) else {
            return false;
        };
        matches!(
            before(image, mapping.svma(word)),
            Before::Call(_) | Before::IndirectCall
        )
    }
}

/// Whether rbp is the frame pointer in a function of a compiler that has a convention of its own.
///
/// GHC: rbp is the stack pointer of Haskell (`Sp`), in all code, whose names end in `_info`
/// (rts/include/stg/MachRegs/x86.h). V8's builtins call others only with a frame set up.
fn by_name(name: &str, pc: CodeAddress) -> Option<bool> {
    let is_haskell = name.ends_with("_info") && name.contains('_');
    let is_builtin = name.starts_with("Builtins_") && !pc.is_instruction();
    match (is_haskell, is_builtin) {
        (true, _) => Some(false),
        (false, true) => Some(true),
        (false, false) => None,
    }
}

/// Whether all generated code of a runtime keeps rbp as a frame pointer, by its calling convention.
///
/// V8: `StandardFrameConstants` in its `frame-constants.h`; JavaScriptCore: `CallFrame`; Cranelift
/// (wasmtime): `preserve_frame_pointers`, which wasmtime sets; SBCL: `x86-64/call.lisp`, where rbp is
/// the frame pointer of every Lisp frame. HotSpot and BEAM do so only if asked, and nothing in a
/// recording says that they were.
const fn keeps_frame_pointers(runtime: Runtime) -> bool {
    matches!(
        runtime,
        Runtime::V8 | Runtime::JavaScriptCore | Runtime::Wasmtime | Runtime::Sbcl
    )
}

/// The code of the image's entry function, its own addresses.
fn entry(image: &Arc<Image>, cache: &mut Cache) -> Range<u64> {
    let Some(entry) = image.section(SectionKind::Entry) else {
        return 0..0;
    };
    let known = Known::of_image(image, cache);
    known.entry(|| flow::entry_function(image, entry.address))
}

/// Whether the function at `pc` is one that the entry function of its program calls.
pub(crate) fn is_called_by_entry(view: &View<'_>, pc: CodeAddress, cache: &mut Cache) -> bool {
    let mapping = view.space.find(pc.symbol_address());
    let Some((mapping, image)) = mapping.and_then(|m| Some((m, m.image.as_ref()?))) else {
        return false;
    };
    let range = entry(image, cache);
    let function = flow::function(image, mapping.svma(pc.symbol_address()));
    function.is_some_and(|f| !range.contains(&f.address) && flow::calls(image, range, f.address))
}

/// What stands before `svma`.
fn before(image: &Image, svma: u64) -> Before {
    /// The length of the longest call without prefixes that do nothing, and one byte.
    const LEN: usize = 8;
    let bytes = flow::before(image, svma, LEN);
    if bytes.is_empty() {
        return Before::Unknown;
    }
    let mut last = [0x90; LEN];
    last[LEN - bytes.len()..].copy_from_slice(bytes);
    by_bytes(last, svma)
}

/// What these bytes before `svma` are.
fn by_bytes(last: [u8; 8], svma: u64) -> Before {
    match last {
        [_, _, _, 0xe8, a, b, c, d] => {
            let offset = i64::from(i32::from_le_bytes([a, b, c, d]));
            Before::Call(svma.wrapping_add(offset as u64))
        }
        last if ends_with_call(last) => Before::IndirectCall,
        _ => Before::NoCall,
    }
}

/// Whether rbp is the frame pointer where the row holds: the CFA is rbp + 16.
pub(crate) fn has_frame_pointer(row: &Row) -> bool {
    row.rule.cfa
        == Value::Offset {
            base: Base::Reg(Reg::Rbp),
            offset: 16,
        }
}

/// Whether rbp is the frame pointer at `svma`: the row says it, or else the first instructions of the
/// function, which begins at `start`.
fn frame_pointer(image: &Image, svma: u64, start: Option<u64>, row: Option<&Row>) -> Option<bool> {
    match row.filter(|row| row.rule.kind == RuleKind::Call) {
        Some(row) if has_frame_pointer(row) => Some(true),
        Some(row) if matches!(row.rule.cfa, Value::Offset { .. }) => Some(false),
        _ => flow::has_frame_pointer(image, start?, svma),
    }
}
