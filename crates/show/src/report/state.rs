//! A state: what the unwinders make of it, the picture of its stack, the walks, code, registers.

use super::pieces::Fragment;
use super::{stack, words};
use maud::{PreEscaped, html};
use std::ops::Range;
use unwind_sim_view::code_rules::{CodeRules, RuleCell, RuleLine};
use unwind_sim_view::timeline::{Code, Hex, SourceKind, State, Step, Thread, Walk, Walker};

/// The number of instructions shown before and after the current one.
const AROUND: usize = 8;
/// The number of frames shown of each part of a recorded chain.
const RECORDED_MAX: usize = 128;
/// The number of steps of a walk that are shown, from its start and from its end.
const STEPS_MAX: [usize; 2] = [80, 8];

/// The lines of `code` that are shown of a state: those around its next instruction, as a whole function
/// would be in every state.
pub(super) fn shown_lines(state: &State, code: &Code) -> Option<Range<usize>> {
    let at = state.instruction.as_ref()?.address.0;
    let at = code.line(at)?;
    Some(at.saturating_sub(AROUND)..(at + AROUND + 1).min(code.lines.len()))
}

/// Adds a state. `code` is that around its next instruction.
pub(super) fn state(
    state: &State,
    kind: SourceKind,
    walkers: &[Walker],
    code: Option<(&Code, &CodeRules)>,
    out: &mut Fragment,
) {
    heading(state, kind, out);
    stack::picture(state, walkers, out);
    out.put(html! { div #details aria-live="polite" hidden {} });
    verdicts(state, walkers, out);
    recorded(state, out);
    for (walk, walker) in state.walks.iter().zip(walkers) {
        steps(walk, walker, out);
    }
    out.tag("<div class=\"columns\">");
    if let Some((code, rules)) = code {
        listing(state, code, rules, out);
    }
    registers(state, out);
    out.tag("</div>");
    threads(&state.threads, out);
}

fn heading(state: &State, kind: SourceKind, out: &mut Fragment) {
    let noun = match kind {
        SourceKind::Program => "Instruction ",
        SourceKind::Recording => "Sample ",
    };

    // Numbers and places are pieces of their own: from state to state only they change, and the
    // rest of the heading is stored once.
    out.put(html! { (PreEscaped("<h3 id=\"state-heading\">")) (noun) });
    out.text(&state.number.to_string());
    out.put(html! { ": " (words::place(&state.place)) (PreEscaped("</h3><p>")) });

    if let Some(instruction) = &state.instruction {
        out.put(html! { code { (instruction.text) } " " });
    }

    out.put(html! {
        span .note {
            "process " (state.pid) ", thread " (state.tid)
            @if let Some(name) = &state.name { " (" (name) ")" }
        }
    });

    // Rows can be wrong here although no walk is: a wrong row for a register that nobody needs.
    out.put(html! {
        (PreEscaped("</p>"))
        @if !state.faults.is_empty() {
            p { "Wrong rows at this instruction: "
                @for (nth, fault) in state.faults.iter().enumerate() {
                    @if nth > 0 { "; " }
                    (fault.unwinder) " " (fault.code) " gives " (fault.register) " "
                    @match fault.given {
                        Some(given) => { code { (given) } },
                        None => { "no value" },
                    }
                    ", true is " code { (fault.truth) }
                }
                "."
            }
        }
    });
}

/// The chains that another tool recorded.
fn recorded(state: &State, out: &mut Fragment) {
    for chain in &state.recorded {
        out.put(html! {
            (PreEscaped("<section class=\"recorded\"><h4>Recorded by "))
            (words::limited(&chain.source)) (PreEscaped("</h4>"))
            p .note { "A chain that was found when the sample was taken. It is not judged." }
            (PreEscaped("<ol class=\"steps\">"))
        });
        for address in chain.kernel.iter().take(RECORDED_MAX) {
            out.put(html! { li { code { (address) } " in the kernel" } });
        }
        for place in chain.frames.iter().take(RECORDED_MAX) {
            out.put(html! { li { (words::place(place)) } });
        }
        let left_out = chain.kernel.len().saturating_sub(RECORDED_MAX)
            + chain.frames.len().saturating_sub(RECORDED_MAX);
        if left_out > 0 {
            out.put(html! { li .fold { "… " (left_out) " frames that are not shown" } });
        }
        out.tag("</ol></section>");
    }
}

fn verdicts(state: &State, walkers: &[Walker], out: &mut Fragment) {
    out.put(html! {
        (PreEscaped("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Verdicts here\"><table class=\"verdicts\"><caption>What each unwinder makes of it</caption>"))
        thead { tr { th scope="col" { "unwinder" } th scope="col" { "verdict" }
            th scope="col" { "frames" } th scope="col" { "end" } th scope="col" { "cause" } } }
        (PreEscaped("<tbody>"))
    });
    for (walk, walker) in state.walks.iter().zip(walkers) {
        let verdict = &walk.verdict;

        // Each unwinder's row is cut into three pieces, as mostly just one of them differs from the
        // last state.
        out.put(html! {
            (PreEscaped("<tr data-walker=\"")) (walker.name()) (PreEscaped("\">"))
            th scope="row" { (walker.name()) }
        });
        out.put(html! {
            td .(words::class(walk.letter)) { b { (walk.letter) } " " (verdict.word)
                @if let Some(why) = &verdict.why { ": " (why.text) } }
            td {
                // Without a truth there is nothing to compare the number of frames with.
                @if state.truth == "unknown" { (frames(walk)) }
                @else { (verdict.found) " of " (verdict.known) }
            }
            td { (walk.end.code) " " (walk.end.text) }
        });
        out.put(html! {
            td {
                @if let Some(cause) = &walk.cause {
                    (cause.code) " in " (words::place(&cause.place))
                    // Not every cause has a register: an image may be missing.
                    @if let (Some(register), Some(truth)) = (cause.register, &cause.truth) {
                        ": " (register) " "
                        @match &cause.given {
                            Some(given) => { code { (given) } },
                            None => { "no value" },
                        }
                        ", true is " code { (truth) }
                    }
                }
            }
            (PreEscaped("</tr>"))
        });
    }
    out.tag("</tbody></table></div>");
}

/// The number of frames that a walk has found.
fn frames(walk: &Walk) -> usize {
    let steps = walk.steps.iter();
    steps.filter(|step| step.frame.is_some()).count()
}

fn steps(walk: &Walk, walker: &Walker, out: &mut Fragment) {
    let name = walker.name();
    out.put(html! {
        (PreEscaped("<section class=\"walk\" data-walker=\"")) (name) (PreEscaped("\"><h4>The walk of "))
        (name) (PreEscaped("</h4><ol class=\"steps\">"))
    });
    let behind = walk.steps.len().saturating_sub(STEPS_MAX[1]);
    for (number, step) in walk.steps.iter().enumerate() {
        if (STEPS_MAX[0]..behind).contains(&number) {
            if number == STEPS_MAX[0] {
                let left_out = behind - number;
                out.put(html! { li .fold { "… " (left_out) " steps that are not shown" } });
            }
            continue;
        }
        out.tag("<li data-step=\"");
        out.text(&number.to_string());
        one_step(step, out);
    }
    out.tag("</ol></section>");
}

fn one_step(step: &Step, out: &mut Fragment) {
    // A step without a frame is marked only if a true frame is missing there.
    let (mark, class, word) = match &step.frame {
        _ if step.blamed => ("!", "wrong", "the row that is to blame"),
        Some(_) => stack::mark(step.judged, step.kind),
        None => match step.truth {
            Some(_) => stack::mark(None, step.kind),
            None => ("", "", ""),
        },
    };

    if mark.is_empty() {
        out.tag("\"><p>");
    } else {
        out.put(html! {
            (PreEscaped("\" class=\"")) (class) (PreEscaped("\"><p>"))
            span .mark title=(word) { (mark) } " "
        });
    }

    out.text(&step.text);
    out.tag("</p>");

    let frame = step.frame.as_ref();
    let row = frame.and_then(|frame| frame.row.as_ref());
    if row.is_none() && step.carried.is_empty() {
        out.tag("</li>");
        return;
    }

    out.put(html! {
        (PreEscaped("<details><summary>Rule and words</summary><dl>"))
        @if let Some(row) = row {
            dt { "rule" } dd { code { (row.rule) } " from " (row.table) " for " (row.start) ".." (row.end)
                @if let Some(fallback) = row.fallback { ", after " (fallback) } }
        }
        @if let Some(table) = &step.table {
            dt { "bytes" } dd { (table.section) "+" (table.offset) ": " code { (table.bytes) } }
        }
        @if let Some(frame) = frame.filter(|frame| !frame.words.is_empty()) {
            dt { "words" } dd {
                @for [address, value] in &frame.words { code { (address) } ": " code { (value) } " " }
            }
        }
    });

    out.put(html! {
        @if !step.carried.is_empty() {
            dt { "carried" } dd { (stack::registers(&step.carried)) }
        }
        (PreEscaped("</dl></details></li>"))
    });
}

fn listing(state: &State, code: &Code, rules: &CodeRules, out: &mut Fragment) {
    let now = state.instruction.as_ref().map(|insn| insn.address.0);
    out.put(html! {
        (PreEscaped("<section class=\"scroll\" tabindex=\"0\" aria-label=\"Code\"><h4>Code"))
        @if let Some(function) = &code.function { " of " (words::limited(function)) }
        (PreEscaped("</h4><ol class=\"code\">"))
    });

    for line in &rules.lines {
        if Some(line.insn.address) == now {
            out.tag("<li aria-current=\"true\">")
        } else {
            out.tag("<li>")
        }
        out.put(html! {
            code { (Hex(line.insn.address)) " " (line.insn.text) }
            // Without its text: a page is sent to people who may not see the file.
            @if let Some(source) = &line.source {
                " " span .note { (words::limited(&source.file)) ":" (source.number) }
            }
        });
        cells(rules, line, out);
        out.tag("</li>");
    }

    out.tag("</ol></section>");
}

/// The rules that begin to hold at an instruction or are wrong there, and what is true. Unwinders with one
/// rule stand together.
fn cells(rules: &CodeRules, line: &RuleLine, out: &mut Fragment) {
    // Mostly all tables of a file come from the same directives, and their rules are the same: one
    // line for each rule is shorter than one for each unwinder. A list, because the order is that
    // of the columns, and there are few.
    let mut groups: Vec<(Vec<&str>, &RuleCell)> = Vec::new();
    for (name, cell) in rules.titles.iter().zip(&line.cells) {
        if !cell.starts && cell.wrong.is_empty() {
            continue;
        }
        // Not the rule alone: what is wrong with one of them must not seem to be wrong with all.
        let same = |(_, other): &&mut (Vec<&str>, &RuleCell)| {
            other.text == cell.text && other.wrong == cell.wrong
        };
        match groups.iter_mut().find(same) {
            Some((names, _)) => names.push(name),
            None => groups.push((vec![name], cell)),
        }
    }

    // Each rule is a piece: the same ones come again in other states.
    for (names, cell) in groups {
        out.put(html! {
            " " span .rows { (names.join(", ")) ": " code { (cell.text) }
                @if !cell.wrong.is_empty() {
                    " " span .wrong { "wrong: " (cell.wrong.join(", ")) }
                } }
        });
    }
    if let Some(truth) = &line.truth {
        out.put(html! { " " span .rows { "true: " code { (truth) } } });
    }
}

fn registers(state: &State, out: &mut Fragment) {
    out.tag("<section><h4>Registers</h4><ul class=\"registers\">");
    for register in &state.registers {
        if state.changed.contains(&register.name) {
            out.tag("<li class=\"changed\">")
        } else {
            out.tag("<li>")
        }
        out.put(html! { (register.name) " " code { (register.value) } (PreEscaped("</li>")) });
    }
    out.tag("</ul>");
    if !state.changed.is_empty() {
        out.put(
            html! { p .note { "Changed since the state before: " (state.changed.join(", ")) "." } },
        );
    }
    out.tag("</section>");
}

fn threads(threads: &[Thread], out: &mut Fragment) {
    if threads.len() < 2 {
        return;
    }
    out.tag("<section><h4>Threads</h4><ul>");
    for thread in threads {
        out.put(html! {
            li { "process " (thread.pid) ", thread " (thread.tid) " (" (thread.name) ") " (thread.doing)
                ": " @for (nth, frame) in thread.frames.iter().enumerate() {
                    @if nth > 0 { " ← " } (words::frame(frame))
                } }
        });
    }
    out.tag("</ul></section>");
}
