//! The kinds of broken stacks.

use super::place;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::runtime;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::image::{AddressSpace, Image, SectionKind};
use unwind_sim_unwind::insn::{INSN_BYTES_MAX, is_sigreturn};
use unwind_sim_unwind::reason::Code;

/// What broke a stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A function without frame pointer in a walk by frame pointers.
    NoFramePointer,
    /// The stack is longer than what was copied of it.
    CopyTooShort,
    /// A row names a word below rsp, where no copy reaches.
    BelowCopy,
    /// The file has no unwind table.
    NoTable,
    /// The file has a table, but no row for this code.
    NoRow,
    /// A row is wrong.
    WrongRow,
    /// The file with the code and its table was not found.
    NoFile,
    /// A core without a list of files, and the file was not found otherwise.
    NoNote,
    /// Generated code, which has no table.
    Jit,
    /// The sample lacks the registers or the stack.
    NotRecorded,
    /// There were more calls than the processor records branches.
    BranchRecords,
    /// A file is there, but cannot be read, or is damaged.
    UnreadableFile,
    /// The kernel cut the callchain at its limit.
    ChainCut,
    /// A function calls itself, or a few each other, as far as the walk goes.
    EndlessRecursion,
    /// The walk found more frames than its limit.
    FrameLimit,
    /// A return address on the stack was overwritten.
    OverwrittenReturn,
    /// A jump or call to an address without code.
    BadJump,
    /// A return address where nothing is mapped any more, near the code of files.
    UnmappedCode,
    /// A core's file ends before the memory that is needed.
    CutCore,
    /// The chain ended, or went wrong, for another reason.
    Other,
    /// What a C library runs before `main` has no frame pointer: the chain has all above it.
    StartCode,
    /// Code of the compiler's start files, which has no rows.
    StartFile,
    /// A procedure linkage table without rows.
    Plt,
    /// What signal handlers return to, without a row for it.
    Trampoline,
    /// The table has the row, but a lookup through the index of the file does not find it.
    Unreachable,
    /// A mapped file that is not ELF.
    NotElf,
    /// The program was being replaced by another one.
    Exec,
    /// The first frame of a coroutine, whose author did not mark the end.
    CoroutineEnd,
    /// A precise sample: its registers are those of after the instruction.
    Precise,
    /// Not known: nothing says whether the code has a frame pointer.
    UnclearFramePointer,
    /// Not known: there is no return address, and this may be the end of a stack.
    StackEnd,
    /// Not known: frames were found by a scan.
    Guessed,
    /// Not known: the file may not be the one that ran.
    OtherFile,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 33] = [
        Kind::NoFramePointer,
        Kind::CopyTooShort,
        Kind::BelowCopy,
        Kind::NoTable,
        Kind::NoRow,
        Kind::WrongRow,
        Kind::NoFile,
        Kind::NoNote,
        Kind::Jit,
        Kind::NotRecorded,
        Kind::BranchRecords,
        Kind::UnreadableFile,
        Kind::ChainCut,
        Kind::EndlessRecursion,
        Kind::FrameLimit,
        Kind::OverwrittenReturn,
        Kind::BadJump,
        Kind::UnmappedCode,
        Kind::CutCore,
        Kind::Other,
        Kind::StartCode,
        Kind::StartFile,
        Kind::Plt,
        Kind::Trampoline,
        Kind::Unreachable,
        Kind::NotElf,
        Kind::Exec,
        Kind::CoroutineEnd,
        Kind::Precise,
        Kind::UnclearFramePointer,
        Kind::StackEnd,
        Kind::Guessed,
        Kind::OtherFile,
    ];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::NoFramePointer => "no-frame-pointer",
            Kind::CopyTooShort => "copy-too-short",
            Kind::BelowCopy => "below-copy",
            Kind::NoTable => "no-table",
            Kind::NoRow => "no-row",
            Kind::WrongRow => "wrong-row",
            Kind::NoFile => "no-file",
            Kind::NoNote => "no-note",
            Kind::Jit => "jit",
            Kind::NotRecorded => "not-recorded",
            Kind::BranchRecords => "branch-records",
            Kind::UnreadableFile => "unreadable-file",
            Kind::ChainCut => "chain-cut",
            Kind::EndlessRecursion => "endless-recursion",
            Kind::FrameLimit => "frame-limit",
            Kind::OverwrittenReturn => "overwritten-return",
            Kind::BadJump => "bad-jump",
            Kind::UnmappedCode => "unmapped-code",
            Kind::CutCore => "cut-core",
            Kind::Other => "other",
            Kind::StartCode => "start-code",
            Kind::StartFile => "start-file",
            Kind::Plt => "plt",
            Kind::Trampoline => "signal-trampoline",
            Kind::Unreachable => "unreachable-row",
            Kind::NotElf => "not-elf",
            Kind::Exec => "exec",
            Kind::CoroutineEnd => "coroutine-end",
            Kind::Precise => "precise-sample",
            Kind::UnclearFramePointer => "unclear-frame-pointer",
            Kind::StackEnd => "stack-end",
            Kind::Guessed => "guessed",
            Kind::OtherFile => "other-file",
        }
    }

    /// A short description for display.
    pub const fn description(self) -> &'static str {
        match self {
            Kind::NoFramePointer => "code without frame pointers",
            Kind::CopyTooShort => "the stack copy is too short",
            Kind::BelowCopy => "a row points below the stack copy",
            Kind::NoTable => "a file without unwind table",
            Kind::NoRow => "code without a row in its unwind table",
            Kind::WrongRow => "a wrong row in an unwind table",
            Kind::NoFile => "a missing file",
            Kind::NoNote => "a core without a list of its files (NT_FILE)",
            Kind::Jit => "generated code without unwind table",
            Kind::NotRecorded => "registers, memory or code that was not recorded",
            Kind::BranchRecords => "more calls than branch records",
            Kind::UnreadableFile => "a file that cannot be read",
            Kind::ChainCut => "callchains that the kernel cut at its limit",
            Kind::EndlessRecursion => "endless recursion",
            Kind::FrameLimit => "more frames than the limit",
            Kind::OverwrittenReturn => "an overwritten return address",
            Kind::BadJump => "a jump or call to an address without code",
            Kind::UnmappedCode => "a return address where nothing is mapped, near code that is",
            Kind::CutCore => "a core that was cut short",
            Kind::Other => "chains that end or go wrong for another reason",
            Kind::StartCode => "start code: all frames of the program are there",
            Kind::StartFile => "start-file code, which has no rows",
            Kind::Plt => "a procedure linkage table without rows",
            Kind::Trampoline => "a signal trampoline without a row",
            Kind::Unreachable => "a row that the file's index does not lead to",
            Kind::NotElf => "a file that is not ELF",
            Kind::Exec => "programs that were being replaced (execve)",
            Kind::CoroutineEnd => "the first function of a coroutine, whose end is not marked",
            Kind::Precise => "precise samples, with the registers of after the instruction",
            Kind::UnclearFramePointer => "code of which nothing says whether it has frame pointers",
            Kind::StackEnd => "no return address: the end of a stack, or of what can be read",
            Kind::Guessed => "frames that were found by a scan",
            Kind::OtherFile => "a file that may not be the one that ran",
        }
    }

    /// Whether a place in code is to blame.
    pub const fn has_place(self) -> bool {
        !matches!(
            self,
            Kind::CopyTooShort
                | Kind::NotRecorded
                | Kind::BranchRecords
                | Kind::ChainCut
                | Kind::CutCore
                | Kind::Exec
                | Kind::Precise
                | Kind::Guessed
        )
    }

    /// The kind that a reason code at `pc` stands for.
    pub(super) fn of(code: Code, space: &AddressSpace, pc: CodeAddress) -> Kind {
        match code {
            Code::FramePointerNotYet | Code::FramePointerGone | Code::NoFramePointer => {
                Kind::NoFramePointer
            }
            Code::BeyondCopy => Kind::CopyTooShort,
            Code::BelowCopy => Kind::BelowCopy,
            Code::WrongCfa
            | Code::WrongReturnAddress
            | Code::WrongRegister
            | Code::RowBehindCall
            | Code::RowOfTarget
            | Code::MalformedRow
            | Code::ExpressionFailed => Kind::WrongRow,
            Code::Unmapped | Code::RegistersMissing => Kind::NotRecorded,
            Code::LbrDepth | Code::NoBranchRecords => Kind::BranchRecords,
            Code::AfterInstruction => Kind::Precise,
            Code::FrameLimit => Kind::FrameLimit,
            Code::NoImage | Code::NoTable | Code::NoRow | Code::NoRowForExecuted => {
                without_row(space, pc)
            }
            _ => Kind::Other,
        }
    }
}

