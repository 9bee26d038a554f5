//! Keys, and their names in scripts.

/// A key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// A character.
    Char(char),
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Backspace,
    /// Cursor up.
    Up,
    /// Cursor down.
    Down,
    /// Cursor left.
    Left,
    /// Cursor right.
    Right,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Tabulator.
    Tab,
    /// Home.
    Home,
    /// End.
    End,
}

/// A name in a script is not that of a key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "line {line}: `{name}` is not a key; keys are single characters, Enter, Escape, Backspace, Up, Down, Left, Right, PageUp, PageDown, Tab, Home, End, and text in quotes"
)]
pub struct KeyError {
    /// The line, from 1.
    pub line: usize,
    /// The name.
    pub name: String,
}

/// The keys of a script, line by line: names or single characters between spaces, or text in
/// double quotes, whose characters are typed. A `#` at the start of a word starts a comment.
///
/// # Errors
/// If a name is not that of a key.
pub fn parse_keys(script: &str) -> Result<Vec<Vec<Key>>, KeyError> {
    let mut lines = Vec::new();
    for (index, text) in script.lines().enumerate() {
        let mut keys = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() && !rest.starts_with('#') {
            if let Some(quoted) = rest.strip_prefix('"') {
                let end = quoted.find('"').unwrap_or(quoted.len());
                keys.extend(quoted[..end].chars().map(Key::Char));
                rest = quoted.get(end + 1..).unwrap_or("").trim_start();
                continue;
            }
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            keys.push(named(&rest[..end]).ok_or_else(|| KeyError {
                line: index + 1,
                name: rest[..end].to_owned(),
            })?);
            rest = rest[end..].trim_start();
        }
        lines.push(keys);
    }
    Ok(lines)
}

fn named(name: &str) -> Option<Key> {
    let mut chars = name.chars();
    if let (Some(only), None) = (chars.next(), chars.next()) {
        return Some(Key::Char(only));
    }
    Some(match name {
        "Enter" => Key::Enter,
        "Escape" => Key::Escape,
        "Backspace" => Key::Backspace,
        "Up" => Key::Up,
        "Down" => Key::Down,
        "Left" => Key::Left,
        "Right" => Key::Right,
        "PageUp" => Key::PageUp,
        "PageDown" => Key::PageDown,
        "Tab" => Key::Tab,
        "Home" => Key::Home,
        "End" => Key::End,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_keys_line_by_line() {
        let keys = parse_keys("s S # forward, back\n\ng \"ma in\" Enter\n\"s");
        let typed = "ma in".chars().map(Key::Char);
        let second = [Key::Char('g')]
            .into_iter()
            .chain(typed)
            .chain([Key::Enter]);
        let expected = vec![
            vec![Key::Char('s'), Key::Char('S')],
            vec![],
            second.collect(),
            vec![Key::Char('s')],
        ];
        assert_eq!(keys, Ok(expected));
        let error = parse_keys("s\nss").expect_err("no such key");
        assert_eq!((error.line, error.name.as_str()), (2, "ss"));
    }
}
