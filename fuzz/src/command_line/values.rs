//! Values of options, from what the command line says of them: the values that it names, their type,
//! and their name (`N`, `FILE|VERSION`, `SYM[+OFF]`), which is read as a template.

use super::bounds;
use super::choices::Choices;
use clap::Arg;
use clap::builder::ValueParser;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Numbers at edges.
const NUMBERS: [&str; 24] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "16",
    "64",
    "100",
    "255",
    "4096",
    "65535",
    "65536",
    "1000000",
    "2147483647",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-1",
    "0x10",
    "1.5",
    "",
];
/// Words that some option knows, or none.
const WORDS: [&str; 40] = [
    "main",
    "_start",
    "f",
    "dwarf",
    "fp",
    "orc",
    "sframe",
    "guess",
    "all",
    "none",
    "cpu",
    "every:1",
    "every:100",
    "call",
    "user",
    "memory",
    "files",
    "rsp",
    "rip",
    "rax",
    "0x1000",
    "401000",
    "v1",
    "v2",
    "v3",
    "intel",
    "amd",
    "zen4",
    "avx2",
    "6.1",
    "7.1",
    "task_struct",
    "tasks",
    "comm",
    "ip",
    "cycles",
    "copy:64",
    "US103",
    "x",
    "",
];
/// Words that are hostile to who prints them.
const HOSTILE: [&[u8]; 6] = [
    b"\x1b]0;title\x07\x1b[2J",
    b"\xff\xfe\x80",
    b"\xe2\x80\xae\xe2\x80\x8bgnp",
    b"two\nlines\r\ttab",
    b"$(echo x) 'y' \"z\" `w`",
    b"%s%n{}{0}\\",
];

/// The paths that may be drawn.
pub(super) trait Paths {
    /// A path that is read, or written.
    fn path(&self, is_output: bool, choices: &mut Choices<'_>) -> OsString;
    /// A path of a program.
    fn program(&self, choices: &mut Choices<'_>) -> OsString;
}

/// A value for the option.
pub(super) fn value(
    arg: &Arg,
    command: &str,
    paths: &dyn Paths,
    choices: &mut Choices<'_>,
) -> OsString {
    let id = arg.get_id().as_str();

    // Bounds come first: what is not safe to run must not be drawn, however rare.
    if let Some(values) = bounds::always(command, id) {
        return choices.one_of(values).into();
    }

    // Hostile words go anywhere but to what limits the work, or is executed.
    if choices.rarely(20) && bounds::work_max(id).is_none() && !bounds::PROGRAMS.contains(&id) {
        return OsString::from_vec(choices.one_of(&HOSTILE).to_vec());
    }
    if bounds::PROGRAMS.contains(&id) {
        return paths.program(choices);
    }

    let named = arg.get_possible_values();
    let is_path = arg.get_value_parser().type_id() == ValueParser::path_buf().type_id();
    // Names that a shell offers beside files are drawn beside files.
    let is_named = !named.is_empty();
    let is_other = is_named && (is_path && choices.one_in(2) || choices.rarely(8));
    if is_named && !is_other {
        let mut text = choices.one_of(&named).get_name().to_owned();

        // A template with `[,` stands for a list.
        while template(arg).contains("[,") && choices.one_in(3) {
            text = text + "," + choices.one_of(&named).get_name();
        }
        return text.into();
    }
    if is_path {
        return paths.path(bounds::OUTPUTS.contains(&id), choices);
    }
    Drawing {
        max: bounds::work_max(id),
        paths,
        choices,
    }
    .alternatives(&template(arg))
}

/// The name of the value, such as `FILE`.
fn template(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    match names.first() {
        Some(name) => name.to_string(),
        None => "WORD".to_owned(),
    }
}

/// A value that is being drawn from a template.
struct Drawing<'a, 'b> {
    /// The largest number, if it is bounded.
    max: Option<u64>,
    paths: &'a dyn Paths,
    choices: &'a mut Choices<'b>,
}

impl Drawing<'_, '_> {
    /// One of the alternatives, which `|` separates.
    fn alternatives(&mut self, template: &str) -> OsString {
        let all: Vec<&str> = template.split('|').collect();
        let one = *self.choices.one_of(&all);
        let mut out = OsString::new();
        self.sequence(one, &mut out);
        out
    }

    /// Names, what is in brackets or not, and all else as it is.
    fn sequence(&mut self, template: &str, out: &mut OsString) {
        let mut rest = template;
        let mut last = "";
        while let Some(first) = rest.chars().next() {
            let name_len = rest
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(rest.len());

            // A name in capitals is a placeholder, everything else is literal.
            if first.is_ascii_uppercase() && name_len > 0 {
                last = &rest[..name_len];
                self.named(last, out);
                rest = &rest[name_len..];
            } else if first == '[' {
                // Up to the bracket that belongs to this one: templates are nested.
                let inner = inside(rest);
                let repeats = usize::from(self.choices.one_in(2)) * (1 + self.choices.below(3));
                // `[X..]` may be repeated, `[X]` occurs once at most.
                let once = inner.trim_end_matches("..");
                let count = if once == inner {
                    repeats.min(1)
                } else {
                    repeats
                };

                for _ in 0..count {
                    self.sequence(once, out);
                    // `[,..]` repeats what is before it.
                    if once == "," {
                        self.named(last, out);
                    }
                }
                rest = &rest[(inner.len() + 2).min(rest.len())..];
            } else {
                match first {
                    '±' => out.push(*self.choices.one_of(&["+", "-"])),
                    _ => out.push(first.encode_utf8(&mut [0; 4])),
                }
                rest = &rest[first.len_utf8()..];
            }
        }
    }

    /// What a name of a template stands for.
    fn named(&mut self, name: &str, out: &mut OsString) {
        match name {
            "A" | "B" | "K" | "M" | "N" | "TID" | "PID" | "BYTES" | "SECONDS" | "SIZE"
            | "OFFSET" | "OFF" | "ADDR" | "ADDRESS" | "DEPTH" | "COLUMNS" | "ROWS" | "VALUE"
            | "HEX" | "SPAN" => out.push(self.number()),
            "FILE" | "DIR" | "LIST" | "TRACE" | "CASE" | "ELF" | "OBJECT" | "SCENARIO" | "JSON"
            | "PATH" => {
                out.push(self.paths.path(false, self.choices));
            }
            _ => out.push(*self.choices.one_of(&WORDS)),
        }
    }

    fn number(&mut self) -> String {
        match self.max {
            Some(max) => self.choices.below(max as usize + 1).to_string(),
            None if !self.choices.rarely(2) => self.choices.below(8).to_string(),
            None => (*self.choices.one_of(&NUMBERS)).to_owned(),
        }
    }
}

/// What is between the bracket that `text` starts with and its end.
fn inside(text: &str) -> &str {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        depth += i32::from(c == '[') - i32::from(c == ']');
        if depth == 0 {
            return &text[1..at];
        }
    }
    &text[1..]
}
