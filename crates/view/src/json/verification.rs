//! The lines of `verify`.

use super::deadlock::deadlock;
use super::tables::InstructionLine;
use super::{Line, RowLine, row_line};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use std::io::{self, Write};
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::baseline::Origin;
use unwind_sim_judge::hex::hex;
use unwind_sim_judge::verify::deadlock::DeadlockedThread;
use unwind_sim_judge::verify::{self, Coverage, Results, listing::lines as lines_around};

/// A contradiction that `verify` found.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ContradictionLine {
    schema: &'static str,
    unwinder: String,
    /// `instruction`, `call (ra-1)`, `call (ra)` or `walk`.
    check: &'static str,
    address: String,
    /// Function and offset.
    place: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    /// The build id of that image.
    #[serde(skip_serializing_if = "Option::is_none")]
    build_id: Option<String>,
    /// `wrong`, `loss` (a derived table cannot represent the row) or `target` (the row describes
    /// the frame that is jumped to).
    class: &'static str,
    code: &'static str,
    /// The register concerned: rsp for the CFA, rip for the return address.
    register: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    given: Option<String>,
    truth: String,
    count: u64,
    /// How many findings this line stands for, if more than one: those of an unwinder that is
    /// expected to err are counted by cause. The first one is shown. `--all` has each.
    #[serde(skip_serializing_if = "Option::is_none")]
    stands_for: Option<u64>,
    /// The number of the instruction at which it was first met, from 0.
    first: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    row: Option<RowLine>,
    /// If code was executed without a row: the offset in `.eh_frame` of the row that is there, but that a
    /// search through the index of the file does not find.
    #[serde(skip_serializing_if = "Option::is_none")]
    unfound_row: Option<String>,
    /// The instructions around it, if the code is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    listing: Vec<InstructionLine>,
}

/// The stores of one instruction into live slots of one kind.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct SlotStoreLine {
    schema: &'static str,
    /// The instruction.
    address: String,
    /// Function and offset.
    place: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    /// The system call, if the kernel made the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<&'static str>,
    /// The register whose value is in the slot: rip for a return address.
    register: &'static str,
    /// How often a store changed the value.
    count: u64,
    /// How often a store left the value as it was.
    same: u64,
    /// How often execution returned through the stored value.
    taken: u64,
    /// How often the old value was put back before that.
    restored: u64,
    /// The number of the instruction that made the first change, or else the first store, from 0.
    first: u64,
    /// The address of the slot in that first store.
    slot: String,
    /// The function whose frame the slot is in, and offset.
    owner: String,
    old: String,
    new: String,
}

/// A function of generated code for which the program registered no unwind table.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct JitLine {
    schema: &'static str,
    /// The name that the program told perf or gdb, or else the mapping.
    function: String,
    /// How many of its instructions were executed.
    instructions: u64,
    /// Distinct addresses of these.
    addresses: u64,
}

/// How much of a section of a kernel's code was executed.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CoverageLine {
    schema: &'static str,
    /// The section, as in the object files. What lies in a section within it is not counted here.
    section: String,
    /// Functions of which an instruction was executed.
    functions: u64,
    functions_of_all: u64,
    /// Rows of the ORC table at whose addresses an instruction was executed.
    rows: u64,
    rows_of_all: u64,
    /// Distinct addresses of executed instructions.
    addresses: u64,
}

/// The totals of one unwinder.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct VerifiedLine {
    schema: &'static str,
    unwinder: String,
    /// Instructions at which its row was checked.
    checked: u64,
    /// Instructions of generated code for which it has no table: not checked.
    jit_no_table: u64,
    /// Instructions at which something was wrong, of any class.
    wrong: u64,
    /// Instructions at which only a loss of a derived table was found.
    lost: u64,
    /// Instructions whose row describes the frame that is jumped to.
    target: u64,
    /// Distinct rows met.
    rows: u64,
    calls: u64,
    /// Calls at which the row looked up by the return address - 1 was wrong.
    calls_wrong: u64,
    /// Calls at which the row looked up by the return address was wrong.
    calls_wrong_at_return: u64,
    walks: u64,
    walks_wrong: u64,
    /// Walks that ended in generated code without a table; not among `walks`.
    walks_unjudged: u64,
    /// Distinct outcomes that were not remembered, because others of this unwinder had reached the
    /// bound. Rows for the frame that is jumped to may be among its contradictions.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcomes_not_remembered: Option<u64>,
    /// Jumps out of functions whose earlier outcomes may have been forgotten. As above.
    #[serde(skip_serializing_if = "Option::is_none")]
    jumps_forgotten: Option<u64>,
}

/// The last line of `verify`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct VerificationLine {
    schema: &'static str,
    /// How the program ended.
    end: String,
    instructions: u64,
    addresses: u64,
    truth_unknown: u64,
    self_check_failures: u64,
    contradictions: u64,
    /// Walks that disagree with the check of single frames: bugs in unwind-sim.
    disagreements: usize,
    /// Stores that changed a live slot.
    slot_stores: u64,
    /// Stores into live slots that left the value as it was.
    slot_stores_same: u64,
    /// Heap memory used.
    memory: MemoryLine,
    /// The command that reproduces this output.
    command: String,
    /// The program's file, without its folder.
    program: String,
    /// The options that determine what is found.
    options: Vec<String>,
}

