//! Paths and words of the system as a person reads them.

use std::ffi::OsStr;
use std::path::Path;
use unwind_sim_unwind::printable::Printable;

/// What has a name that a person reads: a [`Printable`] in place of `display()`, which passes
/// everything.
pub trait PrintableName {
    /// The name with what is not printable escaped.
    fn printable(&self) -> Printable<'_>;
}

impl PrintableName for OsStr {
    fn printable(&self) -> Printable<'_> {
        Printable::new(self.as_encoded_bytes())
    }
}

impl PrintableName for str {
    fn printable(&self) -> Printable<'_> {
        Printable::new(self)
    }
}

impl PrintableName for Path {
    fn printable(&self) -> Printable<'_> {
        self.as_os_str().printable()
    }
}
