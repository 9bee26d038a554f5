//! Reads the cases of `corpus/system`; its README has the format.

use unwind_sim_emulator::Vendor;

/// Who says what is expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expected {
    /// QEMU and Bochs.
    Both,
    Qemu,
    Bochs,
    /// QEMU or Bochs: the manual allows both.
    Either,
    /// The manual, against both.
    Manual,
}

#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) vendor: Vendor,
    pub(super) code: Vec<u8>,
    pub(super) authority: Expected,
    /// The outcomes that are right.
    pub(super) expected: Vec<Outcome>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Outcome {
    /// The events, as the recorder writes them.
    pub(super) events: Vec<String>,
    /// Whether it says what RF is. QEMU 7.2 pushes RF in no frame.
    pub(super) knows_rf: bool,
}

impl Outcome {
    /// Whether these are its events.
    pub(super) fn is(&self, events: &[String]) -> bool {
        if self.knows_rf {
            return self.events == events;
        }
        let events: Vec<String> = events.iter().map(|event| without_rf(event)).collect();
        self.events == events
    }
}

/// An event whose frame is without RF.
fn without_rf(event: &str) -> String {
    const RF: u64 = 1 << 16;
    let words = event.split(' ').map(|word| {
        let flags = word.strip_prefix("f=");
        let flags = flags.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        flags.map_or(word.to_owned(), |flags| format!("f={:x}", flags & !RF))
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The bytes of hexadecimal digits, between which there may be white space.
pub(super) fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect();
    let digits = digits?;
    let bytes = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some(high << 4 | low),
        _ => None,
    });
    bytes.collect()
}

/// The cases of a file.
pub(super) fn parse(text: &str) -> Result<Vec<Case>, String> {
    let blocks = text.split("\n\n").map(|block| block.trim_matches('\n'));
    let cases = blocks.filter(|block| block.starts_with("case "));
    cases.map(parse_case).collect()
}

fn parse_case(block: &str) -> Result<Case, String> {
    let lines: Vec<(&str, &str)> = block
        .lines()
        .filter(|line| !line.starts_with(char::is_whitespace))
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .filter(|(key, _)| !key.ends_with(':'))
        .collect();
    let all = |key: &str| -> Vec<String> {
        let of_key = lines.iter().filter(|(name, _)| *name == key);
        of_key.map(|(_, value)| (*value).to_owned()).collect()
    };
    let one = |key: &str| all(key).into_iter().next();

    let name = one("case").unwrap_or_default();
    let error = |what: &str| format!("{name}: {what}");
    let known = [
        "case",
        "#",
        "processor",
        "code",
        "both",
        "qemu",
        "bochs",
        "right",
        "is",
    ];
    if let Some((key, _)) = lines.iter().find(|(key, _)| !known.contains(key)) {
        return Err(error(&format!("unknown line {key}")));
    }
    let vendor = match one("processor").as_deref() {
        None | Some("intel") => Vendor::Intel,
        Some("amd") => Vendor::Amd,
        Some(_) => return Err(error("unknown processor")),
    };
    let code = one("code").and_then(|code| bytes(&code));

    let right = one("right").unwrap_or_default();
    let (authority, keys): (_, &[&str]) = match right.split_once(':') {
        None => (Expected::Both, &["both"]),
        Some((_, reason)) if reason.trim().is_empty() => return Err(error("no reason")),
        Some(("qemu", _)) => (Expected::Qemu, &["qemu"]),
        Some(("bochs", _)) => (Expected::Bochs, &["bochs"]),
        Some(("either", _)) => (Expected::Either, &["qemu", "bochs"]),
        Some(("manual", _)) => (Expected::Manual, &["is"]),
        Some(_) => return Err(error("unknown authority")),
    };
    let outcomes = keys.iter().map(|key| Outcome {
        events: all(key),
        knows_rf: *key != "qemu",
    });
    let expected: Vec<_> = outcomes.collect();
    if expected.iter().any(|outcome| outcome.events.is_empty()) {
        return Err(error(
            "the authorities differ, or were not asked; see record.py",
        ));
    }
    Ok(Case {
        code: code.ok_or_else(|| error("no code; see record.py"))?,
        name,
        vendor,
        authority,
        expected,
    })
}
