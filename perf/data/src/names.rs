//! Names of events, derived from the attribute if the file has none.

use super::attr::EventAttr;

/// `PERF_TYPE_HARDWARE`, by `config`.
const HARDWARE: [&str; 10] = [
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-misses",
    "bus-cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
    "ref-cycles",
];
/// `PERF_TYPE_SOFTWARE`, by `config`.
const SOFTWARE: [&str; 12] = [
    "cpu-clock",
    "task-clock",
    "page-faults",
    "context-switches",
    "cpu-migrations",
    "minor-faults",
    "major-faults",
    "alignment-faults",
    "emulation-faults",
    "dummy",
    "bpf-output",
    "cgroup-switches",
];

/// Bits of the flag word that become modifiers.
mod bit {
    pub(super) const EXCLUDE_USER: u64 = 1 << 4;
    pub(super) const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub(super) const EXCLUDE_HV: u64 = 1 << 6;
    pub(super) const PRECISE: u64 = 3 << 15;
    pub(super) const EXCLUDE_HOST: u64 = 1 << 19;
    pub(super) const EXCLUDE_GUEST: u64 = 1 << 20;
}

/// The name of an event: the file's own, or one derived from the attribute as `evsel__name` does.
pub fn event_name(attr: &EventAttr) -> String {
    if let Some(name) = &attr.name {
        return name.clone();
    }
    let known = match attr.kind {
        0 => HARDWARE.get(attr.config as usize).copied(),
        1 => SOFTWARE.get(attr.config as usize).copied(),
        _ => None,
    };
    let mut name = match (attr.kind, known) {
        (0, None) => "unknown-hardware".to_owned(),
        (1, None) => "unknown-software".to_owned(),
        (_, Some(known)) => known.to_owned(),
        (2, None) => return "unknown tracepoint".to_owned(),
        (4, None) => format!("raw {:#x}", attr.config),
        (kind, None) => return format!("unknown attr type: {kind}"),
    };
    modifiers(attr.flags, &mut name);
    name
}

/// Appends modifiers as `evsel__add_modifiers` does.
fn modifiers(flags: u64, name: &mut String) {
    let excluded = |bit| flags & bit != 0;
    let mut marks = String::new();
    let any = bit::EXCLUDE_USER | bit::EXCLUDE_KERNEL | bit::EXCLUDE_HV;

    // Any of the three bits excludes something: the letters say what is left.
    if excluded(any) {
        let letters = [
            (bit::EXCLUDE_KERNEL, 'k'),
            (bit::EXCLUDE_USER, 'u'),
            (bit::EXCLUDE_HV, 'h'),
        ];
        marks.extend(
            letters
                .iter()
                .filter(|(bit, _)| !excluded(*bit))
                .map(|(_, c)| c),
        );
    }

    // `precise_ip` is a number of two bits, with a letter for each level.
    for _ in 0..(flags & bit::PRECISE) >> 15 {
        marks.push('p');
    }

    // Host and guest come last, in capital letters.
    if excluded(bit::EXCLUDE_HOST | bit::EXCLUDE_GUEST) {
        let letters = [(bit::EXCLUDE_HOST, 'H'), (bit::EXCLUDE_GUEST, 'G')];
        marks.extend(
            letters
                .iter()
                .filter(|(bit, _)| !excluded(*bit))
                .map(|(_, c)| c),
        );
    }

    // An event without modifiers has no colon.
    if !marks.is_empty() {
        name.push(':');
        name.push_str(&marks);
    }
}
