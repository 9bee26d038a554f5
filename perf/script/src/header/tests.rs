//! `--header` of recordings in the corpus, and of features that none of them has.

use super::*;
use std::time::Duration;

fn corpus(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/perfdata/");
    std::fs::read(format!("{folder}{name}.data")).unwrap()
}

fn block(bytes: &[u8]) -> String {
    let file = PerfFile::parse(bytes).unwrap();
    let written = UNIX_EPOCH + Duration::from_secs(1_795_442_420);
    String::from_utf8(text(&file, bytes, Some(written))).unwrap()
}

#[test]
fn of_a_group_of_events() {
    let wanted = "\
# ========
# captured on    : Mon Nov 23 14:00:20 2026
# header version : 1
# data offset    : 424
# data size      : 2600
# feat offset    : 3024
# hostname : vm
# os release : 6.18.44-fc-v669
# perf version : 6.1.187
# arch : x86_64
# nrcpus online : 2
# nrcpus avail : 2
# cpudesc : Intel(R) Xeon(R) Processor
# cpuid : GenuineIntel,6,167,1
# total memory : 24684084 kB
# cmdline : /usr/bin/perf record -q -e {cpu-clock:u,page-faults:u}:S -c 500000 -o read-group.data -- ls -R /usr/include 
# event : name = cpu-clock:u, , id = { 11067, 11068 }, type = 1 (PERF_TYPE_SOFTWARE), size = 128, config = 0 (PERF_COUNT_SW_CPU_CLOCK), { sample_period, sample_freq } = 500000, sample_type = IP|TID|TIME|READ|ID, read_format = ID|GROUP|LOST, disabled = 1, exclude_kernel = 1, exclude_hv = 1, mmap = 1, comm = 1, enable_on_exec = 1, task = 1, sample_id_all = 1, exclude_guest = 1, mmap2 = 1, comm_exec = 1, ksymbol = 1, bpf_event = 1
# event : name = page-faults:u, , id = { 11069, 11070 }, type = 1 (PERF_TYPE_SOFTWARE), size = 128, config = 0x2 (PERF_COUNT_SW_PAGE_FAULTS), sample_type = IP|TID|TIME|READ|ID, read_format = ID|GROUP|LOST, exclude_kernel = 1, exclude_hv = 1, sample_id_all = 1, exclude_guest = 1
# CPU_TOPOLOGY info available, use -I to display
# NUMA_TOPOLOGY info available, use -I to display
# pmu mappings: software = 1, uprobe = 8, breakpoint = 5, tracepoint = 2, msr = 9
# group: {cpu-clock:u,page-faults:u}
# CACHE info available, use -I to display
# time of first sample : 38455.772670
# time of last sample : 38456.005697
# sample duration :    233.027 ms
# MEM_TOPOLOGY info available, use -I to display
# bpf_prog_info empty
# btf info empty
# missing features: TRACING_DATA BRANCH_STACK AUXTRACE STAT CLOCKID DIR_FORMAT COMPRESSED CPU_PMU_CAPS CLOCK_DATA HYBRID_TOPOLOGY CPU_DOMAIN_INFO E_MACHINE CLN_SIZE 
# ========
#
";
    assert_eq!(block(&corpus("read-group")), wanted);
}

#[test]
fn of_a_breakpoint_and_of_what_was_compressed() {
    let text = block(&corpus("fields"));
    assert!(text.contains(
        "type = 5 (PERF_TYPE_BREAKPOINT), size = 128, config = 0, { sample_period, sample_freq } \
         = 1,"
    ));
    assert!(
        text.contains(
            ", bp_type = 2, { bp_addr, config1 } = 0x403000, { bp_len, config2 } = 0x4\n"
        )
    );
    assert!(text.contains("type = 2 (PERF_TYPE_TRACEPOINT), size = 128, config = 0x135,"));
    let text = block(&corpus("dwarf-zstd"));
    assert!(text.contains("# compressed : Zstd, level = 1, ratio = "));
    assert!(text.contains("freq = 1,") && text.contains("sample_regs_user = 0xff0fff,"));
    assert!(block(&corpus("LBR-stitch-grow")).contains("# cpu pmu capabilities: branches=8\n"));
}

/// In a pipe, the features are records, which follow the header.
#[test]
fn of_a_pipe() {
    let bytes = corpus("fp-pipe");
    let wanted = "\
# ========
# captured on    : Mon Nov 23 14:00:20 2026
# header version : 1
# data offset    : 0
# data size      : 0
# feat offset    : 0
# ========
#
";
    assert_eq!(block(&bytes), wanted);
    let file = PerfFile::parse(&bytes).unwrap();
    let records = String::from_utf8(features(&file)).unwrap();
    assert!(records.starts_with("# hostname : recorder\n"), "{records}");
    assert!(records.ends_with("\n# bpf_prog_info empty\n# btf info empty\n"));
}

/// A recording with one feature.
fn with_feature(number: u8, section: &[u8]) -> Vec<u8> {
    let mut bytes = corpus("LBR-stitch-grow");
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let table = (word(40) + word(48)) as usize;
    bytes.truncate(table);
    bytes.extend((table as u64 + 16).to_le_bytes());
    bytes.extend((section.len() as u64).to_le_bytes());
    bytes.extend(section);
    bytes[72..104].fill(0);
    bytes[72 + usize::from(number) / 8] = 1 << (number % 8);
    bytes
}

