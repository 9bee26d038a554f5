//! Writes a recorded sample as a case: a separate program with the same frames.
//!
//! Each true frame becomes a function whose frame has the same size and words, with the same
//! callee-saved registers and the same table row at the call. Stack addresses are moved to the
//! case's stack. Nothing returns: the innermost function exits. `docs/case-format.md` describes the
//! file.

use super::reproduce::{Recorded, recorded};
use super::{Extracted, NotWritable};
use crate::case::POISON;
use crate::case::{FILE_BYTES_MAX, fold};
use crate::unwinders;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::ops::Range;
use unwind_sim_recordings::model::RegionRole;
use unwind_sim_recordings::names::{Location, file_name};
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::memory::{Memory, Regions};
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Base, Rule, RuleKind, Value};
use unwind_sim_unwind::step::find_row;
use unwind_sim_unwind::truth::{TrueFrame, TrueKind};
use unwind_sim_unwind::verdict::Verdict;

/// The bytes below rsp that are copied: the red zone of the psABI, which also has the slots of
/// registers that were just popped.
const BELOW_RSP: u64 = 128;
/// The label that stands for code in no true frame.
const ELSEWHERE: &str = ".Lelsewhere";
/// The maximum length of a function's name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// A case and its expected results.
pub struct Written {
    /// The text of the file.
    pub text: String,
    /// The verdicts of its unwinders in the recording.
    pub recorded: Vec<Recorded>,
}

/// The function that a frame becomes.
struct Function {
    /// Its name in the case.
    name: String,
    /// Its name as recorded, for the comment.
    place: String,
    /// The rsp at its call, or at the sample.
    rsp: u64,
    /// The number of bytes between its return address and rsp.
    size: u64,
    /// The word in the slot of its return address, if that was overwritten.
    slot: Option<u64>,
    /// The callee-saved registers at its pc.
    saved: Option<[u64; 6]>,
    /// The rule of its row; `None` if it had no row.
    rule: Option<Rule>,
    /// Whether its rows end with its call, which does not return.
    ends_with_call: bool,
}

/// A sample's stacks and their memory.
struct Stack<'a> {
    memory: Regions<'a>,
    stacks: Vec<Range<u64>>,
    space: &'a AddressSpace,
    /// The indices of the functions that the return addresses of true frames are in, by address.
    returns: HashMap<u64, usize>,
}

/// The form of a recorded word in the case.
enum Word {
    /// A stack address, as a distance from rsp.
    Stack(i32),
    /// A code address, as a label of the case.
    Code(String),
    /// The value itself.
    Plain(u64),
}

impl Extracted {
    /// Writes the only sample as a case for the folder `group`. `number` is its number in the
    /// recording.
    ///
    /// # Errors
    /// If there is not exactly one sample, if it has no truth, or if it has a frame that a case
    /// cannot have, such as a signal frame, a row with an expression, or a CFA whose base register
    /// was not recorded. The case is not run: see [`check`](super::check).
    pub fn to_case(
        &self,
        group: &str,
        number: u64,
        unwinders: &[String],
    ) -> Result<Written, NotWritable> {
        let [(sample, mappings)] = self.samples.as_slice() else {
            return Err(NotWritable::NotOne);
        };

        let mut space = AddressSpace::new();
        for mapping in mappings {
            space.map(mapping.clone());
        }

        let view = View {
            number,
            sample,
            space: &space,
            pristine: None,
            stitched: &[],
            world: None,
        };

        // In a case, a function of its own fetches the fake registers (docs/case-format.md).
        if sample.regs.is_fake() {
            return Err(NotWritable::Fake);
        }

        let functions = functions(&view)?;
        let program = self.meta.program.first();
        let program = program.map_or("a program", |p| file_name(p));

        let unwinders = match unwinders {
            [] => unwinders::FINDERS.map(str::to_owned).to_vec(),
            named => named.to_vec(),
        };

        // The case claims what the unwinders gave on the recording, so that a case that behaves
        // differently is noticed.
        let recorded = recorded(&view, &unwinders)?;
        let mut out = header(&view, &functions, program, group, &recorded);
        body(&mut out, &view, &functions)?;

        // `Case::parse` refuses larger files.
        match out.len() {
            bytes if bytes > FILE_BYTES_MAX => Err(NotWritable::TooLarge { bytes }),
            _ => Ok(Written {
                text: out,
                recorded,
            }),
        }
    }
}

