//! What to do about a kind of broken stacks: one table of remedies, each of which says whether it
//! applies.
//!
//! A remedy does not apply if the recording was already made so, if the unwinder that it needs was
//! tried and is not better, or if it asks for a recording where there is only a crash to explain.

use super::Subject;
use super::fault::Lack;
use super::generated::{self, Generator, MEMFD};
use super::kind::Kind;
use super::origin::{Language, Origin};
use super::proven_row::ProvenRow;
use crate::whole::is_thread_start;
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::files::{FileProblem, FileProblemKind};
use unwind_sim_recordings::made::Made;
use unwind_sim_recordings::runtime::Runtime;
use unwind_sim_recordings::trace::Engine;

/// The largest stack copy of perf, bytes (a 16-bit size, rounded down to words).
pub(super) const COPY_MAX: u64 = 65_528;
/// The maximum number of addresses in a callchain, by default (`kernel.perf_event_max_stack`).
pub(super) const CHAIN_MAX: u64 = 127;

/// What is known of the stacks that are to be repaired.
pub(super) struct Situation<'a> {
    pub(super) kind: Kind,
    /// The path of the file to blame.
    pub(super) image: &'a str,
    pub(super) made: &'a Made,
    /// The longest stack copy, bytes.
    pub(super) copied: u64,
    /// Who wrote the code.
    pub(super) origin: &'a Origin,
    /// In each stack only the innermost function is to blame.
    pub(super) only_leaves: bool,
    /// Why the file was not used.
    pub(super) problem: Option<&'a FileProblem>,
    /// The file is used, but may be another build than was mapped.
    pub(super) is_doubtful: bool,
    /// What the code proves of the row to blame.
    pub(super) row: Option<ProvenRow>,
    /// Most walks by frame pointers also ended with the stack copy: without one, they reach further.
    pub(super) is_fp_cut: bool,
    /// How far above rsp the words are with which walks ended, beyond the copies.
    pub(super) needed: Option<Needed>,
    /// An unwind table has a row for the code to blame, or nothing is known of it.
    pub(super) has_row: bool,
    /// The function to blame.
    pub(super) function: &'a str,
    /// What the samples lack, if that is known.
    pub(super) lack: Option<Lack>,
    /// The code belongs to no file.
    pub(super) is_generated: bool,
    /// What generated the code.
    pub(super) generator: Generator,
    /// All unwinders that were tried, and which of them is complained about.
    pub(super) subjects: &'a [Subject],
    pub(super) subject: usize,
}

/// How long copies of stacks would have to be for the next word of each walk, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Needed {
    pub(super) least: u64,
    pub(super) most: u64,
}

/// Something to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Remedy {
    BuildFramePointers,
    BuildTable,
    BuildRow,
    ReportRow,
    BetterUnwinder,
    RecordDwarf,
    RecordFp,
    RecordLbr,
    LongerCopy,
    LongestCopy,
    LongerChain,
    StitchLbr,
    InstallFile,
    NameFile,
    MakeReadable,
    JitFramePointers,
    CoreFilter,
    WhatIsLacking,
    WholeCore,
    EndRecursion,
    MoreFrames,
    FindOverwrite,
    CheckPointer,
    KeepLoaded,
    StartCode,
    StartFile,
    Trampoline,
    Relink,
    NoReader,
    Nothing,
    EndMark,
    RightFile,
}