fn string(text: &str) -> Vec<u8> {
    let mut bytes = vec![0; 4 + (text.len() + 1).next_multiple_of(64)];
    let size = bytes.len() as u32 - 4;
    bytes[..4].copy_from_slice(&size.to_le_bytes());
    bytes[4..4 + text.len()].copy_from_slice(text.as_bytes());
    bytes
}

fn said(number: u8, section: &[u8]) -> String {
    let text = block(&with_feature(number, section));
    let (_, rest) = text.split_once("# feat offset").unwrap();
    let (_, rest) = rest.split_once('\n').unwrap();
    rest.split_once("# missing").unwrap().0.to_owned()
}

#[test]
fn of_features_that_few_recordings_have() {
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };

    // The version and the clock's number, and then two times.
    let mut clock = words(&[1, 4]);
    clock.extend(1_795_442_420_000_001_000_u64.to_le_bytes());
    clock.extend(5_000_000_007_u64.to_le_bytes());
    assert_eq!(
        said(29, &clock),
        "# clockid: monotonic_raw (4)\n# reference time: 2026-11-23 14:00:20.000001 = \
         1795442420.000001 (TOD) = 5.000000007 (monotonic_raw)\n"
    );
    assert_eq!(
        said(23, &5u64.to_le_bytes()),
        "# clockid frequency: 5000 MHz\n"
    );

    // A count; the name, and the first event and number of members of each group.
    let group = [words(&[1]), string("ours"), words(&[0, 1])].concat();
    assert_eq!(said(17, &group), "# group: ours{cpu-clock}\n");

    // For each PMU, its capabilities and then its name.
    let caps = [
        words(&[1, 1]),
        string("branches"),
        string("32"),
        string("cpu_core"),
    ]
    .concat();
    assert_eq!(
        said(31, &caps),
        "# cpu_core pmu capabilities: branches=32\n"
    );
    assert_eq!(
        said(28, &words(&[0])),
        "# cpu pmu capabilities: not available\n"
    );
    assert_eq!(said(16, &words(&[0])), "# pmu mappings: not available\n");

    // Only the number of the program is printed.
    let program = [words(&[1, 8, 0, 0, 0, 6, 77]), Vec::new()].concat();
    assert_eq!(said(25, &program), "# bpf_prog_info of id 77\n");
    assert_eq!(said(26, &words(&[1, 9, 0])), "# btf info of id 9\n");

    // A quote is escaped, and each word is followed by a space.
    let quoted = [words(&[2]), string("perf"), string("it's")].concat();
    assert_eq!(said(11, &quoted), "# cmdline : perf it\\'s \n");
    assert_eq!(
        said(30, b""),
        "# HYBRID_TOPOLOGY info available, use -I to display\n"
    );
}

#[test]
fn of_damaged_features() {
    for number in [
        3, 7, 10, 11, 12, 16, 17, 21, 23, 25, 26, 27, 28, 29, 31, 33, 34,
    ] {
        let wanted = format!("# {} info is damaged\n", NAMES[usize::from(number)]);
        assert_eq!(said(number, &[0xff; 3]), wanted);
    }
    // Lengths beyond the section, and leaders that do not exist.
    for number in [11, 12, 16, 17, 25, 26, 28, 31] {
        let wanted = format!("# {} info is damaged\n", NAMES[usize::from(number)]);
        assert_eq!(said(number, &[0xff; 64]), wanted);
    }
}

#[test]
fn attributes_in_words() {
    let attribute = |kind: u32, config: u64| {
        let mut bytes = [0; 128];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4] = 128;
        bytes[8..16].copy_from_slice(&config.to_le_bytes());

        // `precise_ip` 3 and `defer_callchain`.
        bytes[40..48].copy_from_slice(&(3u64 << 15 | 1 << 38).to_le_bytes());
        let mut out = String::new();
        let pmus = [(4, "cpu".to_owned()), (10, "cpu_atom".to_owned())];
        attribute::print(&bytes, &pmus, &mut out);

        // What is the same in all of them is taken away.
        out.strip_suffix(", precise_ip = 3, defer_callchain = 1")
            .unwrap()
            .replace(", size = 128", "")
    };

    // A name is printed only for a known number.
    let hardware = ", type = 0 (PERF_TYPE_HARDWARE), config = ";
    assert_eq!(
        attribute(0, 1),
        format!("{hardware}0x1 (PERF_COUNT_HW_INSTRUCTIONS)")
    );
    assert_eq!(
        attribute(0, 10 << 32),
        format!("{hardware}0xa00000000 (cpu_atom/PERF_COUNT_HW_CPU_CYCLES/)")
    );
    assert_eq!(attribute(0, 99), format!("{hardware}0x63"));
    assert_eq!(
        attribute(3, 0x1_0102),
        ", type = 3 (PERF_TYPE_HW_CACHE), config = 0x10102 (PERF_COUNT_HW_CACHE_RESULT_MISS | \
         PERF_COUNT_HW_CACHE_OP_WRITE | PERF_COUNT_HW_CACHE_LL)"
    );
    assert_eq!(attribute(4, 0x1c2), ", type = 4 (cpu), config = 0x1c2");
    assert_eq!(attribute(77, 0), ", type = 77, config = 0");
}

#[test]
fn dates_are_those_of_the_calendar() {
    assert_eq!(ctime(0), "Thu Jan  1 00:00:00 1970");
    assert_eq!(ctime(951_782_400), "Tue Feb 29 00:00:00 2000");
    assert_eq!(ctime(4_102_444_799), "Thu Dec 31 23:59:59 2099");
    assert_eq!(date(951_868_799), "2000-02-29 23:59:59");
}
