//! Imports compared with the output of perf and gdb for the same files, and damaged files.

mod jitdump;
mod stack_end;

use super::*;
use crate::files::FinderOptions;
use crate::model::Item;
use crate::model::{Event, RegionRole, Sample};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use unwind_sim_unwind::image::Image;
use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::truth::Truth;

fn corpus(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(corpus(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn hex(word: &str) -> u64 {
    u64::from_str_radix(word.trim_start_matches("0x"), 16).expect("a hexadecimal number")
}

/// Looks for no files, so that the result does not depend on the machine.
fn nowhere() -> ImportOptions {
    ImportOptions {
        files: FinderOptions {
            symfs: Some("/nonexistent".into()),
            ..FinderOptions::default()
        },
        ..ImportOptions::default()
    }
}

/// Everything that an import yields.
#[derive(Default)]
struct Taken {
    images: Vec<Arc<Image>>,
    events: Vec<Event>,
    samples: Vec<Sample<'static>>,
}

fn owned(sample: Sample<'_>) -> Sample<'static> {
    let region = |r: crate::model::Region<'_>| crate::model::Region {
        bytes: r.bytes.into_owned().into(),
        ..r
    };
    Sample {
        regions: sample.regions.into_iter().map(region).collect(),
        ..sample
    }
}

fn take(bytes: Vec<u8>, options: &ImportOptions) -> Result<(Taken, Imported), ImportError> {
    let mut taken = Taken::default();

    let imported = import_bytes(Arc::new(bytes), options, &mut |item| {
        match item {
            ImportItem::Image { index, image } => {
                // Images are numbered in the order in which they come.
                assert_eq!(index.0 as usize, taken.images.len());
                taken.images.push(image);
            }
            ImportItem::Item(Item::Event(event)) => {
                if let Event::Map {
                    image: Some(index), ..
                } = &event
                {
                    assert!((index.0 as usize) < taken.images.len(), "announced before");
                }
                taken.events.push(event);
            }
            ImportItem::Item(Item::Sample(sample)) => taken.samples.push(owned(sample)),
        }
        ControlFlow::Continue(())
    })?;

    assert_eq!(imported.images as usize, taken.images.len());
    assert_eq!(imported.events as usize, taken.events.len());
    assert_eq!(imported.samples as usize, taken.samples.len());
    Ok((taken, imported))
}

/// A sample in the format of `perfdata/*.expected.txt`.
fn say(sample: &Sample<'_>) -> Vec<String> {
    let mut out = vec![format!(
        "sample {} {} {}",
        sample.pid, sample.tid, sample.time
    )];
    for chain in &sample.recorded {
        assert_eq!(chain.source, "perf");
        let ips = chain.ips.iter().enumerate();
        out.extend(ips.map(|(index, ip)| format!("chain {index} {ip:#x}")));
    }
    let regs = &sample.regs.sampled;
    let mut known: Vec<_> = regs.known().iter().collect();
    known.sort_by_key(|reg| reg.as_str());
    let value = |reg: Reg| format!("reg {reg} {:#x}", regs.get_or_zero(reg));
    out.extend(known.into_iter().map(value));
    let stack: usize = sample.regions.iter().map(|r| r.bytes.len()).sum();
    out.push(format!("stack {stack}"));
    assert_eq!(sample.truth, Truth::Unknown);
    out
}

/// The samples of an expectation file in the same format, without registers that we do not import.
fn expected_samples(name: &str) -> Vec<Vec<String>> {
    let mut out: Vec<Vec<String>> = Vec::new();
    for line in text(name).lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match (words[0], out.last_mut()) {
            ("sample", _) => {
                let (pid, tid, time) = (words[1], words[2], words[4]);
                out.push(vec![format!("sample {pid} {tid} {time}")]);
            }
            ("reg", Some(_)) if Reg::from_name(words[1]).is_none() => {}
            ("chain" | "reg" | "stack", Some(sample)) => sample.push(line.to_owned()),
            _ => {}
        }
    }
    for sample in &mut out {
        sample.sort();
    }
    out
}

fn check_perf(name: &str) {
    let bytes = std::fs::read(corpus(&format!("perfdata/{name}.data"))).expect("the corpus");
    let (taken, imported) = take(bytes, &nowhere()).expect("perf.data");

    let expected = expected_samples(&format!("perfdata/{name}.expected.txt"));
    let with_regs = |s: &&Vec<String>| s.iter().any(|line| line.starts_with("reg"));
    // A sample without registers has nothing to unwind, and is skipped.
    let expected: Vec<_> = expected.iter().filter(with_regs).collect();
    assert!(!expected.is_empty());

    for (sample, expected) in taken.samples.iter().zip(&expected) {
        let mut ours = say(sample);
        ours.sort();
        assert_eq!(&&ours, expected, "{name}");
        let rsp = sample.regs.sampled.rsp();
        assert!(sample.regions.iter().all(|r| r.address == rsp));
    }
    assert_eq!(taken.samples.len(), expected.len(), "{name}");
    assert_eq!(imported.problems, []);

    // Exactly the executable mappings are mapped; the others unmap what was there.
    let mapped = taken.events.iter().filter_map(|event| match event {
        Event::Map { range, bias, .. } => Some((range.start, range.start.wrapping_sub(*bias))),
        _ => None,
    });
    let mapped: Vec<_> = mapped.collect();
    assert!(mapped.len() >= 4, "{mapped:x?}");

    for line in text(&format!("perfdata/{name}.expected.txt")).lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if words[0] == "mmap" && mapped.iter().any(|m| m.0 == hex(words[3])) {
            // Without files, SVMAs are file offsets.
            assert!(mapped.contains(&(hex(words[3]), hex(words[5]))), "{line}");
        }
    }
}

/// A kind that the table of file kinds says is imported, and that no importer reads, would be refused only
/// when it is read.
#[test]
fn every_kind_that_is_imported_has_an_importer() {
    for kind in FileKind::ALL {
        let has_importer = FORMATS.iter().any(|format| format.kind == kind);
        assert_eq!(kind.is_imported(), has_importer, "{kind:?}");
    }
}

#[test]
fn perf_samples_are_those_that_perf_script_shows() {
    check_perf("dwarf");
    check_perf("dwarf-zstd");
}

#[test]
fn perf_samples_without_registers_are_counted_not_invented() {
    for name in [
        "fp-pipe",
        "threads4-switch-defer",
        "A-two-samples-one-record",
    ] {
        let bytes = std::fs::read(corpus(&format!("perfdata/{name}.data"))).expect("the corpus");
        let (taken, imported) = take(bytes, &nowhere()).expect("perf.data");
        let expected = text(&format!("perfdata/{name}.expected.txt"));
        let expected = expected
            .lines()
            .filter(|line| line.starts_with("sample "))
            .count() as u64;
        assert!(expected != 0);
        assert!(taken.samples.is_empty());
        let skipped: u64 = imported.skipped.values().sum();
        assert!(skipped >= expected, "{name}: {:?}", imported.skipped);
        assert!(imported.skipped.contains_key(&Skip::NoRegisters), "{name}");
    }
}

/// The kernel's part of a chain is kept with its markers, next to the user registers and stack.
#[test]
fn kernel_frames_that_perf_recorded_are_kept() {
    check_perf("kernel-frames");
    let bytes = std::fs::read(corpus("perfdata/kernel-frames.data")).expect("the corpus");
    let (taken, _) = take(bytes, &nowhere()).expect("perf.data");

    let of_kernel = |s: &Sample<'_>| {
        let ips = s.recorded.first().map_or(&[][..], |chain| &chain.ips);
        // `PERF_CONTEXT_KERNEL` is -128 (`include/uapi/linux/perf_event.h`).
        let marker = ips.first().copied();
        assert!(
            marker.is_none() || marker == Some(-128_i64 as u64),
            "{ips:x?}"
        );
        ips.len()
    };

    let lengths: Vec<usize> = taken.samples.iter().map(of_kernel).collect();
    assert_eq!(lengths, [0, 8, 9]);

    // With a stack copy, perf asks for no user part.
    for chain in taken.samples.iter().flat_map(|s| &s.recorded) {
        let request = chain.request.expect("the event says it");
        let has = [request.kernel, request.user, request.add_mark];
        assert_eq!((has, request.max_stack), ([true, false, true], 0));
    }

    for sample in &taken.samples {
        assert!(sample.regs.sampled.rip() < 1 << 47, "a user-space address");
    }
}