fn functions(view: &View<'_>) -> Result<Vec<Function>, NotWritable> {
    let frames = view.sample.truth.frames();
    if frames.is_empty() {
        return Err(NotWritable::NoTruth);
    }

    // The rows of `.eh_frame` are what a case can state with `.cfi` directives.
    let live = view.live();
    let finder = Dwarf::new();
    let mut cache = Cache::new();

    // Labels that the case has anyway: no recorded function may take them.
    let mut names = BTreeSet::from(["_start".to_owned(), "sample".to_owned()]);
    let mut out = Vec::new();

    for (i, frame) in frames.iter().enumerate() {
        let pc = frame.address();
        let place = Location::of(view.space, pc);
        let fail = |what: &str| NotWritable::Frame {
            frame: i,
            place: place.to_string(),
            what: what.to_owned(),
        };

        // A case has no frame of the kernel's making.
        if frame.kind == TrueKind::Interrupted {
            return Err(fail("it was interrupted by a signal"));
        }

        let is_root = i + 1 == frames.len();
        let rsp = match i.checked_sub(1) {
            None => live.rsp(),
            // The call pushed the return address just below this frame's rsp (psABI 3.2.2).
            Some(inside) => frames[inside].cfa,
        };
        let size = size_of(frame, rsp, is_root).map_err(fail)?;

        // By an address in the call: behind it, the next function may begin.
        let found = match view.space.find(pc.symbol_address()) {
            Some(mapping) => find_row(&finder, mapping, pc.symbol_address(), &mut cache),
            None => Err(Reason::NoImage { pc: frame.pc }),
        };

        // Code without a row becomes a function without `.cfi` directives.
        let rule = match found {
            Ok(row) => Some(row.rule),
            Err(Reason::NoRow { .. } | Reason::NoTable { .. } | Reason::NoImage { .. }) => None,
            Err(reason) => return Err(fail(&format!("its row cannot be read: {reason}"))),
        };

        if let Some(rule) = rule.filter(|_| !is_root) {
            check_rule(&rule).map_err(fail)?;
        }

        // A call that ends its function has no row behind it: the case needs the same end, or a row
        // covers the return address.
        let ends_with_call = match (pc, view.space.find(frame.pc)) {
            (CodeAddress::Return(pc), Some(mapping)) => {
                let behind = find_row(&finder, mapping, pc, &mut cache);
                rule.is_some() && matches!(behind, Err(Reason::NoRow { .. }))
            }
            _ => false,
        };

        let saved = match i {
            0 => Some(Reg::CALLEE_SAVED.map(|reg| live.get_or_zero(reg))),
            _ => frame.saved,
        };

        let next = frames.get(i + 1).map(|next| next.pc);
        // If this is not the true return address, it was overwritten, and the case has to do the
        // same.
        let slot = view
            .sample
            .memory()
            .read_u64(frame.cfa.wrapping_sub(8))
            .ok();

        let name = if is_root {
            "_start".to_owned()
        } else {
            unique(&place, &mut names)
        };

        out.push(Function {
            name,
            place: place.to_string(),
            rsp,
            size,
            slot: slot.filter(|word| next.is_some_and(|pc| pc != *word)),
            saved,
            rule,
            ends_with_call,
        });
    }

    Ok(out)
}

/// The number of bytes of a frame between its return address and rsp. Of the root only its
/// existence is known.
fn size_of(frame: &TrueFrame, rsp: u64, is_root: bool) -> Result<u64, &'static str> {
    if is_root {
        return Ok(0);
    }
    let size = frame
        .cfa
        .checked_sub(8)
        .and_then(|top| top.checked_sub(rsp));
    match size {
        Some(size) if size % 8 != 0 => Err("its stack is not aligned to words"),
        Some(size) if i32::try_from(size).is_ok() => Ok(size),
        _ => Err("its stack does not follow that of its callee"),
    }
}

