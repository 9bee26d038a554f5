//! Dumps of the fuzz corpus: complete, truncated and overwritten; and unsupported formats.

use super::super::{ImportItem, import_bytes};
use super::*;
use crate::kernel::KernelSymbols;
use std::sync::Arc;

const CR3: &[u8] = include_bytes!("../../../fuzz/corpus/vmcore/cr3");
const INFO: &[u8] = include_bytes!("../../../fuzz/corpus/vmcore/info");
const MAP: &str = "ffffffff80e01000 D init_top_pgt\nffffffff81000000 T _text\n\
    ffffffff81000100 D linux_banner\nffffffff81000200 D init_task\n\
    ffffffff810003c0 D __per_cpu_offset\n0000000000000010 D current_task\n";
const OFFSETS: [(&str, u64); 8] = [
    ("task_struct.tasks", 0),
    ("task_struct.thread_node", 16),
    ("task_struct.signal", 32),
    ("task_struct.pid", 40),
    ("task_struct.comm", 48),
    ("task_struct.stack", 64),
    ("task_struct.thread.sp", 72),
    ("signal_struct.thread_head", 0),
];
/// Addresses of the kernel and of the first stack.
const AT: u64 = 0xffff_ffff_8160_0000;
const STACK: u64 = 0xffff_c900_0000_0000;

struct Found {
    samples: Vec<Sample<'static>>,
    names: Vec<String>,
    imported: Result<Imported, ImportError>,
}

fn options() -> ImportOptions {
    ImportOptions {
        offsets: OFFSETS
            .map(|(member, offset)| (member.into(), offset))
            .into(),
        ..ImportOptions::default()
    }
}

