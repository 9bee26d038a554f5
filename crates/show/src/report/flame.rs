//! Flame graphs: the true stacks beside those that an unwinder found.
//!
//! The root is at the bottom. What was lost stands out in the true stacks, what was invented in the
//! found ones, each by a colour and a pattern. `page.js` zooms into a box, searches, and leads from a
//! box to the first state that has it.

use super::pieces::Fragment;
use super::tally::{FrameFate, Graphs, Node};
use maud::html;
use unwind_sim_recordings::counted::counted;

/// The width of a graph.
const WIDTH: u64 = 480;
/// Positions are in so many parts of a unit, so that zooming in shows boxes that are narrow.
const PARTS: u64 = 10;
/// The height of a box.
const ROW: u64 = 16;
/// The width of a box below which it is not drawn, in parts of a unit.
const MIN: u64 = 1;
/// The width of a letter, for cutting names.
const LETTER: u64 = 6;
/// The number of boxes drawn of a graph, at most.
const DRAWN_MAX: usize = 1_000;
/// The number of frames in the list beside the graphs.
const LISTED_MAX: usize = 20;

/// A box: x and width in parts of a unit, its row from the root, and what is in it.
struct FlameBox<'a> {
    x: u64,
    width: u64,
    depth: u64,
    name: &'a str,
    fate: FrameFate,
    count: u64,
    /// The number of the first state that has it.
    first: u64,
}

/// Adds the graphs of a walker, and a list of the frames lost and invented most often.
pub(super) fn graphs(name: &str, graphs: &Graphs, out: &mut Fragment) {
    let total = graphs.truth.count;
    if total == 0 {
        let text = format!("No stack of {name} was judged.");
        out.put(html! { p .note { (text) } });
        return;
    }

    // Shown by the script.
    out.put(html! {
        p .flame-tools {
            label { "search " input type="search" autocomplete="off" data-flame="search"; }
            button type="button" data-flame="out" disabled { "zoom out" }
            span role="status" data-flame="status" { "A click on a box zooms in." }
        }
    });
    out.tag("<div class=\"flames\">");
    graph("True stacks", "lost", &graphs.truth, out);
    graph(
        &format!("Stacks found by {name}"),
        "invented",
        &graphs.found,
        out,
    );
    out.tag("</div>");
    notes(graphs, out);
    list(graphs, out);
}

fn graph(title: &str, special: &str, root: &Node, out: &mut Fragment) {
    // First all boxes are placed: the picture's height depends on the deepest that is wide enough.
    let mut boxes = Vec::new();
    let mut small = 0;
    lay(root, (0, 0), root.count, &mut boxes, &mut small);

    let deepest = boxes.iter().map(|b| b.depth + 1).max().unwrap_or(1);
    let height = deepest * ROW;
    let label = format!("{title}: {}", counted(root.count, "stack"));

    out.put(html! { figure { figcaption { (label) }
        div .scroll tabindex="0" role="region" aria-label=(label) {
        svg .flame viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label=(label) {
            @for at in &boxes {
                // The root is at the bottom, and SVG counts rows from the top.
                @let y = height - (at.depth + 1) * ROW;
                @let class = match at.fate { FrameFate::Kept => "kept", _ => special };
                @let (x, width) = (units(at.x), units(at.width));
                g data-box=(at.depth) data-first=(at.first) {
                    title { (at.name) ": " (at.count) " of " (root.count)
                        @if at.fate != FrameFate::Kept { ", " (special) } }
                    rect .(class) x=(x) y=(y) width=(width) height=(ROW - 1) {}

                    // A box that has no room for four letters gets no text; its title has the name.
                    @if at.width >= 4 * LETTER * PARTS {
                        text x=(units(at.x + 3 * PARTS)) y=(y + 11) {
                            (cut(at.name, (at.width / PARTS - 6) / LETTER))
                        }
                    }
                }
            }
        } }
        @if small > 0 { p .note { (counted(small, "box")) " too narrow to draw" } }
    } });
}

/// Places the boxes below `node`, which begins at `x` and `depth`.
fn lay<'a>(
    node: &'a Node,
    (x, depth): (u64, u64),
    total: u64,
    out: &mut Vec<FlameBox<'a>>,
    small: &mut u64,
) {
    let mut before = 0;
    for ((name, fate), child) in &node.children {
        // Rounded from the sum, so that neighbours touch and none leaves its caller.
        let from = x + before * WIDTH * PARTS / total;
        before += child.count;
        let to = x + before * WIDTH * PARTS / total;

        // What is too narrow is counted, and nothing above it is drawn.
        let width = to - from;
        if width < MIN || out.len() >= DRAWN_MAX {
            *small += 1;
            continue;
        }

        out.push(FlameBox {
            x: from,
            width,
            depth,
            name,
            fate: *fate,
            count: child.count,
            first: child.first,
        });

        lay(child, (from, depth + 1), total, out, small);
    }
}

/// A position as SVG writes it: `12` or `12.3`.
fn units(parts: u64) -> String {
    match parts % PARTS {
        0 => (parts / PARTS).to_string(),
        rest => format!("{}.{rest}", parts / PARTS),
    }
}

fn cut(name: &str, letters: u64) -> String {
    let letters = letters as usize;
    if name.chars().count() <= letters {
        name.to_owned()
    } else {
        name.chars()
            .take(letters.saturating_sub(1))
            .chain(['…'])
            .collect()
    }
}

fn notes(graphs: &Graphs, out: &mut Fragment) {
    if graphs.unjudged > 0 {
        let text = format!(
            "Not judged, and not shown: {}.",
            counted(graphs.unjudged, "stack")
        );
        out.put(html! { p .note { (text) } });
    }
    if graphs.cut > 0 {
        let text = format!("Shown in part: {}.", counted(graphs.cut, "deep stack"));
        out.put(html! { p .note { (text) } });
    }
}

fn list(graphs: &Graphs, out: &mut Fragment) {
    let mut frames: Vec<_> = graphs.frames.iter().collect();
    frames.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.iter().sum::<u64>()));
    if frames.is_empty() {
        out.put(html! { p { "Nothing was lost and nothing invented." } });
        return;
    }
    let more = frames.len().saturating_sub(LISTED_MAX);
    out.put(html! {
        div .scroll tabindex="0" role="region" aria-label="Frames lost and invented" {
        table .lost { caption { "Frames lost and invented" }
            thead { tr { th scope="col" { "frame" } th scope="col" { "lost" }
                th scope="col" { "invented" } } }
            tbody { @for (name, [lost, invented]) in frames.iter().take(LISTED_MAX) {
                tr { th scope="row" { (name) } td { (lost) } td { (invented) } }
            } }
        } }
        @if more > 0 { p .note { "and " (counted(more, "more frame")) } }
    });
}
