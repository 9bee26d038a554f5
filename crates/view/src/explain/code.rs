//! The code that a walk went wrong in, with the rules of its unwinder.

use crate::code_rules::{CodeRules, Observed, RuleColumn};
use crate::source_lines::{SourceLines, SourceTexts};
use crate::timeline::around;
use unwind_sim_judge::engine::{Engine, Outcome, Setting};
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::reason::Reason;

/// The number of instructions shown before and behind the one that a frame is at.
const BEFORE: usize = 6;
const BEHIND: usize = 4;
/// The number of true frames that are looked at for what is true beside the code.
const FRAMES_MAX: usize = 1 << 10;

/// Where the code is that says most of a walk: at the frame to blame, or else at the last one found if
/// the walk ended early without a truth to tell why, or else at the first one.
pub(super) fn place(outcome: &Outcome) -> Option<CodeAddress> {
    if let Some(diagnosis) = &outcome.diagnosis {
        return Some(diagnosis.pc);
    }
    let frames = &outcome.chain.frames;
    let is_open = outcome.unjudged.is_some() && outcome.chain.end.reason != Reason::RootReached;
    let at = if is_open {
        frames.last()
    } else {
        frames.first()
    };
    at.map(|frame| frame.pc)
}

/// The instructions around `pc` with the rules of one unwinder, and what is true there.
pub(super) fn text(
    view: &View<'_>,
    engine: &Engine,
    setting: &Setting,
    pc: CodeAddress,
) -> Option<String> {
    let finder = engine.finder()?;
    let mut cache = Cache::new();
    let code = around(view, pc, &mut [(finder, &mut cache)])?;
    let current = code.line_of(pc)?;
    let mapping = view.space.find(pc.symbol_address())?;

    // The true frames of this sample are all that is known of the code.
    let (dwarf, mut dwarf_cache) = (Dwarf::new(), Cache::new());
    let mut columns = [RuleColumn {
        name: engine.name().to_owned(),
        finder,
        cache: &mut cache,
    }];
    let mut observed = Observed::default();
    observed.add(
        view,
        setting.view,
        FRAMES_MAX,
        &mut columns,
        (&dwarf, &mut dwarf_cache),
    );

    let image = mapping.image.as_ref();
    let lines = image.map_or(SourceLines::default(), |image| SourceLines::of_image(image));
    let sources = (&lines, &mut SourceTexts::default());
    let first = current.saturating_sub(BEFORE);
    let end = (current + BEHIND + 1).min(code.lines.len());
    let insns = code.insns(first..end);
    let rules = CodeRules::new(mapping, insns, &mut columns, Some(&observed), sources);
    let text = rules.text(0..end - first, Some(current - first), &|address| {
        format!("{address:x}")
    });
    let place = Location::of(view.space, pc);
    let at = match pc {
        CodeAddress::Instruction(_) => "at",
        CodeAddress::Return(_) => "at the call before",
    };
    let name = engine.name();
    Some(format!(
        "the code {at} {place}, with the rules of {name}:\n{text}"
    ))
}
