//! What chooses a state: the slider with its marks, buttons, keys. It is shown once the script runs.

use maud::{Markup, html};
use std::collections::HashMap;
use unwind_sim_recordings::counted::counted;
use unwind_sim_view::timeline::{MarksLine, Walker};

/// The number of marks of a kind that are drawn above the slider.
const TICKS_MAX: usize = 1_000;

/// The controls of a page with these `states`: their numbers, and whether an unwinder becomes wrong
/// at each. `noun` is what a state is; `chosen` is the place of the walker selected first.
pub(super) fn controls(
    noun: &str,
    states: &[(u64, bool)],
    marks: &MarksLine,
    (walkers, chosen): (&[Walker], usize),
) -> Markup {
    let last = states.len().saturating_sub(1);

    // Everything is hidden at first, and shown by the script: without one, the page has only its
    // first state.
    html! {
        div #controls hidden {
            (ticks(noun, states, marks))
            label for="slider" { (noun) " " output #number for="slider" {} }
            input #slider type="range" min="0" max=(last) value="0" step="1";
            div .buttons {
                button type="button" data-go="previous" { "◀ previous" }
                button type="button" data-go="next" { "next ▶" }
                button type="button" data-go="previous-wrong" { "◀ wrong" }
                button type="button" data-go="next-wrong" { "wrong ▶" }
                label { "unwinder " select #walker {
                    @for (nth, walker) in walkers.iter().enumerate() {
                        option selected[nth == chosen] { (walker.name()) } } } }
                button type="button" data-go="step-back" { "◀ step" }
                button type="button" data-go="step" { "step ▶" }
                label { input #keys type="checkbox" checked; " keys" }
            }
            p #status role="status" {}
            details { summary { "Keys" } (keys()) }
        }
    }
}

/// The marks above the slider: where an unwinder becomes wrong, calls and signals.
fn ticks(noun: &str, states: &[(u64, bool)], marks: &MarksLine) -> Markup {
    // Ticks are placed by a state's position on the page: its first state may have any number.
    let places = states.iter().enumerate();
    let places: HashMap<u64, usize> = places.map(|(place, state)| (state.0, place)).collect();

    let wrong = states.iter().enumerate().filter(|(_, state)| state.1);
    let wrong: Vec<usize> = wrong.map(|(place, _)| place).collect();

    let kind = |kind: &str| -> Vec<usize> {
        // A long run has more marks than pixels; what is beyond the bound is not drawn.
        let of_kind = marks.marks.iter().filter(|mark| mark.kind == kind);
        let found = of_kind.filter_map(|mark| places.get(&mark.number).copied());
        found.take(TICKS_MAX).collect()
    };

    // One path for all ticks of a kind, half a unit in, so that each stands in the middle of its
    // state.
    let path = |places: &[usize], top: u32, bottom: u32| -> String {
        let ticks = places.iter();
        ticks.map(|at| format!("M{at}.5 {top}V{bottom}")).collect()
    };

    let count = states.len();
    let becoming = counted(wrong.len() as u64, noun);
    let label = format!("Marks: an unwinder becomes wrong at {becoming}");

    html! {
        // The width of the picture is the number of states; the browser stretches it to the
        // slider's.
        svg .ticks viewBox=(format!("0 0 {count} 12")) preserveAspectRatio="none" role="img"
            aria-label=(label) {
            path .wrong d=(path(&wrong, 0, 6)) {}
            path .call d=(path(&kind("call"), 7, 12)) {}
            path .signal d=(path(&kind("signal"), 0, 12)) {}
        }
    }
}

fn keys() -> Markup {
    let keys = [
        ("s, S", "next, previous state"),
        (
            "c, C",
            "next, previous state at which an unwinder becomes wrong",
        ),
        ("f, F", "next, previous step of the unwinder's walk"),
        ("1 to 9", "choose the unwinder"),
        ("Home, End", "first, last state"),
        ("arrow keys", "move the slider, if it has the focus"),
    ];
    html! { dl { @for (key, what) in keys { dt { kbd { (key) } } dd { (what) } } } }
}
