//! Shows a capture of a kernel.

use super::{InspectError, map};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use unwind_sim_recordings::file_kind::{FileKind, WrongKind};
use unwind_sim_recordings::input_file::InputFile;

/// The members of a capture, by their keys.
type Members<'a> = BTreeMap<String, &'a RawValue>;

/// A member, if it is there and has this form.
fn parsed<'a, T: Deserialize<'a>>(members: &Members<'a>, key: &str) -> Option<T> {
    serde_json::from_str(members.get(key)?.get()).ok()
}

/// The kernel, and the numbers of stops, samples and modules.
pub(super) fn show(file: &InputFile) -> Result<String, InspectError> {
    // Not the importer: it refuses what it cannot replay, while here anything that is there is
    // counted.
    let owner = map(file)?;
    // What is not shown is not parsed, only checked.
    let Ok(members) = serde_json::from_slice::<Members<'_>>((*owner).as_ref()) else {
        return Err(InspectError::Kind(WrongKind {
            path: file.path().into(),
            kind: FileKind::Text,
            wanted: "a kernel's capture (JSON)".into(),
        }));
    };

    let mut out = "a kernel's capture\n".to_owned();
    for key in ["kernel", "scenario", "func"] {
        if let Some(text) = parsed::<String>(&members, key) {
            let _ = writeln!(out, "{key}: {text}");
        }
    }

    // A list that is missing is not an empty one, so it has no line.
    for (key, what) in [
        ("points", "stops"),
        ("samples", "samples of perf"),
        ("steps", "single-stepped instructions"),
        ("modules", "modules"),
        ("generated", "pieces of generated code"),
    ] {
        if let Some(list) = parsed::<Vec<IgnoredAny>>(&members, key) {
            let _ = writeln!(out, "{key}: {} {what}", list.len());
        }
    }

    let _ = writeln!(out, "replay it with --kernel FILE, the image of its kernel");
    Ok(out)
}