/// What `verify` kept for the instructions that it saw, in bytes of heap.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct MemoryLine {
    /// Decoded code of the machine.
    decoded: usize,
    /// Facts about each decoded instruction.
    known: usize,
    /// The distinct claims.
    claims: usize,
    /// Wrong outcomes, and the findings.
    findings: usize,
    /// The addresses and rows that were met.
    met: usize,
    /// Compiled rows of all unwinders.
    rows: usize,
}

impl MemoryLine {
    fn of(memory: &verify::MemoryUse) -> MemoryLine {
        let verify::MemoryUse {
            decoded,
            known,
            claims,
            findings,
            met,
            rows,
        } = *memory;
        MemoryLine {
            decoded,
            known,
            claims,
            findings,
            met,
            rows,
        }
    }
}

/// Writes how much of each section of a kernel was executed.
///
/// # Errors
/// Those of `out`.
pub fn write_coverage(sections: &[Coverage], out: &mut dyn Write) -> io::Result<()> {
    for of in sections {
        Line::Coverage(CoverageLine {
            schema: SCHEMA,
            section: of.section.clone(),
            functions: of.functions.executed,
            functions_of_all: of.functions.all,
            rows: of.rows.executed,
            rows_of_all: of.rows.all,
            addresses: of.addresses,
        })
        .write(out)?;
    }
    Ok(())
}

/// Writes all lines of a verification, which ended with `end`, and with these threads waiting if that was a
/// deadlock, one after the other: together they may be larger than all
/// that the run kept.
///
/// # Errors
/// Those of `out`.
pub fn write_verification(
    names: &[String],
    (end, results, waiting): (&str, &Results, &[DeadlockedThread]),
    origin: Origin,
    command: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    // Numbers that are nearly always 0 are left out, as most readers need not know of them.
    let some = |count: u64| (count > 0).then_some(count);

    // One line for each unwinder, also if it was right everywhere.
    for (unwinder, tally) in names.iter().zip(&results.tallies) {
        Line::Verified(VerifiedLine {
            schema: SCHEMA,
            unwinder: unwinder.clone(),
            checked: tally.checked,
            jit_no_table: tally.no_table,
            wrong: tally.wrong,
            lost: tally.lost,
            target: tally.target,
            rows: tally.rows,
            calls: tally.calls,
            calls_wrong: tally.calls_wrong,
            calls_wrong_at_return: tally.calls_wrong_at_return,
            walks: tally.walks,
            walks_wrong: tally.walks_wrong,
            walks_unjudged: tally.walks_unjudged,
            outcomes_not_remembered: some(tally.bounds.not_remembered),
            jumps_forgotten: some(tally.bounds.forgotten),
        })
        .write(out)?;
    }

    // Code that a just-in-time compiler wrote has no file, so functions are known by name only.
    for function in &results.generated {
        Line::Jit(JitLine {
            schema: SCHEMA,
            function: function.name.clone(),
            instructions: function.instructions,
            addresses: function.addresses,
        })
        .write(out)?;
    }

    for finding in &results.findings {
        let place = verify::groups::location(finding, &results.places);
        let contradiction = &finding.contradiction;
        Line::Contradiction(Box::new(ContradictionLine {
            schema: SCHEMA,
            unwinder: names[finding.unwinder].clone(),
            check: finding.check.as_str(),
            address: hex(finding.address),
            place: place.to_string(),
            image: place.image,
            build_id: results.places.build_id(finding.place),
            class: contradiction.class().as_str(),
            code: finding.code.as_str(),
            register: finding.reg.as_str(),
            given: contradiction.given.map(hex),
            truth: hex(contradiction.truth),
            count: finding.count,
            // A line that stands for one place does not say so.
            stands_for: (finding.stands_for > 1).then_some(finding.stands_for),
            first: finding.first,
            row: contradiction.row.as_deref().map(row_line),
            // A row that exists, but that a search through the index does not find.
            unfound_row: verify::groups::unfound_row(finding, &results.places).map(hex),
            listing: lines_around(results, finding)
                .into_iter()
                .map(|line| InstructionLine::new(line.address, line.text, line.is_concerned))
                .collect(),
        }))
        .write(out)?;
    }

    // These are not findings about unwinders: the program wrote over what they would read.
    for store in &results.stores.all {
        let place = results
            .places
            .location(store.writer.place, store.writer.address);
        Line::SlotStore(SlotStoreLine {
            schema: SCHEMA,
            address: hex(store.writer.address),
            place: place.to_string(),
            image: place.image,
            call: store.writer.call,
            register: store.slot.reg().as_str(),
            count: store.count,
            same: store.same,
            taken: store.taken,
            restored: store.restored,
            first: store.first,
            slot: hex(store.address),
            owner: results
                .places
                .location(store.owner_place, store.owner)
                .to_string(),
            old: hex(store.old),
            new: hex(store.new),
        })
        .write(out)?;
    }

    // A run that ends in a deadlock has a line for each thread that waits.
    for line in deadlock(waiting) {
        line.write(out)?;
    }

    // The summary comes last: a reader that does not find it knows that the lines were cut.
    Line::Verification(VerificationLine {
        schema: SCHEMA,
        end: end.to_owned(),
        instructions: results.instructions,
        addresses: results.addresses,
        truth_unknown: results.truth.unknown,
        self_check_failures: results.truth.failures(),
        contradictions: results.findings.iter().map(|f| f.stands_for).sum(),
        disagreements: results.disagreements.len(),
        slot_stores: results.stores.count(),
        slot_stores_same: results.stores.same(),
        memory: MemoryLine::of(&results.memory),
        command: command.to_owned(),
        program: origin.program,
        options: origin.options,
    })
    .write(out)
}
