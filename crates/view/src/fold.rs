//! Folds what repeats in a list, such as the frames of a deep recursion.

/// The maximum number of items that repeat together.
const PERIOD_MAX: usize = 32;
/// The minimum number of items that are worth folding.
const FOLDED_MIN: usize = 4;

/// A piece of a folded list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FoldedItem {
    /// The item with this number.
    Item(usize),
    /// `count` items that repeat the `period` items before them. The `period` items after them do
    /// so once more.
    Repeated { count: usize, period: usize },
}

/// The pieces of a list whose items are equal if their keys are. Of what repeats, the first and the
/// last time are kept: the one after which something changes is the one to look at.
pub(crate) fn fold<K: PartialEq>(keys: &[K]) -> Vec<FoldedItem> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < keys.len() {
        let found = (1..=PERIOD_MAX).find_map(|period| {
            let later = keys[at..].iter().skip(period);
            let equal = keys[at..].iter().zip(later).take_while(|(a, b)| a == b);
            let times = equal.count() / period + 1;
            let count = times.saturating_sub(2) * period;
            (count >= FOLDED_MIN).then_some((period, count))
        });
        let Some((period, count)) = found else {
            pieces.push(FoldedItem::Item(at));
            at += 1;
            continue;
        };
        pieces.extend((at..at + period).map(FoldedItem::Item));
        pieces.push(FoldedItem::Repeated { count, period });
        at += period + count;
        pieces.extend((at..at + period).map(FoldedItem::Item));
        at += period;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list as text: `*5/2` for 5 items that repeat 2.
    fn folded(list: &str) -> String {
        let keys: Vec<char> = list.chars().collect();
        let text = |piece: FoldedItem| match piece {
            FoldedItem::Item(at) => keys[at].to_string(),
            FoldedItem::Repeated { count, period } => format!("*{count}/{period} "),
        };
        fold(&keys).into_iter().map(text).collect()
    }

    #[test]
    fn one_item_many_items_and_what_is_around_them() {
        assert_eq!(folded(""), "");
        assert_eq!(folded("abcabc"), "abcabc");
        assert_eq!(folded("aaaaa"), "aaaaa");
        assert_eq!(folded("aaaaaa"), "a*4/1 a");
        assert_eq!(folded("xaaaaaaaay"), "xa*6/1 ay");
        assert_eq!(folded("xabababaz"), "xabababaz");
        assert_eq!(folded("xababababaz"), "xab*4/2 abaz");
        assert_eq!(folded("aaaaaabbbbbbb"), "a*4/1 ab*5/1 b");
        let long = format!("m{}s", "abcaab".repeat(1000));
        assert_eq!(folded(&long), "mabcaab*5988/6 abcaabs");
    }

    #[test]
    fn nothing_is_lost() {
        // A sequence with repetitions of all lengths: n mod (n's number of trailing zeros + 1).
        let keys: Vec<u32> = (0..5000).map(|n: u32| n.trailing_zeros() % 3).collect();
        let mut next = 0;
        for piece in fold(&keys) {
            match piece {
                FoldedItem::Item(at) => {
                    assert_eq!(at, next);
                    next += 1;
                }
                FoldedItem::Repeated { count, period } => {
                    let repeats = |at: usize| keys[at] == keys[at - period];
                    assert!((next..next + count + period).all(repeats));
                    next += count;
                }
            }
        }
        assert_eq!(next, keys.len());
    }
}
