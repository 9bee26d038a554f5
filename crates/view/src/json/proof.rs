//! The lines of `tables check`.

use super::guess::GuessLine;
use super::tables::{InstructionLine, RuleLine, SectionPlaceLine};
use crate::tables::code;
use crate::tables::names::Names;
#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::blame::{Blame, Writer};
use unwind_sim_judge::hex::{hex, hex_bytes};
use unwind_sim_tables::check::{Checked, Count, Hole, Report, Totals};
use unwind_sim_tables::file::File;
use unwind_sim_tables::index::Finding;
use unwind_sim_tables::proof::claim::Subject;
use unwind_sim_tables::proof::program::Entry;
use unwind_sim_tables::proof::verdict::{Contradiction, Verdict};
use unwind_sim_unwind::convention::{Convention, Evidence};

/// The file that a line is about.
#[derive(Clone, Default, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct OfFile {
    /// Its path. What of it is not UTF-8 is U+FFFD.
    file: String,
    /// The bytes of the path in hex, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    file_bytes: Option<String>,
    /// Its build id in hex.
    #[serde(skip_serializing_if = "Option::is_none")]
    build_id: Option<String>,
    /// The package that it belongs to, as the list of a sweep says.
    #[serde(skip_serializing_if = "Option::is_none")]
    package: Option<String>,
}

impl OfFile {
    /// An open file.
    pub fn of(file: &File) -> OfFile {
        OfFile::default().opened(file)
    }

    /// A file of a list, by the bytes of its path.
    pub fn listed(path: &[u8], package: Option<&str>) -> OfFile {
        let is_text = std::str::from_utf8(path).is_ok();
        OfFile {
            file: String::from_utf8_lossy(path).into_owned(),
            file_bytes: (!is_text).then(|| hex_bytes(path)),
            build_id: None,
            package: package.map(str::to_owned),
        }
    }

    /// The path as it is shown.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// Adds what is known once the file is open.
    #[must_use]
    pub fn opened(self, file: &File) -> OfFile {
        let build_id = file.image().build_id();
        OfFile {
            file: file.name().to_owned(),
            build_id: (!build_id.is_empty()).then(|| hex_bytes(build_id)),
            ..self
        }
    }
}

/// A row that the code contradicts, from `tables check`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct WrongRowLine {
    schema: &'static str,
    #[serde(flatten)]
    of: OfFile,
    /// The kind of table: `eh_frame`, `debug_frame`, `sframe`, `orc`.
    table: &'static str,
    /// The first address (svma) of the row; with `US504`, of the code that is reached without one.
    start: String,
    /// The first address (svma) after it.
    end: String,
    /// The first instruction (svma) at which the row is wrong.
    address: String,
    /// In a relocatable object: the section of that instruction.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<SectionPlaceLine>,
    /// The function, demangled.
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    /// Where the function starts (svma).
    function_start: String,
    /// In a relocatable object: the section of that start.
    #[serde(skip_serializing_if = "Option::is_none")]
    function_place: Option<SectionPlaceLine>,
    /// A hash of the function's instructions without addresses, the same where it was moved.
    function_hash: String,
    /// `US501`, `US502` or `US503`; `US504` for code that the function reaches without a row.
    code: &'static str,
    /// The cause of the function's first wrong row, by which `tables check` groups: docs/static-proof.md
    /// lists the names.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    /// Who wrote the function, as far as the file says.
    #[serde(skip_serializing_if = "Option::is_none")]
    writer: Option<WriterLine>,
    /// The class of known wrong rows that it looks like: docs/static-proof.md lists the names.
    #[serde(skip_serializing_if = "Option::is_none")]
    known: Option<&'static str>,
    /// The register concerned: rsp for the CFA, rip for the return address.
    register: &'static str,
    /// What the row's rule evaluates to there.
    found: String,
    /// rsp there.
    sp: String,
    /// The section of the table, and the offset in it of what made the row.
    section: &'static str,
    offset: String,
    row: RuleLine,
    /// The row that would be right there.
    #[serde(skip_serializing_if = "Option::is_none")]
    right: Option<RuleLine>,
    /// The section of the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    code_section: Option<String>,
    /// The instruction at `address`.
    #[serde(skip_serializing_if = "Option::is_none")]
    instruction: Option<String>,
    /// The instruction before it, which is often the one that the row does not follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    /// The instructions around it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    listing: Vec<InstructionLine>,
    /// The jumps on the way from the function's entry: from and to.
    path: Vec<[String; 2]>,
}

