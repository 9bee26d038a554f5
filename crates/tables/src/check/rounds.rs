//! Follows all functions of a program, in rounds: what one round shows of functions that never
//! return, or are entered otherwise than their rows say, the next one uses.

use crate::batches;
use crate::proof::body::Reached;
use crate::proof::program::{Effect, Entry, EntryEvidence, Program, Returns};
use crate::proof::verdict::{FunctionVerdict, Verdict};
use crate::proof::walk::{FunctionAnalysis, FunctionFindings, Misfit, Walker};
use hashbrown::HashSet;

/// The maximum number of rounds in which functions are found that never return, each because of
/// those of the round before.
const ROUNDS_MAX: usize = 16;
/// How often the entries of functions are reconsidered at most. The first time settles nearly all.
const RECONSIDERED_MAX: usize = 4;
/// The number of functions that a thread takes at once.
const BATCH: usize = 32;

/// What following one function gave, without its instructions.
pub(crate) struct FollowOutcome {
    pub(crate) parts: Vec<FunctionOutcome>,
    pub(crate) returns: Returns,
    pub(crate) breaks_the_abi: bool,
    pub(crate) effect: Effect,
    pub(crate) pops_error_code: bool,
    pub(crate) callees: Vec<u64>,
    pub(crate) called: Vec<u64>,
    pub(crate) taken_as_final: Vec<u64>,
    pub(crate) awaited: Vec<u64>,
    /// The starts of functions that it jumps to with a frame of its own.
    pub(crate) jumped: Vec<u64>,
    pub(crate) misfits: Vec<Misfit>,
    pub(crate) steps: u32,
}

/// By function: none for parts, and for those without code. A list of pointers, since it is made anew
/// whenever it grows.
pub(crate) type Outcomes = Vec<Option<Box<FollowOutcome>>>;

/// What was found in a function, whoever led there.
pub(crate) struct FunctionOutcome {
    pub(crate) function: usize,
    pub(crate) verdict: FunctionVerdict,
    /// The bytes reached, unless it is all of them, and each by a way that exists.
    pub(crate) reached: Option<Reached>,
    /// Whether all bytes were reached.
    pub(crate) is_whole: bool,
    pub(crate) marks: Vec<(usize, Vec<u8>)>,
}

/// Follows all functions of `program`, and learns how they are entered.
pub(crate) fn follow(program: &mut Program<'_>, threads: usize) -> Outcomes {
    let count = program.functions.len();

    // A slot for each function: an outcome is replaced when its function is followed again.
    let mut outcomes: Outcomes = Vec::new();
    outcomes.resize_with(count, || None);
    // Parts are followed from the functions that jump into them.
    let mut todo: Vec<usize> = (0..count)
        .filter(|&i| program.functions[i].entry != Entry::Part)
        .collect();

    // What changes an entry may bring others to light, so all begins anew, but not without a bound.
    for _ in 0..RECONSIDERED_MAX {
        // What functions leave changed only grows, so that there are not many rounds without a limit.
        for round in 0.. {
            // Only functions whose callees turned out otherwise are followed again.
            follow_all(program, &todo, threads, &mut outcomes);
            let new = todo.iter().filter_map(|&index| outcomes[index].as_ref());
            let called = program.learn_called(new.flat_map(|o| &o.called));
            let about_returns = round + 1 < ROUNDS_MAX;
            todo = callers_of_news(program, &todo, &outcomes, about_returns);
            todo.extend(called);
            todo.sort_unstable();
            todo.dedup();
            if todo.is_empty() {
                break;
            }
        }

        todo = reconsider(program, &mut outcomes);
        if todo.is_empty() {
            break;
        }
    }
    outcomes
}

/// Changes the entries of functions for which only another way in is possible. Returns what is to be
/// followed again.
fn reconsider(
    program: &mut Program<'_>,
    outcomes: &mut [Option<Box<FollowOutcome>>],
) -> Vec<usize> {
    // What all outcomes together show of each function: who leads to it, and how.
    let mut is_led_to = vec![false; outcomes.len()];
    let mut jumped: HashSet<u64> = HashSet::new();

    for (index, outcome) in outcomes.iter().enumerate() {
        let Some(outcome) = outcome else { continue };
        let parts = outcome.parts.iter().map(|p| p.function);
        let misfits = outcome.misfits.iter().map(|m| m.function);
        parts
            .chain(misfits)
            .filter(|&function| function != index)
            .for_each(|function| is_led_to[function] = true);
        jumped.extend(&outcome.jumped);
    }

    // Only those that are jumped to as well are of interest.
    let callees = outcomes.iter().flatten().flat_map(|o| &o.callees);
    let called: HashSet<u64> = callees.filter(|c| jumped.contains(*c)).copied().collect();

    let mut todo = Vec::new();
    for index in 0..outcomes.len() {
        let unit = &program.functions[index];
        let seen = EntryEvidence {
            is_led_to: is_led_to[index],
            is_called: called.contains(&unit.range.start),
            is_jumped_to: jumped.contains(&unit.range.start),
            is_proven: outcomes[index]
                .as_ref()
                .is_some_and(|outcome| outcome.is_proven()),
            pops_error_code: outcomes[index].as_ref().is_some_and(|o| o.pops_error_code),
        };

        // A part that nobody leads to may belong to the very function that is looked at.
        let is_orphan = |i: usize| program.functions[i].entry == Entry::Part && !is_led_to[i];
        let Some(entry) = program.reconsider(index, seen, is_orphan) else {
            continue;
        };

        let start = unit.range.start;
        program.functions[index].entry = entry;
        if entry == Entry::Part {
            // It has no outcome of its own any more: those that jump to it follow it from now on.
            outcomes[index] = None;
            program.set_returns(index, Returns::Maybe);
            let jumps_here = |o: &FollowOutcome| o.jumped.contains(&start);
            let all = outcomes.iter().enumerate();
            let jumpers = all.filter(|(_, o)| o.as_deref().is_some_and(jumps_here));
            todo.extend(jumpers.map(|(jumper, _)| jumper));
        } else {
            todo.push(index);
        }
    }

    // Some have become parts after they were listed.
    todo.retain(|&index| program.functions[index].entry != Entry::Part);
    todo.sort_unstable();
    todo.dedup();
    todo
}

