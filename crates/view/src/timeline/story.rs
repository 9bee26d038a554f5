//! What a step of a walk did, in a sentence.

use crate::again::{LastStep, distance_from_rsp};
use crate::text::event_line;
use unwind_sim_judge::diagnose::Diagnosis;
use unwind_sim_judge::engine::{Engine, Outcome};
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::chain::{How, Step};
use unwind_sim_unwind::event::Event;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::RowSource;
use unwind_sim_unwind::rule::{Base, Rule, RuleKind, Value};

/// The number of missing frames that are named.
const NAMED_MAX: usize = 4;

/// Something else than a frame.
pub(super) fn event(event: &Event, view: &View<'_>) -> String {
    let mut line = event_line(event, view.space);
    if let Some(first) = line.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    line.push('.');
    line
}

/// The end of the walk. `missing` are the true frames behind the last one found.
pub(super) fn ending(view: &View<'_>, outcome: &Outcome, missing: &[usize]) -> String {
    let reason = outcome.chain.end.reason;
    let code = reason.code();

    // Many reasons have nothing to add to the description of their code.
    let (reason, short) = (reason.to_string(), code.description());
    let detail = if reason == short {
        String::new()
    } else {
        format!(" ({reason})")
    };

    let mut text = format!("The walk ends: {code} {short}{detail}.");
    if let Some(&first) = missing.first() {
        // The first few are named; a long list would be the rest of the chain.
        let places = missing.iter().take(NAMED_MAX);
        let names = places.map(|&truth| crate::listing::true_place(view, truth).1.to_string());
        let names = names.collect::<Vec<_>>().join(", ");
        let more = if missing.len() > NAMED_MAX {
            ", ..."
        } else {
            ""
        };
        let frames = counted(missing.len() as u64, "true frame");
        text.push_str(&format!(
            " {frames} from number {first} on not found: {names}{more}."
        ));
    }

    let verdict = outcome.verdict;

    // What was not judged is said with the reason, since no verdict is not a good one.
    let why = match outcome.unjudged {
        Some(why) => format!(": {why}"),
        None => String::new(),
    };
    text.push_str(&format!(" Verdict: {}{why}.", verdict.as_str()));
    text
}

