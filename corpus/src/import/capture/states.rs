//! `struct unwind_state`, as a debugger read it, of whichever unwinder the kernel has.

use super::json::{Object, Problem};
use unwind_sim_unwind::kernel::{
    Cursors, FpState, GuessState, OrcState, RegsPtr, StackInfo, StackType, State,
};

/// What stands for the address of the registers that the walk was started with.
const START: &str = "START";

/// The states of a list; those of lists of something else are not read.
pub(super) fn all(from: &Object<'_>, key: &str) -> Result<Vec<State>, Problem> {
    from.objects(key)?.iter().map(state).collect()
}

/// The brief form of ORC's states: lists of ip, sp, bp, type, error, signal, full_regs.
pub(super) fn brief(from: &Object<'_>, key: &str) -> Result<Vec<State>, Problem> {
    let rows = from.rows(key)?.into_iter();
    rows.map(|row| {
        let wrong = || {
            from.problem(
                key,
                "not lists of ip, sp, bp, type, error, signal, full_regs",
            )
        };
        let [ip, sp, bp, kind, error, signal, full_regs] = row[..] else {
            return Err(wrong());
        };
        Ok(State::Orc(OrcState {
            stack: StackInfo {
                kind: StackType::from_number(kind).ok_or_else(wrong)?,
                ..StackInfo::default()
            },
            error: error != 0,
            signal: signal != 0,
            full_regs: full_regs != 0,
            ip,
            sp,
            bp,
            ..OrcState::default()
        }))
    })
    .collect()
}

fn state(from: &Object<'_>) -> Result<State, Problem> {
    let word = |key: &str| Ok(from.number(key)?.unwrap_or(0));
    let flag = |key: &str| Ok::<_, Problem>(word(key)? != 0);
    let kind = StackType::from_number(from.needed("type")?);
    let stack = StackInfo {
        kind: kind.ok_or_else(|| from.problem("type", "no type of a stack"))?,
        begin: word("begin")?,
        end: word("end")?,
        next_sp: word("next_sp")?,
    };
    let stack_mask = word("mask")?;
    let cursors = Cursors {
        graph_idx: u32::try_from(from.signed("graph_idx")?.unwrap_or(0)).unwrap_or(0),
        rethook: 0,
    };
    let regs = |key: &str| {
        if from.says(key, START) {
            return Ok(RegsPtr::Start);
        }
        Ok::<_, Problem>(match word(key)? {
            0 => RegsPtr::None,
            address => RegsPtr::At(address),
        })
    };
    Ok(if from.has("full_regs") {
        State::Orc(OrcState {
            stack,
            stack_mask,
            cursors,
            error: flag("error")?,
            signal: flag("signal")?,
            full_regs: flag("full_regs")?,
            sp: word("sp")?,
            bp: word("bp")?,
            ip: word("ip")?,
            regs: regs("regs")?,
            prev_regs: regs("prev_regs")?,
        })
    } else if from.has("got_irq") || from.has("orig_sp") || from.has("bp") {
        State::Fp(FpState {
            stack,
            stack_mask,
            cursors,
            error: flag("error")?,
            got_irq: flag("got_irq")?,
            bp: word("bp")?,
            orig_sp: word("orig_sp")?,
            ip: word("ip")?,
            next_bp: word("next_bp")?,
            regs: regs("regs")?,
        })
    } else {
        State::Guess(GuessState {
            stack,
            stack_mask,
            sp: word("sp")?,
        })
    })
}
