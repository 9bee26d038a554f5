//! Replaces names: of files and threads, and the words of command lines.

use std::collections::HashMap;
use unwind_sim_recordings::trace::Meta;

/// Folders whose files belong to the system, and mappings that have no file. Their names say nothing
/// of a user, and what an unwinder or `doctor` finds depends on them.
const OF_THE_SYSTEM: [&str; 14] = [
    "/usr/lib",
    "/usr/bin/",
    "/usr/sbin/",
    "/usr/libexec/",
    "/lib/",
    "/lib32/",
    "/lib64/",
    "/bin/",
    "/sbin/",
    "//anon",
    "/anon_hugepage",
    "/dev/",
    "/SYSV",
    "/memfd:doublemapper",
];

/// Replaces names by numbers, the same name always by the same.
#[derive(Debug, Default)]
pub(super) struct Names {
    files: HashMap<String, String>,
    threads: HashMap<String, String>,
}

impl Names {
    /// What stands for the name of a file or mapping.
    pub(super) fn file(&mut self, name: &str) -> String {
        let is_of_system = OF_THE_SYSTEM.iter().any(|start| name.starts_with(start));
        let is_special = name.is_empty() || name.starts_with('[');
        if is_of_system || is_special {
            return name.to_owned();
        }
        let next = self.files.len() + 1;
        let (path, end) = match name.strip_suffix(" (deleted)") {
            Some(path) => (path, " (deleted)"),
            None => (name, ""),
        };
        let new = self.files.entry(path.to_owned());
        format!("{}{end}", new.or_insert_with(|| format!("/file-{next}")))
    }

    /// What stands for the name of a thread.
    pub(super) fn thread(&mut self, name: &str) -> String {
        let next = self.threads.len() + 1;
        let new = self.threads.entry(name.to_owned());
        new.or_insert_with(|| format!("thread-{next}")).clone()
    }

    /// The number of names that were replaced.
    pub(super) fn count(&self) -> usize {
        self.files.len() + self.threads.len()
    }
}

/// The file name, if this is an absolute path.
pub(crate) fn file_name(path: &str) -> &str {
    if path.starts_with('/') {
        path.rsplit('/').next().unwrap_or(path)
    } else {
        path
    }
}

/// Removes what the metadata says of the program's arguments and environment, and the folders of
/// files. Returns the number of words left out.
pub(crate) fn meta(meta: &mut Meta) -> usize {
    let before = meta.command.len() + meta.program.len();
    let own = match meta.command.strip_suffix(meta.program.as_slice()) {
        Some(own) => own.to_vec(),
        // Without the program's words nothing tells where they begin.
        None => meta.command.iter().take(2).cloned().collect(),
    };

    // Without a program, as in an import, there are no arguments to leave out.
    let is_import = meta.program.is_empty();
    let own = if is_import { meta.command.clone() } else { own };

    let mut words = Vec::new();
    let mut is_variable = false;
    for word in own {
        // `--env NAME=VALUE` may be one word or two.
        let hides = std::mem::replace(&mut is_variable, word == "--env");
        if !hides && word != "--env" && !word.starts_with("--env=") {
            words.push(file_name(&word).to_owned());
        }
    }

    // The program's name stays; its arguments may hold anything.
    meta.program.truncate(1);
    for word in &mut meta.program {
        *word = file_name(word).to_owned();
    }

    words.extend(meta.program.iter().cloned());
    meta.command = words;

    before.saturating_sub(meta.command.len() + meta.program.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn arguments_and_variables_go_and_options_stay() {
        let mut of = Meta {
            command: words(
                "unwind-sim record --env KEY=s3cret --at every:9 -o /home/me/t -- /home/me/p s3cret",
            ),
            program: words("/home/me/p s3cret"),
            ..Meta::default()
        };
        assert_eq!(meta(&mut of), 4);
        assert_eq!(
            of.command,
            words("unwind-sim record --at every:9 -o t -- p")
        );
        assert_eq!(of.program, words("p"));
    }

    #[test]
    fn a_name_is_replaced_by_the_same_one_everywhere() {
        let mut names = Names::default();
        assert_eq!(names.file("/home/me/secret/prog"), "/file-1");
        assert_eq!(names.file("/home/me/lib.so"), "/file-2");
        assert_eq!(
            names.file("/home/me/secret/prog (deleted)"),
            "/file-1 (deleted)"
        );
        assert_eq!(names.file("/usr/lib/libc.so.6"), "/usr/lib/libc.so.6");
        assert_eq!(names.file("[vdso]"), "[vdso]");
        assert_eq!(names.thread("prog"), "thread-1");
        assert_eq!(names.count(), 3);
    }
}