/// Who wrote a function.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct WriterLine {
    /// `compiler`, `hand`, `linker`, `either` (a compiler or by hand) or `unknown`.
    kind: &'static str,
    /// The compilers with their versions, or the linker.
    tools: Vec<String>,
    /// The source file, if it is assembly.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// Where this is known from: `DW_AT_producer`, `symbol table`, `.comment`, `no .comment`, `section`
    /// or `nothing`.
    evidence: &'static str,
}

impl WriterLine {
    pub(crate) fn new(writer: &Writer) -> WriterLine {
        WriterLine {
            kind: writer.kind.as_str(),
            tools: writer.tools.clone(),
            source: writer.source.clone(),
            evidence: writer.evidence.as_str(),
        }
    }
}

/// A function, from `tables check`: how its rows turned out.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct FunctionLine {
    schema: &'static str,
    #[serde(flatten)]
    of: OfFile,
    /// Its name, demangled.
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    /// The first address (svma).
    start: String,
    /// The first address (svma) after it.
    end: String,
    /// Bytes.
    length: u64,
    /// The section that it is in, `.text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    code_section: Option<String>,
    /// How it is entered: `call`, `part`, `plt`, `signal` or `resolver`.
    entry: &'static str,
    /// The convention by which its rows were judged, as `--abi` names it.
    convention: &'static str,
    /// What says that it is of that convention: `none`, `symbols`, `gopclntab`, `producer`, `function`
    /// or `given`.
    evidence: &'static str,
    /// The table whose FDE it is, the file's first: `eh_frame`, `debug_frame`, `sframe`, `orc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<&'static str>,
    /// `proven`, `contradicted` or `unproven`.
    verdict: &'static str,
    /// The code of the first contradiction; else the first reason in `doubts`, in their order in
    /// docs/static-proof.md.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// Why it is not proven, and the first address (svma) of each reason.
    doubts: BTreeMap<&'static str, String>,
    /// What would be wrong on ways that may not exist, if one of the reasons is `guessed`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    guesses: Vec<GuessLine>,
    /// The assumptions that its proofs rest on.
    rests_on: Vec<&'static str>,
    /// Rows of all tables.
    rows: u32,
    /// Those of them that are proven.
    rows_proven: u32,
    /// Addresses at which a proven slot lies below rsp (US203).
    below_sp: u32,
}

/// A file that could not be checked, from a sweep.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct UnreadableLine {
    schema: &'static str,
    #[serde(flatten)]
    of: OfFile,
    /// `io`, `not-elf`, `malformed` or `bug` (of unwind-sim).
    cause: &'static str,
    /// What is wrong.
    error: String,
}

/// The first line of a part of a sweep.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct SweepLine {
    pub(crate) schema: &'static str,
    /// The version of unwind-sim.
    pub(crate) version: &'static str,
    /// A hash of the list, the same for all parts.
    pub(crate) list: String,
    /// The number of different files in the list.
    pub(crate) list_files: usize,
    /// The number of this part, from 1.
    pub(crate) shard: usize,
    /// The number of parts.
    pub(crate) shards: usize,
    /// The number of files of this part.
    pub(crate) files: usize,
    /// What proofs may rest on.
    pub(crate) assume: Vec<&'static str>,
    /// The convention of all functions, if `--abi` says one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) abi: Option<&'static str>,
    /// The claims that are judged, if `--claims` says so: `cfa`, `ra`, and registers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claims: Option<Vec<&'static str>>,
}

/// The last line of a part of a sweep.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct SweptLine {
    pub(crate) schema: &'static str,
    /// Files, with those that could not be checked.
    pub(crate) files: u64,
    /// Files that could not be checked.
    pub(crate) unreadable: u64,
    pub(crate) all: CountLine,
    pub(crate) proven: CountLine,
    pub(crate) contradicted: CountLine,
    pub(crate) unproven: CountLine,
    pub(crate) rows_proven: u64,
    /// Findings about the indexes of tables.
    pub(crate) index: u64,
}

/// A flaw of an index through which unwinders find rows, from `tables check`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct IndexLine {
    schema: &'static str,
    #[serde(flatten)]
    of: OfFile,
    /// What is wrong: `hdr-unsorted`, `hdr-missing`, ..
    flaw: &'static str,
    /// The section that has it.
    section: &'static str,
    /// The offset in that section.
    offset: String,
    /// The first address (svma) of the code whose rows are lost by it: of the first function, if there are
    /// several.
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<String>,
    /// The first address (svma) after that code.
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<String>,
    /// In a relocatable object: the section of `start`.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<SectionPlaceLine>,
    /// The name of that function, demangled.
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    /// The number of functions whose rows are lost by it.
    functions: u64,
    /// What is wrong, in words.
    description: &'static str,
}

