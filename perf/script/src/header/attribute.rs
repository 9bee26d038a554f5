//! An event's attribute as text (`perf_event_attr__fprintf`, Linux 7.2). perf takes the names of
//! PMUs and tracepoints from the machine that it runs on; here PMUs have the names that the
//! recording lists, and tracepoints only have numbers.

use std::fmt::Write;
use unwind_sim_perf_data::le;

/// Size in bytes of an attribute whose size member is 0 (`PERF_ATTR_SIZE_VER0`).
const SIZE_VER0: usize = 64;

/// Names of the bits of `sample_type`.
const SAMPLE_TYPE: [&str; 25] = [
    "IP",
    "TID",
    "TIME",
    "ADDR",
    "READ",
    "CALLCHAIN",
    "ID",
    "CPU",
    "PERIOD",
    "STREAM_ID",
    "RAW",
    "BRANCH_STACK",
    "REGS_USER",
    "STACK_USER",
    "WEIGHT",
    "DATA_SRC",
    "IDENTIFIER",
    "TRANSACTION",
    "REGS_INTR",
    "PHYS_ADDR",
    "AUX",
    "CGROUP",
    "DATA_PAGE_SIZE",
    "CODE_PAGE_SIZE",
    "WEIGHT_STRUCT",
];
/// The order in which perf prints the bits of `sample_type`; it omits TRANSACTION.
const SAMPLE_ORDER: [u8; 24] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 18, 15, 14, 19, 20, 21, 22, 23, 24,
];
/// Names of the bits of `read_format`.
const READ_FORMAT: [&str; 5] = [
    "TOTAL_TIME_ENABLED",
    "TOTAL_TIME_RUNNING",
    "ID",
    "GROUP",
    "LOST",
];
/// Names of the bits of `branch_sample_type`.
const BRANCHES: [&str; 20] = [
    "USER",
    "KERNEL",
    "HV",
    "ANY",
    "ANY_CALL",
    "ANY_RETURN",
    "IND_CALL",
    "ABORT_TX",
    "IN_TX",
    "NO_TX",
    "COND",
    "CALL_STACK",
    "IND_JUMP",
    "CALL",
    "NO_FLAGS",
    "NO_CYCLES",
    "TYPE_SAVE",
    "HW_INDEX",
    "PRIV_SAVE",
    "COUNTERS",
];
/// Bit fields of the flag word: the first bit, the width in bits, and the name.
const FLAGS: [(u32, u32, &str); 39] = [
    (0, 1, "disabled"),
    (1, 1, "inherit"),
    (2, 1, "pinned"),
    (3, 1, "exclusive"),
    (4, 1, "exclude_user"),
    (5, 1, "exclude_kernel"),
    (6, 1, "exclude_hv"),
    (7, 1, "exclude_idle"),
    (8, 1, "mmap"),
    (9, 1, "comm"),
    (10, 1, "freq"),
    (11, 1, "inherit_stat"),
    (12, 1, "enable_on_exec"),
    (13, 1, "task"),
    (14, 1, "watermark"),
    (15, 2, "precise_ip"),
    (17, 1, "mmap_data"),
    (18, 1, "sample_id_all"),
    (19, 1, "exclude_host"),
    (20, 1, "exclude_guest"),
    (21, 1, "exclude_callchain_kernel"),
    (22, 1, "exclude_callchain_user"),
    (23, 1, "mmap2"),
    (24, 1, "comm_exec"),
    (25, 1, "use_clockid"),
    (26, 1, "context_switch"),
    (27, 1, "write_backward"),
    (28, 1, "namespaces"),
    (29, 1, "ksymbol"),
    (30, 1, "bpf_event"),
    (31, 1, "aux_output"),
    (32, 1, "cgroup"),
    (33, 1, "text_poke"),
    (34, 1, "build_id"),
    (35, 1, "inherit_thread"),
    (36, 1, "remove_on_exec"),
    (37, 1, "sigtrap"),
    (38, 1, "defer_callchain"),
    (39, 1, "defer_output"),
];
/// Events of `PERF_TYPE_HARDWARE`, by `config`.
const HARDWARE: [&str; 10] = [
    "CPU_CYCLES",
    "INSTRUCTIONS",
    "CACHE_REFERENCES",
    "CACHE_MISSES",
    "BRANCH_INSTRUCTIONS",
    "BRANCH_MISSES",
    "BUS_CYCLES",
    "STALLED_CYCLES_FRONTEND",
    "STALLED_CYCLES_BACKEND",
    "REF_CPU_CYCLES",
];
/// Events of `PERF_TYPE_SOFTWARE`, by `config`.
const SOFTWARE: [&str; 12] = [
    "CPU_CLOCK",
    "TASK_CLOCK",
    "PAGE_FAULTS",
    "CONTEXT_SWITCHES",
    "CPU_MIGRATIONS",
    "PAGE_FAULTS_MIN",
    "PAGE_FAULTS_MAJ",
    "ALIGNMENT_FAULTS",
    "EMULATION_FAULTS",
    "DUMMY",
    "BPF_OUTPUT",
    "CGROUP_SWITCHES",
];
/// The bytes of `config` of `PERF_TYPE_HW_CACHE`: the cache, the operation and the result.
const CACHES: [&str; 7] = ["L1D", "L1I", "LL", "DTLB", "ITLB", "BPU", "NODE"];
const CACHE_OPS: [&str; 3] = ["READ", "WRITE", "PREFETCH"];
const CACHE_RESULTS: [&str; 2] = ["ACCESS", "MISS"];

