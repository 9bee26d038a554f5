//! The JSON Lines of `--json`: one object per line, with addresses as hex strings. Within v1,
//! fields are only added.

pub mod boot;
mod chains;
mod comparison;
#[cfg(feature = "machine")]
mod confirmation;
mod console;
mod converting;
mod crash;
#[cfg(feature = "machine")]
mod deadlock;
mod doctor;
mod generating;
mod guess;
mod handling;
mod kernel;
#[cfg(feature = "machine")]
mod kernel_walks;
pub mod lockstep;
mod proof;
mod stitching;
mod tables;
mod unwinders;
#[cfg(feature = "machine")]
mod verification;

pub use boot::{BootLine, ConsoleLine, UnknownLine};
pub use chains::ChainWriter;
pub use comparison::{ColumnLine, DivergenceLine, SummaryLine, comparison, summary};
#[cfg(feature = "machine")]
pub use confirmation::{ConfirmationLine, ConfirmedLine, CountsLine, PassedLine, ResumedLine};
pub use console::{
    ConsoleEntryLine, ConsoleLogLine, ConsoleTraceLine, EntryCountsLine, RecordedTraceLine,
    write_console_log,
};
pub use converting::{
    ConversionLine, ConversionLossLine, LossCountLine, MergeLine, OutsideLine, SectionLine,
};
pub use crash::{CrashLine, CrashedLine};
#[cfg(feature = "machine")]
pub use deadlock::{DeadlockLine, FutexLine, WaitFileLine, WalkedChainLine, deadlock};
pub use doctor::{
    ComplaintLine, DoctorLine, FunctionCountLine, PlacedRowLine, SubjectLine, doctor,
};
pub use generating::{
    GenerationClassLine, GenerationComparisonLine, GenerationDifferenceLine, GenerationWarningLine,
};
pub use handling::{
    HandlerOutputLine, HandlerPrintLine, HandlingLine, MapEntryLine, MapFrameLine, MapLossLine,
    MapStackLine,
};
use kernel::KernelPart;
pub use kernel::{CallchainEntryLine, CallchainLine, StateLine, UserRegsLine, callchain};
#[cfg(feature = "machine")]
pub use kernel_walks::{
    KernelWalkLine, KernelWalksLine, NmisLine, ReliabilityLine, write_kernel_walks, write_nmis,
};
pub use lockstep::{BytesLine, DifferenceLine, LockstepLine, ValueLine};
pub use proof::{
    CheckLine, CountLine, FunctionLine, IndexLine, OfFile, SweepLine, SweptLine, UnreadableLine,
    WrongRowLine,
};
pub use stitching::{NamedCountLine, StitchedSampleLine, StitchingLine};
pub use tables::{
    ChangedLine, ClaimLine, InstructionLine, RuleLine, SectionPlaceLine, TableDiffLine,
    TableDifferenceLine, TableDumpLine, TableLossLine, TableRowLine,
};
pub use unwinders::UnwinderLine;
#[cfg(feature = "machine")]
pub use verification::{
    ContradictionLine, CoverageLine, JitLine, MemoryLine, SlotStoreLine, VerificationLine,
    VerifiedLine, write_coverage, write_verification,
};

use crate::listing::found_by;
use crate::text::{event_line, whole_text};
use crate::timeline::Timeline;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use std::io::{self, Write};
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::check::Contradiction;
use unwind_sim_judge::diagnose::Diagnosis;
use unwind_sim_judge::engine::Outcome;
use unwind_sim_judge::hex::hex;
use unwind_sim_judge::unjudged::Unjudged;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::chain::{End, How, Step};
use unwind_sim_unwind::event::Event;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::row::{Row, RowSource};

/// The JSON Schema (draft 2020-12) of [`Line`] as it is written, for all features of this package.
pub const JSON_SCHEMA: &str = include_str!("json/v1.schema.json");

