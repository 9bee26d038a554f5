//! `--json`: the window of states.

use crate::step::{CASE, shown};
use serde_json::Value;

fn timeline(args: &[&str]) -> Value {
    let text = shown(&[&["--json"], args].concat());
    serde_json::from_str(&text).expect("JSON")
}

/// Window by window gives what one window gives.
#[test]
fn windows_join() {
    let whole = timeline(&[CASE]);
    let states = whole["states"].as_array().expect("states");
    assert_eq!(whole["total"], states.len());
    assert_eq!(whole["end"], "exited with status 0");
    let from = states.len() / 2;
    let part = timeline(&["--from", &from.to_string(), "--count", "3", CASE]);
    let some = part["states"].as_array().expect("states");
    assert!(some[..] == states[from..from + 3], "from {from}");
    assert_eq!(part["first"], from);
    // The index is that of the whole run.
    assert_eq!(part["marks"]["wrong"], whole["marks"]["wrong"]);
}

/// What the stack says of its words is what the true chain says.
#[test]
fn return_addresses_are_those_of_the_true_chain() {
    let whole = timeline(&[CASE]);
    let mut seen = 0;
    for state in whole["states"].as_array().expect("states") {
        assert_eq!(state["truth"], "complete");
        for (index, frame) in state["frames"]
            .as_array()
            .expect("frames")
            .iter()
            .enumerate()
        {
            // The innermost frame has no return address on the stack.
            let Some(slot) = frame["slot"].as_str() else {
                continue;
            };
            let words = state["stack"]["words"].as_array().expect("words");
            let word = words
                .iter()
                .find(|word| word["address"] == slot)
                .expect("its word");

            assert_eq!(word["value"], frame["place"]["pc"], "{state}");
            let notes = word["notes"].as_array().expect("notes");

            // The word is marked as the return address of this frame.
            let is_it = |note: &&Value| note["what"] == "return_address" && note["frame"] == index;
            assert!(notes.iter().any(|note| is_it(&note)), "{word}");
            seen += 1;
        }
    }

    // There were some.
    assert!(seen > 3, "{seen}");
}

/// A mark says that an unwinder becomes wrong, and the state there has the wrong row, or its caller
/// has.
#[test]
fn marks_are_where_rows_are_wrong() {
    let whole = timeline(&[CASE]);
    let states = whole["states"].as_array().expect("states");

    let is_wrong = |number: usize, name: &str| {
        let faults = states[number]["faults"].as_array();
        faults.is_some_and(|all| all.iter().any(|fault| fault["unwinder"] == name))
    };

    let marks = whole["marks"]["marks"].as_array().expect("marks");
    let wrong: Vec<&Value> = marks
        .iter()
        .filter(|mark| mark["kind"] == "wrong")
        .collect();

    // Without a mark, the loop would show nothing.
    assert!(!wrong.is_empty());
    for mark in wrong {
        let number = mark["number"].as_u64().expect("a number") as usize;
        for name in mark["unwinders"].as_array().expect("unwinders") {
            let name = name.as_str().expect("a name");
            let walkers = whole["walkers"].as_array().expect("walkers");
            let column = walkers.iter().position(|walker| walker["unwinder"] == name);
            let walk = &states[number]["walks"][column.expect("a column")];
            let letter = walk["letter"].as_str().expect("a letter");
            // Where no row of it is wrong, its walk must have gone wrong at this point.
            assert!(is_wrong(number, name) || letter != ".", "{mark}");
        }
    }

    // And the other way round: each first wrong row has a mark.
    for number in 1..states.len() {
        if is_wrong(number, "fp") && !is_wrong(number - 1, "fp") {
            let here = marks
                .iter()
                .any(|m| m["kind"] == "wrong" && m["number"] == number);
            assert!(here, "state {number}");
        }
    }
}