/// Appends `, NAME = VALUE` for type, config, and each other member that is not 0.
pub(super) fn print(attr: &[u8], pmus: &[(u32, String)], out: &mut String) {
    // Only as many bytes as the writer's own attribute has: others read as 0, and are not printed.
    let size = match le::u32_at(attr, 4).unwrap_or(0) as usize {
        0 => SIZE_VER0,
        size => size,
    };
    let attr = &attr[..size.min(attr.len())];

    let word = |at| le::u64_at(attr, at).unwrap_or(0);
    let half = |at| u64::from(le::u32_at(attr, at).unwrap_or(0));

    let kind = half(0) as u32;
    let pmu = |number| {
        pmus.iter()
            .find(|(n, _)| *n == number)
            .map(|(_, n)| n.as_str())
    };
    member(
        out,
        "type",
        &with_name(kind.to_string(), type_name(kind, pmu(kind))),
    );

    // The size that the writer's perf knew, not that of the slot.
    number(out, "size", half(4));
    member(out, "config", &config(kind, word(8), pmu));
    number(out, "{ sample_period, sample_freq }", word(16));

    bits(out, "sample_type", word(24), &SAMPLE_ORDER, &SAMPLE_TYPE);
    let order: Vec<u8> = (0..32).collect();
    bits(out, "read_format", word(32), &order[..5], &READ_FORMAT);

    // The flags are bits of one word, which C declares as bit fields.
    for (first, count, name) in FLAGS {
        number(out, name, word(40) >> first & ((1 << count) - 1));
    }

    number(out, "{ wakeup_events, wakeup_watermark }", half(48));
    number(out, "bp_type", half(52));
    hex(out, "{ bp_addr, config1 }", word(56));
    hex(out, "{ bp_len, config2 }", word(64));
    bits(out, "branch_sample_type", word(72), &order[..20], &BRANCHES);
    hex(out, "sample_regs_user", word(80));
    number(out, "sample_stack_user", half(88));

    // Clocks of devices have negative numbers.
    let clock = le::u32_at(attr, 92).unwrap_or(0).cast_signed();
    if clock != 0 {
        member(out, "clockid", &clock.to_string());
    }

    hex(out, "sample_regs_intr", word(96));
    number(out, "aux_watermark", half(104));
    number(out, "sample_max_stack", half(108) & 0xffff);
    number(out, "aux_sample_size", half(112));
    number(out, "sig_data", word(120));

    // Three bits of one word, as for the flags above.
    for (bit, name) in ["aux_start_paused", "aux_pause", "aux_resume"]
        .iter()
        .enumerate()
    {
        number(out, name, half(116) >> bit & 1);
    }
}

