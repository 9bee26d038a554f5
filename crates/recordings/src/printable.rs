//! Paths and words of the system as a person reads them.

use std::ffi::OsStr;
use std::path::Path;
use unwind_sim_unwind::printable::Printable;

/// What has a name that a person reads: a [`Printable`] in place of `display()`, which passes
/// everything.
pub trait PrintableName {
    /// The name with what is not printable escaped.
    fn printable(&self) -> Printable<'_>;

    /// The name to keep: exactly, as JSON has it, if it is UTF-8; else with other bytes as `\xff`.
    fn to_text(&self) -> String;
}

impl PrintableName for OsStr {
    fn printable(&self) -> Printable<'_> {
        Printable::new(self.as_encoded_bytes())
    }

    fn to_text(&self) -> String {
        match self.to_str() {
            Some(text) => text.to_owned(),
            None => self.printable().to_string(),
        }
    }
}

impl PrintableName for str {
    fn printable(&self) -> Printable<'_> {
        Printable::new(self)
    }

    fn to_text(&self) -> String {
        self.to_owned()
    }
}

impl PrintableName for Path {
    fn printable(&self) -> Printable<'_> {
        self.as_os_str().printable()
    }

    fn to_text(&self) -> String {
        self.as_os_str().to_text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn a_name_that_is_kept_is_exact_if_it_is_text() {
        let name = |bytes| Path::new(OsStr::from_bytes(bytes)).to_text();

        assert_eq!(name(b"with\ttabs"), "with\ttabs");
        assert_eq!(name(b"caf\xe9\t"), r"caf\xe9\t");
    }
}
