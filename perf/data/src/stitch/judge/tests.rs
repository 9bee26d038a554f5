//! The counts of judged samples, and the names of judgements and reasons.

use super::*;
use std::collections::BTreeSet;

fn sample(how: Stitch) -> Stitched {
    Stitched {
        key: 1,
        time: None,
        tid: 1,
        cookie: None,
        chain: Vec::new(),
        how,
    }
}

#[test]
fn each_way_of_stitching_is_counted_for_itself() {
    let record = 7;
    let ways = [
        (Stitch::NotDeferred, 1),
        (Stitch::Stitched { record }, 2),
        (Stitch::Late { record }, 3),
        (Stitch::Moved { record }, 4),
        (Stitch::Empty { record }, 5),
        (Stitch::Missing(MissingReason::Lost), 6),
        (Stitch::Missing(MissingReason::End), 7),
    ];
    let other = sample(Stitch::NotDeferred);

    // Each way as often as its number says, so that no two counts are equal.
    let own: Vec<_> = ways
        .into_iter()
        .flat_map(|(how, count)| std::iter::repeat_n(sample(how), count))
        .collect();
    // Every other sample is judged wrong, beginning with the first.
    let judged: Vec<_> = own
        .iter()
        .zip([Judgement::Wrong, Judgement::Right].into_iter().cycle())
        .map(|(own, judgement)| JudgedSample {
            own,
            other: &other,
            judgement,
        })
        .collect();
    let tally = Tally::of(&judged);
    let expected = Tally {
        deferred: 2 + 3 + 4 + 5 + 6 + 7,
        stitched: 2 + 3,
        late: 3,
        moved: 4,
        empty: 5,
        missing: [(MissingReason::Lost, 6), (MissingReason::End, 7)].into(),
        // The first sample is not deferred.
        other: [(Judgement::Right, 14), (Judgement::Wrong, 13)].into(),
    };
    assert_eq!(tally, expected);
}

#[test]
fn judgements_have_stable_names_and_words_that_start_with_them() {
    let names = ["right", "lacking", "wrong", "bogus", "unproven"];
    assert_eq!(Judgement::ALL.map(Judgement::as_str), names);
    let mut words = BTreeSet::new();
    for judgement in Judgement::ALL {
        let (name, text) = (judgement.as_str(), judgement.description());
        assert_eq!(text.split(':').next(), Some(name));
        assert!(words.insert(text), "two have the text `{text}`");
    }
}

#[test]
fn reasons_have_distinct_descriptions() {
    let mut words = BTreeSet::new();
    for why in MissingReason::ALL {
        let text = why.description();
        assert!(text.contains(' '), "{}: `{text}`", why.as_str());
        assert!(words.insert(text), "two have the text `{text}`");
    }
}