/// The remedies for a kind, those to try first in front.
const fn remedies(kind: Kind) -> &'static [Remedy] {
    use Remedy::*;
    match kind {
        Kind::NoFramePointer => &[BuildFramePointers, BetterUnwinder, RecordDwarf, RecordLbr],
        Kind::CopyTooShort => &[LongerCopy, LongestCopy, BetterUnwinder, RecordFp, RecordLbr],
        // A copy starts at rsp, so no longer one has what is below.
        Kind::BelowCopy => &[BetterUnwinder, RecordFp, RecordLbr],
        Kind::NoTable => &[BuildTable, BetterUnwinder, RecordFp, RecordLbr],
        Kind::NoRow => &[BuildRow, BetterUnwinder, RecordFp],
        Kind::WrongRow => &[ReportRow, BetterUnwinder, RecordFp, RecordLbr],
        Kind::NoFile => &[InstallFile],
        Kind::NoNote => &[NameFile],
        Kind::UnreadableFile => &[MakeReadable],
        Kind::Jit => &[JitFramePointers, BetterUnwinder, RecordFp],
        // Of cores and of profiles: a remedy for the one has no text for the other.
        Kind::NotRecorded => &[
            WhatIsLacking,
            CoreFilter,
            BetterUnwinder,
            RecordFp,
            RecordDwarf,
        ],
        Kind::BranchRecords => &[StitchLbr, BetterUnwinder, RecordDwarf],
        Kind::ChainCut => &[LongerChain],
        Kind::EndlessRecursion => &[EndRecursion],
        Kind::FrameLimit => &[MoreFrames],
        // The program is at fault, not a table.
        Kind::OverwrittenReturn => &[FindOverwrite],
        Kind::BadJump => &[CheckPointer, WholeCore],
        Kind::UnmappedCode => &[KeepLoaded],
        Kind::CutCore => &[WholeCore],
        Kind::Other => &[BetterUnwinder, RecordDwarf],
        Kind::StartCode => &[StartCode],
        Kind::StartFile => &[StartFile],
        Kind::Plt => &[BuildRow, BetterUnwinder],
        Kind::Trampoline => &[Trampoline, BetterUnwinder],
        Kind::Unreachable => &[Relink],
        Kind::NotElf => &[NoReader, BetterUnwinder, RecordFp],
        // No unwinder can make more of what these samples have.
        Kind::Exec => &[Nothing],
        Kind::Precise => &[Nothing],
        Kind::CoroutineEnd => &[EndMark],
        // Nothing is known to be wrong: another way to walk may tell.
        Kind::UnclearFramePointer => &[BetterUnwinder, RecordDwarf],
        Kind::StackEnd => &[EndMark],
        Kind::Guessed => &[BetterUnwinder, RecordDwarf],
        Kind::OtherFile => &[RightFile],
    }
}

/// What to do, in one line.
pub(super) fn advice(situation: &Situation<'_>) -> String {
    let remedies = remedies(situation.kind).iter();
    let texts = remedies.filter_map(|r| Some((*r, r.text(situation)?)));
    let (given, all): (Vec<Remedy>, Vec<String>) = texts.unzip();
    let text = if all.is_empty() {
        "look at one".into()
    } else {
        all.join("; or ") + gain(situation, &given, &all)
    };
    if situation.is_doubtful {
        format!(
            "make sure that the file is the build that ran, or name a folder with that build with \
             --symfs; if it is: {text}"
        )
    } else {
        text
    }
}

