//! The heat map: the instructions of a function by unwinder.

use super::pieces::Fragment;
use super::tally::{Cell, FunctionCells};
use super::words;
use maud::{Markup, PreEscaped, html};
use unwind_sim_view::timeline::Walker;

/// The number of instructions of a function that are shown.
const ROWS_MAX: usize = 2_000;

/// The name of a function in the list of functions.
pub(super) fn title(function: &FunctionCells) -> String {
    let code = &function.code;
    match (&code.function, &code.image) {
        (Some(function), Some(image)) => format!("{} ({image})", words::limited(function)),
        (Some(function), None) => words::limited(function).into_owned(),
        (None, image) => {
            let at = code.lines.first().map_or(0, |line| line.address.0);
            format!("{}+{at:#x}", image.as_deref().unwrap_or("code"))
        }
    }
}

/// Adds the map of a function.
pub(super) fn matrix(function: &FunctionCells, walkers: &[Walker], out: &mut Fragment) {
    // The parts are written as they come, since a fragment is cut where neighbouring entries
    // differ; tags that span parts are therefore written as text.
    out.put(html! {
        (PreEscaped("<table class=\"heat\"><caption>")) (title(function))
        (PreEscaped("</caption>"))
        thead { tr { th scope="col" { "instruction" }
            @for walker in walkers { th scope="col" { (walker.name()) } } } }
        (PreEscaped("<tbody>"))
    });

    let mut skipped = 0;
    let mut shown = 0;
    let columns = walkers.len() + 1;

    // The rows are in the order of the code, so that a wrong stretch is seen as one.
    for line in &function.code.lines {
        // Runs of instructions without states become one line.
        let Some(cells) = function.cells.get(&line.address.0) else {
            skipped += 1;
            continue;
        };

        // What is behind the last row is counted below.
        if shown == ROWS_MAX {
            break;
        }
        shown += 1;
        gap(&mut skipped, columns, out);

        out.put(html! {
            (PreEscaped("<tr>")) th scope="row" { code { (line.address) " " (line.text) } }
        });
        for (cell, walker) in cells.iter().zip(walkers) {
            out.put(one(cell, walker));
        }
        out.tag("</tr>");
    }

    gap(&mut skipped, columns, out);
    // Code that the function's instructions do not lead to.
    let stray = |address: &&u64| function.code.line(**address).is_none();
    let strays = function.cells.keys().filter(stray).count();
    let left_out = function.cells.len() - shown - strays;

    if strays + left_out > 0 {
        out.put(html! { tr { td colspan=(columns) .fold {
            (strays + left_out) " instructions with states are not shown"
        } } });
    }

    out.tag("</tbody></table>");
}

/// Instructions without a state.
fn gap(skipped: &mut usize, columns: usize, out: &mut Fragment) {
    if *skipped > 0 {
        out.put(html! { tr { td colspan=(columns) .fold { "… " (skipped) " not met" } } });
        *skipped = 0;
    }
}

fn one(cell: &Cell, walker: &Walker) -> Markup {
    let total: u64 = cell.values().map(|met| met.count).sum();
    let is_wrong = |letter: &char| words::class(*letter) == "wrong";
    let wrong: u64 = cell
        .iter()
        .filter(|c| is_wrong(c.0))
        .map(|c| c.1.count)
        .sum();

    // What is wrong most often, or else what is met most often.
    let worst = cell
        .iter()
        .max_by_key(|(letter, met)| (is_wrong(letter), met.count, std::cmp::Reverse(**letter)));

    let Some((letter, met)) = worst else {
        return html! { td {} };
    };

    // A cell that is wrong in only some states must not look like one that is wrong in all.
    let class = match (words::class(*letter), wrong < total) {
        ("wrong", true) => "mixed",
        (class, _) => class,
    };

    html! {
        td .(class) {
            a href=(link(met.first, &walker.name())) {
                (letter)
                @if class == "mixed" { " " (wrong) "/" (total) }
            }
        }
    }
}

/// The link to a state and an unwinder's walk in it.
pub(super) fn link(state: u64, walker: &str) -> String {
    format!("#sample={state}&unwinder={}", encoded(walker))
}

/// Text in the part of an address behind `#` (RFC 3986, section 2.1).
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' | b'@' => {
                out.push(char::from(byte));
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_hold_any_name() {
        assert_eq!(link(7, "orc@fake:v5.2"), "#sample=7&unwinder=orc@fake:v5.2");
        assert_eq!(
            link(0, "cmd:./a b&step=<"),
            "#sample=0&unwinder=cmd:.%2Fa%20b%26step%3D%3C"
        );
    }
}
