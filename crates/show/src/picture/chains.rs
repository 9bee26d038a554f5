//! Chains in one line each, innermost frame first: `leaf < mid < _start`.

use super::{DrawnWalk, function, true_function};
use std::fmt::Write as _;
use unwind_sim_judge::engine::Outcome;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::reason::Code;
use unwind_sim_view::listing::{Row, rows};

/// The maximum number of names in a line; of a longer chain the first and last are shown.
const NAMES_MAX: usize = 12;
/// The maximum width of the column of chains up to which reasons are aligned, in characters.
const CHAIN_WIDTH: usize = 50;
/// The maximum width of a line, in characters, if no name is longer.
const LINE_MAX: usize = 100;

/// A frame of a chain in one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    /// The function.
    pub function: String,
    /// Whether it is a true frame.
    pub is_true: bool,
}

/// The true frames from number `from` on.
pub fn true_names(view: &View<'_>, from: usize) -> Vec<Name> {
    let frames = view.sample.truth.frames().len();
    let name = |i| Name {
        function: true_function(view, i),
        is_true: true,
    };
    (from..frames).map(name).collect()
}

/// The frames that a walk found.
pub fn found_names(view: &View<'_>, outcome: &Outcome) -> Vec<Name> {
    let frames = &outcome.chain.frames;
    let rows = rows(view, outcome);
    let found = rows.iter().filter_map(|row| {
        let found = row.found()?;
        Some(match *row {
            Row::Same { truth, .. } => Name {
                function: true_function(view, truth),
                is_true: true,
            },
            Row::Unjudged { .. } => Name {
                function: function(view, frames[found].pc),
                is_true: true,
            },
            _ => Name {
                function: function(view, frames[found].pc),
                is_true: false,
            },
        })
    });
    found.collect()
}

/// The chain in one line: wrong frames are marked with `!`, and frames that repeat are counted.
pub fn chain_line(names: &[Name]) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut at = 0;
    while at < names.len() {
        let same = names[at..].iter().take_while(|n| **n == names[at]).count();
        let mark = if names[at].is_true { "" } else { "!" };
        let times = match same {
            1 => String::new(),
            _ => format!("*{same}"),
        };
        words.push(format!("{mark}{}{times}", names[at].function));
        at += same;
    }
    if words.len() > NAMES_MAX {
        let left = words.len() - (NAMES_MAX - 1);
        words.splice(NAMES_MAX - 2..words.len() - 1, [format!("({left} more)")]);
    }
    words.join(" < ")
}

/// The true chain and those found, with verdict and reason.
pub(super) fn all(view: &View<'_>, walks: &[DrawnWalk<'_>]) -> String {
    let from = walks.iter().map(|w| w.outcome.from).min().unwrap_or(0);
    let mut lines: Vec<Line> = Vec::new();
    if !view.sample.truth.frames().is_empty() {
        let more = if view.sample.truth.is_complete() {
            ""
        } else {
            " < ?"
        };
        lines.push(Line {
            name: "truth".to_owned(),
            verdict: String::new(),
            chain: chain_line(&true_names(view, from)) + more,
            reason: String::new(),
        });
    }
    lines.extend(walks.iter().map(|walk| line(view, walk)));
    laid_out(&lines)
}

/// A chain, in columns.
struct Line {
    name: String,
    verdict: String,
    chain: String,
    reason: String,
}

fn line(view: &View<'_>, walk: &DrawnWalk<'_>) -> Line {
    let outcome = walk.outcome;
    let mut chain = chain_line(&found_names(view, outcome));
    let is_root = outcome.ended() == Code::RootReached;
    if !is_root && !outcome.ground.end_not_claimed {
        chain.push_str(if chain.is_empty() { "?" } else { " < ?" });
    }
    let ended = outcome.ended();
    let reason = match outcome.code() {
        Some(code) if code == ended => format!("{code} {}", code.description()),
        Some(code) => format!("{code} {}, ended {ended}", code.description()),
        None => format!("ended {ended}"),
    };
    Line {
        name: walk.name.to_owned(),
        verdict: outcome.verdict.to_string(),
        chain,
        reason,
    }
}

fn laid_out(lines: &[Line]) -> String {
    let wide = |of: fn(&Line) -> &str| lines.iter().map(|l| of(l).len()).max().unwrap_or(0);
    let (name, verdict) = (wide(|l| &l.name), wide(|l| &l.verdict));
    let indent = name + verdict + 4;

    // One long chain must not move all reasons to the right.
    let fitting = lines
        .iter()
        .map(|l| l.chain.len())
        .filter(|len| *len <= CHAIN_WIDTH);
    let width = fitting.max().unwrap_or(0);

    let mut out = String::new();

    // A chain that is too long goes on below itself, so the reason is placed by its last line.
    for line in lines {
        let chain = wrapped(&line.chain, LINE_MAX - indent, indent);
        let last = chain.lines().last().map_or(0, |l| l.chars().count());

        // Beside the chain if there is room, else below it.
        let has_room =
            !chain.contains('\n') && indent + last.max(width) + 2 + line.reason.len() <= LINE_MAX;
        let reason = if line.reason.is_empty() {
            String::new()
        } else if has_room {
            let pad = width.saturating_sub(last);
            format!("{:pad$}  {}", "", line.reason)
        } else {
            format!("\n{:indent$}{}", "", line.reason)
        };

        let text = format!(
            "{:name$}  {:verdict$}  {chain}{reason}",
            line.name, line.verdict
        );

        // Padding would leave spaces at the ends of lines.
        for line in text.lines() {
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }

    out
}

/// The chain, broken between frames so that no line is wider than `width`.
pub(super) fn wrapped(chain: &str, width: usize, indent: usize) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for (index, word) in chain.split(" < ").enumerate() {
        let len = word.chars().count() + 3;
        if index > 0 && column + len > width {
            let _ = write!(out, " <\n{:indent$}", "");
            column = 0;
        } else if index > 0 {
            out.push_str(" < ");
        }
        out.push_str(word);
        column += len;
    }
    out
}