impl IndexLine {
    pub(crate) fn new(
        of: &OfFile,
        file: &File,
        finding: &Finding,
        names: &mut Names<'_>,
    ) -> IndexLine {
        let code = finding.code.as_ref();
        let function = code.and_then(|code| Some(names.function(code.start)?.0.to_owned()));
        IndexLine {
            schema: SCHEMA,
            of: of.clone(),
            flaw: finding.flaw.as_str(),
            section: finding.section,
            offset: hex(finding.offset),
            start: code.map(|code| hex(code.start)),
            end: code.map(|code| hex(code.end)),
            place: code.and_then(|code| SectionPlaceLine::new(file, code.start)),
            function,
            functions: finding.functions,
            description: finding.flaw.description(),
        }
    }
}

/// Numbers of functions, rows and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CountLine {
    pub(crate) functions: u64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

/// What rows say of registers that are not callee-saved.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct NotCheckedLine {
    functions: usize,
    registers: Vec<String>,
}

/// Functions that were judged by one convention.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct ConventionLine {
    /// Its name, as `--abi` names it.
    convention: &'static str,
    /// What says that it is theirs: `none`, `symbols`, `gopclntab`, `producer`, `function` or `given`.
    evidence: &'static str,
    functions: u64,
}

impl ConventionLine {
    fn new(((convention, evidence), functions): &((Convention, Evidence), u64)) -> ConventionLine {
        ConventionLine {
            convention: convention.as_str(),
            evidence: evidence.as_str(),
            functions: *functions,
        }
    }
}

/// The sums of `tables check` for a file.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CheckLine {
    schema: &'static str,
    #[serde(flatten)]
    of: OfFile,
    tables: Vec<&'static str>,
    all: CountLine,
    proven: CountLine,
    contradicted: CountLine,
    unproven: CountLine,
    rows_proven: u64,
    /// Procedure linkage tables, which are counted in the others, too.
    plt: CountLine,
    /// By which conventions functions were judged, and what says that those are theirs.
    conventions: Vec<ConventionLine>,
    /// Unproven functions by reason.
    doubts: BTreeMap<&'static str, u64>,
    /// Proven functions by what the proof rests on.
    assumptions: BTreeMap<&'static str, u64>,
    /// Addresses at which a proven slot lies below rsp (US203).
    below_sp: u64,
    /// Functions whose rows say where registers are that are not callee-saved, which is not checked,
    /// and these registers.
    not_checked: NotCheckedLine,
    /// Bytes by what is missing: `no-row`, `no-code`, `overlap`.
    gaps: BTreeMap<&'static str, u64>,
    /// Findings about the indexes of the tables.
    index: u64,
    problems: Vec<String>,
}

impl WrongRowLine {
    /// The register that a claim is about.
    pub(crate) fn register(subject: Subject) -> &'static str {
        match subject {
            Subject::Cfa | Subject::Sp => "rsp",
            Subject::ReturnAddress => "rip",
            Subject::Register(reg) => reg.as_str(),
            Subject::Row => "rip",
        }
    }

    pub(crate) fn new(
        of: &OfFile,
        file: &File,
        checked: &Checked,
        wrong: &Contradiction,
        function: Option<&str>,
        blame: Option<&Blame>,
        function_hash: &str,
    ) -> WrongRowLine {
        let (mut instruction, mut before) = (None, None);
        let mut listing = Vec::new();

        // The instruction, the one before it and the listing are all of one decoding, so they
        // agree.
        for shown in code::around(file, checked.range.start, wrong.pc) {
            let order = shown.address.cmp(&wrong.pc);
            match order {
                Ordering::Less => before = Some(shown.text.clone()),
                Ordering::Equal => instruction = Some(shown.text.clone()),
                Ordering::Greater => {}
            }
            let is_it = order == Ordering::Equal;
            listing.push(InstructionLine::new(shown.address, shown.text, is_it));
        }

        WrongRowLine {
            schema: SCHEMA,
            of: of.clone(),
            table: wrong.table.as_str(),
            start: hex(wrong.row.start),
            end: hex(wrong.row.end),
            address: hex(wrong.pc),
            place: SectionPlaceLine::new(file, wrong.pc),
            function: function.map(str::to_owned),
            function_start: hex(checked.range.start),
            function_place: SectionPlaceLine::new(file, checked.range.start),
            function_hash: function_hash.to_owned(),
            code: wrong.code().as_str(),
            cause: blame.map(|blame| blame.cause.as_str()),
            writer: blame.map(|blame| WriterLine::new(&blame.writer)),
            known: blame.and_then(|blame| blame.known).map(|known| known.id),
            register: Self::register(wrong.subject),
            found: wrong.found.to_string(),
            sp: wrong.sp.to_string(),
            section: wrong.table.section().map_or("", |s| s.as_str()),
            offset: hex(wrong.row_offset),
            row: RuleLine::new(&wrong.rule),
            right: wrong.right.as_ref().map(RuleLine::new),
            code_section: code_section(file, wrong.pc),
            instruction,
            before,
            listing,
            path: wrong.path.iter().map(|(a, b)| [hex(*a), hex(*b)]).collect(),
        }
    }
}

