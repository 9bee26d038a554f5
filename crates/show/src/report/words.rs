//! Words of a page: places, verdicts, and text that is safe to show.

use unwind_sim_unwind::printable::printable;
use unwind_sim_view::json::PlaceLine;

/// Escapes what could make a page show something else than it says. A line's end becomes a space.
pub(super) fn clean(html: &str) -> String {
    let is_plain = |byte: u8| (0x20..0x7f).contains(&byte);
    if html.bytes().all(is_plain) {
        return html.to_owned();
    }
    printable(&html.replace(['\n', '\t'], " ")).into_owned()
}

/// The number of characters of a name or sentence that are shown. Names of C++ can have thousands.
const TEXT_MAX: usize = 400;

/// The start of a long text.
pub(super) fn limited(text: &str) -> std::borrow::Cow<'_, str> {
    match text.char_indices().nth(TEXT_MAX) {
        None => text.into(),
        Some((at, _)) => format!("{}…", &text[..at]).into(),
    }
}

/// `main+0x4 (prog)`, `prog+0x1234`, or an address.
pub(super) fn place(place: &PlaceLine) -> String {
    match (&place.function, &place.image) {
        (Some(_), Some(image)) => format!("{} ({image})", short(place)),
        _ => short(place),
    }
}

/// `main+0x4`, `prog+0x1234`, or an address.
pub(super) fn short(place: &PlaceLine) -> String {
    match (&place.function, &place.image) {
        (Some(name), _) | (None, Some(name)) => format!("{}+{}", limited(name), place.offset),
        (None, None) => place.pc.clone(),
    }
}

/// The name of a frame in a graph: its function, or else its image in brackets.
pub(super) fn frame(place: &PlaceLine) -> String {
    match (&place.function, &place.image) {
        (Some(function), _) => limited(function).into_owned(),
        (None, Some(image)) => unwind_sim_view::profile::symbols::bracketed(image),
        (None, None) => "[unknown]".to_owned(),
    }
}

/// The class of a verdict's letter: `right`, `luck` (right, but not proven), `wrong` or `open`.
pub(super) fn class(letter: char) -> &'static str {
    match letter {
        '.' => "right",
        '~' => "luck",
        'u' | '?' => "open",
        _ => "wrong",
    }
}

/// What a chain with a wrong verdict does.
pub(super) fn verdict(word: &str) -> &str {
    match word {
        "missing" => "lacks frames",
        "extra" => "has frames that are not true",
        "wrong" => "has a wrong frame",
        "truncated" => "ends too early",
        "refused" => "was refused by the unwinder itself",
        "looped" => "goes round in a circle",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_turn_around_or_hide() {
        assert_eq!(
            clean("a\u{202e}b\u{0}c\nd\u{1b}[m"),
            r"a\u{202e}b\u{0}c d\u{1b}[m"
        );
        assert_eq!(clean("main::ü"), "main::ü");
    }

    #[test]
    fn long_text_ends_early() {
        assert_eq!(limited("short"), "short");
        let long = "ü".repeat(TEXT_MAX + 1);
        assert_eq!(limited(&long).chars().count(), TEXT_MAX + 1);
        assert!(limited(&long).ends_with('…'));
    }
}