fn import_as(bytes: &[u8], release: &str, options: &ImportOptions) -> Found {
    let symbols = KernelSymbols::from_map(MAP.as_bytes()).expect("a map");
    let image = KernelImage::of_symbols(symbols, Some(release.into()));
    let (mut samples, mut names) = (Vec::new(), Vec::new());
    let owner = Arc::new(bytes.to_vec());
    let imported = import_vmcore(owner, &image, options, &mut |item| {
        match item {
            ImportItem::Item(Item::Sample(sample)) => samples.push(sample.into_owned()),
            ImportItem::Item(Item::Event(Event::Comm { name, .. })) => names.push(name),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    Found {
        samples,
        names,
        imported,
    }
}

fn import(bytes: &[u8]) -> Found {
    import_as(bytes, "6.1.0-tiny", &options())
}

/// The dump with the 8 bytes `from`, which must occur exactly once, replaced by `to`.
fn with(bytes: &[u8], from: u64, to: u64) -> Vec<u8> {
    let at = memchr::memmem::find(bytes, &from.to_le_bytes()).expect("there");
    let mut out = bytes.to_vec();
    out[at..at + 8].copy_from_slice(&to.to_le_bytes());
    out
}

#[test]
fn every_task_is_a_sample_whichever_way_the_page_tables_are_found() {
    // Without both notes the banner is searched for.
    let mut bare = INFO.to_vec();
    let at = memchr::memmem::find(&bare, b"VMCOREINFO").expect("the note");
    bare[at] = b'X';

    for bytes in [CR3, INFO, &bare] {
        let found = import(bytes);
        let imported = found.imported.expect("sound");
        assert!(imported.problems.is_empty(), "{:?}", imported.problems);
        assert_eq!(found.names, ["swapper/0", "process", "thread"]);
        let tids: Vec<u32> = found.samples.iter().map(|s| s.tid).collect();
        assert_eq!(tids, [0, 7, 8]);

        let [idle, process, thread] = &found.samples[..] else {
            panic!("three tasks");
        };

        for (sample, i) in [(idle, 0), (thread, 2)] {
            let task = &sample.kernel.as_ref().expect("a kernel sample").task;
            assert!(!task.is_current);
            let begin = STACK + 0x8000 * i;
            assert_eq!(task.thread_sp, begin + 0x3f00);
            // Both are on the stack at `thread.sp` (`struct inactive_task_frame`).
            assert_eq!(sample.regs.sampled.get(Reg::Rip), Some(AT + 0x10 + i));
            assert_eq!(sample.regs.sampled.get(Reg::Rbp), Some(0x1000 + i));
            let region = &sample.regions[0];
            assert_eq!((region.address, region.bytes.len()), (begin + 0x3f00, 256));
        }

        let task = &process.kernel.as_ref().expect("a kernel sample").task;
        assert!(task.is_current, "a processor runs it");
        // A running task's registers are in the note of its processor.
        assert_eq!(process.regs.sampled.rip(), AT + 0x20);
        assert_eq!(process.regions[0].address, STACK + 0x8000 + 0x3f80);
    }
}

#[test]
fn a_dump_of_another_kernel_is_reported() {
    let other = import_as(CR3, "6.12.0", &options());
    let problem = Problem::OtherKernel {
        dump: "6.1.0-tiny".into(),
        image: "6.12.0".into(),
    };
    assert_eq!(other.imported.unwrap_err(), problem.into());
    let told = ImportOptions {
        kaslr: Some(0x20_0000),
        ..options()
    };
    let moved = import_as(CR3, "6.1.0-tiny", &told);
    assert_eq!(moved.imported.unwrap_err(), Problem::NoPageTable.into());
}

#[test]
fn an_unknown_offset_is_named() {
    let none = import_as(CR3, "6.1.0-tiny", &ImportOptions::default());
    let error = none.imported.unwrap_err().to_string();
    assert!(error.contains("--offset task_struct.pid=BYTES"), "{error}");
}

#[test]
fn a_list_that_loops_to_another_element_ends() {
    // The link from the process's thread back to the head.
    let head = AT + 0x390;
    let node = AT + 0x200 + 0x80 + 16;
    let words: Vec<u8> = [head, node].iter().flat_map(|w| w.to_le_bytes()).collect();
    let at = memchr::memmem::find(CR3, &words).expect("the link");
    let mut bytes = CR3.to_vec();
    bytes[at..at + 8].copy_from_slice(&node.to_le_bytes());
    let found = import(&bytes);
    assert_eq!(found.samples.len(), 3);
    let problem = Problem::Endless {
        list: "threads",
        address: node,
    };
    assert_eq!(found.imported.expect("usable").problems, [problem.into()]);
}

#[test]
fn a_hole_costs_only_what_is_in_it() {
    // The page table entry of the first stack.
    let bytes = with(CR3, 0x7003, 0x00ff_f000_0003);
    let found = import(&bytes);
    assert_eq!(found.samples.len(), 3);
    assert!(found.samples[0].regions.is_empty());
    assert!(!found.samples[2].regions.is_empty());
}

#[test]
fn a_truncated_file_is_an_error_or_a_problem() {
    for len in (0..CR3.len()).step_by(7).chain([CR3.len() - 1]) {
        let found = import(&CR3[..len]);
        let told = match &found.imported {
            Ok(imported) => !imported.problems.is_empty(),
            Err(_) => true,
        };
        assert!(told, "cut to {len} of {}", CR3.len());
    }
}

#[test]
fn an_altered_dump_yields_only_what_it_contains_or_an_error() {
    let mut samples = 0;
    for seed in [CR3, INFO] {
        for at in (0..seed.len()).step_by(4) {
            for byte in [0, 0x83, 0xff] {
                let mut bytes = seed.to_vec();
                bytes[at] = byte;
                let found = import(&bytes);
                samples += found.samples.len();
                let regions = found.samples.iter().flat_map(|s| &s.regions);
                for region in regions {
                    assert!(region.bytes.len() <= bytes.len(), "{at} {byte:#x}");
                    let end = region.address.checked_add(region.bytes.len() as u64);
                    assert!(end.is_some(), "{at} {byte:#x}: a region wraps");
                }
                if let Err(error) = found.imported {
                    assert_ne!(error.to_string(), "", "{at} {byte:#x}");
                }
            }
        }
    }
    assert!(samples > 0);
}

#[test]
fn formats_that_are_not_read_are_named() {
    let seen = |bytes: &[u8]| {
        let owner = Arc::new(bytes.to_vec());
        import_bytes(owner, &options(), &mut |_| ControlFlow::Continue(()))
    };
    let error = seen(b"KDUMP   rest of the header").unwrap_err();
    assert!(error.to_string().contains("kdump-compressed"), "{error}");
    let error = seen(CR3).unwrap_err();
    assert_eq!(error, Problem::NoKernel { release: None }.into());
}

/// Memory with these bytes, which end at `0x2010`.
struct Ending(Vec<u8>);

impl KernelMemory for Ending {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        let refused = Fault::Refused { address };
        let start = 0x2010 - self.0.len() as u64;
        let from = address.checked_sub(start).ok_or(refused)? as usize;
        let found = self.0.get(from..from + out.len()).ok_or(refused)?;
        out.copy_from_slice(found);
        Ok(())
    }
}

#[test]
fn text_ends_with_its_nul_its_length_or_the_memory() {
    // It starts before the end of a page, and is longer than what is read at once.
    let mut bytes = vec![b'x'; 150];
    let text = |bytes: &[u8], max| Ending(bytes.to_vec()).text(0x2010 - 150, max);
    assert_eq!(text(&bytes, 1000), "x".repeat(150));
    for max in [0, 1, 63, 64, 65, 134, 135, 149, 150] {
        assert_eq!(text(&bytes, max), "x".repeat(max));
    }
    for nul in [0, 1, 63, 64, 133, 134, 135, 149] {
        bytes[nul] = 0;
        assert_eq!(text(&bytes, 1000), "x".repeat(nul), "{nul}");
        bytes[nul] = b'x';
    }
    assert_eq!(Ending(bytes).text(0x1000, 10), "");
}