/// The section with the code at `address`.
fn code_section(file: &File, address: u64) -> Option<String> {
    let section = file.code_at(address)?;
    (!section.name.is_empty()).then(|| section.name.clone())
}

impl FunctionLine {
    pub(crate) fn new(
        of: &OfFile,
        file: &File,
        checked: &Checked,
        function: Option<&str>,
    ) -> FunctionLine {
        // A contradicted function is known by its first contradiction, an unproven one by its first
        // doubt.
        let verdict = &checked.verdict;
        let wrong = verdict.contradictions.first().map(|w| w.code().as_str());
        FunctionLine {
            schema: SCHEMA,
            of: of.clone(),
            function: function.map(str::to_owned),
            start: hex(checked.range.start),
            end: hex(checked.range.end),
            length: checked.range.end - checked.range.start,
            code_section: code_section(file, checked.range.start),
            entry: match checked.entry {
                Entry::Call => "call",
                Entry::Part => "part",
                Entry::Plt => "plt",
                Entry::Signal => "signal",
                Entry::Resolver => "resolver",
                Entry::Interrupt => "interrupt",
            },
            convention: checked.convention.as_str(),
            evidence: checked.evidence.as_str(),
            table: checked.table.map(|table| table.as_str()),
            verdict: match verdict.verdict() {
                Verdict::Proven => "proven",
                Verdict::Unproven => "unproven",
                Verdict::Contradicted => "contradicted",
            },
            reason: wrong.or(verdict.doubts.first().map(|d| d.0.as_str())),
            doubts: verdict
                .doubts
                .iter()
                .map(|(d, at)| (d.as_str(), hex(*at)))
                .collect(),
            guesses: verdict.guesses.iter().map(GuessLine::new).collect(),
            rests_on: verdict.assumptions.iter().map(|a| a.as_str()).collect(),
            rows: verdict.rows,
            rows_proven: verdict.rows_proven,
            below_sp: verdict.below_sp,
        }
    }
}

impl UnreadableLine {
    pub(crate) fn new(of: OfFile, cause: &'static str, error: String) -> UnreadableLine {
        UnreadableLine {
            schema: SCHEMA,
            of,
            cause,
            error,
        }
    }
}

impl From<Count> for CountLine {
    fn from(count: Count) -> CountLine {
        CountLine {
            functions: count.functions,
            rows: count.rows,
            bytes: count.bytes,
        }
    }
}

impl CheckLine {
    pub(crate) fn new(of: OfFile, report: &Report, totals: &Totals) -> CheckLine {
        let gap = |hole: Hole| {
            // Gaps are summed by kind: a file without a table may have very many of them.
            let gaps = report.gaps.iter().filter(|g| g.hole == hole);
            let bytes: u64 = gaps.map(|g| g.range.end - g.range.start).sum();
            (hole.as_str(), bytes)
        };

        CheckLine {
            schema: SCHEMA,
            of,
            tables: report.tables.iter().map(|t| t.as_str()).collect(),
            all: totals.all.into(),
            proven: totals.proven.into(),
            contradicted: totals.contradicted.into(),
            unproven: totals.unproven.into(),
            rows_proven: totals.rows_proven,
            plt: totals.plt.into(),
            conventions: totals.conventions.iter().map(ConventionLine::new).collect(),
            doubts: totals
                .doubts
                .iter()
                .map(|(d, n)| (d.as_str(), *n))
                .collect(),
            assumptions: totals
                .assumptions
                .iter()
                .map(|(a, n)| (a.as_str(), *n))
                .collect(),
            below_sp: totals.below_sp,
            not_checked: NotCheckedLine {
                functions: report.unchecked.functions.len(),
                registers: report.unchecked.names(),
            },
            gaps: [Hole::NoRow, Hole::NoCode, Hole::Overlap].map(gap).into(),
            index: report.index.len() as u64,
            problems: report.problems.clone(),
        }
    }
}