/// Checks that `.cfi` directives can express the rule, with the registers of a case.
fn check_rule(rule: &Rule) -> Result<(), &'static str> {
    match rule.kind {
        RuleKind::Call => {}
        RuleKind::Outermost => return Ok(()),
        _ => return Err("its row is that of a signal frame"),
    }

    // A function of the case gets back rsp and the callee-saved registers, no others.
    match rule.cfa {
        Value::Offset {
            base: Base::Reg(reg),
            ..
        } if reg == Reg::Rsp || Reg::CALLEE_SAVED.contains(&reg) => {}
        Value::Offset { .. } => return Err("its CFA depends on a register that a call may change"),
        Value::Expression(_) => return Err("its CFA is an expression"),
        _ => return Err("its CFA is loaded from memory, or has no rule"),
    }

    // In a case, as after any `ret`, the caller's rsp is the CFA.
    let cfa = Value::Offset {
        base: Base::Cfa,
        offset: 0,
    };
    if rule.sp != Value::Unspecified && rule.sp != cfa {
        return Err("its caller's rsp is not the CFA");
    }

    let values = rule.saved.iter().chain([&rule.ra]);
    if values
        .into_iter()
        .all(|value| directive("", *value).is_some())
    {
        return Ok(());
    }

    Err("a register's rule is an expression, or depends on an address in another register")
}

/// The directive for a register's rule: empty if the rule is the default, `None` if there is no
/// directive for it.
fn directive(reg: &str, value: Value) -> Option<String> {
    Some(match value {
        Value::Unspecified => String::new(),
        Value::Same => format!(".cfi_same_value {reg}"),
        Value::Undefined => format!(".cfi_undefined {reg}"),
        Value::Load {
            base: Base::Cfa,
            offset,
            addend: 0,
        } => format!(".cfi_offset {reg}, {offset}"),
        Value::Offset {
            base: Base::Cfa,
            offset,
        } => format!(".cfi_val_offset {reg}, {offset}"),
        Value::Offset {
            base: Base::Reg(other),
            offset: 0,
        } => format!(".cfi_register {reg}, {}", other.as_str()),
        _ => return None,
    })
}

/// A symbol that the assembler and the case format accept, and that no other function has.
fn unique(place: &Location, names: &mut BTreeSet<String>) -> String {
    let raw = match (&place.function, &place.image) {
        (Some(function), _) => function.clone(),
        (None, Some(image)) => format!("{image}_{:x}", place.offset),
        (None, None) => format!("at_{:x}", place.offset),
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let mut base: String = raw.chars().map(plain).take(NAME_BYTES_MAX).collect();
    if !base.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        base.insert(0, '_');
    }
    let mut name = base.clone();
    let mut count = 1_u32;
    while !names.insert(name.clone()) {
        count += 1;
        name = format!("{base}_{count}");
    }
    name
}

fn header(
    view: &View<'_>,
    functions: &[Function],
    program: &str,
    group: &str,
    recorded: &[Recorded],
) -> String {
    let (right, wrong) = claims(recorded);
    let innermost = &functions[0].name;
    let (number, n) = (view.number, functions.len());
    let frames = if n == 1 { "frame" } else { "frames" };

    // `Header::set` refuses a claim that does not end with a full stop.
    let mut out = fold(&format!(
        "#! claim: The chain from {innermost} to the root, {n} {frames}, as recorded from {program}."
    ));
    out += &fold(&format!(
        "#! source: recorded from {program}, sample {number}"
    ));
    out += &fold(&format!("#! group: {group}"));

    for (key, claims) in [("right", right), ("wrong", wrong)] {
        if !claims.is_empty() {
            out += &fold(&format!("#! {key}: {}", claims.join(" ")));
        }
    }

    let names: Vec<&str> = functions.iter().map(|f| f.name.as_str()).collect();
    out + &fold(&format!("#@ sample: {}", names.join(" < ")))
}

/// The unwinders that were right in the recording, and those that were wrong with their codes, as
/// claims.
fn claims(recorded: &[Recorded]) -> (Vec<String>, Vec<String>) {
    let (mut right, mut wrong) = (Vec::new(), Vec::new());
    for Recorded { unwinder, cell } in recorded {
        match (cell.verdict(), cell.code()) {
            (Some(Verdict::Ok), _) => right.push(unwinder.clone()),
            (Some(verdict), Some(code)) if verdict.is_wrong() => {
                wrong.push(format!("{unwinder}({code})"));
            }
            _ => {}
        }
    }
    (right, wrong)
}

/// The code that the case gives for `code`. A case has no prologues, so it shows that rbp is not a
/// frame pointer, but not why.
pub(super) fn code_in_case(code: Code) -> Code {
    match code {
        Code::FramePointerNotYet | Code::FramePointerGone => Code::NoFramePointer,
        code => code,
    }
}

const PRELUDE: &str = "
        .macro  WORDS label, count      # copies recorded words to where rsp points
        lea     \\label(%rip), %rsi
        mov     %rsp, %rdi
        mov     $\\count, %ecx
        rep movsq
        .endm
        .section .note.GNU-stack, \"\", @progbits
        .text