/// What is said of the gain of these remedies, where it is not in their texts.
fn gain(s: &Situation<'_>, given: &[Remedy], texts: &[String]) -> &'static str {
    const UNSEEN: &str = "; what that gains cannot be seen in this recording";
    // The program is to be mended, or nothing is to be done.
    const WITHOUT: [Remedy; 10] = [
        Remedy::EndRecursion,
        Remedy::FindOverwrite,
        Remedy::CheckPointer,
        Remedy::KeepLoaded,
        Remedy::StartCode,
        Remedy::StartFile,
        Remedy::Trampoline,
        Remedy::Nothing,
        Remedy::EndMark,
        Remedy::MoreFrames,
    ];

    let is_none = |text: &String| {
        ["none", "nothing"]
            .iter()
            .any(|none| text.starts_with(none))
    };

    // A gain is known where the same recording was walked that way, too.
    let is_measured = |remedy: &Remedy| match remedy {
        Remedy::BetterUnwinder => true,
        Remedy::RecordFp => s.standing("fp") == Standing::Better,
        // Only callers of the innermost function are missing, which the text says.
        Remedy::BuildFramePointers => s.only_leaves,
        remedy => WITHOUT.contains(remedy),
    };

    if given.iter().any(is_measured) || texts.iter().all(is_none) {
        ""
    } else {
        UNSEEN
    }
}

/// How an unwinder did, next to the one that is complained about.
#[derive(PartialEq, Eq)]
pub(super) enum Standing {
    NotTried,
    Better,
    NotBetter,
}

impl Situation<'_> {
    /// Whether another recording can be made in the way that perf makes them.
    pub(super) fn is_profile(&self) -> bool {
        self.made.engine == Engine::Import(FileKind::PerfData)
    }

    fn is_crash(&self) -> bool {
        matches!(
            self.made.engine,
            Engine::Import(FileKind::Core) | Engine::KernelDump
        )
    }

    fn own(&self) -> &Subject {
        &self.subjects[self.subject]
    }

    fn is_better(&self, other: &Subject) -> bool {
        other.whole > self.own().whole && other.broken < self.own().broken
    }

    pub(super) fn standing(&self, name: &str) -> Standing {
        let tried = self.subjects.iter().filter(|s| s.stacks() > 0);
        let mut tried = tried
            .filter(|s| s.name.split('@').next() == Some(name))
            .peekable();
        if tried.peek().is_none() {
            return Standing::NotTried;
        }
        if tried.any(|s| self.is_better(s)) {
            Standing::Better
        } else {
            Standing::NotBetter
        }
    }

    /// Whether the chains that perf recorded come from frame pointers.
    pub(super) fn has_fp_chains(&self) -> bool {
        self.made.callchains && self.stack_copy() == 0 && !self.made.branch_calls
    }

    fn stack_copy(&self) -> u64 {
        self.copied.max(u64::from(self.made.stack_copy))
    }

    pub(super) fn is_given(&self, option: &str) -> bool {
        self.made.command.iter().any(|word| word.contains(option))
    }

    /// Files that somebody else built.
    fn is_systems(&self) -> bool {
        let system = ["/usr/", "/lib", "/opt/", "/nix/", "/snap/"];
        system.iter().any(|folder| self.image.starts_with(folder))
    }
}

