//! Long lines of a case, written as several: a line that starts with the same mark and at least
//! [`INDENT`] spaces continues the line above it.

use super::{COLUMNS_MAX, MARKS};
use std::borrow::Cow;

/// The least indent of a continuation, after its mark.
const INDENT: &str = "    ";

/// A line with its continuations, joined by single spaces.
pub(super) struct Unfolded<'a> {
    pub(super) text: Cow<'a, str>,
    parts: Vec<Part>,
}

/// What one line of the file contributes.
struct Part {
    /// Where it starts in the joined text, bytes.
    at: usize,
    /// Index of the line in the file.
    line: usize,
    /// Where it starts in its line, bytes.
    offset: usize,
}

impl Unfolded<'_> {
    /// The number of its first line in the file, from 1.
    pub(super) fn number(&self) -> usize {
        self.parts[0].line + 1
    }

    /// Line and column, from 1, of an offset in the joined text.
    pub(super) fn place(&self, lines: &[&str], at: usize) -> (usize, usize) {
        let part = self.parts.iter().rfind(|part| part.at <= at);
        let part = part.unwrap_or(&self.parts[0]);
        let before = lines[part.line].get(..part.offset + (at - part.at));
        (
            part.line + 1,
            before.map_or(0, |text| text.chars().count()) + 1,
        )
    }
}

/// Joins lines with their continuations.
pub(super) fn unfold<'a>(lines: &[&'a str]) -> Vec<Unfolded<'a>> {
    let mut joined: Vec<Unfolded<'a>> = Vec::new();
    for (line, text) in lines.iter().enumerate() {
        let above = joined.last_mut();
        if let (Some(above), Some(more)) = (above, continuation(line, lines)) {
            // A continuation follows after one blank, and keeps its own place for errors.
            let whole = above.text.to_mut();
            whole.push(' ');
            above.parts.push(Part {
                at: whole.len(),
                line,
                offset: text.len() - more.len(),
            });
            whole.push_str(more);
            continue;
        }

        // Most lines are not folded, so their text is borrowed.
        joined.push(Unfolded {
            text: Cow::Borrowed(text),
            parts: vec![Part {
                at: 0,
                line,
                offset: 0,
            }],
        });
    }
    joined
}

/// What a line adds to the line above it, if it continues that line.
fn continuation<'a>(line: usize, lines: &[&'a str]) -> Option<&'a str> {
    let mark = MARKS
        .into_iter()
        .find(|mark| lines[line].starts_with(mark))?;
    let above = lines.get(line.checked_sub(1)?)?;
    let more = lines[line].strip_prefix(mark)?;
    let continues = above.starts_with(mark) && more.starts_with(INDENT);
    Some(more.trim_start()).filter(|more| continues && !more.is_empty())
}

/// A line of a case in lines of at most [`COLUMNS_MAX`] columns, if its words allow that. Each ends
/// with a newline.
pub fn fold(line: &str) -> String {
    let mut words = line.split(' ');
    let mut text = words.next().unwrap_or_default().to_owned();
    let mark = text.clone();
    let mut width = mark.chars().count();
    for word in words {
        let more = 1 + word.chars().count();
        if width + more > COLUMNS_MAX && width > mark.len() {
            text = text + "\n" + &mark + &INDENT[1..];
            width = mark.len() + INDENT.len() - 1;
        }
        text.push(' ');
        text.push_str(word);
        width += more;
    }
    text + "\n"
}