";

fn body(out: &mut String, view: &View<'_>, functions: &[Function]) -> Result<(), NotWritable> {
    let regions = view.sample.regions.iter();
    let stacks = regions.filter(|r| r.role != RegionRole::Data).map(|r| {
        if r.bounds.is_empty() {
            r.address..r.address.saturating_add(r.bytes.len() as u64)
        } else {
            r.bounds.clone()
        }
    });

    // A word that is a true return address becomes the label behind that call.
    let returns = view.sample.truth.frames().iter().enumerate().skip(1);
    let stack = Stack {
        memory: view.sample.memory(),
        stacks: stacks.collect(),
        space: view.space,
        returns: returns.map(|(i, frame)| (frame.pc, i)).collect(),
    };

    out.push_str(PRELUDE);
    let _ = writeln!(
        out,
        "        nop\n{ELSEWHERE}:     # stands for other code\n        ud2"
    );

    // The root fills the stack with poison, as deep as all frames and what is below them.
    let depth: u64 = functions.iter().map(|f| f.size + 8).sum();

    for (i, f) in functions.iter().enumerate() {
        let callee = i
            .checked_sub(1)
            .map(|inside| functions[inside].name.as_str());
        let is_root = i + 1 == functions.len();

        let poison = is_root.then_some(depth / 8 + 2 * BELOW_RSP);
        stack.function(out, i, f, callee, poison);

        // Not only at the end: the text of a deep stack could grow far beyond the limit first.
        if out.len() > FILE_BYTES_MAX {
            return Err(NotWritable::TooLarge { bytes: out.len() });
        }
    }

    Ok(())
}

