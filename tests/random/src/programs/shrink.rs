//! Shrinks a failing program as long as it still fails.

use super::program::{End, Frame, Function, RandomProgram, Statement};

/// Maximum number of programs tried.
const TRIES_MAX: usize = 5000;

/// The smallest program found for which `fails` still holds.
pub fn shrink(
    program: &RandomProgram,
    mut fails: impl FnMut(&RandomProgram) -> bool,
) -> RandomProgram {
    let mut best = program.clone();
    let mut tries = 0;

    loop {
        let before = best.clone();

        // Changes are numbered; a change that was made shifts the numbers, so a round may skip
        // some.
        for candidate in 0.. {
            let mut smaller = best.clone();
            if !apply(&mut smaller, candidate) {
                break;
            }
            if smaller == best {
                continue;
            }

            // Each try runs a program, so their number is bounded.
            tries += 1;
            if tries > TRIES_MAX {
                return best;
            }
            if fails(&smaller) {
                best = smaller;
            }
        }

        let mut compact = best.clone();

        // Functions that nobody calls any more go at once, which renumbers the others.
        drop_unreached(&mut compact);
        if compact != best && fails(&compact) {
            best = compact;
        }

        // A round without progress: no single change helps any more.
        if best == before {
            return best;
        }
    }
}

/// Applies change number `candidate`; false if there are no more.
fn apply(program: &mut RandomProgram, mut candidate: usize) -> bool {
    // Every possible change takes its turn; the one with number `candidate` is made.
    let mut turn = || {
        candidate = candidate.wrapping_sub(1);
        candidate == usize::MAX
    };

    if turn() {
        program.finish = 0;
        return true;
    }

    if turn() {
        program.handlers = None;

        // Without handlers there must be no signals either.
        let no_signals = |statement: &Statement| !matches!(statement, Statement::Raise { .. });
        for function in &mut program.functions {
            function.points.clear();
            function.body.retain(no_signals);
        }
        return true;
    }

    if turn() {
        program
            .handlers
            .iter_mut()
            .for_each(|h| h.own_stack = false);
        return true;
    }

    for function in &mut program.functions {
        for change in CHANGES {
            if turn() {
                change(function);
                return true;
            }
        }
        for index in 0..function.saves.len() {
            if turn() {
                function.saves.remove(index);
                // A call by a register that is not saved any more would lose the caller's value.
                unlink(&mut function.body, function.saves.len());
                return true;
            }
        }
        for index in 0..function.points.len() {
            if turn() {
                function.points.remove(index);
                return true;
            }
        }

        // Last, what the function does.
        if body(&mut function.body, &mut turn) {
            return true;
        }
    }
    false
}

/// Changes to a function as a whole.
const CHANGES: [fn(&mut Function); 6] = [
    |function| function.body.clear(),
    |function| {
        let is_room = |statement: &Statement| matches!(statement, Statement::Room { .. });
        if !function.frame.is_leaf() && !function.body.iter().any(is_room) {
            function.frame = Frame::Pushes;
        }
    },
    |function| function.end = End::Return,
    |function| function.locals = 0,
    |function| function.restores = true,
    |function| function.taste = 0,
];

/// Calls by a saved register use a scratch register, if that is not one of the first `saves`.
fn unlink(statements: &mut [Statement], saves: usize) {
    for statement in statements {
        match statement {
            Statement::Linked { register, .. } => {
                *register = register.filter(|&at| usize::from(at) < saves);
            }
            Statement::Cold { body, .. } => unlink(body, saves),
            _ => {}
        }
    }
}

fn body(statements: &mut Vec<Statement>, turn: &mut impl FnMut() -> bool) -> bool {
    // One change for each call: the caller counts turns, and tries whether the program still fails.
    for index in 0..statements.len() {
        // Removing is tried first: what is gone need not be made smaller.
        if turn() {
            statements.remove(index);
            return true;
        }

        match &mut statements[index] {
            Statement::Cold { body: inner, times } => {
                if turn() {
                    *times = 1;
                    return true;
                }

                // Then within the body, statement by statement.
                if body(inner, turn) {
                    return true;
                }
            }
            // A call without a maximum stays as it is.
            Statement::Call { times, .. } => {
                if turn() {
                    *times = times.map(|_| 1);
                    return true;
                }
            }
            Statement::Loop { times, .. }
            | Statement::Return { times }
            | Statement::Raise { times, .. } => {
                if turn() {
                    *times = 1;
                    return true;
                }
            }
            Statement::Arguments { words, .. } => {
                if turn() {
                    *words = 1;
                    return true;
                }
            }
            Statement::Room { bytes, .. } => {
                if turn() {
                    *bytes = 8;
                    return true;
                }
            }

            // Nothing about these can be made smaller.
            Statement::Thunk
            | Statement::Retpoline { .. }
            | Statement::Planted { .. }
            | Statement::Linked { .. }
            | Statement::Kept { .. }
            | Statement::Table { .. }
            | Statement::Filler => {}
        }
    }

    false
}

/// Every function index in statements and an end.
fn callees<'a>(statements: &'a mut [Statement], end: Option<&'a mut End>) -> Vec<&'a mut usize> {
    let mut out = Vec::new();
    for statement in statements {
        match statement {
            Statement::Call { callee, .. }
            | Statement::Arguments { callee, .. }
            | Statement::Loop { callee, .. }
            | Statement::Retpoline { callee }
            | Statement::Planted { callee, .. }
            | Statement::Linked { callee, .. }
            | Statement::Kept { callee, .. } => out.push(callee),
            Statement::Cold { body, .. } => out.extend(callees(body, None)),
            _ => {}
        }
    }
    if let Some(End::Tail { callee, .. } | End::PushAndReturn { callee }) = end {
        out.push(callee);
    }
    out
}

/// Removes the functions that nothing calls.
fn drop_unreached(program: &mut RandomProgram) {
    let mut reached = vec![false; program.functions.len()];
    let mut open = vec![0];
    open.extend(program.handlers.iter().flat_map(|h| [h.fault, h.sent]));
    while let Some(at) = open.pop() {
        if std::mem::replace(&mut reached[at], true) {
            continue;
        }
        let Function { body, end, .. } = &mut program.functions[at];
        open.extend(callees(body, Some(end)).into_iter().map(|callee| *callee));
    }
    let new = |old: usize| reached[..old].iter().filter(|&&is| is).count();
    for Function { body, end, .. } in &mut program.functions {
        callees(body, Some(end))
            .into_iter()
            .for_each(|at| *at = new(*at));
    }
    if let Some(handlers) = &mut program.handlers {
        handlers.fault = new(handlers.fault);
        handlers.sent = new(handlers.sent);
    }
    let mut keep = reached.iter();
    program.functions.retain(|_| keep.next() == Some(&true));
}
