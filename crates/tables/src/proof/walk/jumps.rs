//! Jumps: inside of the function, into parts of it elsewhere, through tables, and out of it.

use super::rows::{contradict, path};
use super::{FunctionWalk, Jump, Misfit, PendingPath, Walker};
use crate::file::File;
use crate::proof::body::{Body, is_padding};
use crate::proof::claim::{self, Outcome};
use crate::proof::jump_table::{JumpTable, Targets};
use crate::proof::no_return;
use crate::proof::program::{Effect, Entry, Program, Returns};
use crate::proof::state::State;
use crate::proof::value::Value;
use crate::proof::verdict::{Assumption, Doubt, FunctionVerdict};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use unwind_sim_unwind::convention::Convention;
use unwind_sim_unwind::regs::Reg;

/// What follows a jump table is aligned to this at most, bytes.
const TABLE_ALIGN: u64 = 64;

impl Walker<'_, '_> {
    pub(super) fn jump(
        &mut self,
        part: usize,
        insn: &Instruction,
        target: u64,
        state: &State,
        trail: Option<u32>,
    ) {
        match self.imported(insn) {
            Some(name) => self.jump_to_import(part, insn, name, state, trail),
            None => self.job(part, insn.ip(), target, state, trail),
        }
    }

    /// Continues at `target`, in this function or another.
    pub(super) fn job(
        &mut self,
        part: usize,
        from: u64,
        target: u64,
        state: &State,
        trail: Option<u32>,
    ) {
        let Some(to) = self.part_at(target) else {
            return self.leave(part, from, target, state, trail);
        };

        let unit = &self.program.functions[self.parts[to].function];
        // A function that is followed with this one, because a jump leads into its middle.
        let is_function = self.parts[to].is_listed && to != 0 && to != part;
        let is_start = is_function && unit.entry == Entry::Call && unit.range.start == target;
        if is_start && !self.fits(to, target, state) {
            return self.leave(part, from, target, state, trail);
        }

        // A part has rows for the frame that jumps to it, so another frame is a misfit, kept for
        // later.
        let is_part = self.parts[to].is_listed && unit.entry == Entry::Part;
        if to != part && is_part && self.is_misfit(to, from, target, state, trail) {
            return;
        }

        // A finding shows the way to it: each jump names the one before.
        let before = trail;
        self.jumps.push(Jump {
            from,
            to: target,
            before,
        });
        let trail = u32::try_from(self.jumps.len() - 1).ok();

        self.go(target, state, trail);
    }

    /// Whether the row of the first table at `target` (svma), in this part, does not contradict `state`.
    fn fits(&mut self, part: usize, target: u64, state: &State) -> bool {
        let anchors = &self.machine.anchors;
        let rows = self.parts[part].rows.first_mut();
        rows.is_none_or(|rows| !rows.contradicts(target, state, anchors))
    }

    /// Whether the frame does not fit the row at `target`, in a part of a function or at a landing
    /// pad: then this way is never taken, if others fit there.
    pub(super) fn is_misfit(
        &mut self,
        to: usize,
        from: u64,
        target: u64,
        state: &State,
        trail: Option<u32>,
    ) -> bool {
        if self.fits(to, target, state) {
            return false;
        }

        let part = &mut self.parts[to];
        let anchors = &self.machine.anchors;
        if state.is_guessed {
            // The guess was wrong.
            return true;
        }

        let mut misfit = Misfit {
            function: part.function,
            target,
            from,
            // Only a row that this frame contradicts tells anything, so its contradictions are
            // kept.
            verdict: FunctionVerdict::default(),
        };

        let mut path = path(&self.jumps, trail);
        path.push((from, target));
        for rows in &mut part.rows {
            let Some(index) = rows.find(target) else {
                continue;
            };
            let row = rows.rows[index];
            claim::judge(
                (rows.table, &rows.claims),
                &row,
                target,
                state,
                anchors,
                |subject, outcome| {
                    if let Outcome::Contradicted { found } = outcome {
                        let at = (rows.table, &row, target);
                        contradict(&mut misfit.verdict, at, state, (subject, found), &path);
                    }
                },
            );
        }

        self.misfits.push(misfit);
        true
    }