/// How frame `index` was found, `last` being the address of the frame before it.
pub(super) fn found(
    view: &View<'_>,
    engine: &Engine,
    last: Option<CodeAddress>,
    (index, frame): (usize, &Step<'_>),
) -> String {
    let place = Location::of(view.space, frame.pc);
    let (name, pc) = (engine.name(), frame.pc.value());

    // Each way to find a frame has its own sentence: what was used, and where it came from.
    let text = match frame.how {
        How::Start => format!("{place}, where the walk starts."),
        How::SampledIp => format!("{place}, the sampled ip, which is reported first."),
        How::Guess => {
            let at = slot_text(view, frame);
            format!("{name} takes the word at {at}: {pc:#x} is an address in code, {place}.")
        }
        How::Branch { from, stitched } => {
            let whose = if stitched {
                "an earlier sample has"
            } else {
                "there is"
            };
            format!(
                "{name}: {whose} a branch record of the call at {from:#x}, to return to {place}."
            )
        }
        How::External => format!("{name} gives {place}."),
        How::Rule { row, .. } => {
            let rule = row.rule();

            // The first frame may have been found by the row of a frame that was skipped, or by the
            // start.
            let subject = match last {
                Some(last) => Location::of(view.space, last).to_string(),
                None => "the start".to_owned(),
            };
            let row = row_text(&row.source());
            let read = read_text(view, rule, frame, &place);
            let saved = saved_text(rule);
            format!("{name} in {subject}: {row}: {read}{saved}")
        }
    };

    format!("#{index} {text}")
}

/// The step that found no frame: the row of the last frame, `last`, was applied.
pub(super) fn rejected(
    view: &View<'_>,
    engine: &Engine,
    step: &LastStep,
    last: Option<CodeAddress>,
) -> String {
    let subject = match last {
        Some(last) => Location::of(view.space, last).to_string(),
        None => "the start".to_owned(),
    };
    let row = row_text(&step.row.source);
    // A row that marks the root has no CFA that means anything; the convention has a zero rbp.
    if step.is_root && !step.row.rule.by_frame_pointer {
        let name = engine.name();
        return format!("{name} in {subject}: {row}: this is the outermost frame.");
    }
    let cfa = cfa_text(&step.row.rule, step.cfa);
    let base = match step.base {
        Some((reg, value)) => format!(" with {reg} = {value:#x}"),
        None => String::new(),
    };

    let refused = match step.refused {
        Some((address, Some(slot))) => {
            let at = near_rsp(view, slot);
            format!("; {address:#x} is read from {at}, and refused")
        }
        Some((address, None)) => format!("; {address:#x} would be next, and is refused"),
        None if step.is_root => "; this is the outermost frame".to_owned(),
        None => "; there is no caller by it".to_owned(),
    };
    format!(
        "{} in {subject}: {row}: {cfa}{base}{refused}.",
        engine.name()
    )
}

/// What is to blame for a wrong walk.
pub(super) fn blame(view: &View<'_>, diagnosis: &Diagnosis) -> String {
    let code = diagnosis.code;
    let (of, what) = (Location::of(view.space, diagnosis.pc), code.description());
    let detail = match &diagnosis.contradiction {
        Some(contradiction) => format!(": {contradiction}"),
        None => String::new(),
    };
    format!(" To blame is {of}: {code} {what}{detail}.")
}

/// `row .orc_unwind+0x40 for 0x1139..0x113b`, or the convention.
fn row_text(source: &RowSource) -> String {
    let fallback = match source.fallback {
        Some(cause) => format!(" (the fallback, because {} {cause})", cause.code()),
        None => String::new(),
    };
    match source.table.section() {
        None => format!("no table, but the convention of frame pointers{fallback}"),
        Some(section) => format!(
            "row {}+{:#x} for {:#x}..{:#x}{}{fallback}",
            section.as_str(),
            source.row_offset,
            source.start,
            source.end,
            if source.table.as_str().contains("derived") {
                ", derived"
            } else {
                ""
            }
        ),
    }
}

/// What the rule says and what was read.
fn read_text(view: &View<'_>, rule: &Rule, frame: &Step<'_>, place: &Location) -> String {
    let (sp, pc) = (frame.sp, frame.pc.value());
    if matches!(rule.kind, RuleKind::PtRegs | RuleKind::Iret) {
        let at = Value::to_string(&rule.cfa);
        return format!("registers were saved at {at}; they continue at {pc:#x}, {place}.");
    }
    let cfa = cfa_text(rule, Some(sp));
    let what = match frame.pc {
        CodeAddress::Return(_) => "the return address",
        CodeAddress::Instruction(_) => "the interrupted address",
    };
    format!(
        "{cfa}; {what} {pc:#x} is read from {}: {place}.",
        slot_text(view, frame)
    )
}

/// `CFA = rsp+16 = 0x7ffe10`.
fn cfa_text(rule: &Rule, cfa: Option<u64>) -> String {
    let value = cfa.map_or(String::new(), |cfa| format!(" = {cfa:#x}"));
    match rule.cfa {
        Value::Offset {
            base: Base::Reg(reg),
            offset,
        } => format!("CFA = {reg}{offset:+}{value}"),
        other => format!("CFA = {other}{value}"),
    }
}

/// ` rbp is read from CFA-16.`
fn saved_text(rule: &Rule) -> String {
    let pairs = Reg::CALLEE_SAVED.iter().zip(rule.saved);
    let loads = pairs.filter_map(|(reg, value)| match value {
        Value::Load {
            base: Base::Cfa,
            offset,
            addend: 0,
        } => Some(format!("{reg} from CFA{offset:+}")),
        Value::Load { .. } => Some(format!("{reg} from {value}")),
        Value::Undefined => Some(format!("{reg} is lost")),
        _ => None,
    });
    let loads: Vec<String> = loads.collect();
    if loads.is_empty() {
        String::new()
    } else {
        format!(" Registers: {}.", loads.join(", "))
    }
}

/// `0x7ffe08 (rsp+8)`.
fn slot_text(view: &View<'_>, frame: &Step<'_>) -> String {
    match frame.slot {
        None => "no word of the stack".to_owned(),
        Some(slot) => near_rsp(view, slot),
    }
}

/// `0x7ffe08 (rsp+8)`.
fn near_rsp(view: &View<'_>, slot: u64) -> String {
    match distance_from_rsp(view, slot) {
        Some(distance) => format!("{slot:#x} (rsp{distance:+})"),
        None => format!("{slot:#x}, on another stack"),
    }
}