impl Remedy {
    /// What to do; `None` if it does not apply.
    fn text(self, s: &Situation<'_>) -> Option<String> {
        match self {
            Remedy::BuildFramePointers => Some(frame_pointers(s)),
            // glibc: sysdeps/unix/sysv/linux/x86_64/clone3.S.
            Remedy::BuildRow if is_thread_start(s.function) => Some(
                "none: the C library ends the rows of this function before its system call on purpose, \
                 because they would be wrong in the new thread"
                    .into(),
            ),
            // LLVM: X86IndirectThunks.cpp.
            Remedy::BuildRow if s.function.starts_with("__llvm_retpoline_") => Some(
                "none: LLVM writes the thunks of -mretpoline without rows that fit, whatever the options \
                 are"
                    .into(),
            ),
            Remedy::BuildTable | Remedy::BuildRow => Some(s.origin.rows(s.kind)),
            Remedy::ReportRow => Some(wrong_row(s)),
            // Only unwinders that walked these samples: what they gain is measured, not hoped for.
            Remedy::BetterUnwinder => {
                let tried = s.subjects.iter().filter(|other| s.is_better(other));
                let best = tried.max_by_key(|other| other.whole)?;
                let (whole, own) = (best.whole, s.own());
                Some(match best.name.as_str() {
                    super::PERF => format!(
                        "use the chains that perf recorded: whole are {whole}, {} by {}",
                        own.whole, own.name
                    ),
                    name => format!(
                        "use `--unwinder {}`: whole are {whole}, {} by {}",
                        name.split('@').next().unwrap_or(name),
                        own.whole,
                        own.name
                    ),
                })
            }
            // Of code without a row, the longest stack copy is of no use.
            Remedy::RecordDwarf => (s.is_profile()
                && s.stack_copy() == 0
                && s.has_row
                && s.lack != Some(Lack::Mappings))
                .then(|| "record with `--call-graph dwarf,16384`".into()),
            // If fp did badly here because its walks ran out of the stack copy, that says nothing
            // about the kernel's: it follows rbp in the memory itself. And it cannot replace a
            // register that was not recorded, only a copy.
            Remedy::RecordFp => (s.is_profile()
                && !s.has_fp_chains()
                && (s.standing("fp") != Standing::NotBetter
                    || matches!(s.kind, Kind::CopyTooShort | Kind::NotRecorded) && s.is_fp_cut)
                && (s.kind != Kind::NotRecorded || s.lack == Some(Lack::Copy)))
                .then(|| record_fp(s)),
            // Branch records as a call stack are a mode of Intel's processors.
            Remedy::RecordLbr => {
                (s.is_profile()
                    && !s.made.branch_calls
                    && !s.made.is_amd()
                    && s.standing("lbr") != Standing::NotBetter)
                    .then(|| "record with `--call-graph lbr` (Intel)".into())
            }
            Remedy::LongerCopy => longer_copy(s),
            // Where no size is enough, it does not matter how much was asked for.
            Remedy::LongestCopy if s.needed.is_some_and(|n| n.least > COPY_MAX) => no_copy_reaches(s),
            Remedy::LongestCopy => (s.stack_copy() >= COPY_MAX).then(|| {
                "perf copies at most 65528 bytes, as here: make the stack shorter (large local \
                 arrays, deep recursion)"
                    .into()
            }),
            Remedy::LongerChain => s.is_profile().then(|| longer_chain(s)),
            // perf-report(1): it joins the records with those of the sample before, which may reach
            // further.
            Remedy::StitchLbr => (!s.is_given("--stitch-lbr")
                && !s.own().name.contains("stitch")
                && s.standing("lbr:stitch") != Standing::NotBetter)
                .then(|| "report with --stitch-lbr (here: `--unwinder lbr:stitch`)".into()),
            Remedy::InstallFile => Some(install(s)),
            Remedy::NameFile => Some(
                "nothing in the core names this file: give the program with `--exe FILE`, and other \
                 files with --sysroot"
                    .into(),
            ),
            Remedy::MakeReadable => Some(make_readable(s)),
            Remedy::JitFramePointers => {
                let unknown = || generated::of_unknown(s);
                Some(generated::advice(s).unwrap_or_else(unknown))
            }
            // core(5): these bits select all mappings but those of DAX.
            Remedy::CoreFilter if s.lack == Some(Lack::Stack) => None,
            Remedy::CoreFilter => s.is_crash().then(|| {
                "the core lacks this memory: set /proc/PID/coredump_filter to 0x7f before the next \
                 crash; what the program excluded itself (MADV_DONTDUMP) is left out whatever the \
                 filter is"
                    .into()
            }),
            // What is missing in a core is the case of `CoreFilter`.
            Remedy::WhatIsLacking => match s.lack? {
                Lack::Code => Some(
                    "the recording has only pieces of the code: record again, which keeps the \
                     code at all addresses on the stack"
                        .into(),
                ),
                Lack::Stack => Some(
                    "nothing was left out of the core: rsp was overwritten, the stack was unmapped, or it \
                     overflowed far beyond its end (a large local array)"
                        .into(),
                ),
                Lack::Mappings if s.is_profile() => Some(
                    "the recording does not say what the process had mapped there: let perf list it (leave \
                     out --synth), or start the program with `perf record`; if records were lost, give perf \
                     a larger buffer (-m)"
                        .into(),
                ),
                Lack::Mappings => Some("the recording does not say what was mapped there".into()),
                _ if !s.is_profile() => None,
                Lack::Register => Some(
                    "record all registers: leave out --user-regs, or name the missing one there"
                        .into(),
                ),
                Lack::Copy => Some(
                    "no longer copy helps: the page of the stack was not in memory when the sample was \
                     taken"
                        .into(),
                ),
            },
            // A core is cut by a limit of the process (RLIMIT_CORE), by systemd-coredump, or by a
            // full disk.
            Remedy::WholeCore => s.made.is_cut.then(|| {
                "let the next core be written whole: `ulimit -c unlimited`, ProcessSizeMax= and \
                 ExternalSizeMax= in coredump.conf, enough room on the disk, a complete copy"
                    .into()
            }),
            Remedy::EndRecursion => Some(
                "find the condition that should end the recursion; the frames above it are shown \
                 by `--max-frames`"
                    .into(),
            ),
            Remedy::MoreFrames => Some("walk further with `--max-frames`".into()),
            Remedy::FindOverwrite => Some(
                "find the store that ran over its buffer: build with -fsanitize=address or \
                 -fstack-protector-strong and run it again"
                    .into(),
            ),
            Remedy::CheckPointer => {
                Some("look at the pointer that the caller called through".into())
            }
            // dlopen(3): RTLD_NODELETE.
            Remedy::KeepLoaded => Some(
                "if a library was there, do not unload it (dlclose) while its functions are on a stack, or \
                 open it with RTLD_NODELETE; if none was, the word was overwritten: build with \
                 -fsanitize=address"
                    .into(),
            ),
            Remedy::StartCode => Some(
                "nothing: these stacks have all frames of the program; only what the C library runs \
                 before main is missing"
                    .into(),
            ),
            Remedy::StartFile => Some(
                "GCC builds its start files without rows: nothing of yours is wrong".into(),
            ),
            Remedy::Trampoline => Some(
                "none: no compiler option gives it a row, the C library or the language's runtime would \
                 have to; gdb knows it by its bytes if it has no name, or that of __restore_rt or \
                 sigaction"
                    .into(),
            ),
            Remedy::Relink => Some(
                "link it with another linker, or with a newer version of this one: the row is in \
                 .eh_frame, but not in the index of .eh_frame_hdr, or behind a terminator; no \
                 compiler option helps"
                    .into(),
            ),
            Remedy::NoReader if s.generator.runtime == Some(Runtime::Sbcl) => generated::advice(s),
            Remedy::NoReader => Some(
                "none: no table of this file can be read here; frame pointers lead through it if its \
                 code has them"
                    .into(),
            ),
            Remedy::Nothing if s.kind == Kind::Precise => Some(
                "nothing is wrong with a table: the processor gave the address of an instruction and \
                 the registers of after it"
                    .into(),
            ),
            Remedy::Nothing => Some("nothing: the sample fell into the call of execve".into()),
            Remedy::EndMark if s.kind == Kind::StackEnd && s.origin.language == Language::Go => Some(
                "nothing: here a thread of Go's runtime left a goroutine for its own stack; the frames \
                 of goroutines are on theirs, which a debugger for Go (delve) lists"
                    .into(),
            ),
            // One that is known to be the end, and behind it one that only may be.
            Remedy::EndMark if s.kind == Kind::CoroutineEnd => Some(
                "nothing is missing; its author must mark the end of the stack with `.cfi_undefined \
                 %rip` (and a frame pointer of 0)"
                    .into(),
            ),
            Remedy::EndMark => Some(
                "if this is the first function of a coroutine, nothing is missing, and its author can \
                 mark the end with `.cfi_undefined %rip`"
                    .into(),
            ),
            Remedy::RightFile => Some(
                "find the build that ran and name its folder with --symfs; the stacks shown may mean \
                 nothing"
                    .into(),
            ),
        }
    }
}

