//! The words of a scenario's line.

use super::scenario_error::{ScenarioError, ScenarioErrorKind};
use super::world::CPUS_MAX;

/// Where user code may be: the first page is never mapped.
pub(super) const USER_ADDRESSES: std::ops::Range<u64> = 0x1000..1 << 47;
/// The longest name of a stack or an event, bytes: every line of the log may have it.
const NAME_MAX: usize = 64;

/// The words of a line.
pub(super) struct Words<'a> {
    pub(super) line: usize,
    text: &'a str,
    /// Behind the last word.
    at: usize,
}

impl<'a> Words<'a> {
    /// Those of the text of line `line`, from 1.
    pub(super) const fn new(line: usize, text: &'a str) -> Self {
        Self { line, text, at: 0 }
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        let rest = &self.text[self.at..];
        let start = rest.find(|c: char| !c.is_whitespace())?;
        let word = rest[start..].split_whitespace().next()?;
        self.at += start + word.len();
        Some(word)
    }

    /// The next word, which stays.
    pub(super) fn peek(&self) -> Option<&'a str> {
        self.text[self.at..].split_whitespace().next()
    }

    /// An error at the last word.
    pub(super) fn error(&self, kind: ScenarioErrorKind) -> ScenarioError {
        let word = self.text[..self.at].split_whitespace().next_back();
        ScenarioError {
            line: self.line,
            column: self.at - word.map_or(0, str::len) + 1,
            kind,
        }
    }

    pub(super) fn need(&mut self, what: &'static str) -> Result<&'a str, ScenarioError> {
        let end = ScenarioError {
            line: self.line,
            column: self.text.trim_end().len() + 1,
            kind: ScenarioErrorKind::Missing(what),
        };
        self.next().ok_or(end)
    }

    pub(super) fn not<T>(&self, found: Option<T>, what: &'static str) -> Result<T, ScenarioError> {
        found.ok_or_else(|| self.error(ScenarioErrorKind::Not(what)))
    }

    pub(super) fn number(&mut self, what: &'static str, max: u64) -> Result<u64, ScenarioError> {
        let word = self.need(what)?;
        let number = match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => word.parse().ok(),
        };
        self.not(number.filter(|&number| number <= max), what)
    }

    pub(super) fn name(&mut self) -> Result<&'a str, ScenarioError> {
        let name = self.need("a name")?;
        self.not(
            (name.len() <= NAME_MAX).then_some(name),
            "a name of at most 64 bytes",
        )
    }

    pub(super) fn address(&mut self) -> Result<u64, ScenarioError> {
        let address = self.number("an address", u64::MAX)?;
        let is_user = USER_ADDRESSES.contains(&address);
        self.not(is_user.then_some(address), "an address of user space")
    }

    pub(super) fn kernel_address(&mut self) -> Result<u64, ScenarioError> {
        let what = "an address of the kernel's text";
        let address = self.number(what, u64::MAX)?;
        let is_text = (super::KERNEL_TEXT..super::MACHINERY_TEXT).contains(&address);
        self.not(is_text.then_some(address), what)
    }

    pub(super) fn cpu(&mut self) -> Result<u16, ScenarioError> {
        Ok(self.number("a CPU", u64::from(CPUS_MAX))? as u16)
    }

    pub(super) fn tid(&mut self) -> Result<i32, ScenarioError> {
        let tid = self.number("a thread number", i32::MAX as u64)? as i32;
        self.not((tid > 0).then_some(tid), "a thread number")
    }
}