    /// The code runs on behind the function's last instruction.
    pub(super) fn fall_out(&mut self, part: usize, pc: u64, state: &State, trail: Option<u32>) {
        self.job(part, pc.wrapping_sub(1), pc, state, trail);
    }

    /// A jump out of the functions that are followed: a tail call, or a jump to another part.
    pub(super) fn leave(
        &mut self,
        part: usize,
        from: u64,
        target: u64,
        state: &State,
        trail: Option<u32>,
    ) {
        if state.is_dead {
            return;
        }

        // What the target is decides whether this is a tail call, a jump to a part, or a mistake.
        let program = self.program;
        let function = program.function_at(target);
        let unit = function.map(|f| &program.functions[f]);
        let is_entry = unit.is_none_or(|u| {
            u.entry == Entry::Plt || u.range.start == target && u.entry != Entry::Part
        });

        if unit.is_none() && self.aside(part, target, state, trail) {
            return;
        }
        if function.is_some_and(|f| program.is_entered_by_register(f, target)) {
            // It will return to an address that this function has put into a register.
            self.returns = true;
            self.parts[part].verdict.doubt(Doubt::LeftTable, from);
            return;
        }

        // Code without an FDE may be the function's own, whose FDE ends too early.
        if unit.is_none() && self.open_beyond(part, (from, target), state) {
            return self.job(part, from, target, state, trail);
        }

        // A tail call: with all as at the entry, the target returns for this function.
        if is_entry && state.is_as_at_entry() {
            self.callees.push(target);
            self.tail_call(target, state);
            self.returns_to_caller(from, Some(target), state, trail);
            return;
        }

        // The stubs of a lazy table push a number and jump to its first entry.
        let is_plt = |index: usize| program.functions[index].entry == Entry::Plt;
        if let Some(function) = function
            && is_plt(function)
            && is_plt(self.parts[part].function)
            && self.open(function).is_some()
        {
            return self.job(part, from, target, state, trail);
        }

        if is_entry {
            if unit.is_some_and(|u| u.entry == Entry::Call && u.range.start == target) {
                self.jumped.push(target);
            }
            // What becomes of the frame there is not known; it may return to the caller.
            self.returns = true;
            self.ends_changed(state);
            self.parts[part].verdict.doubt(Doubt::LeftTable, from);
            return;
        }

        if let Some(function) = function
            && self.open(function).is_some()
        {
            self.job(part, from, target, state, trail);
        } else {
            self.returns = true;
            self.parts[part].verdict.doubt(Doubt::Limit, from);
        }
    }

    pub(super) fn jump_indirect(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &State,
        trail: Option<u32>,
    ) {
        // Behind what never returns, no target is worth following.
        if state.is_dead {
            return;
        }
        match self.machine.target(insn, state) {
            Value::TableEntry { table } => self.jump_by_table(part, insn, state, trail, table, 0),
            Value::TableTarget { table, base } => {
                self.jump_by_table(part, insn, state, trail, table, i64::from(base));
            }
            Value::ReturnAddress => {
                self.returns = true;
                if !state.is_guessed {
                    // As if it had been popped.
                    self.ends(Effect::of(state, state.reg(Reg::Rsp).plus(-8)));
                }
            }

            // The address of a label was loaded into a register: only this one can be the target.
            Value::Const(at) if self.is_code(i64::from(at).cast_unsigned()) => {
                self.job(part, insn.ip(), i64::from(at).cast_unsigned(), state, trail);
            }
            _ if self.jump_to_labels(part, insn, state, trail) => {}
            _ if state.is_as_at_entry() => {
                let function = self.parts[part].function;
                let next = insn.next_ip();
                if self.program.functions[function].entry == Entry::Plt && self.is_lazy(part, next)
                {
                    // Until the loader has filled the slot, it leads to the next instruction.
                    self.job(part, insn.ip(), next, state, trail);
                }
                let name = self.machine.import(insn, state);
                let is_final = name.is_some_and(no_return::is_known);
                match self.machine.target(insn, state) {
                    // The caller has put the address to return to into that register.
                    Value::Entry { reg, offset: 0 } if !is_final => self.returns_as(reg),
                    _ => self.returns |= !is_final,
                }
                if !is_final && !state.is_guessed {
                    self.endings.pass_on();
                }
            }

            // Nothing is known of the target, and the frame is not as at entry: it may be anything.
            _ => {
                self.returns = true;
                self.ends_changed(state);
                let here = &mut self.parts[part];
                // The first entry of a lazy table jumps to the loader's resolver.
                if self.program.functions[here.function].entry != Entry::Plt {
                    here.verdict.doubt(Doubt::IndirectJump, insn.ip());
                }
            }
        }
    }