/// Whether an image has a table from which user code is unwound.
fn has_table(image: &Image) -> bool {
    let kinds = [SectionKind::EhFrame, SectionKind::DebugFrame];
    let sections = image.sections().iter();
    sections
        .into_iter()
        .any(|s| kinds.contains(&s.kind) && s.data.len() > 4)
}

/// What is missing at an address for which there is no row.
fn without_row(space: &AddressSpace, pc: CodeAddress) -> Kind {
    let Some(mapping) = space.find(pc.symbol_address()) else {
        return Kind::Other;
    };
    let is_generated = runtime::generated(mapping).is_some();
    let is_named = !mapping.name.is_empty() && !mapping.name.starts_with('[');
    let is_file = is_named && !is_generated || mapping.name == "[vdso]";
    match &mapping.image {
        None if is_file => Kind::NoFile,
        None => Kind::Jit,
        Some(image) => of_code(
            image,
            mapping.svma(pc.symbol_address()),
            mapping.svma(pc.value()),
        )
        .unwrap_or(match has_table(image) {
            true => Kind::NoRow,
            false if is_file => Kind::NoTable,
            false => Kind::Jit,
        }),
    }
}

/// Code of which no table is to be expected, or whose row is there but cannot be found. `svma` is
/// an address in it, `pc` where it goes on.
fn of_code(image: &Image, svma: u64, pc: u64) -> Option<Kind> {
    // A symbol without a size, as those of start files are, names what is near it.
    const NEAR: u64 = 64;
    let symbol = image.symbol(svma);
    let symbol = symbol.filter(|symbol| symbol.size > 0 || svma - symbol.address < NEAR);
    let symbol = symbol.filter(|_| !place::is_beyond_start_file(image, svma));
    let name = symbol.map_or("", |symbol| symbol.name.as_str());
    // mold calls them `name$plt`.
    if name.ends_with("@plt") || name.ends_with("$plt") {
        return Some(Kind::Plt);
    }
    // V8's builtins, which it generates when it is built.
    if name.starts_with("Builtins_") {
        return Some(Kind::Jit);
    }
    if is_in_trampoline(image, pc) {
        return Some(Kind::Trampoline);
    }
    place::is_start_file(image, svma, name).then_some(Kind::StartFile)
}

