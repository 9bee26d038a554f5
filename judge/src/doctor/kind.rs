//! The kinds of broken stacks, and what to do about each.

use unwind_sim_recordings::names::Location;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::image::{AddressSpace, Image, SectionKind};
use unwind_sim_unwind::reason::Code;

/// The largest stack copy of perf, bytes (a 16-bit size, rounded down to words).
const COPY_MAX: u64 = 65_528;

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
    /// Generated code, which has no table.
    Jit,
    /// The sample lacks the registers or the stack.
    NotRecorded,
    /// There were more calls than the processor records branches.
    BranchRecords,
    /// The chain ended, or went wrong, for another reason.
    Other,
}

impl Kind {
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
            Kind::Jit => "jit",
            Kind::NotRecorded => "not-recorded",
            Kind::BranchRecords => "branch-records",
            Kind::Other => "other",
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
            Kind::Jit => "generated code without unwind table",
            Kind::NotRecorded => "registers or memory that were not recorded",
            Kind::BranchRecords => "more calls than branch records",
            Kind::Other => "chains that end or go wrong for another reason",
        }
    }

    /// Whether a place in code is to blame.
    pub const fn has_place(self) -> bool {
        !matches!(
            self,
            Kind::CopyTooShort | Kind::NotRecorded | Kind::BranchRecords
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
            Code::NoImage | Code::NoTable | Code::NoRow | Code::NoRowForExecuted => {
                without_row(space, pc)
            }
            _ => Kind::Other,
        }
    }

    /// What to do. `image` is the path of the file, `copied` the longest stack copy in bytes.
    pub fn advice(self, image: &str, copied: u64) -> String {
        let system = ["/usr/", "/lib", "/opt/", "/nix/", "/snap/"];
        let is_systems = system.iter().any(|folder| image.starts_with(folder));
        match self {
            Kind::NoFramePointer if is_systems => {
                "record with `--call-graph dwarf,16384` (Intel: `lbr`), or use a build with \
                 frame pointers"
                    .into()
            }
            Kind::NoFramePointer => {
                "build it with -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer, or record \
                 with `--call-graph dwarf,16384`"
                    .into()
            }
            Kind::CopyTooShort if copied >= COPY_MAX => {
                "no longer copy is possible: record with `--call-graph fp` or `lbr`".into()
            }
            Kind::CopyTooShort => {
                let more = (copied.next_power_of_two().max(4096) * 4).min(COPY_MAX);
                format!("record with `--call-graph dwarf,{more}` (this recording: {copied})")
            }
            Kind::BelowCopy => {
                "no longer copy helps: use an unwinder that takes popped registers as they are, \
                 or `--call-graph lbr`"
                    .into()
            }
            Kind::NoTable => {
                "build it with -fasynchronous-unwind-tables; or, if it has frame pointers, \
                 record with `--call-graph fp`"
                    .into()
            }
            Kind::NoRow => "its author must write .cfi directives; until then use \
                            `--unwinder dwarf+fp`"
                .into(),
            Kind::WrongRow => format!(
                "report it to its author with `unwind-sim tables check --explain {image}`; \
                 until then record with `--call-graph fp` or `lbr`"
            ),
            Kind::NoFile => {
                "install the same build (debuginfod-find executable BUILD-ID), or name the \
                 folder with --symfs"
                    .into()
            }
            Kind::Jit => "run it with frame pointers (java -XX:+PreserveFramePointer, node \
                          --interpreted-frames-native-stack) and `--call-graph fp`"
                .into(),
            Kind::NotRecorded => "record with `--call-graph dwarf,16384`".into(),
            Kind::BranchRecords => "report with --stitch-lbr, or record with \
                                    `--call-graph dwarf,16384`"
                .into(),
            Kind::Other => "look at one; or record with `--call-graph dwarf,16384`".into(),
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
    let is_file = mapping.name.starts_with('/') && !mapping.name.starts_with("//anon")
        || mapping.name == "[vdso]";
    match &mapping.image {
        None if is_file => Kind::NoFile,
        None => Kind::Jit,
        Some(image) if has_table(image) => Kind::NoRow,
        Some(_) if is_file => Kind::NoTable,
        Some(_) => Kind::Jit,
    }
}

/// The names of the place of `pc`: the path of its file, and the function.
pub(super) fn place(space: &AddressSpace, pc: CodeAddress) -> (String, String) {
    let location = Location::of(space, pc);
    let mapping = space.find(pc.symbol_address());
    let image = mapping.map(|m| match &m.image {
        Some(image) if !image.name().is_empty() => image.name().to_owned(),
        _ => m.name.clone(),
    });
    let image = image.filter(|name| !name.is_empty());
    let function = location
        .function
        .unwrap_or_else(|| format!("{:#x}", location.offset));
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

    #[test]
    fn a_longer_copy_is_asked_for_until_there_is_none() {
        let asked = |copied| Kind::CopyTooShort.advice("", copied);
        assert!(asked(512).contains("dwarf,16384"), "{}", asked(512));
        assert!(asked(8192).contains("dwarf,32768"), "{}", asked(8192));
        assert!(asked(32_768).contains("dwarf,65528"), "{}", asked(32_768));
        assert!(!asked(65_528).contains("dwarf"), "{}", asked(65_528));
    }

    #[test]
    fn a_systems_file_is_not_built_again() {
        let advice = |image| Kind::NoFramePointer.advice(image, 0);
        assert!(advice("/home/me/prog").contains("-fno-omit-frame-pointer"));
        assert!(!advice("/usr/lib/libc.so.6").contains("-fno-omit-frame-pointer"));
    }
}