fn member(out: &mut String, name: &str, value: &str) {
    // Writing to a string cannot fail.
    let _ = write!(out, ", {name} = {value}");
}

fn number(out: &mut String, name: &str, value: u64) {
    if value != 0 {
        member(out, name, &value.to_string());
    }
}

fn hex(out: &mut String, name: &str, value: u64) {
    if value != 0 {
        member(out, name, &format!("{value:#x}"));
    }
}

/// Appends the names of the set bits of a mask, in the given order.
fn bits(out: &mut String, name: &str, value: u64, order: &[u8], names: &[&str]) {
    let set = order.iter().filter(|&&bit| value >> bit & 1 != 0);
    let set: Vec<&str> = set.map(|&bit| names[usize::from(bit)]).collect();
    if value != 0 {
        member(out, name, &set.join("|"));
    }
}

fn with_name(value: String, name: Option<String>) -> String {
    match name {
        Some(name) => format!("{value} ({name})"),
        None => value,
    }
}

fn type_name(kind: u32, pmu: Option<&str>) -> Option<String> {
    let name = match kind {
        0 => "PERF_TYPE_HARDWARE",
        1 => "PERF_TYPE_SOFTWARE",
        2 => "PERF_TYPE_TRACEPOINT",
        3 => "PERF_TYPE_HW_CACHE",
        4 => pmu.unwrap_or("PERF_TYPE_RAW"),
        5 => "PERF_TYPE_BREAKPOINT",
        _ => pmu?,
    };
    Some(name.to_owned())
}

/// `config`, and the event's name if its type has names. The upper half of a hardware event's
/// `config` is the number of its PMU.
fn config<'p>(kind: u32, value: u64, pmu: impl Fn(u32) -> Option<&'p str>) -> String {
    let name = match kind {
        0 => {
            let name = HARDWARE.get((value & 0xffff_ffff) as usize);
            name.map(|name| format!("PERF_COUNT_HW_{name}"))
        }
        1 => {
            let name = usize::try_from(value).ok().and_then(|at| SOFTWARE.get(at));
            name.map(|name| format!("PERF_COUNT_SW_{name}"))
        }
        3 => cache(value),
        _ => None,
    };

    // Only these two types have the number: on hybrid processors, it tells the kinds of core apart.
    let is_core = kind == 0 || kind == 3;
    let of_pmu = (value >> 32) as u32;
    let of_pmu = pmu(of_pmu).filter(|_| is_core && of_pmu != 0);

    let name = match (name, of_pmu) {
        (Some(name), Some(pmu)) => Some(format!("{pmu}/{name}/")),
        (None, Some(pmu)) => Some(format!("{pmu}/config={value:#x}/")),
        (name, None) => name,
    };

    // Zero has no prefix, as in C's `%#x`.
    let value = if value == 0 {
        "0".to_owned()
    } else {
        format!("{value:#x}")
    };
    with_name(value, name)
}

fn cache(value: u64) -> Option<String> {
    let byte = |shift: u32| (value >> shift & 0xff) as usize;
    let (cache, op) = (CACHES.get(byte(0))?, CACHE_OPS.get(byte(8))?);
    let result = CACHE_RESULTS.get(byte(16))?;
    let prefix = "PERF_COUNT_HW_CACHE";
    Some(format!(
        "{prefix}_RESULT_{result} | {prefix}_OP_{op} | {prefix}_{cache}"
    ))
}