    /// Whether a stub goes on at `next` (svma) until the loader has filled its slot: there is more than
    /// padding.
    fn is_lazy(&mut self, part: usize, next: u64) -> bool {
        let body = &mut self.parts[part].body;
        let offset = body.offset(next);
        let insn = offset.and_then(|offset| body.insn(self.program.file, offset));
        insn.is_some_and(|insn| !is_padding(&insn))
    }

    /// A jump to `target` (svma), to return to whom it returns to.
    fn tail_call(&mut self, target: u64, state: &State) {
        match self.returns(target, state) {
            Returns::Never => return,
            Returns::As(reg) => self.returns_as(reg),
            Returns::Surely => {
                self.returns = true;
                self.surely_returns |= !state.has_called && !state.is_guessed;
            }
            Returns::Maybe => self.returns = true,
        }
        let effect = self.program.effect(target);
        if state.is_guessed {
            return;
        }
        if effect == Effect::default() {
            self.endings.pass_on();
        } else {
            self.ends(effect);
        }
    }

    /// It ends with a jump to what `reg` had at entry.
    fn returns_as(&mut self, reg: Reg) {
        match self.returns_as {
            Some(known) if known != reg => self.returns = true,
            _ => self.returns_as = Some(reg),
        }
    }

    pub(super) fn is_code(&self, address: u64) -> bool {
        self.program.file.code_at(address).is_some()
    }

    /// Whether a jump table's entry leads to the end of the function, where nothing of it is: a case that
    /// cannot happen.
    fn is_end(&self, part: usize, target: u64) -> bool {
        let (program, here) = (self.program, &self.parts[part].body);
        let bytes = program.file.bytes(target);
        let insn = Decoder::with_ip(64, bytes, target, DecoderOptions::NONE).decode();
        let is_free = program.function_at(target).is_none();
        target == here.range.end && (!is_free || insn.is_invalid() || is_padding(&insn))
    }

    /// A `goto` whose address was chosen earlier, on different ways: it can lead to all labels of the
    /// function. If it may as well be a tail call, only those count that nothing else leads to.
    /// Returns whether it surely is a `goto`.
    fn jump_to_labels(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &State,
        trail: Option<u32>,
    ) -> bool {
        let here = &self.parts[part];
        // OCaml and Go have no computed jumps. OCaml's data lead to what lies behind its calls.
        if matches!(here.convention, Convention::Ocaml | Convention::Go) {
            return false;
        }

        let labels = self.program.labels_in(&here.body.range).iter();
        let labels: Vec<u64> = labels
            .copied()
            .filter(|&label| here.body.starts_at(label))
            .collect();

        // The words that stubs jump through lead to their second halves.
        if labels.is_empty() || self.program.functions[here.function].entry == Entry::Plt {
            return false;
        }

        // With everything as at entry, it may as well be a tail call.
        let may_leave = state.is_as_at_entry();
        self.assume(Assumption::JumpTables);

        // Which of the labels this jump leads to is not known: a contradiction may lie on a way
        // that is never taken.
        let mut state = state.clone();
        (state.is_guessed, state.has_branched) = (true, true);

        // Labels that nothing else leads to are followed at the end, if it may be a tail call.
        for at in labels {
            if may_leave {
                let state = state.clone();
                self.parts[part].body.lead(at);
                self.unreached.push(PendingPath { at, state, trail });
            } else {
                self.job(part, insn.ip(), at, &state, trail);
            }
        }
        !may_leave
    }