/// Whether `pc` is at an instruction of a signal trampoline, or behind its system call, where a sample
/// that is taken in it is, and no row.
fn is_in_trampoline(image: &Image, pc: u64) -> bool {
    let code = |behind: u64| match pc.checked_sub(behind) {
        Some(start) => image.text_bytes(start, INSN_BYTES_MAX),
        None => &[],
    };
    // `mov $15, %rax` has 7 bytes, `mov $15, %eax` 5, `syscall` 2.
    let is_long = |behind| code(behind).starts_with(&[0x48]) && is_sigreturn(code(behind));
    let is_short = |behind| code(behind).starts_with(&[0xb8]) && is_sigreturn(code(behind));
    [0, 7, 9].into_iter().any(is_long) || [0, 5, 7].into_iter().any(is_short)
}

/// The names of the place of `pc`: the path of its file, and the function.
pub(super) fn place(space: &AddressSpace, pc: CodeAddress) -> (String, String) {
    let location = Location::of(space, pc);
    let mapping = space.find(pc.symbol_address());

    // A perf map names functions of generated code, but the code is not in it.
    let image = mapping.map(|m| match &m.image {
        Some(image) if !image.name().is_empty() && !runtime::has_perf_map(m) => {
            image.name().to_owned()
        }
        _ => m.name.clone(),
    });
    let image = image.filter(|name| !name.is_empty());

    let is_unnamed = mapping.is_some_and(|m| {
        let at = m.svma(pc.symbol_address());
        let image = m.image.as_ref();
        image.is_some_and(|image| place::is_beyond_start_file(image, at))
    });

    // Anonymous memory has no offsets that mean anything.
    let has_offsets = mapping.is_none_or(|m| m.image.is_some() || runtime::generated(m).is_none());

    let function = match location.function {
        Some(function) if !is_unnamed => function,
        Some(_) => format!("{:#x}", mapping.map_or(0, |m| m.svma(pc.value()))),
        None if has_offsets => format!("{:#x}", location.offset),
        None => format!("{:#x}", pc.value()),
    };

    (image.unwrap_or_else(|| "anonymous memory".into()), function)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use unwind_sim_unwind::image::{Bytes, ImageParts, Mapping, Section};

    fn space(name: &str, table: Option<SectionKind>) -> AddressSpace {
        let sections = table.map(|kind| Section {
            kind,
            address: 0,
            data: Bytes::from_vec(vec![0; 8]),
        });
        let image = Image::new(ImageParts {
            name: name.to_owned(),
            sections: sections.into_iter().collect(),
            ..ImageParts::default()
        });
        let mut space = AddressSpace::new();
        for (start, image) in [(0x1000, Some(Arc::new(image))), (0x3000, None)] {
            space.map(Mapping {
                range: start..start + 0x1000,
                bias: 0,
                image,
                name: name.to_owned(),
            });
        }
        space
    }

    #[test]
    fn what_is_missing_depends_on_the_file() {
        let kind = |space: &AddressSpace, pc| Kind::of(Code::NoRow, space, CodeAddress::Return(pc));
        let with = space("/bin/a", Some(SectionKind::EhFrame));
        assert_eq!(kind(&with, 0x1010), Kind::NoRow);
        assert_eq!(kind(&with, 0x3010), Kind::NoFile);
        assert_eq!(kind(&with, 0x5010), Kind::Other);
        let without = space("/bin/a", Some(SectionKind::Text));
        assert_eq!(kind(&without, 0x1010), Kind::NoTable);
        let generated = space("//anon", None);
        assert_eq!(kind(&generated, 0x1010), Kind::Jit);
        assert_eq!(kind(&generated, 0x3010), Kind::Jit);
    }

    /// `mov $15, %rax; syscall` and `mov $15, %eax; syscall`: at each instruction, and behind both, where
    /// a sample in the system call is.
    #[test]
    fn samples_in_a_signal_trampoline_are_in_it_as_a_whole() {
        for (code, inside) in [
            (&b"\x48\xc7\xc0\x0f\0\0\0\x0f\x05"[..], [0, 7, 9]),
            (&b"\xb8\x0f\0\0\0\x0f\x05"[..], [0, 5, 7]),
        ] {
            let text = [&[0x90; 16][..], code, &[0x90; 16]].concat();
            let image = Image::new(ImageParts {
                sections: vec![Section {
                    kind: SectionKind::Text,
                    address: 0x1000,
                    data: Bytes::from_vec(text),
                }],
                ..ImageParts::default()
            });
            for at in 0..32_u64 {
                let pc = 0x1000 + at;
                let is_inside = at
                    .checked_sub(16)
                    .is_some_and(|skip| inside.contains(&skip));
                let expected = is_inside.then_some(Kind::Trampoline);
                assert_eq!(of_code(&image, pc, pc), expected, "{code:x?} {at}");
            }
        }
    }
}
