//! Chains in one line, and what a picture shows and hides.

use super::chains::wrapped;
use super::*;
use crate::demo;
use unwind_sim_judge::spec;
use unwind_sim_recordings::view::{Filter, MemoryView};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::start::Variant;

fn names(text: &str) -> Vec<Name> {
    let name = |word: &str| Name {
        function: word.trim_start_matches('!').to_owned(),
        is_true: !word.starts_with('!'),
    };
    text.split_whitespace().map(name).collect()
}

#[test]
fn frames_that_repeat_are_counted_and_false_ones_marked() {
    assert_eq!(chain_line(&names("a a a !a b")), "a*3 < !a < b");
    assert_eq!(chain_line(&[]), "");
    let twelve = "a b c d e f g h i j k l";
    assert_eq!(chain_line(&names(twelve)), twelve.replace(' ', " < "));
    let longer = chain_line(&names(&format!("{twelve} m n")));
    assert_eq!(
        longer,
        "a < b < c < d < e < f < g < h < i < j < (3 more) < n"
    );
}

#[test]
fn a_long_chain_is_broken_between_frames() {
    let chain = ["some_function"; 20].join(" < ");
    for width in [1, 16, 40, 80] {
        let text = wrapped(&chain, width, 4);
        let widest = text.lines().map(|line| line.trim_start().len()).max();
        assert!(
            widest.unwrap_or(0) <= width.max("some_function <".len()),
            "{width}\n{text}"
        );
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words.join(" "), chain);
    }
}

/// The picture of the first sample of a demo.
fn drawn(name: &str, unwinder: &str, memory: MemoryView, hidden: Hidden) -> String {
    let demo = demo::ALL
        .iter()
        .find(|demo| demo.name == name)
        .expect("a demo");

    let setting = Setting {
        view: memory,
        ..Setting::default()
    };
    let filter = Filter {
        sample: Some(0),
        ..Filter::default()
    };

    let mut out = String::new();
    let input = demo.input().expect("a recording");
    let done = input.for_each::<unwind_sim_judge::run::RunError>(&filter, &mut |view| {
        let engine = spec::engine(unwinder)?;
        let outcome = engine.examine(view, Variant::Hardware, &setting, &mut Cache::new());

        let walked = DrawnWalk {
            name: unwinder,
            outcome: &outcome,
        };

        // One sample passes the filter, so this is set once.
        out = picture(view, &[walked], &setting, hidden);
        Ok(())
    });

    done.expect("it is read");
    out
}

#[test]
fn words_that_were_not_copied_are_below_the_mark_of_the_copy() {
    let short = drawn("copy", "dwarf", MemoryView::Copy(48), Hidden::Nothing);
    let place = |text: &str| {
        short
            .find(text)
            .unwrap_or_else(|| panic!("no {text}\n{short}"))
    };
    assert!(place("rsp-8") < place("the copy starts here"), "{short}");
    assert!(place("the copy starts here") < place("rsp+32"), "{short}");
    assert!(place("the copy ends here") < place("rsp+64"), "{short}");
    let whole = drawn("copy", "dwarf", MemoryView::Cpu, Hidden::Nothing);
    assert!(!whole.contains("the copy"), "{whole}");
    assert!(whole.contains("<- dwarf: rbp\n"), "{whole}");
}

#[test]
fn a_hidden_picture_shows_what_could_be_a_frame_and_names_none() {
    let text = drawn("guess", "guess", MemoryView::Cpu, Hidden::Answers);
    for word in ["holds+0x15", "callback+0x1", "_start+0x5b"] {
        assert!(text.contains(word), "{word}\n{text}");
    }
    for name in ["what it is", "return address", "<-", "truth", "saved"] {
        assert!(!text.contains(name), "{name}\n{text}");
    }
}