impl Stack<'_> {
    /// The form of `value` at a place where rsp is `base`.
    fn word(&self, value: u64, base: u64) -> Word {
        match (self.on_stack(value, base), self.returns.get(&value)) {
            (Some(distance), _) => Word::Stack(distance),
            (_, Some(function)) => Word::Code(return_label(*function)),
            _ if self.space.is_text(value) => Word::Code(ELSEWHERE.to_owned()),
            _ => Word::Plain(value),
        }
    }

    /// The distance of `value` from `base`, if it is a stack address.
    fn on_stack(&self, value: u64, base: u64) -> Option<i32> {
        let inside = self.stacks.iter().any(|r| r.contains(&value));
        let distance = value.wrapping_sub(base) as i64;
        i32::try_from(distance).ok().filter(|_| inside)
    }

    fn function(
        &self,
        out: &mut String,
        i: usize,
        f: &Function,
        callee: Option<&str>,
        poison: Option<u64>,
    ) {
        let is_root = poison.is_some();
        let name = &f.name;

        let _ = writeln!(out, "\n# {}", f.place);
        if is_root {
            let _ = writeln!(out, "        .globl  {name}");
        }
        let _ = writeln!(out, "        .type   {name}, @function\n{name}:");

        let has_cfi = f.rule.is_some() || is_root;
        if has_cfi {
            out.push_str("        .cfi_startproc\n");
        }

        if let Some(words) = poison {
            poison_stack(out, words);
        }

        // The bytes below the innermost frame too: slots of registers that were popped.
        let below = if callee.is_none() { BELOW_RSP } else { 0 };
        let words = self.words(out, i, f, below);

        // The call has pushed the case's own return address; the recorded one was overwritten.
        if let Some(word) = f.slot.filter(|_| !is_root) {
            self.load(out, "rax", word, f.rsp);
            let _ = writeln!(out, "        mov     %rax, {}(%rsp)", f.size);
        }

        // Filling the frame has changed rax, rcx, rsi and rdi, which a callee need not preserve
        // (psABI).
        for (reg, value) in Reg::CALLEE_SAVED.iter().zip(f.saved.unwrap_or_default()) {
            if f.saved.is_some() {
                self.load(out, reg.as_str(), value, f.rsp);
            }
        }

        // DWARF 5, 6.4.4: an undefined return address ends the unwinding.
        match f.rule {
            _ if is_root => out.push_str("        .cfi_undefined rip\n"),
            Some(rule) => write_rule(out, &rule),
            None => {}
        }

        let end = if has_cfi {
            "        .cfi_endproc\n"
        } else {
            ""
        };

        match callee {
            Some(callee) => {
                // The innermost function exits, so nothing behind a call is executed.
                let label = return_label(i);
                let end = if f.ends_with_call { end } else { "" };
                let _ = writeln!(out, "        call    {callee}\n{end}{label}:\n        ud2");
            }
            None => out.push_str(
                "sample:\n        xor     %edi, %edi\n        mov     $231, %eax              \
                 # exit_group(0)\n        syscall\n        ud2\n",
            ),
        }

        if !(f.ends_with_call && callee.is_some()) {
            out.push_str(end);
        }

        let _ = writeln!(out, "        .size   {name}, . - {name}");
        out.push_str(&words);
    }

    /// Writes the code that allocates the frame and fills it. Returns the words, which go after the
    /// function.
    fn words(&self, out: &mut String, i: usize, f: &Function, below: u64) -> String {
        let mut data = String::new();
        let bytes = f.size + below;
        if bytes == 0 {
            return data;
        }

        // Writing to a string cannot fail.
        let _ = writeln!(out, "        sub     ${bytes}, %rsp");
        let base = f.rsp.wrapping_sub(below);
        let at = (0..bytes / 8).map(|n| base.wrapping_add(8 * n));
        let words: Vec<u64> = at
            .map(|a| self.memory.read_u64(a).unwrap_or(POISON))
            .collect();

        let count = words.len();
        let _ = writeln!(out, "        WORDS   .Lwords_{i}, {count}");

        let _ = writeln!(
            data,
            "        .section .rodata\n        .balign 8\n.Lwords_{i}:"
        );

        // Addresses of the case differ from those of the recording, so words that point into a
        // stack or code are computed.
        for (n, word) in words.iter().enumerate() {
            let _ = match self.word(*word, base) {
                Word::Stack(distance) => writeln!(out, "        lea     {distance}(%rsp), %rax"),
                Word::Code(label) => writeln!(out, "        lea     {label}(%rip), %rax"),
                Word::Plain(_) => continue,
            };
            let _ = writeln!(out, "        mov     %rax, {}(%rsp)", 8 * n);
        }

        // Equal words are one line: a case file may have no more than `FILE_BYTES_MAX`.
        for same in words.chunk_by(|a, b| a == b) {
            let _ = match same {
                [word] => writeln!(data, "        .quad   {word:#x}"),
                _ => writeln!(data, "        .fill   {}, 8, {:#x}", same.len(), same[0]),
            };
        }
        data.push_str("        .text\n");

        // The words below rsp are filled; it goes back to where it was.
        if below > 0 {
            let _ = writeln!(out, "        lea     {below}(%rsp), %rsp");
        }

        data
    }

    /// Writes the code that loads a register's value. Addresses of the stack and of code become
    /// those of the case.
    fn load(&self, out: &mut String, reg: &str, value: u64, rsp: u64) {
        let _ = match self.word(value, rsp) {
            Word::Stack(distance) => writeln!(out, "        lea     {distance}(%rsp), %{reg}"),
            Word::Code(label) => writeln!(out, "        lea     {label}(%rip), %{reg}"),
            Word::Plain(value) => writeln!(out, "        movabs  ${value:#x}, %{reg}"),
        };
    }
}

/// The label after the call in the function with this number.
fn return_label(function: usize) -> String {
    format!(".Lreturn_{function}")
}

fn poison_stack(out: &mut String, words: u64) {
    let bytes = words * 8;
    let _ = writeln!(
        out,
        "        lea     -{bytes}(%rsp), %rdi\n        mov     ${words}, %ecx\n        \
         movabs  ${POISON:#x}, %rax\n        rep stosq"
    );
}

fn write_rule(out: &mut String, rule: &Rule) {
    if rule.kind == RuleKind::Outermost {
        out.push_str("        .cfi_undefined rip\n");
        return;
    }
    if let Value::Offset {
        base: Base::Reg(reg),
        offset,
    } = rule.cfa
    {
        let _ = writeln!(out, "        .cfi_def_cfa {}, {offset}", reg.as_str());
    }
    if rule.ra != Value::at_cfa(-8)
        && let Some(text) = directive("rip", rule.ra)
    {
        let _ = writeln!(out, "        {text}");
    }
    for (reg, value) in Reg::CALLEE_SAVED.iter().zip(rule.saved) {
        if let Some(text) = directive(reg.as_str(), value).filter(|t| !t.is_empty()) {
            let _ = writeln!(out, "        {text}");
        }
    }
}