#[test]
fn branch_records_of_call_stacks_need_no_registers() {
    let name = "perfdata/LBR-stitch-grow.data";
    let whole = std::fs::read(corpus(name)).expect("the corpus");
    let (taken, _) = take(whole.clone(), &nowhere()).expect("perf.data");
    assert_eq!(taken.samples.len(), 3);

    let perf = text("perfdata/LBR-stitch-grow.expected.txt");
    let perf = perf.lines().filter(|line| line.starts_with("sample "));
    for (sample, line) in taken.samples.iter().zip(perf) {
        let words = line.split(' ').filter(|word| word.starts_with("0x"));
        let perf: Vec<u64> = words.map(hex).collect();
        let [ring] = sample.branches.as_slice() else {
            panic!("{:?}", sample.branches);
        };

        // perf's chain is the sampled ip, then where the calls that have not returned came from.
        let froms = ring.entries.iter().map(|branch| branch.from);
        let ours: Vec<u64> = std::iter::once(sample.regs.sampled.rip())
            .chain(froms)
            .collect();
        assert_eq!(ours, perf);
        assert_eq!((ring.depth, ring.hw_index.is_some()), (8, true));
        assert_eq!(
            sample.regs.sampled.get(Reg::Rsp),
            None,
            "rsp is not recorded"
        );
    }

    // In other modes than call-stack, branch records are not a stack: the same file with another
    // mode.
    let mode = 0x2_c801_u64.to_le_bytes();
    let at = whole.windows(8).position(|bytes| *bytes == mode);
    let mut any = whole;
    any[at.expect("its branch_sample_type") + 1] = 0;
    let (taken, imported) = take(any, &nowhere()).expect("perf.data");
    assert!(taken.samples.is_empty());
    assert!(imported.skipped.contains_key(&Skip::NoRegisters));
}