fn frame_pointers(s: &Situation<'_>) -> String {
    if s.is_generated {
        let unknown = || generated::of_unknown(s);
        return generated::advice(s).unwrap_or_else(unknown);
    }
    const LEAVES: &str = "the innermost functions lack one, so their callers are missing, up to the first \
                          with one; ";
    let leaves = if s.only_leaves { LEAVES } else { "" };
    let how = if s.is_systems() {
        "use a build of it with frame pointers"
    } else {
        s.origin.frame_pointers(s.only_leaves)
    };
    format!("{leaves}{how}")
}

fn record_fp(s: &Situation<'_>) -> String {
    let text = "record with `--call-graph fp`, if all code has frame pointers";
    match s
        .subjects
        .iter()
        .find(|other| other.name == "fp" && s.is_better(other))
    {
        Some(fp) => format!(
            "{text}: whole are {} by fp, {} by {}",
            fp.whole,
            s.own().whole,
            s.own().name
        ),
        None => text.into(),
    }
}

fn wrong_row(s: &Situation<'_>) -> String {
    match s.row {
        Some(ProvenRow::Contradicted) => format!(
            "report it to its author with `unwind-sim tables check --explain {}`, which \
             contradicts the row",
            s.image
        ),
        Some(ProvenRow::Unproven(why)) => format!(
            "report it to its author; `unwind-sim tables check --unproven {}` does not prove the \
             row ({why})",
            s.image
        ),
        Some(ProvenRow::Proven) => {
            "the code proves the row, so something changed the frame behind \
                                    its back: report it with the command below"
                .into()
        }
        None => "report it to its author with the command below".into(),
    }
}

