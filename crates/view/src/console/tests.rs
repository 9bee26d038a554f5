//! A report of stacks that were made up.

use super::*;
use unwind_sim_recordings::console::ConsoleLine;
use unwind_sim_recordings::console::log::traces;

const TEXT: &str = "\
Call Trace:
 <TASK>
 ? leftover+0x1/0x10
 a+0x2/0x10
 ? b+0x3/0x10
 wrong+0x4/0x10
 </TASK>
Call Trace:
 a+0x2/0x10
";

fn address(address: u64, is_confirmed: bool) -> ConsoleLine {
    ConsoleLine::Address {
        address,
        is_confirmed,
    }
}

#[test]
fn entries_are_counted_and_listed_by_what_is_true_of_them() {
    let logged = traces(TEXT.as_bytes());
    let (caller, none) = (Some(EntryTruth::Caller), Some(EntryTruth::NoCaller));
    let printed = PrintedTrace {
        sample: 7,
        task: None,
        lines: vec![
            address(1, false),
            address(2, true),
            address(3, false),
            address(4, true),
        ],
        entries: vec![none, caller, caller, none],
        places: ["leftover+0x1", "a+0x2", "b+0x3", "wrong+0x4"]
            .map(|place| Some(place.to_owned()))
            .into(),
        missing: vec!["c+0x5".to_owned()],
        model: Some((3, None)),
        known: Some(true),
    };
    let report = |printed| LogReport {
        traces: vec![
            Matched {
                logged: &logged[0],
                printed,
            },
            Matched {
                logged: &logged[1],
                printed: None,
            },
        ],
        has_recording: printed.is_some(),
    };
    let judged = report(Some(&printed));
    assert!(judged.is_judged() && !judged.is_right());
    let text = judged.to_string();
    for line in [
        "2 stacks: 3 entries confirmed by the kernel's unwinder, 2 behind a question mark",
        "1 of them in the recording; truth complete in 1, known to a depth in 0, unknown in 0",
        "the same line by line in 0 of 1",
        "confirmed                           1           1        0",
        "behind a question mark              1           1        0",
        "not printed                         1",
        "confirmed, but no callers:\n       1  wrong+0x4, first in line 1, sample 7\n",
        "callers behind a question mark:\n       1  b+0x3, first in line 1, sample 7\n",
        "callers that were not printed:\n       1  c+0x5,",
        "where the model differs first:\n       1  wrong+0x4,",
        "1 stack not in the recording: printed before it began, cut, or of another run; in line 8",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }

    // Without a recording, only the text is read.
    let alone = report(None);
    assert!(!alone.is_judged());
    assert_eq!(alone.to_string().lines().count(), 1);
}
