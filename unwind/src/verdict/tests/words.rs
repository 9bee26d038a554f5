//! The letter, word and numbers of each verdict.

use super::*;

#[test]
fn every_verdict_has_its_letter_word_and_numbers() {
    let (count, at) = (2, 3);
    let all = [
        (Verdict::Ok, ".", "ok"),
        (Verdict::OkUnproven, "~", "ok-unproven"),
        (Verdict::Missing { count, at }, "m2@3", "missing"),
        (Verdict::Extra { count, at }, "x2@3", "extra"),
        (Verdict::Wrong { at }, "w@3", "wrong"),
        (Verdict::Truncated { at }, "t@3", "truncated"),
        (Verdict::Refused, "r", "refused"),
        (Verdict::Looped, "l", "looped"),
        (Verdict::Unsupported, "u", "unsupported"),
        (Verdict::Unjudged, "?", "unjudged"),
    ];

    for (i, (verdict, short, word)) in all.into_iter().enumerate() {
        assert_eq!(verdict.to_string(), short);
        assert_eq!(verdict.as_str(), word);
        assert_eq!(Verdict::WORDS[i], (verdict.letter(), word));

        // Two groups: verdicts with a place, and among them those with a count.
        assert_eq!(verdict.at().is_some(), (2..=5).contains(&i), "{word}");
        assert_eq!(verdict.count().is_some(), (2..=3).contains(&i), "{word}");
        assert_eq!(verdict.is_judged(), i < 8, "{word}");
        assert_eq!(verdict.is_wrong(), (2..8).contains(&i), "{word}");
    }

    assert_eq!(vec![all[2].0.at(), all[2].0.count()], [Some(3), Some(2)]);
}
