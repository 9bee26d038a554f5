//! The lines of a kernel's own unwinders in `verify --kernel`.

use super::{Line, PlaceLine, place};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::verify::{KernelWalked, NmiResults, WalkFinding};
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::verdict::Verdict;

/// The walks of one of a kernel's unwinders.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct KernelWalksLine {
    schema: &'static str,
    unwinder: String,
    /// Whether it is the one that the kernel was built with.
    own: bool,
    /// Whether these are the walks in handlers of NMIs.
    nmi: bool,
    walks: u64,
    /// Walks by the word of the verdict; those that are 0 are left out.
    verdicts: BTreeMap<&'static str, u64>,
    /// What `arch_stack_walk_reliable` says of the same stacks, if the unwinder has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reliability: Option<ReliabilityLine>,
    /// Wrong walks that are in no line, since there were too many distinct ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_kept: Option<u64>,
}

/// What `arch_stack_walk_reliable` says, and what is true.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ReliabilityLine {
    reliable_right: u64,
    /// Chains that live patching would trust, and that are wrong.
    reliable_wrong: u64,
    refused_right: u64,
    refused_wrong: u64,
}

/// A wrong chain of the kernel's own unwinder.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct KernelWalkLine {
    schema: &'static str,
    unwinder: String,
    /// The word of the verdict.
    verdict: &'static str,
    /// The short form of the verdict on the first of these chains, such as `m1@2`.
    short: String,
    code: &'static str,
    /// Where it leaves the truth: the frame whose row is to blame, or else the last right frame.
    address: String,
    /// Function and offset of that address.
    place: String,
    /// Whether it is one in a handler of an NMI.
    nmi: bool,
    /// Whether `arch_stack_walk_reliable` calls the chain reliable.
    reliable: bool,
    count: u64,
    /// The number of the instruction at which it was first met, from 0.
    first: u64,
    /// The chain that was found there, innermost first.
    found: Vec<PlaceLine>,
    /// The true chain.
    truth: Vec<PlaceLine>,
}

/// The NMIs that were sent to a kernel.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct NmisLine {
    schema: &'static str,
    sent: u64,
    /// Handlers that returned to the interrupted instruction.
    returned: u64,
    /// Distinct instructions of the kernel that were interrupted.
    places: u64,
    /// Instructions of the handlers.
    instructions: u64,
    truth_unknown: u64,
    self_check_failures: u64,
    /// Where the first NMI was sent whose handler did not return.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<PlaceLine>,
    /// What happened instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Writes the lines of NMIs.
///
/// # Errors
/// Those of `out`.
pub fn write_nmis(nmis: &NmiResults, space: &AddressSpace, out: &mut dyn Write) -> io::Result<()> {
    let (lost, why) = nmis.lost.clone().unzip();
    Line::Nmis(Box::new(NmisLine {
        schema: SCHEMA,
        sent: nmis.sent,
        returned: nmis.returned,
        places: nmis.places,
        instructions: nmis.instructions,
        truth_unknown: nmis.unknown,
        self_check_failures: nmis.failures,
        lost: lost.map(|pc| place(space, CodeAddress::Instruction(pc))),
        why,
    }))
    .write(out)?;
    write_kernel_walks(&nmis.walks, true, space, out)
}

/// Writes the lines of a kernel's unwinders, those of handlers of NMIs if `nmi`.
///
/// # Errors
/// Those of `out`.
pub fn write_kernel_walks(
    walks: &[KernelWalked],
    nmi: bool,
    space: &AddressSpace,
    out: &mut dyn Write,
) -> io::Result<()> {
    for walked in walks {
        let tally = &walked.tally;
        let counted = Verdict::WORDS.iter().zip(tally.verdicts);
        let reliability = tally.reliability.map(|r| ReliabilityLine {
            reliable_right: r.reliable_right,
            reliable_wrong: r.reliable_wrong,
            refused_right: r.refused_right,
            refused_wrong: r.refused_wrong,
        });
        Line::KernelWalks(KernelWalksLine {
            schema: SCHEMA,
            unwinder: walked.name.clone(),
            own: walked.is_own,
            nmi,
            walks: tally.walks(),
            verdicts: counted
                .filter(|(_, count)| *count > 0)
                .map(|((_, word), count)| (*word, count))
                .collect(),
            reliability,
            not_kept: (walked.not_kept > 0).then_some(walked.not_kept),
        })
        .write(out)?;
        for finding in &walked.findings {
            line(&walked.name, finding, nmi, space).write(out)?;
        }
    }
    Ok(())
}

fn line(unwinder: &str, finding: &WalkFinding, nmi: bool, space: &AddressSpace) -> Line {
    let at = place(space, finding.pc);
    Line::KernelWalk(Box::new(KernelWalkLine {
        schema: SCHEMA,
        unwinder: unwinder.to_owned(),
        verdict: finding.verdict.as_str(),
        short: finding.verdict.to_string(),
        code: finding.code.as_str(),
        address: at.pc,
        place: finding.place(space).to_string(),
        nmi,
        reliable: finding.is_reliable,
        count: finding.count,
        first: finding.first,
        found: finding.found.iter().map(|pc| place(space, *pc)).collect(),
        truth: finding.truth.iter().map(|pc| place(space, *pc)).collect(),
    }))
}
