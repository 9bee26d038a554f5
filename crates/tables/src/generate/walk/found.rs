//! What is found at each instruction of a function: its row, or why it has none.

use super::{FrameContext, FrameKind, Gap, InsnState, UnitWalk, Walker};
use crate::generate::function::Function;
use crate::generate::rows;
use crate::proof::state::State;
use std::ops::Range;
use unwind_sim_unwind::rule::Rule;

/// What was found at an instruction, and those that follow it until something else is.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct RowOrGap {
    /// The row.
    pub(super) rule: Option<Rule>,
    /// Why there is none, if that is to be told.
    gap: Option<Gap>,
}

impl Walker<'_> {
    /// The number of what is found in `state`. `row` has the version of the state in which something was
    /// found last on this way, and the number of that.
    pub(super) fn number(
        &mut self,
        row: &mut Option<(u32, u32)>,
        state: &State,
        standing: FrameContext,
    ) -> u32 {
        let version = state.version();
        // The same version: nothing has changed that a row says.
        if let Some((same, number)) = *row
            && same == version
        {
            return number;
        }

        let rule = if standing.is_spoilt {
            None
        } else {
            rows::row(state, standing.frame)
        };

        let is_gap = rule.is_none() && standing.frame != FrameKind::Undefined;
        let gap = is_gap.then_some(if standing.is_spoilt {
            Gap::Disagree
        } else {
            Gap::Frame
        });

        let found = RowOrGap { rule, gap };

        // `add_rows` sees by equal numbers that a row goes on.
        let last = row.and_then(|row| self.found.get(row.1 as usize - 1));
        let number = match row {
            Some((_, number)) if last == Some(&found) => *number,
            _ => {
                self.found.push(found);
                self.found.len() as u32
            }
        };

        *row = Some((version, number));
        number
    }

    /// What is known before the instruction at `address` (svma) of the function followed last, if
    /// [`Walker::keep_states`] was called.
    pub fn known(&self, address: u64) -> Option<&InsnState> {
        self.states.as_ref()?.get(&address)
    }

    /// What was found at the instruction at `address` (svma).
    pub(super) fn found(&self, address: u64) -> Option<&RowOrGap> {
        let part = self.parts.get(self.part_at(address)?)?;
        let number = *part.found.get(part.body.offset(address)?)?;
        self.found.get((number as usize).checked_sub(1)?)
    }

    /// The rows of the function followed last, and of its cold parts. With `pads`, padding between
    /// two rows, and at the end, gets the row before it, as from compilers.
    pub fn functions(&mut self, pads: bool) -> Vec<Function> {
        let mut parts = std::mem::take(&mut self.parts);
        let functions = parts.iter_mut().filter_map(|part| {
            let unit = self.units.get(part.unit)?;
            let mut out = Function {
                range: unit.range.clone(),
                name: unit.name.clone(),
                gaps: std::mem::take(&mut part.gaps),
                ..Function::default()
            };
            let bounds = (unit.range.start, "")..(unit.range.end, "");
            let here = self.breaches.range(bounds);
            let here = here.map(|((at, _), breach)| (*at, breach.clone()));
            out.breaches.extend(here);
            self.add_rows(part, &mut out);
            if pads {
                out.pad(|at| part.body.skip_padding(self.file, at));
            }
            Some(out)
        });
        let functions = functions.collect();
        self.parts = parts;
        functions
    }

    fn add_rows(&self, part: &mut UnitWalk, out: &mut Function) {
        // Nothing calls the function at which the program starts.
        let start = self.file.start();
        let is_outermost = start.is_some_and(|start| out.range.contains(&start));

        let mut last = (0, 0);
        for (offset, &number) in part.found.iter().enumerate().filter(|(_, n)| **n != 0) {
            let Some(found) = self.found.get(number as usize - 1) else {
                continue;
            };

            let at = out.range.start + offset as u64;
            let len = part
                .body
                .insn(self.file, offset)
                .map_or(1, |insn| insn.len());
            let end = at.saturating_add(len as u64).min(out.range.end);

            // Most instructions change nothing that a row says.
            if (number, at) == last && self.inside.is_empty() && out.extend(end) {
                last.1 = end;
                continue;
            }

            last = (number, end);
            let found = if is_outermost {
                RowOrGap {
                    rule: Some(Rule::OUTERMOST),
                    gap: None,
                }
            } else {
                *found
            };
            self.add_row(out, at..end, found);
        }
    }

    fn add_row(&self, out: &mut Function, range: Range<u64>, found: RowOrGap) {
        let Range { start: at, end } = range;
        if found.rule.is_none() {
            out.silent.push(at..end);
        }

        if let Some(gap) = found.gap
            && !out.gaps.iter().any(|g| g.0 == gap)
        {
            out.gaps.push((gap, at));
        }

        // A jump over a prefix leads into an instruction: what comes last counts.
        if let Some(last) = out.rows.last_mut() {
            last.0.end = last.0.end.min(at);
        }

        // Replaced code may have other instructions, which start within this one.
        let (mut start, mut rule) = (at, found.rule);
        for (&inside, &next) in self.inside.range(at + 1..end.max(at + 1)) {
            if let Some(rule) = rule {
                out.push(start..inside, rule);
            }
            (start, rule) = (inside, next);
        }
        if let Some(rule) = rule {
            out.push(start..end, rule);
        }
    }
}
