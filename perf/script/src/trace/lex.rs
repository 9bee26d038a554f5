//! Splits a `print fmt` into tokens.

/// A token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Token {
    /// A name or keyword.
    Name(Vec<u8>),
    /// A number, without its suffix.
    Number(u64),
    /// A string without quotes, with escapes resolved.
    Text(Vec<u8>),
    /// An operator or bracket, of one or two characters.
    Mark(&'static str),
}

/// Operators and brackets, longer ones first.
const MARKS: [&str; 32] = [
    "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "(", ")", "{", "}", "[", "]", ",", "?",
    ":", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "<", ">", ".", ";",
];

/// Splits the text into tokens; `None` if something is not a token.
pub(super) fn tokens(mut text: &[u8]) -> Option<Vec<Token>> {
    let mut all = Vec::new();
    loop {
        text = text.trim_ascii_start();
        let Some(&first) = text.first() else {
            return Some(all);
        };

        if first == b'"' {
            let (string, rest) = string(&text[1..])?;
            text = rest;
            // Adjacent strings are one string.
            if let Some(Token::Text(before)) = all.last_mut() {
                before.extend(string);
            } else {
                all.push(Token::Text(string));
            }
            continue;
        }

        // A character is the number of its code.
        if first == b'\'' {
            let [_, value, b'\'', rest @ ..] = text else {
                return None;
            };
            all.push(Token::Number((*value).into()));
            text = rest;
            continue;
        }

        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        if is_word(&first) {
            let end = text.iter().position(|b| !is_word(b)).unwrap_or(text.len());
            let (word, rest) = text.split_at(end);
            text = rest;
            all.push(if first.is_ascii_digit() {
                Token::Number(number(word)?)
            } else {
                Token::Name(word.to_vec())
            });
            continue;
        }

        // `MARKS` has the longer ones first, or `<=` would be read as `<`.
        let mark = MARKS
            .iter()
            .find(|mark| text.starts_with(mark.as_bytes()))?;
        text = &text[mark.len()..];
        all.push(Token::Mark(mark));
    }
}

/// Reads a string after its opening quote; returns it and what follows.
fn string(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut out = Vec::new();
    let mut rest = text;
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => return Some((out, rest)),
            b'\\' => {
                let (&escaped, after) = rest.split_first()?;
                rest = after;
                out.push(match escaped {
                    b'n' => b'\n',
                    b't' => b'\t',
                    other => other,
                });
            }
            other => out.push(other),
        }
    }
}

/// Parses a number with its prefix, ignoring its suffix.
fn number(word: &[u8]) -> Option<u64> {
    let word = std::str::from_utf8(word).ok()?;
    let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
    match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if digits.len() > 1 && digits.starts_with('0') => u64::from_str_radix(digits, 8).ok(),
        None => digits.parse().ok(),
    }
}