    /// Where a jump through `table` can go if it ends before `end` (svma).
    fn targets(&self, part: usize, table: JumpTable, base: i64, end: Option<u64>) -> Targets {
        let program = self.program;
        let body = &self.parts[part].body;
        let mut elsewhere = Vec::new();
        let parts = &self.parts;
        // Code that the table of rows lacks: whether it belongs to the function is asked later.
        // LLVM lets cases that cannot happen lead to the function's end.
        let is_beyond = |target| {
            table.count.is_some()
                && program.file.code_at(target).is_some()
                && parts.iter().any(|p| ends_before(program, p, target))
        };
        table.targets(program.file, base.cast_unsigned(), end, |target| match body
            .range
            .contains(&target)
        {
            true => body.starts_at(target),
            false if is_beyond(target) => true,
            false => starts_in_part(program, target, &mut elsewhere),
        })
    }

    fn jump_by_table(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &State,
        trail: Option<u32>,
        table: u16,
        base: i64,
    ) {
        let Some(table) = self.machine.tables.get(usize::from(table)).copied() else {
            return;
        };

        // Another table that begins behind this one ends it.
        let next = self.parts[part].body.next_address(table.at);
        let mut targets = self.targets(part, table, base, next);
        if targets.is_guess
            && let Some(end) = self.program.references().next_named(table.at)
        {
            // The table may have all entries up to where something else starts.
            let bounded = self.targets(part, table, base, Some(end));
            let behind = table.at + bounded.entries * u64::from(table.stride);
            if bounded.entries > 0 && is_aligned_end(self.program.file, behind, end) {
                targets = bounded;
                targets.is_guess = false;
                self.assume(Assumption::JumpTables);
            }
        }

        let mut state = state.clone();
        state.has_branched = true;

        let stride = u64::from(table.stride);
        let here = &mut self.parts[part].body;
        // The table may lie within the code, and is no instruction there.
        here.mark_data(table.at, targets.entries * stride);

        if targets.is_guess {
            self.assume(Assumption::JumpTables);
            state.is_guessed = true;
        }

        if targets.addresses.is_empty() {
            self.returns = true;
            self.parts[part]
                .verdict
                .doubt(Doubt::IndirectJump, insn.ip());
        }

        // A table may lead to where the function ends, for a case that cannot occur.
        for target in targets.addresses {
            if !self.is_end(part, target) {
                self.job(part, insn.ip(), target, &state, trail);
            }
        }
    }
}

/// Whether `target` (svma) is where `part` ends, or lies behind it with no other function between.
fn ends_before(program: &Program<'_>, part: &FunctionWalk<'_>, target: u64) -> bool {
    let functions = &program.functions;
    let after = functions.partition_point(|f| f.range.end <= target);
    let is_behind = after.checked_sub(1) == Some(part.function);
    let is_free = program.function_at(target).is_none();
    part.missing.expected != 0 && is_behind && (is_free || target == part.body.range.end)
}

/// Whether `end` (svma) is where something starts behind a table that ends at `behind`: only zeros that
/// align it lie between.
fn is_aligned_end(file: &File, behind: u64, end: u64) -> bool {
    let Some(gap) = end.checked_sub(behind).filter(|&gap| gap < TABLE_ALIGN) else {
        return false;
    };
    let between = file.bytes(behind).iter().take(gap as usize);
    between.into_iter().all(|&byte| byte == 0)
}

/// Whether an instruction of a part of a function starts at `target` (svma). `decoded` keeps the
/// instructions of parts.
fn starts_in_part(program: &Program<'_>, target: u64, decoded: &mut Vec<Body>) -> bool {
    if let Some(body) = decoded.iter().find(|b| b.range.contains(&target)) {
        return body.starts_at(target);
    }
    let function = program.function_at(target).map(|f| &program.functions[f]);
    let Some(unit) = function.filter(|f| f.entry == Entry::Part) else {
        return false;
    };
    let Some(body) = Body::new(program.file, unit.range.clone()) else {
        return false;
    };
    let starts = body.starts_at(target);
    decoded.push(body);
    starts
}
