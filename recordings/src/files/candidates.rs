//! The places where the file of a mapping may be, best first.
//!
//! Not here: whether it is the right file; whoever opens it compares build ids.

use super::{FinderOptions, MappingRequest};
use std::path::{Path, PathBuf};

/// What the kernel appends to the path of a file that was removed.
pub(super) const DELETED: &str = " (deleted)";

/// Shortest build id that names a file in a tree: one byte is its directory.
const BUILD_ID_LEN_MIN: usize = 2;

/// All places, best first. The first one is most often the right one: the others are only thought
/// of when they are asked for.
pub(super) fn candidates(
    options: &FinderOptions,
    request: &MappingRequest<'_>,
) -> impl Iterator<Item = PathBuf> {
    let plain = request.name.strip_suffix(DELETED);
    let path = Path::new(plain.unwrap_or(request.name));
    let is_path = path.is_absolute();
    let has_id = !request.build_id.is_empty();
    let has_proc = is_path && options.symfs.is_none();
    // Without a build id, the file that now has the name of a removed one is surely another.
    let here = is_path && (plain.is_none() || has_id);
    (0..4).flat_map(move |stage| match stage {
        0 if has_proc && options.live => in_proc(request, path),
        1 if here => vec![below(options.symfs.as_deref(), path)],
        2 if has_id => in_trees(options, request.build_id, is_path),
        3 if has_id && has_proc && !options.live => in_proc(request, path),
        _ => Vec::new(),
    })
}

/// What `/proc` has of the process.
fn in_proc(request: &MappingRequest<'_>, path: &Path) -> Vec<PathBuf> {
    let proc = format!("/proc/{}", request.pid);
    let (start, end) = (request.range.start, request.range.end);
    let mut out = vec![format!("{proc}/map_files/{start:x}-{end:x}").into()];
    // The link of map_files needs a capability, this one does not.
    let exe = PathBuf::from(format!("{proc}/exe"));
    if std::fs::read_link(&exe).is_ok_and(|link| link == Path::new(request.name)) {
        out.push(exe);
    }
    if let Ok(below) = path.strip_prefix("/") {
        out.push(Path::new(&proc).join("root").join(below));
    }
    out
}

/// The build-id trees and the cache of perf.
fn in_trees(options: &FinderOptions, build_id: &[u8], is_path: bool) -> Vec<PathBuf> {
    let dirs = options.debug_dirs.iter();
    let mut out: Vec<PathBuf> = dirs.filter_map(|dir| in_tree(dir, build_id, "")).collect();
    // Since Linux 4.4 a directory with `elf` and `debug` in it; before, the file itself.
    let cache = options.perf_cache.as_deref();
    if let Some(entry) = cache.and_then(|cache| in_tree(cache, build_id, "")) {
        out.push(entry.join(if is_path { "elf" } else { "vdso" }));
        out.push(entry);
    }
    out
}

/// `path` below the root `symfs`. `..` does not lead out of it.
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

/// `DIR/.build-id/xx/yyyy` and a suffix; `None` if the id is too short.
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
