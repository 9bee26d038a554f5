//! Errors as a person reads them.

use super::escape;
use std::ffi::OsString;
use std::io::Write;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_unwind::printable::{printable, printable_lines};

/// Prints the `error` of the command line `words`. `parse` gives that of other words.
///
/// The message marks words with colours, so it cannot be escaped afterwards: it is made again for the
/// words with what is not printable escaped.
pub(super) fn tell_usage(
    words: &[OsString],
    error: clap::Error,
    parse: impl FnOnce(Vec<String>) -> Option<clap::Error>,
) {
    let is_printable = words.iter().all(|word| word.printable().is_unchanged());
    let escaped = || words.iter().map(|word| word.printable().to_string());
    let error = if is_printable {
        error
    } else {
        parse(escaped().collect())
            .filter(clap::Error::use_stderr)
            .unwrap_or(error)
    };
    let text = escape::with_colours(&error.render().ansi().to_string());
    let mut stderr = anstream::AutoStream::auto(std::io::stderr());
    // Where nobody reads, there is nothing to tell.
    let _ = stderr.write_all(text.as_bytes());
}

/// An error with its causes, outermost first. A part that another part already contains is left
/// out, since many errors name their file and their cause themselves.
pub(super) fn message(error: &anyhow::Error) -> String {
    let all: Vec<String> = error.chain().map(cause_text).collect();
    let mut kept: Vec<&str> = Vec::new();
    for (i, part) in all.iter().enumerate() {
        let before = kept.iter().any(|k| k.contains(part.as_str()));
        let behind = all[i + 1..].iter().any(|p| p.contains(part.as_str()));
        if !before && !behind {
            kept.push(part);
        }
    }
    if kept.is_empty() {
        return cause_text(error.root_cause());
    }
    kept.join(": ")
}

/// A cause for a person. Only those of cases have lines of ours; elsewhere a line's end comes from
/// outside.
pub(super) fn cause_text(cause: &(dyn std::error::Error + 'static)) -> String {
    let text = cause.to_string();
    if has_lines(cause) {
        printable_lines(&text).into_owned()
    } else {
        printable(&text).into_owned()
    }
}

/// Whether this is an error of a case, or stands for one.
#[cfg(feature = "machine")]
fn has_lines(cause: &(dyn std::error::Error + 'static)) -> bool {
    use unwind_sim_judge::case::CaseError;
    use unwind_sim_judge::cases::{CaseFailure, ToolError};
    use unwind_sim_judge::extract::NotWritable;
    use unwind_sim_judge::input::InputError;
    use unwind_sim_judge::run::RunError;
    use unwind_sim_judge::scrub::ScrubError;
    use unwind_sim_view::inspect::InspectError;

    let input: Option<&InputError> = if let Some(RunError::Input(input)) = cause.downcast_ref() {
        Some(input)
    } else if let Some(InspectError::Input(input)) = cause.downcast_ref() {
        Some(input)
    } else if let Some(ScrubError::Input(input)) = cause.downcast_ref() {
        Some(input)
    } else {
        cause.downcast_ref()
    };
    let is_case = cause.is::<CaseFailure>() || cause.is::<ToolError>() || cause.is::<CaseError>();
    let is_extracted = matches!(cause.downcast_ref(), Some(NotWritable::DoesNotRun { .. }));
    is_case || is_extracted || matches!(input, Some(InputError::Case(_)))
}

#[cfg(not(feature = "machine"))]
fn has_lines(_: &(dyn std::error::Error + 'static)) -> bool {
    false
}