/// A longer copy, if one reaches the word that each walk needs next.
fn longer_copy(s: &Situation<'_>) -> Option<String> {
    let copied = s.stack_copy();
    // `perf_copy_attr` in `kernel/events/core.c` takes sizes below 65536 that are multiples of 8.
    if !s.is_profile() || copied >= COPY_MAX {
        return None;
    }

    // How far the walks got is not known, so the copy is made several times as long.
    let Some(needed) = s.needed else {
        let more = (copied.next_power_of_two().max(4096) * 4).min(COPY_MAX);
        return Some(format!(
            "record with `--call-graph dwarf,{more}` (this recording: {copied})"
        ));
    };
    if needed.least > COPY_MAX {
        return None;
    }

    let reached = needed.most.min(COPY_MAX);
    // Further words lie above that one.
    let more = (2 * reached)
        .next_multiple_of(4096)
        .max(copied.saturating_mul(4))
        .min(COPY_MAX);

    Some(format!(
        "record with `--call-graph dwarf,{more}` (this recording: {copied}; the next words are up to \
         {} bytes above rsp{})",
        needed.most,
        if needed.most > COPY_MAX {
            ", which no copy reaches in some stacks"
        } else {
            ""
        }
    ))
}

/// No copy reaches the next word.
fn no_copy_reaches(s: &Situation<'_>) -> Option<String> {
    let needed = s.needed.filter(|needed| needed.least > COPY_MAX)?;
    Some(format!(
        "no copy reaches the next word, which is {} bytes above rsp (perf copies at most {COPY_MAX})",
        needed.least
    ))
}

fn longer_chain(s: &Situation<'_>) -> String {
    match u64::from(s.made.max_stack) {
        0 => format!(
            "raise the limit of {CHAIN_MAX} addresses: `sysctl kernel.perf_event_max_stack=1024`"
        ),
        asked if asked < CHAIN_MAX => format!(
            "ask for more than {asked} addresses: `perf record -e EVENT/max-stack={CHAIN_MAX}/`"
        ),
        asked => {
            let more = asked.next_power_of_two() * 2;
            format!(
                "ask for more than {asked} addresses: `perf record -e EVENT/max-stack={more}/`, \
                 and `sysctl kernel.perf_event_max_stack={more}`"
            )
        }
    }
}

fn install(s: &Situation<'_>) -> String {
    let id = s.problem.map(|p| hex(&p.build_id)).unwrap_or_default();
    let fetch = match id.as_str() {
        "" => "install the same build".to_owned(),
        id => format!("install the same build (debuginfod-find executable {id})"),
    };
    // No path leads to it any more.
    if let Some(name) = s
        .image
        .strip_prefix('/')
        .filter(|_| s.image.starts_with(MEMFD))
    {
        let name = name.strip_suffix(" (deleted)").unwrap_or(name);
        return format!(
            "the file was in a memfd: if it is the program, give it with `--exe FILE`; otherwise name the \
             folder in which it is called `{name}` with --symfs"
        );
    }
    format!("{fetch}, or name the folder with --symfs")
}

fn make_readable(s: &Situation<'_>) -> String {
    match s.problem.map(|p| &p.kind) {
        Some(FileProblemKind::Elf(error)) if error.what.is_foreign() => {
            "none: it is not code for x86-64, and only that can be walked here".into()
        }
        Some(FileProblemKind::Io(std::io::ErrorKind::PermissionDenied)) => {
            "permission denied: run as a user who may read it, or copy it into a folder for --symfs"
                .into()
        }
        _ => "install the file again, or name a folder with a good copy with --symfs".into(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
