//! Runs the user's editor on a case.

use std::path::Path;
use std::process::Command;
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::input_file::InputFile;

/// The editor of POSIX systems, where no other is wanted.
const EDITOR: &str = "vi";

/// Whether an input is a case in a file that can be written. Cases that the program carries are in none.
pub(super) fn can_edit(file: &InputFile) -> bool {
    file.kind() == FileKind::Case && !file.is_piped() && file.path().is_file()
}

/// Runs `$VISUAL`, `$EDITOR` or vi on the file. Returns what is to be said afterwards.
pub(super) fn edit(path: &Path) -> String {
    let wanted = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let editor = wanted("VISUAL").or_else(|| wanted("EDITOR"));
    let editor = editor.unwrap_or_else(|| EDITOR.into());

    // The variables hold a command of the shell, often with options (environ(7)); the file is its last
    // word, whatever its name.
    let mut script = editor.clone();
    script.push(" \"$@\"");
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg("sh").arg(path);

    let name = editor.to_string_lossy();
    match command.status() {
        Ok(status) if status.success() => String::new(),
        Ok(status) => {
            format!("the editor {name} ended with {status}; $VISUAL and $EDITOR choose it")
        }
        Err(error) => format!("cannot run the editor {name}: {error}"),
    }
}
