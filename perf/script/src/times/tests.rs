//! Values of `--time` that perf 6.1 accepted or rejected.

use super::*;

const MS: u64 = 1_000_000;

fn ranges(text: &str) -> Vec<(u64, u64)> {
    let span = TimeSpan::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    let ranges = span.ranges(Some((1000, 2000))).unwrap();
    ranges
        .iter()
        .map(|range| (range.start, range.end))
        .collect()
}

#[test]
fn seconds_have_up_to_nine_digits_and_an_open_end_is_nought() {
    assert_eq!(ranges("0.5,2"), [(500 * MS, 2000 * MS)]);
    assert_eq!(ranges("4038.672009001,"), [(4_038_672_009_001, 0)]);
    assert_eq!(ranges(",.001"), [(0, MS)]);
    assert_eq!(ranges(","), [(0, 0)]);
    assert_eq!(ranges("1,2 3,"), [(1000 * MS, 2000 * MS), (3000 * MS, 0)]);
    assert_eq!(ranges(" 1, 2"), [(1000 * MS, 2000 * MS)]);
    let two = [(1000 * MS, 2000 * MS), (3000 * MS, 4000 * MS)];
    assert_eq!(ranges("1, 2 3, 4"), two);
}

/// `set_percent_time`: a part excludes its end, except the last part.
#[test]
fn parts_are_of_the_time_between_the_first_and_the_last_sample() {
    assert_eq!(ranges("10%-20%"), [(1100, 1199)]);
    assert_eq!(ranges("90%-100%"), [(1900, 2000)]);
    assert_eq!(ranges("10%/2"), [(1100, 1199)]);
    assert_eq!(ranges("10%/2,10%/10,"), [(1100, 1199), (1900, 2000)]);
    assert_eq!(ranges("12.5%"), [(1000, 1124)]);
    assert_eq!(ranges("0%-10%,30%-40%"), [(1000, 1099), (1300, 1399)]);
    assert_eq!(ranges("100%-100%"), [(2000, 2000)]);
}

#[test]
fn invalid_times_are_refused_with_what_is_accepted() {
    let error = |text: &str| TimeSpan::parse(text).unwrap_err();

    for text in ["", "12.5", "soon"] {
        assert_eq!(error(text), TimeError::Form, "{text:?}");
    }
    for text in [
        "a,b",
        "1 ,2",
        "-1,",
        "1.0000000001,",
        "1,2 3",
        "99999999999,",
        "1, 2,3",
    ] {
        assert!(matches!(error(text), TimeError::Seconds { .. }), "{text:?}");
    }

    // Percentages in a form that is not accepted, or that are no part of the whole.
    let parts = [
        "-10%", "0%-200%", "10%,20%", "10%/0", "0%/1", "110%/1", "1e1%", "%", "10%x-20%", "nan%",
    ];
    for text in parts {
        assert!(matches!(error(text), TimeError::Percent { .. }), "{text:?}");
    }

    // An end before its start.
    for text in ["2,1", "20%-10%"] {
        assert!(
            matches!(error(text), TimeError::Backwards { .. }),
            "{text:?}"
        );
    }

    // Several ranges must ascend without touching each other.
    for text in ["1,2 2,3", "3,4 1,2"] {
        assert_eq!(error(text), TimeError::Overlap, "{text:?}");
    }

    // The message shows how the same time is written.
    assert!(error("12.5").to_string().contains("12.5,13"));
}

#[test]
fn parts_need_the_times_of_the_first_and_the_last_sample() {
    let span = TimeSpan::parse("10%").unwrap();
    for times in [None, Some((0, 0))] {
        assert_eq!(span.ranges(times), Err(TimeError::NoSampleTimes));
    }
    assert!(TimeSpan::parse("1,2").unwrap().ranges(None).is_ok());
}

#[test]
fn both_ends_are_included_and_a_time_of_nought_always() {
    let range = |start, end| Range { start, end };
    let ranges = [range(10, 20), range(30, 0)];
    let found = [0, 9, 10, 20, 21, 29, 30, u64::MAX].map(|time| Range::any_has(&ranges, time));
    assert_eq!(found, [true, false, true, true, false, false, true, true]);
}
