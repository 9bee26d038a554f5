//! The files in which a run in the machine may differ from one on this computer, each with its
//! reason. All else, and the output, is compared byte by byte.

/// A field that is not compared.
pub(crate) struct Field {
    /// Its name.
    pub(crate) name: &'static str,
    /// Why it may differ.
    pub(crate) reason: &'static str,
    /// Whether it is this whole file below the folder of the line, by its path.
    file: fn(&str) -> bool,
}

/// All fields.
pub(crate) const FIELDS: [Field; 2] = [
    Field {
        name: "git's index",
        reason: "holds times and inodes of the files",
        file: |path| path.ends_with(".git/index"),
    },
    Field {
        name: "logs and caches of build tools",
        reason: "hold times, inodes, process numbers and the order in which jobs ended",
        file: |path| {
            let name = path.rsplit('/').next().unwrap_or(path);
            path.contains("CMakeFiles/")
                || path.contains("autom4te.cache/")
                || matches!(name, "config.log" | ".sconsign.dblite" | "CMakeCache.txt")
                || matches!(name, ".ninja_log" | ".ninja_deps")
        },
    },
];

/// The field that a file belongs to, by its path.
pub(crate) fn of_file(path: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| (field.file)(path))
}
