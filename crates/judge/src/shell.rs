//! Quotes words for a shell, in commands that are printed.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::Path;
use unwind_sim_unwind::printable::is_printable;

/// `word` quoted for a POSIX shell where it needs to be. What is not printable and bytes
/// that are not UTF-8 are escaped as in `$'\xff'`, which bash, zsh, ksh and POSIX.1-2024 read.
pub fn quoted(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref();
    let bytes = word.as_encoded_bytes();
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_./,:=+@%".contains(b);
    match word.to_str() {
        Some(text) if !text.is_empty() && bytes.iter().all(plain) => text.to_owned(),
        Some(text) if text.chars().all(is_printable) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        _ => escaped(bytes),
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut out = "$'".to_owned();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\'' | '\\' => out.extend(['\\', c]),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                // Three octal digits are unambiguous, whatever follows.
                c if !is_printable(c) => c.to_string().bytes().for_each(|b| octal(&mut out, b)),
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|&b| octal(&mut out, b));
    }
    out.push('\'');
    out
}

fn octal(out: &mut String, byte: u8) {
    // Writing to a string cannot fail.
    let _ = write!(out, "\\{byte:03o}");
}

/// A path as a command argument. A path that starts with `-` gets a `./`, so that it is not taken
/// for an option.
pub fn path_argument(path: &Path) -> OsString {
    match path.as_os_str().as_encoded_bytes().first() {
        Some(b'-') => Path::new(".").join(path).into_os_string(),
        _ => path.as_os_str().to_owned(),
    }
}

/// Like [`path_argument`], quoted.
pub fn quoted_path(path: &Path) -> String {
    quoted(path_argument(path))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;

    /// Bash reads every word back unchanged.
    #[test]
    fn a_shell_reads_the_same_words() {
        let mut words: Vec<Vec<u8>> = (1..=255_u8).map(|b| vec![b]).collect();

        // A digit that follows must not become part of an octal escape.
        words.extend((1..=255_u8).map(|b| vec![b'a', b, b'7']));

        for text in [
            "",
            "a b",
            "it's",
            "$HOME",
            "`id`",
            "*",
            "~",
            "-x",
            "\n\n",
            "é'\\",
            "a\x01b",
            "a\u{202e}b\u{200b}7",
        ] {
            words.push(text.as_bytes().to_vec());
        }

        words.push(b"\xff'\\\xfe7".to_vec());
        let quoted: Vec<String> = words.iter().map(|w| quoted(OsStr::from_bytes(w))).collect();

        let script = format!("printf '%s\\0' {}", quoted.join(" "));
        let output = Command::new("bash").args(["-c", &script]).output();
        let output = output.expect("bash runs").stdout;

        let read: Vec<&[u8]> = output.split(|b| *b == 0).collect();

        // The last word ends with a zero byte as well, and nothing follows it.
        assert_eq!(read.len(), words.len() + 1);
        for (read, word) in read.iter().zip(&words) {
            assert_eq!(read, word, "{}", String::from_utf8_lossy(word));
        }
    }

    #[test]
    fn plain_words_stay_as_they_are() {
        assert_eq!(quoted("/usr/bin/c++-14"), "/usr/bin/c++-14");
        assert_eq!(quoted("print(1)"), "'print(1)'");
        assert_eq!(quoted(OsStr::from_bytes(b"\xff.bin")), r"$'\377.bin'");
        assert_eq!(quoted_path(Path::new("-o.bin")), "./-o.bin");
    }
}
