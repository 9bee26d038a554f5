//! The words of the command line that runs, for what repeats it: output that says how it was made.

use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};

static WORDS: Mutex<Vec<OsString>> = Mutex::new(Vec::new());

/// A command line starts; the first word is the program's name.
pub(crate) fn begin(words: Vec<OsString>) {
    *WORDS.lock().unwrap_or_else(PoisonError::into_inner) = words;
}

/// The words behind the program's name.
pub(crate) fn given() -> Vec<OsString> {
    let words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    words.iter().skip(1).cloned().collect()
}
