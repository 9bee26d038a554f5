//! Texts that have to fit: cut and wrapped at words. Widths are columns of the screen: a wide
//! character takes two.

use ratatui::text::Span;
use std::borrow::Cow;

/// What stands for the words that were cut off.
const CUT: &str = "..";

/// The number of columns that a text takes.
pub(super) fn columns(text: &str) -> usize {
    Span::raw(text).width()
}

/// The text if it fits into `width` columns, or else the words of it that do, and `..`.
pub(super) fn fitted(text: &str, width: usize) -> Cow<'_, str> {
    if columns(text) <= width {
        return text.into();
    }

    // `words ..`, or only a part of the first word if that is too long.
    let room = start_of(text, width.saturating_sub(CUT.len() + 1));
    let is_between = text[room.len()..].starts_with(' ');
    let words = if is_between {
        room
    } else {
        room.rsplit_once(' ').map_or("", |(words, _)| words)
    };
    let words = words.trim_end();
    if words.is_empty() {
        let part = start_of(text, width.saturating_sub(CUT.len()));
        return format!("{part}{}", start_of(CUT, width)).into();
    }
    format!("{words} {CUT}").into()
}

/// As many of `items`, from the first one on, as fit into `width` columns with two spaces between.
pub(super) fn fitted_items(items: &[&str], width: usize) -> String {
    let mut out = String::new();
    for item in items {
        let space = if out.is_empty() { "" } else { "  " };
        if columns(&out) + space.len() + columns(item) > width {
            break;
        }
        out.push_str(space);
        out.push_str(item);
    }
    out
}

/// The longest start of a text that fits into `width` columns.
fn start_of(text: &str, width: usize) -> &str {
    let (mut end, mut used) = (0, 0);
    for (at, c) in text.char_indices() {
        used += columns(c.encode_utf8(&mut [0; 4]));
        if used > width {
            break;
        }
        end = at + c.len_utf8();
    }
    &text[..end]
}

/// Breaks a text into lines of at most `width` columns, at spaces where possible. Lines keep their
/// indentation, and those that were broken go on with it.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    // With less, a wide character would fit on no line at all.
    let width = width.max(4);
    let mut lines: Vec<String> = Vec::new();

    for part in text.split('\n') {
        let words = part.trim_start_matches(' ');
        // On a narrow screen, most of a line is for its words.
        let indent = (part.len() - words.len()).min(width / 2);
        let indent = " ".repeat(indent);
        let mut line = indent.clone();

        for (nth, word) in words.split(' ').enumerate() {
            let mut word = word;
            let is_first = line.len() == indent.len();

            let space = usize::from(nth > 0 && !is_first);
            if columns(&line) + space + columns(word) > width && !is_first {
                lines.push(std::mem::replace(&mut line, indent.clone()));
            } else if space == 1 {
                line.push(' ');
            }

            // A word that is wider than the pane is broken, as none would fit.
            while columns(&line) + columns(word) > width {
                // The indentation is at most half of four columns or more, so one character always
                // fits and the loop ends.
                let first = start_of(word, width.saturating_sub(columns(&line)));
                if first.is_empty() {
                    break;
                }
                line.push_str(first);
                word = &word[first.len()..];
                lines.push(std::mem::replace(&mut line, indent.clone()));
            }

            line.push_str(word);
        }

        // An empty line has no indentation to keep.
        if words.is_empty() {
            line.clear();
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_cut_at_words() {
        let title = "code outer+0x0 (some-file)";
        assert_eq!(fitted(title, 26), title);
        assert_eq!(fitted(title, 25), "code outer+0x0 ..");
        assert_eq!(fitted(title, 17), "code outer+0x0 ..");
        assert_eq!(fitted(title, 16), "code ..");
        assert_eq!(fitted(title, 6), "code..");
        assert_eq!(fitted(title, 5), "cod..");
        assert_eq!(fitted(title, 1), ".");
        assert_eq!(fitted(title, 0), "");
        // Of wide characters only whole ones.
        assert_eq!(fitted("\u{4e2d}\u{4e2d}\u{4e2d}", 5), "\u{4e2d}..");
        assert_eq!(
            fitted_items(&["? help", "q quit", "s step"], 14),
            "? help  q quit"
        );
        assert_eq!(fitted_items(&["? help", "q quit"], 13), "? help");
    }

    #[test]
    fn wrapped_lines_keep_their_indentation() {
        let text = "one two three\n\n    four five six\n  a    b";
        let lines = [
            "one two", "three", "", "    four", "    five", "    six", "  a    b",
        ];
        assert_eq!(wrapped(text, 10), lines);
        // A long word is broken, and no line is wider than the pane.
        assert_eq!(wrapped("  abcdefghij", 6), ["  abcd", "  efgh", "  ij"]);
        for width in 1..20 {
            let lines = wrapped("          \u{4e2d}\u{4e2d}word   x", width);
            assert!(
                lines.iter().all(|line| columns(line) <= width.max(4)),
                "{lines:?}"
            );
        }
    }
}
