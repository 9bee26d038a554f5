//! Whether a register can have been written on the way to a row.

use super::code::{ends_way, target};
use super::equal::{MutatedFunction, rule_at, writes};
use hashbrown::HashMap;
use iced_x86::InstructionInfoFactory;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Rule, Value};

/// Whether, at the instructions `touched`, the changed rows differ from the right ones only in
/// that registers are unchanged, and no instruction that leads there writes one of them.
pub(super) fn is_unwritten(pair: &MutatedFunction<'_>, touched: &[usize]) -> bool {
    // A jump that is not seen may lead there from anywhere.
    if pair.code.has_hidden_jumps {
        return false;
    }

    let mut regs: Vec<Reg> = Vec::new();

    // The registers of all rows together: none of them may be written anywhere before.
    for &index in touched {
        let Some(dropped) = dropped_at(pair, index) else {
            return false;
        };
        regs.extend(dropped);
    }

    regs.sort_unstable_by_key(|reg| *reg as u16);
    regs.dedup();

    let Some(before) = all_before(pair, touched) else {
        return false;
    };

    // Only what can be executed before a row can have written a register there.
    let mut info = InstructionInfoFactory::new();
    let insns = before
        .iter()
        .filter_map(|&index| pair.code.insns.get(index));
    let kept = pair.code.preserved;
    let mut insns = insns.map(|insn| {
        regs.iter()
            .any(|&reg| writes(insn, [reg; 2], kept, &mut info))
    });
    !insns.any(|written| written)
}

/// The registers that the changed row says are unchanged at an instruction; `None` if it differs
/// in something else, too.
fn dropped_at(pair: &MutatedFunction<'_>, index: usize) -> Option<Vec<Reg>> {
    let pc = pair.code.insns.get(index)?.ip();
    let right = rule_at(pair.right, pair.range.end, pc)?;
    let changed = rule_at(pair.changed, pair.changed_end, pc)?;
    let rest = Rule {
        saved: right.saved,
        ..*changed
    };
    let differs = |index: &usize| right.saved[*index] != changed.saved[*index];
    let different: Vec<usize> = (0..6).filter(differs).collect();
    let unchanged =
        |index: &usize| matches!(changed.saved[*index], Value::Same | Value::Unspecified);
    let all = rest == *right && different.iter().all(unchanged);
    all.then(|| different.iter().map(|&i| Reg::CALLEE_SAVED[i]).collect())
}

/// The instructions from which those `touched` can be reached; `None` if ways from outside of the
/// function lead there.
fn all_before(pair: &MutatedFunction<'_>, touched: &[usize]) -> Option<Vec<usize>> {
    // Jumps are looked up by target, since the way is followed backwards.
    let insns = &pair.code.insns;
    let mut jumps: HashMap<u64, Vec<usize>> = HashMap::new();
    for (index, insn) in insns.iter().enumerate() {
        if let Some(target) = target(insn) {
            jumps.entry(target).or_default().push(index);
        }
    }

    // Backwards from the rows, every instruction once.
    let mut is_seen = vec![false; insns.len()];
    let (mut before, mut todo) = (Vec::new(), touched.to_vec());

    // A part of a function begins with what the jump to it left in the registers.
    let unchanged = |value| matches!(value, Value::Same | Value::Unspecified);
    let first = pair.right.first();
    let is_called = first.is_some_and(|row| row.rule.saved.into_iter().all(unchanged));

    while let Some(index) = todo.pop() {
        let pc = insns.get(index)?.ip();
        let from = jumps.get(&pc).map_or(&[][..], Vec::as_slice);
        let all = pair.targets.get(&pc).map_or(0, |&count| count as usize);
        match index {
            0 if !is_called => return None,
            // Something out of the function jumps here, too.
            1.. if all != from.len() => return None,
            _ => {}
        }

        // The instruction before leads here if it does not end a way.
        let previous = index.checked_sub(1).filter(|&i| !ends_way(&insns[i]));
        for &previous in from.iter().chain(&previous) {
            if !std::mem::replace(is_seen.get_mut(previous)?, true) {
                before.push(previous);
                todo.push(previous);
            }
        }
    }

    Some(before)
}
