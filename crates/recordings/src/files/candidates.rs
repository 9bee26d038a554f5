//! The paths where the file of a mapping may be, best first. Build IDs are compared by the caller.

use super::{FinderOptions, MappingRequest};
use std::path::{Path, PathBuf};

/// Suffix that the kernel appends to the path of a removed file.
pub(super) const DELETED: &str = " (deleted)";

/// Minimum length of a build ID, bytes: the first byte names the directory in a tree.
const BUILD_ID_LEN_MIN: usize = 2;

/// All paths, best first. Usually the first one is right, so the others are generated lazily.
pub(super) fn candidates(
    options: &FinderOptions,
    request: &MappingRequest<'_>,
) -> impl Iterator<Item = PathBuf> {
    let plain = request.name.strip_suffix(DELETED);
    let path = Path::new(plain.unwrap_or(request.name));
    let is_path = path.is_absolute();
    let has_id = !request.build_id.is_empty();
    let has_proc = is_path && options.symfs.is_none();

    // Without a build ID, a file that now has the name of a removed one is another file.
    let here = is_path && (plain.is_none() || has_id);

    let program = options
        .program
        .as_ref()
        .filter(|(name, _)| name == request.name);
    let given = program.and_then(|(_, file)| file.clone());

    // What the user gave is the only candidate.
    let stages = if given.is_some() { 4..5 } else { 0..4 };
    stages.flat_map(move |stage| match stage {
        0 if has_proc && options.live => in_proc(request, path),
        1 if here => at_its_path(options, path, has_id),
        2 if has_id => in_trees(options, request.build_id, is_path),
        3 if has_id && has_proc && !options.live => in_proc(request, path),
        4 => given.iter().cloned().collect(),
        _ => Vec::new(),
    })
}

/// The path below `--symfs`, then the path itself if a build ID can tell whether it is the file.
fn at_its_path(options: &FinderOptions, path: &Path, has_id: bool) -> Vec<PathBuf> {
    let first = below(options.symfs.as_deref(), path);
    let real = options.symfs.is_some() && options.real_root && has_id;
    std::iter::once(first)
        .chain(real.then(|| path.to_owned()))
        .collect()
}

/// Paths in `/proc` of the process.
fn in_proc(request: &MappingRequest<'_>, path: &Path) -> Vec<PathBuf> {
    let proc = format!("/proc/{}", request.pid);
    let (start, end) = (request.range.start, request.range.end);
    let mut out = vec![format!("{proc}/map_files/{start:x}-{end:x}").into()];
    // Reading map_files needs a capability, this link does not.
    let exe = PathBuf::from(format!("{proc}/exe"));
    if std::fs::read_link(&exe).is_ok_and(|link| link == Path::new(request.name)) {
        out.push(exe);
    }
    if let Ok(below) = path.strip_prefix("/") {
        out.push(Path::new(&proc).join("root").join(below));
    }
    out
}

/// Paths in the build-ID trees and perf's cache.
fn in_trees(options: &FinderOptions, build_id: &[u8], is_path: bool) -> Vec<PathBuf> {
    let dirs = options.debug_dirs.iter();
    let mut out: Vec<PathBuf> = dirs.filter_map(|dir| in_tree(dir, build_id, "")).collect();
    // Since Linux 4.4 a directory that contains `elf` and `debug`; before that, the file itself.
    let cache = options.perf_cache.as_deref();
    if let Some(entry) = cache.and_then(|cache| in_tree(cache, build_id, "")) {
        out.push(entry.join(if is_path { "elf" } else { "vdso" }));
        out.push(entry);
    }
    out
}

/// `path` below the root `symfs`. `..` cannot escape it.
pub(super) fn below(symfs: Option<&Path>, path: &Path) -> PathBuf {
    let Some(root) = symfs else {
        return path.to_owned();
    };
    let parts = path.components().filter_map(|part| match part {
        std::path::Component::Normal(part) => Some(part),
        _ => None,
    });
    parts.fold(root.to_owned(), |path, part| path.join(part))
}

/// `DIR/.build-id/xx/yyyy` plus a suffix; `None` if the build ID is too short.
pub(super) fn in_tree(dir: &Path, build_id: &[u8], suffix: &str) -> Option<PathBuf> {
    if build_id.len() < BUILD_ID_LEN_MIN {
        return None;
    }
    let hex: String = build_id.iter().map(|b| format!("{b:02x}")).collect();
    let (first, rest) = hex.split_at(2);
    Some(
        dir.join(".build-id")
            .join(first)
            .join(format!("{rest}{suffix}")),
    )
}
