//! Shows a capture of a kernel.

use super::{InspectError, map};
use std::fmt::Write as _;
use unwind_sim_recordings::file_kind::{FileKind, WrongKind};
use unwind_sim_recordings::input_file::InputFile;

/// The kernel, and the numbers of stops, samples and modules.
pub(super) fn show(file: &InputFile) -> Result<String, InspectError> {
    // Not the importer: it refuses what it cannot replay, while here anything that is there is
    // counted.
    let owner = map(file)?;
    let Ok(value) = serde_json::from_slice::<serde_json::Value>((*owner).as_ref()) else {
        return Err(InspectError::Kind(WrongKind {
            path: file.path().into(),
            kind: FileKind::Text,
            wanted: "a kernel's capture (JSON)".into(),
        }));
    };

    let mut out = "a kernel's capture\n".to_owned();
    for key in ["kernel", "scenario", "func"] {
        if let Some(text) = value[key].as_str() {
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
        if let Some(list) = value[key].as_array() {
            let _ = writeln!(out, "{key}: {} {what}", list.len());
        }
    }

    let _ = writeln!(out, "replay it with --kernel FILE, the image of its kernel");
    Ok(out)
}
