//! Instructions that the machine does not execute.

/// The instructions that the machine does not execute, and what is known after them although the
/// decoder says that they write it.
pub fn declared() -> Vec<String> {
    Vec::new()
}
