//! Chooses the list of kernel symbols.

use super::helper::{Helper, Owner};
use super::places::Places;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// Maximum bytes read from a list.
const LIST_MAX: u64 = 256 << 20;
/// The list of the running kernel.
const RUNNING: &str = "/proc/kallsyms";

/// The list of kernel symbols: the one specified, that of the running kernel if it is the recorded
/// one, or one cached by perf.
///
/// The running kernel generates its list for each reader, which takes longer than everything else
/// that a small recording needs. If perf has cached the same list, the cached one is read instead.
pub(super) fn text(places: &Places, helper: &dyn Helper) -> Option<Owner> {
    if let Some(path) = &places.kallsyms {
        return helper.contents(path, LIST_MAX);
    }
    if places.symfs.is_some() {
        return None;
    }
    let Some(id) = places.kernel_build_id.as_deref() else {
        return helper.contents(Path::new(RUNNING), LIST_MAX);
    };
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let aside = std::env::var_os("HOME").and_then(|home| {
        let folder = Path::new(&home).join(".debug/[kernel.kallsyms]").join(hex);
        helper.contents(&folder.join("kallsyms"), LIST_MAX)
    });
    let notes = std::fs::read("/sys/kernel/notes").unwrap_or_default();
    if id.is_empty() || !notes.windows(id.len()).any(|part| part == id) {
        return aside;
    }
    let same = aside.filter(|list| is_of_this_boot((**list).as_ref()));
    same.or_else(|| helper.contents(Path::new(RUNNING), LIST_MAX))
}

/// Whether the list, of a kernel with the running kernel's build ID, equals the running kernel's:
/// it must start alike, which means an equal KASLR offset, and have the same modules at the same
/// addresses. perf does not look up generated code (BPF programs, trampolines) in the list.
fn is_of_this_boot(list: &[u8]) -> bool {
    let mut begin = Vec::new();
    let running = std::fs::File::open(RUNNING);
    // The kernel generates the list a page at a time.
    let taken = running.and_then(|file| file.take(4096).read_to_end(&mut begin));
    let loaded = std::fs::read_to_string("/proc/modules").unwrap_or_default();
    taken.is_ok() && !begin.is_empty() && list.starts_with(&begin) && has_modules(list, &loaded)
}

/// Whether the list has exactly the modules of `/proc/modules`, each with code at the address
/// stated there.
fn has_modules(list: &[u8], loaded: &str) -> bool {
    let mut found: HashMap<&[u8], bool> = HashMap::new();
    let mut places: HashMap<&[u8], (u64, u64)> = HashMap::new();

    // From `/proc/modules`: what is loaded, and where.
    for line in loaded.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        // Name, size, reference count, dependents, state, address.
        let [name, size, _, _, _, start, ..] = words[..] else {
            return false;
        };

        let (Some(start), Ok(size)) = (hexadecimal(start.as_bytes()), size.parse()) else {
            return false;
        };
        places.insert(name.as_bytes(), (start, size));
        found.insert(name.as_bytes(), false);
    }

    // From the list: each line with a tab belongs to a module.
    for tab in memchr::memchr_iter(b'\t', list) {
        let begin = memchr::memrchr(b'\n', &list[..tab]).map_or(0, |end| end + 1);
        let rest = &list[tab + 1..];
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let Some(name) = rest[..end].strip_prefix(b"[") else {
            return false;
        };
        let name = name.strip_suffix(b"]").unwrap_or(name);

        // The kernel lists generated code as if it were of these modules.
        if name == b"bpf" || name.starts_with(b"__builtin__") {
            continue;
        }

        // The list has a module that is not loaded, so it is that of another kernel or time.
        let Some(&(start, size)) = places.get(name) else {
            return false;
        };

        // One symbol of its code in its range is enough.
        let mut words = list[begin..tab].split(|&byte| byte == b' ');
        let address = words.next().and_then(hexadecimal);
        let is_code = matches!(words.next(), Some(b"t" | b"T"));
        let inside = |address: u64| (start..start.saturating_add(size)).contains(&address);
        if is_code && address.is_some_and(inside) {
            found.insert(name, true);
        }
    }

    // A module without code in the list may have been loaded at another address.
    found.into_values().all(|found| found)
}

/// Parses a number, with or without `0x`.
fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[u8] = b"ffffffff81000000 T _text\n\
        ffffffffc0001000 t init\t[fs]\n\
        ffffffffc0104000 d table\t[fs]\n\
        ffffffffc0200010 T ping\t[net]\n\
        ffffffffc0300000 t bpf_prog_1\t[bpf]\n\
        ffffffffc0400000 t ftrace_trampoline\t[__builtin__ftrace]\n";
    const LOADED: &str = "fs 16384 1 net, Live 0xffffffffc0000000\n\
        net 4096 0 - Live 0xffffffffc0200000 (E)\n";

    #[test]
    fn a_list_with_the_modules_that_are_loaded_is_taken() {
        assert!(has_modules(LIST, LOADED));
        assert!(has_modules(b"ffffffff81000000 T _text\n", ""));
        assert!(!has_modules(LIST, ""), "modules that are gone");
        let more = format!("{LOADED}usb 4096 0 - Live 0xffffffffc0500000\n");
        assert!(!has_modules(LIST, &more), "a module that came later");
        let moved = LOADED.replace("c0200000", "c0600000");
        assert!(!has_modules(LIST, &moved), "a module that was loaded again");
        let hidden = LOADED.replace("ffffffffc0", "0000000000");
        assert!(!has_modules(LIST, &hidden), "addresses that are not shown");
        assert!(!has_modules(LIST, "fs\n"), "no list of modules");
    }
}
