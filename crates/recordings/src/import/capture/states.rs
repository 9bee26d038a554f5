//! `struct unwind_state` as read by a debugger, of any of the kernel's unwinders.

use super::json::{Object, Problem};
use unwind_sim_unwind::kernel::{
    Cursors, FpState, GuessState, OrcState, RegsPtr, StackInfo, StackType, State, UnwinderKind,
};

/// Stands for the address of the registers that the walk started with.
const START: &str = "START";

/// The states of a list: of the unwinder `told`, or else of the one that their members belong to.
pub(super) fn all(
    from: &Object<'_>,
    key: &str,
    told: Option<UnwinderKind>,
) -> Result<Vec<State>, Problem> {
    let states = from.objects(key)?;
    states.map(|s| state(&s?, told)).collect()
}

/// Members that only one unwinder's state has.
const OF_ORC: [&str; 3] = ["signal", "full_regs", "prev_regs"];
const OF_FP: [&str; 3] = ["got_irq", "orig_sp", "next_bp"];

/// Does a state of the list `key` have one of these members?
fn has_any(from: &Object<'_>, key: &str, members: &[&str]) -> Result<bool, Problem> {
    for state in from.objects(key)? {
        let state = state?;
        if members.iter().any(|member| state.has(member)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The unwinder of a capture's states if the kernel's image has no ORC table: the frame pointer
/// unwinder if a state has one of its members. Other members do not count, as a debugger script may
/// read those of all unwinders. `None` to determine it for each state. Brief states belong to the
/// frame pointer unwinder.
pub(super) fn without_orc(root: &Object<'_>) -> Result<Option<UnwinderKind>, Problem> {
    for (list, key) in [("points", "kernel"), ("samples", "states")] {
        for entry in root.objects(list)? {
            if has_any(&entry?, key, &OF_FP)? {
                return Ok(Some(UnwinderKind::Fp));
            }
        }
    }
    for step in root.objects("steps")? {
        if step?.has("kernel") {
            return Ok(Some(UnwinderKind::Fp));
        }
    }
    Ok(None)
}

/// Parses the brief form: lists of ip, sp, bp, type, error, signal, full_regs. Members that an
/// unwinder other than ORC does not have are ignored.
pub(super) fn brief(
    from: &Object<'_>,
    key: &str,
    told: Option<UnwinderKind>,
) -> Result<Vec<State>, Problem> {
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

        // Without bounds: a state whose stack ends at 0 has only its type (`docs/trace-format.md`).
        let stack = StackInfo {
            kind: StackType::from_number(kind).ok_or_else(wrong)?,
            ..StackInfo::default()
        };
        let error = error != 0;

        // The form is that of ORC, which is also meant if no unwinder is named.
        match told {
            None | Some(UnwinderKind::Orc) => {}
            // Such a state has no sp, and that of the guess has only sp.
            Some(UnwinderKind::Fp) => {
                return Ok(State::Fp(FpState {
                    stack,
                    error,
                    ip,
                    bp,
                    ..FpState::default()
                }));
            }
            Some(UnwinderKind::Guess) => {
                return Ok(State::Guess(GuessState {
                    stack,
                    sp,
                    ..GuessState::default()
                }));
            }
        }

        Ok(State::Orc(OrcState {
            stack,
            error,
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

fn state(from: &Object<'_>, told: Option<UnwinderKind>) -> Result<State, Problem> {
    // Each unwinder has other members, so those that are missing count as 0.
    let word = |key: &str| Ok(from.number(key)?.unwrap_or(0));
    let flag = |key: &str| Ok::<_, Problem>(word(key)? != 0);

    let kind = StackType::from_number(from.needed("type")?);
    let stack = StackInfo {
        kind: kind.ok_or_else(|| from.problem("type", "not a stack type"))?,
        begin: word("begin")?,
        end: word("end")?,
        next_sp: word("next_sp")?,
    };
    let stack_mask = word("mask")?;
    let cursors = Cursors {
        // An `int` in the kernel, which a debugger may print as negative.
        graph_idx: u32::try_from(from.signed("graph_idx")?.unwrap_or(0)).unwrap_or(0),
        // Captures do not have it.
        rethook: 0,
    };

    let regs = |key: &str| {
        if from.says(key, START) {
            return Ok(RegsPtr::Start);
        }
        Ok::<_, Problem>(match word(key)? {
            0 => RegsPtr::None,
            // In a trace, 1 stands for the start's registers.
            1 => return Err(from.problem(key, "not an address of registers")),
            address => RegsPtr::At(address),
        })
    };

    // If the capture does not name the unwinder, the members of its state do.
    let own = |members: &[&str]| members.iter().any(|m| from.has(m));
    let kind = told.unwrap_or_else(|| {
        if own(&OF_ORC) {
            UnwinderKind::Orc
        } else if own(&OF_FP) || from.has("bp") {
            UnwinderKind::Fp
        } else {
            UnwinderKind::Guess
        }
    });

    Ok(match kind {
        UnwinderKind::Orc => State::Orc(OrcState {
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
        }),
        UnwinderKind::Fp => State::Fp(FpState {
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
        }),
        UnwinderKind::Guess => State::Guess(GuessState {
            stack,
            stack_mask,
            sp: word("sp")?,
        }),
    })
}