#[test]
fn the_taker_can_end_an_import() {
    let bytes = std::fs::read(corpus("perfdata/dwarf.data")).expect("the corpus");
    let mut taken = 0;
    let imported = import_bytes(Arc::new(bytes), &nowhere(), &mut |_| {
        taken += 1;
        if taken == 3 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert_eq!(taken, 3);
    assert_eq!(imported.map(|i| i.events + i.samples).ok(), Some(3));
}

#[test]
fn other_files_are_not_recordings() {
    let refused = |bytes: &[u8]| match take(bytes.to_vec(), &nowhere()) {
        Ok(_) => panic!("it must be refused"),
        Err(error) => error.to_string(),
    };

    assert_eq!(refused(b""), "neither perf.data, an ELF core nor a capture");
    assert_eq!(
        refused(b"hello"),
        "neither perf.data, an ELF core nor a capture"
    );
    assert!(refused(b"PERFILE2").starts_with("perf.data: file header at offset 0x0"));
    // The magic with its bytes reversed.
    assert!(refused(b"2ELIFREP").contains("big-endian"));

    // A header with nothing but its identification, which is completed step by step.
    let mut elf = vec![0u8; 64];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    let machine = "core: file header at offset 0x12: a core of machine 0; only x86-64 (62) is \
                   supported";
    assert_eq!(refused(&elf), machine);

    // e_machine is x86-64; e_type, at 16, is 2 for a program and 4 for a core (gABI).
    elf[18] = 62;
    elf[16] = 2;
    assert!(refused(&elf).contains("ELF type 2 is not a core"));
    elf[16] = 4;
    assert_eq!(
        refused(&elf),
        "core: notes at offset 0x0: no thread (NT_PRSTATUS) in the core"
    );
    // ELFCLASS32.
    elf[4] = 1;
    assert!(refused(&elf).contains("ELF class 1, not 64-bit (2)"));
    assert!(refused(b"\x7fELF").contains("lies outside the file of 4 bytes"));
}

fn core() -> Vec<u8> {
    let packed = std::fs::read(corpus("cores/threads.core.zst")).expect("the corpus");
    zstd::decode_all(&packed[..]).expect("zstd")
}

#[test]
fn threads_and_registers_of_a_core_are_those_of_gdb() {
    let (taken, imported) = take(core(), &nowhere()).expect("a core");
    assert_eq!(imported.problems, []);
    assert_eq!(imported.skipped.len(), 0);

    let (mut tid, mut compared) = (0, 0);
    for line in text("cores/threads.expected.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "thread" => tid = words[1].parse().expect("a number"),
            "file" | "build-id" => {}
            name => {
                // gdb's name for it.
                let name = if name == "eflags" { "rflags" } else { name };
                let reg = Reg::from_name(name).expect("a register");
                let mut samples = taken.samples.iter().filter(|s| s.tid == tid);
                let sample = samples.next().unwrap_or_else(|| panic!("no thread {tid}"));
                let ours = sample.regs.sampled.get(reg);
                assert_eq!(ours, Some(hex(words[1])), "thread {tid}, {name}");
                compared += 1;
            }
        }
    }

    assert_eq!((taken.samples.len(), compared), (3, 3 * 19));
    // `pr_fname` has 16 bytes (`struct elf_prpsinfo`, `include/linux/elfcore.h`).
    let comm = |e: &Event| matches!(e, Event::Comm { name, .. } if name == "unwind-sim-threa");
    assert!(taken.events.iter().any(comm), "{:?}", &taken.events[..2]);
}

#[test]
fn stacks_of_a_core_hold_the_red_zone_and_the_stack_that_a_signal_left() {
    let (taken, _) = take(core(), &nowhere()).expect("a core");
    for sample in &taken.samples {
        let stack = &sample.regions[0];
        let rsp = sample.regs.sampled.rsp();
        // The red zone of the psABI has 128 bytes.
        assert_eq!((stack.role, stack.address), (RegionRole::Stack, rsp - 128));
        assert!(stack.bounds.contains(&rsp));
        assert_eq!(stack.address + stack.bytes.len() as u64, stack.bounds.end);
    }
    // The first thread is in a handler on the heap; its own stack is the second region.
    let [_, other] = &taken.samples[0].regions[..] else {
        panic!("two stacks expected");
    };
    assert_eq!(other.role, RegionRole::OtherStack);
    assert!(
        other.bounds.contains(&0x7fff_ffff_e000),
        "{:x?}",
        other.bounds
    );
    assert!(taken.samples[1..].iter().all(|s| s.regions.len() == 1));

    let short = ImportOptions {
        stack_bytes_max: 256,
        ..nowhere()
    };
    let (taken, _) = take(core(), &short).expect("a core");
    assert!(
        taken
            .samples
            .iter()
            .all(|s| s.regions[0].bytes.len() == 256 + 128)
    );
}

/// The mappings as listed by gdb. The vdso comes from memory, and so does ld.so, whose code gdb had
/// touched. The build IDs are read from the core.
#[test]
fn files_of_a_core_are_those_of_gdb() {
    let (taken, imported) = take(core(), &nowhere()).expect("a core");

    let expected = text("cores/threads.expected.txt");
    let mut found = Vec::new();

    for event in &taken.events {
        let Event::Map {
            range,
            bias,
            image,
            name,
            ..
        } = event
        else {
            continue;
        };

        if name.starts_with('/') && image.is_none() {
            // Without an image, SVMAs are file offsets.
            let offset = range.start.wrapping_sub(*bias);
            let (start, end) = (range.start, range.end);
            let line = format!("file {start:#x} {end:#x} {offset:#x} {name}");
            assert!(expected.lines().any(|l| l == line), "{line}");
        }

        if let Some(index) = image {
            let image = &taken.images[index.0 as usize];
            // A mapping starts at the page in which its code does.
            let svma = range.start.wrapping_sub(*bias);
            assert!(
                image.text().iter().any(|r| r.start & !0xfff == svma),
                "{name}"
            );
            found.push(name.rsplit('/').next().unwrap_or(""));
        }
    }

    assert_eq!(
        found,
        ["unwind-sim-threads", "[vdso]", "ld-linux-x86-64.so.2"]
    );

    // It is in no file, so all of it comes from the memory in the core.
    let vdso = &taken.images[1];
    assert!(
        vdso.symbols()
            .iter()
            .any(|s| s.name == "__vdso_gettimeofday")
    );
    assert!(vdso.section(SectionKind::EhFrame).is_some());

    let ours: String = taken.images[0]
        .build_id()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert!(expected.ends_with(&format!("build-id {ours}\n")), "{ours}");
    assert!(imported.file_problem_count > 0, "the files are not there");
}

#[test]
fn damaged_recordings_never_panic() {
    let options = nowhere();
    let mut refused = 0;

    let mut damage = |whole: &[u8], at: &mut dyn Iterator<Item = usize>| {
        for at in at {
            let mut bytes = whole.to_vec();
            // At each place one bit is changed, then all are set, then the file is cut.
            bytes[at] ^= 1 << (at % 8);
            refused += u32::from(take(bytes.clone(), &options).is_err());
            bytes[at] = 0xff;
            refused += u32::from(take(bytes, &options).is_err());
            refused += u32::from(take(whole[..at].to_vec(), &options).is_err());
        }
    };

    let perf = std::fs::read(corpus("perfdata/dwarf.data")).expect("the corpus");
    // 37 and 8 have no common factor, so every byte of a word is hit somewhere.
    damage(&perf, &mut (0..perf.len()).step_by(37));
    let pipe = std::fs::read(corpus("perfdata/fp-pipe.data")).expect("the corpus");
    damage(&pipe, &mut (0..pipe.len()).step_by(37));
    let branches = std::fs::read(corpus("perfdata/LBR-stitch-grow.data")).expect("the corpus");
    damage(&branches, &mut (0..branches.len()).step_by(3));

    let core = core();
    // Headers, and the notes at the end.
    damage(&core, &mut (0..64 + 23 * 56).step_by(13));
    damage(&core, &mut (0xc_4548..core.len()).step_by(499));

    assert!(refused > 50, "{refused}");
}
