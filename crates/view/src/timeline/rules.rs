//! The rules of a run's unwinders beside the code of a state, and what is true there.

use super::code::Code;
use super::state::Builder;
use crate::code_rules::{CodeRules, Observed, RuleColumn, RuleInsn};
use crate::source_lines::SourceLines;
use std::ops::Range;
use unwind_sim_judge::engine::Engine;
use unwind_sim_judge::run::Run;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::cache::Cache;

/// The number of images whose source lines are kept.
const LINES_MAX: usize = 64;

impl Code {
    /// The instructions in these lines, for a listing with rules.
    pub(crate) fn insns(&self, lines: Range<usize>) -> Vec<RuleInsn> {
        let insn = |line: &super::CodeLine| RuleInsn {
            address: line.address.0,
            // Two digits for each byte.
            end: line.address.0.saturating_add(line.bytes.len() as u64 / 2),
            text: line.text.clone(),
        };
        let lines = self.lines.get(lines).unwrap_or(&[]);
        lines.iter().map(insn).collect()
    }
}

impl Builder<'_> {
    /// Looks at the innermost frames of a state, at most `frames`: what is true there, and which rows
    /// are wrong.
    pub fn observe(&mut self, view: &View<'_>, frames: usize, observed: &mut Observed) {
        let memory = self.run.setting.view;
        let mut columns = columns(self.run, &mut self.caches);
        let dwarf = (&self.dwarf, &mut self.dwarf_cache);
        observed.add(view, memory, frames, &mut columns, dwarf);
    }

    /// The rules beside the lines `lines` of `code`, of each unwinder that finds rules.
    pub fn rules(
        &mut self,
        view: &View<'_>,
        (code, lines): (&Code, Range<usize>),
        observed: &Observed,
    ) -> CodeRules {
        let insns = code.insns(lines);
        let start = insns.first().map(|insn| insn.address);
        let Some(mapping) = start.and_then(|start| view.space.find(start)) else {
            return CodeRules::default();
        };

        let none = SourceLines::default();
        let lines = match &mapping.image {
            None => &none,
            Some(image) => {
                if self.source_lines.len() >= LINES_MAX {
                    self.source_lines.clear();
                }
                let known = self.source_lines.entry(image.id());
                &*known.or_insert_with(|| SourceLines::of_image(image))
            }
        };

        let mut columns = columns(self.run, &mut self.caches);
        let sources = (lines, &mut self.source_texts);
        CodeRules::new(mapping, insns, &mut columns, Some(observed), sources)
    }
}

/// The unwinders of a run that find rules.
fn columns<'a>(run: &'a Run, caches: &'a mut [Cache]) -> Vec<RuleColumn<'a>> {
    let engines = run.engines.iter().zip(caches);
    let column = |(engine, cache): (&'a Engine, &'a mut Cache)| {
        Some(RuleColumn {
            name: engine.name().to_owned(),
            finder: engine.finder()?,
            cache,
        })
    };
    engines.filter_map(column).collect()
}