/// One line of output.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// One walk of one sample.
    Chain(Box<ChainLine>),
    /// One sample's callchain as perf records it, from `replay --as perf`.
    Callchain(Box<CallchainLine>),
    /// One column of a comparison.
    Column(ColumnLine),
    /// One group of divergences.
    Divergence(Box<DivergenceLine>),
    #[cfg(feature = "machine")]
    /// A contradiction that `verify` found.
    Contradiction(Box<ContradictionLine>),
    #[cfg(feature = "machine")]
    /// The stores of one instruction into live slots, from `verify`.
    SlotStore(SlotStoreLine),
    #[cfg(feature = "machine")]
    /// A generated function without an unwind table, from `verify`.
    Jit(JitLine),
    #[cfg(feature = "machine")]
    /// How much of a section of a kernel was executed, from `verify --kernel`.
    Coverage(CoverageLine),
    #[cfg(feature = "machine")]
    /// The totals of one unwinder, from `verify`.
    Verified(VerifiedLine),
    #[cfg(feature = "machine")]
    /// The walks of one of a kernel's unwinders, from `verify --kernel`.
    KernelWalks(KernelWalksLine),
    #[cfg(feature = "machine")]
    /// The NMIs that were sent to a kernel, from `verify --kernel --nmi`.
    Nmis(Box<NmisLine>),
    #[cfg(feature = "machine")]
    /// A wrong chain of the kernel's own unwinder, from `verify --kernel`.
    KernelWalk(Box<KernelWalkLine>),
    #[cfg(feature = "machine")]
    /// A thread that waits for what cannot happen, from `verify`.
    Deadlock(Box<DeadlockLine>),
    #[cfg(feature = "machine")]
    /// What happened when a sample's thread was resumed, from `replay --confirm`.
    Resumed(Box<ResumedLine>),
    #[cfg(feature = "machine")]
    /// Which frames of a chain were confirmed, from `replay --confirm`.
    Confirmed(Box<ConfirmedLine>),
    /// A stack in the log of a kernel's console, from `compare`.
    ConsoleTrace(Box<ConsoleTraceLine>),
    /// A line of a kernel's console, from `emulate --kernel`.
    Console(ConsoleLine),
    /// Where the machine and the processor differ, from `lockstep`.
    Difference(Box<DifferenceLine>),
    /// A deferred sample, from `perf stitch --samples`.
    StitchedSample(Box<StitchedSampleLine>),
    /// What a handler wrote, from `perf bpf`.
    HandlerOutput(HandlerOutputLine),
    /// What a handler printed.
    HandlerPrint(HandlerPrintLine),
    /// An entry of a handler's map.
    MapEntry(MapEntryLine),
    /// A stack of a handler's map.
    MapStack(MapStackLine),
    /// What a function lost, from `tables convert`.
    ConversionLoss(ConversionLossLine),
    /// A rule of the kernel that code breaks, from `tables generate`.
    GenerationWarning(GenerationWarningLine),
    /// Where the generated table and that of the file differ, from `tables generate --compare`.
    GenerationDifference(GenerationDifferenceLine),
    /// An unwinder, from `unwinders`.
    Unwinder(Box<UnwinderLine>),
    /// A row of an unwind table, from `tables dump`.
    TableRow(Box<TableRowLine>),
    /// Where two tables disagree, from `tables diff`.
    TableDifference(Box<TableDifferenceLine>),
    /// What the format of a table has no word for, from `tables diff`.
    TableLoss(TableLossLine),
    /// A function whose code differs between two builds, from `tables diff`.
    CodeChanged(ChangedLine),
    /// The last line.
    Summary(SummaryLine),
    /// The last line of `compare` of the log of a kernel's console.
    #[serde(rename = "summary")]
    ConsoleLog(Box<ConsoleLogLine>),
    #[cfg(feature = "machine")]
    /// The last line of `verify`.
    #[serde(rename = "summary")]
    Verification(VerificationLine),
    #[cfg(feature = "machine")]
    /// The last line of `replay --confirm`.
    #[serde(rename = "summary")]
    Confirmation(ConfirmationLine),
    /// The last line of `emulate --kernel`.
    #[serde(rename = "summary")]
    Boot(Box<BootLine>),
    /// The last line of `lockstep`.
    #[serde(rename = "summary")]
    Lockstep(LockstepLine),
    /// The last line of `perf bpf`.
    #[serde(rename = "summary")]
    Handling(HandlingLine),
    /// The last line of `perf stitch`.
    #[serde(rename = "summary")]
    Stitching(StitchingLine),
    /// The last line of `tables dump`.
    #[serde(rename = "summary")]
    TableDump(TableDumpLine),
    /// The last line of `tables diff`, for each pair of tables.
    #[serde(rename = "summary")]
    TableDiff(TableDiffLine),
    /// A row that the code contradicts, from `tables check`.
    WrongRow(Box<WrongRowLine>),
    /// A flaw of an index through which unwinders find rows, from `tables check`.
    Index(IndexLine),
    /// A function that could not be proven, from `tables check`.
    Unproven(Box<FunctionLine>),
    /// Any function, from a sweep of `tables check`.
    Function(Box<FunctionLine>),
    /// A file that could not be checked, from a sweep.
    Unreadable(UnreadableLine),
    /// The first line of a part of a sweep.
    Sweep(SweepLine),
    /// The last line of a part of a sweep.
    #[serde(rename = "summary")]
    Swept(SweptLine),
    /// The sums of `tables check` for a file.
    Check(Box<CheckLine>),
    /// The last line of `tables convert`.
    #[serde(rename = "summary")]
    Conversion(ConversionLine),
    /// The last line of `tables merge`.
    #[serde(rename = "summary")]
    Merge(MergeLine),
    /// A window of states, from `step`.
    Timeline(Box<Timeline>),
    /// What broke stacks in one file in one way, from `doctor`.
    Complaint(Box<ComplaintLine>),
    /// The last line of `doctor`.
    #[serde(rename = "summary")]
    Doctor(DoctorLine),
}