impl FollowOutcome {
    /// Whether the function that was followed is proven.
    fn is_proven(&self) -> bool {
        let first = self.parts.first();
        !self.breaks_the_abi
            && first.is_some_and(|p| p.is_whole && p.verdict.verdict() == Verdict::Proven)
    }
}

/// Follows the functions `todo`.
fn follow_all(
    program: &Program<'_>,
    todo: &[usize],
    threads: usize,
    outcomes: &mut [Option<Box<FollowOutcome>>],
) {
    let worker = || Walker::new(program);
    let done = batches::work(todo, (threads, BATCH), worker, |walker, index| {
        let followed = walker.follow(index);
        (
            index,
            followed.map(|f| Box::new(outcome(program, f, walker))),
        )
    });
    for (index, outcome) in done {
        outcomes[index] = outcome;
    }
}

fn outcome(
    program: &Program<'_>,
    followed: FunctionAnalysis,
    walker: &mut Walker<'_, '_>,
) -> FollowOutcome {
    let FunctionAnalysis {
        found,
        returns,
        surely_returns,
        returns_as,
        breaks_the_abi,
        effect,
        pops_error_code,
        callees,
        called,
        taken_as_final,
        awaited,
        jumped,
        misfits,
        steps,
    } = followed;

    // The body is large, so only what others need of it is kept.
    let parts = found.into_iter().map(|found| {
        let FunctionFindings {
            function,
            verdict,
            mut body,
            marks,
        } = found;
        // Another function may lead to what this one did not reach by itself.
        let is_whole = body.unreached(program.file).is_none();
        let is_partly = !is_whole || body.reached.has_dead();
        // Merging asks what was reached only where something was not, or is dead.
        let reached = is_partly.then(|| std::mem::take(&mut body.reached));

        // The memory of a body is used for the next function.
        walker.recycle(body);
        FunctionOutcome {
            function,
            verdict,
            reached,
            is_whole,
            marks,
        }
    });

    let parts = parts.collect();
    FollowOutcome {
        parts,
        // From the most to the least that is known: returns through a register, never, surely,
        // perhaps.
        returns: match (returns, surely_returns, returns_as) {
            (false, _, Some(reg)) => Returns::As(reg),
            (false, ..) => Returns::Never,
            (_, true, _) => Returns::Surely,
            _ => Returns::Maybe,
        },
        breaks_the_abi,
        effect,
        pops_error_code,
        callees,
        called,
        taken_as_final,
        awaited,
        jumped,
        misfits,
        steps,
    }
}

/// Remembers which functions never return, and what they leave changed. Returns those that call one of
/// which that is news; if it is not `about_returns`, only about what is changed.
fn callers_of_news(
    program: &Program<'_>,
    todo: &[usize],
    outcomes: &[Option<Box<FollowOutcome>>],
    about_returns: bool,
) -> Vec<usize> {
    // The starts (svma) of functions that turned out never to return, or to do otherwise.
    let mut news: HashSet<u64> = HashSet::new();
    let mut any = false;

    // The atomics are written here, between two rounds, so that a round sees one state.
    for &index in todo {
        let returns = outcomes[index].as_ref().map(|o| o.returns);
        let entered = program.functions[index].entry == Entry::Call;
        let returns = returns.filter(|_| entered).unwrap_or(Returns::Maybe);
        // What is not entered by calls says nothing to callers.
        let effect = outcomes[index].as_ref().filter(|_| entered);

        // An effect is news only if it differs from what callers were followed with.
        let does_otherwise =
            program.set_effect(index, effect.map_or(Effect::default(), |o| o.effect));
        let is_new = program.set_returns(index, returns);
        let is_final = about_returns && matches!(returns, Returns::Never | Returns::As(_));
        if does_otherwise || is_new && is_final {
            news.insert(program.functions[index].range.start);
        }
        any |= is_new | does_otherwise;
    }

    // Without any news nobody has to be followed again.
    if !any {
        return Vec::new();
    }

    // A caller is concerned by a callee that changed, or by one that it took for final and that
    // returns.
    let calls_news = |outcome: &FollowOutcome| {
        let returns = |&target: &u64| program.surely_returns(target);
        let awaited = &outcome.awaited;
        let is_awaited = outcome.taken_as_final.iter().any(returns)
            || !awaited.is_empty() && awaited.iter().all(returns);
        about_returns && is_awaited || outcome.callees.iter().any(|target| news.contains(target))
    };

    let all = outcomes.iter().enumerate();
    all.filter(|(_, o)| o.as_deref().is_some_and(calls_news))
        .map(|(index, _)| index)
        .collect()
}