/// One walk of one sample.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ChainLine {
    schema: &'static str,
    /// The sample's number, from 0.
    sample: u64,
    pid: u32,
    tid: u32,
    time: u64,
    unwinder: String,
    /// The start variant.
    start: &'static str,
    /// Present if a core says that this thread crashed.
    #[serde(skip_serializing_if = "Option::is_none")]
    crash: Option<CrashLine>,
    verdict: VerdictLine,
    end: EndLine,
    frames: Vec<FrameLine>,
    events: Vec<String>,
    #[serde(flatten)]
    kernel: KernelPart,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<CauseLine>,
}

/// A verdict.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct VerdictLine {
    /// The verdict's name.
    pub word: &'static str,
    /// The short form, such as `m1@2`.
    pub short: String,
    /// The first true frame concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<u32>,
    /// The number of missing or extra frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Why the chain is not judged, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<WhyLine>,
    /// The chain has exactly the true frames, but its format cannot mark a root.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub end_not_claimed: bool,
    /// The number of known frames, from the truth or from the walk used in its place.
    pub known: u32,
    /// The number of known frames that the chain has.
    pub found: u32,
}

/// Why a chain is not judged.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[allow(missing_docs, reason = "a comment would be a text of the schema")]
pub struct WhyLine {
    /// The reason's name.
    word: &'static str,
    /// The code with which the reference walk ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    pub text: String,
}

/// The number of chains that were not judged for one reason.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct UnjudgedLine {
    #[serde(flatten)]
    why: WhyLine,
    count: u64,
}

/// Why a walk ended.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[allow(missing_docs, reason = "a comment would be a text of the schema")]
pub struct EndLine {
    pub code: &'static str,
    pub text: String,
    /// Whether the chain is whole: `root` if it ends where nothing called, `broken` if frames are
    /// missing or wrong, `unknown` if that cannot be told. Absent where it is not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// The fallback's reason, if one was tried and failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<&'static str>,
}

/// A place in code.
#[derive(Clone, Default, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[allow(missing_docs, reason = "a comment would be a text of the schema")]
pub struct PlaceLine {
    pub pc: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The offset from the start of the function, or else the address in the image.
    pub offset: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// One frame.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[allow(missing_docs, reason = "a comment would be a text of the schema")]
pub struct FrameLine {
    #[serde(flatten)]
    pub place: PlaceLine,
    /// Whether the pc is the address of an instruction, not a return address.
    pub exact: bool,
    pub sp: String,
    /// The address of the word that the pc was read from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// The table that gave the frame, or how else it was found.
    pub found: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<RowLine>,
    /// The words read, as pairs of address and value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<[String; 2]>,
}

/// A row.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[allow(missing_docs, reason = "a comment would be a text of the schema")]
pub struct RowLine {
    pub rule: String,
    pub table: &'static str,
    /// Offset of the row in its section.
    pub offset: String,
    /// Offset of its unit (FDE, function descriptor) in its section.
    pub unit: String,
    /// The first address that the row covers, in the image.
    pub start: String,
    /// The end of the addresses that the row covers, excluded.
    pub end: String,
    /// Why the first table was not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<&'static str>,
}

/// What is to blame.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[allow(missing_docs, reason = "a comment would be a text of the schema")]
pub struct CauseLine {
    pub code: &'static str,
    /// The true frame to blame.
    pub frame: usize,
    pub place: PlaceLine,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub register: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truth: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<RowLine>,
}

pub(crate) fn place(space: &AddressSpace, pc: CodeAddress) -> PlaceLine {
    PlaceLine::new(pc.value(), Location::of(space, pc))
}

impl PlaceLine {
    pub(crate) fn new(pc: u64, location: Location) -> PlaceLine {
        let Location {
            function,
            offset,
            image,
        } = location;
        PlaceLine {
            pc: hex(pc),
            function,
            offset: hex(offset),
            image,
        }
    }
}

fn source_line(rule: String, source: &RowSource) -> RowLine {
    RowLine {
        rule,
        table: source.table.as_str(),
        offset: hex(source.row_offset),
        unit: hex(source.unit_offset),
        start: hex(source.start),
        end: hex(source.end),
        fallback: source.fallback.map(|r| r.code().as_str()),
    }
}

fn row_line(row: &Row) -> RowLine {
    source_line(row.rule.to_string(), &row.source)
}

/// [`found_by`], with a name for frames from elsewhere.
fn found_name(step: &Step<'_>) -> &'static str {
    match found_by(step) {
        "" => "external",
        by => by,
    }
}

pub(crate) fn frame_line(space: &AddressSpace, step: &Step<'_>) -> FrameLine {
    let (row, words) = match step.how {
        How::Rule { row, words } => (
            Some(row_line(&row.row())),
            words
                .iter()
                .map(|w| [hex(w.address), hex(w.value)])
                .collect(),
        ),
        _ => (None, Vec::new()),
    };
    FrameLine {
        place: place(space, step.pc),
        exact: step.pc.is_instruction(),
        sp: hex(step.sp),
        slot: step.slot.map(hex),
        found: found_name(step),
        row,
        words,
    }
}

pub(crate) fn cause_line(space: &AddressSpace, diagnosis: &Diagnosis) -> CauseLine {
    let c: Option<&Contradiction> = diagnosis.contradiction.as_ref();
    CauseLine {
        code: diagnosis.code.as_str(),
        frame: diagnosis.frame,
        place: place(space, diagnosis.pc),
        register: c.map(|c| c.reg.as_str()),
        given: c.and_then(|c| c.given).map(hex),
        truth: c.map(|c| hex(c.truth)),
        row: c.and_then(|c| c.row.as_deref()).map(row_line),
    }
}

pub(crate) fn verdict_line(outcome: &Outcome) -> VerdictLine {
    let (verdict, ground) = (outcome.verdict, &outcome.ground);
    VerdictLine {
        word: verdict.as_str(),
        short: verdict.to_string(),
        at: verdict.at(),
        count: verdict.count(),
        why: outcome.unjudged.map(why_line),
        end_not_claimed: ground.end_not_claimed,
        known: ground.known,
        found: ground.found,
    }
}

fn why_line(why: Unjudged) -> WhyLine {
    WhyLine {
        word: why.as_str(),
        code: why.code().map(|c| c.as_str()),
        text: why.to_string(),
    }
}

pub(crate) fn end_line(end: &End) -> EndLine {
    EndLine {
        code: end.reason.code().as_str(),
        text: end.reason.to_string(),
        kind: None,
        fallback: end.fallback.map(|r| r.code().as_str()),
    }
}

/// The end of a chain that was judged.
pub(crate) fn judged_end_line(outcome: &Outcome) -> EndLine {
    let line = EndLine {
        kind: Some(outcome.end_kind()),
        ..end_line(&outcome.chain.end)
    };
    match outcome.whole {
        None => line,
        Some(whole) => EndLine {
            code: outcome.ended().as_str(),
            text: whole_text(&whole, &outcome.chain.end),
            ..line
        },
    }
}

/// The events, without a kernel unwinder's states.
fn event_lines(space: &AddressSpace, events: &[Event]) -> Vec<String> {
    let shown = events.iter().filter(|e| !matches!(e, Event::State(_)));
    shown.map(|e| event_line(e, space)).collect()
}

/// One walk of one sample.
pub fn chain(view: &View<'_>, unwinder: &str, start: &'static str, outcome: &Outcome) -> Line {
    let Outcome {
        chain, diagnosis, ..
    } = outcome;
    Line::Chain(Box::new(ChainLine {
        schema: SCHEMA,
        sample: view.number,
        pid: view.sample.pid,
        tid: view.sample.tid,
        time: view.sample.time,
        unwinder: unwinder.to_owned(),
        start,
        crash: view.sample.crash().map(CrashLine::from),
        verdict: verdict_line(outcome),
        end: judged_end_line(outcome),
        frames: chain.steps().map(|s| frame_line(view.space, &s)).collect(),
        events: event_lines(view.space, &chain.events),
        kernel: KernelPart::new(view, chain),
        cause: diagnosis.as_ref().map(|d| cause_line(view.space, d)),
    }))
}

impl std::fmt::Display for PlaceLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.function, &self.image) {
            (Some(name), Some(image)) => write!(f, "{name}+{} ({image})", self.offset),
            (Some(name), None) => write!(f, "{name}+{}", self.offset),
            (None, Some(image)) => write!(f, "{image}+{}", self.offset),
            (None, None) => f.write_str(&self.pc),
        }
    }
}

impl Line {
    /// Writes the object and the end of the line.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        // All writers share the code of one: there is much of it.
        let mut text = Vec::with_capacity(512);
        serde_json::to_writer(&mut text, self)?;
        text.push(b'\n');
        out.write_all(&text)
    }
}

#[cfg(all(test, feature = "machine"))]
mod tests {
    use super::{JSON_SCHEMA, Line};
    use schemars::generate::SchemaSettings;

    /// The schema is a file, so that nobody who builds the program compiles what derives it.
    #[test]
    fn the_schema_is_that_of_the_types() {
        // For the lines as they are serialized: fields that may be left out are not required.
        let settings = SchemaSettings::draft2020_12().for_serialize();
        let schema = settings.into_generator().into_root_schema_for::<Line>();
        let schema = serde_json::to_string_pretty(&schema).expect("JSON") + "\n";
        if std::env::var("INSTA_UPDATE").is_ok_and(|value| value == "always") {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/json/v1.schema.json");
            std::fs::write(path, &schema).expect("the schema is written");
        } else {
            let hint = "run INSTA_UPDATE=always cargo test -p unwind-sim-view --lib schema";
            assert!(schema == JSON_SCHEMA, "src/json/v1.schema.json: {hint}");
        }
    }
}
