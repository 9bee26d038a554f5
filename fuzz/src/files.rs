//! Hostile files: traces, perf.data, ELF images and programs, cores.

use std::ops::ControlFlow;
use std::sync::Arc;
use unwind_sim_emulator::address_space::{AddressSpace, Content};
use unwind_sim_emulator::load::{self, LoadOptions};
use unwind_sim_perf_data::stitch::Mode;
use unwind_sim_perf_data::{Event, Order, PerfFile, Record};
use unwind_sim_perf_script::Script;
use unwind_sim_perf_script::symbols::{NoSymbols, source_lines};
use unwind_sim_recordings::files::FinderOptions;
use unwind_sim_recordings::import::{ImportItem, ImportOptions, import_bytes, import_vmcore};
use unwind_sim_recordings::kernel::{KernelImage, KernelSymbols};
use unwind_sim_recordings::trace::Trace;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::elf::{self, ReadOptions};
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::Mapping;
use unwind_sim_view::symbol_files::HELPER;

/// Maximum number of items examined one by one.
const ITEMS_MAX: usize = 4096;
/// Maximum number of pages of a loaded program: 64 MiB.
const PAGES_MAX: usize = 1 << 14;

/// Sizes in bytes of a trace's file header and block headers (`docs/trace-format.md`).
const FILE_HEADER: usize = 16;
const BLOCK_HEADER: usize = 24;

/// A trace: as it is, and with corrected checksums, so that what follows them is reached.
pub fn trace(data: &[u8]) {
    read_trace(data.to_vec());
    read_trace(mended(data));
}

fn read_trace(bytes: Vec<u8>) {
    let Ok(trace) = Trace::from_bytes(bytes) else {
        return;
    };

    // Every part is read, and nothing is expected of damaged ones but an error.
    trace.blocks().for_each(drop);

    for image in trace.images() {
        let _ = (image.text(), image.build_id(), image.symbol(0x1000));
        image
            .sections()
            .iter()
            .for_each(|section| assert!(section.data.len() <= 1 << 30));
    }

    if let Some(chunk) = trace.chunks().last() {
        let _ = trace.world_before(&chunk);
    }

    trace.items().take(ITEMS_MAX).flatten().for_each(drop);
    // The last of these numbers is one too many.
    for number in [
        0,
        1,
        trace.len() / 2,
        trace.len().saturating_sub(1),
        trace.len(),
    ] {
        let found = trace.sample(number);
        assert!(
            found.is_err() || number < trace.len(),
            "sample {number} of {}",
            trace.len()
        );
        let _ = trace.world_at(number);
    }
}

/// The same bytes with correct checksums: of the file header, of each block as far as the lengths
/// lead, and of the footer.
fn mended(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    let put = |bytes: &mut [u8], at: usize, crc: u32| {
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    };

    // Nothing to mend in what is no trace.
    if bytes.len() < FILE_HEADER {
        return bytes;
    }

    let crc = crc32c::crc32c(&bytes[..12]);
    put(&mut bytes, 12, crc);

    // By the lengths in the headers, as the reader goes.
    let mut at = FILE_HEADER;
    while let Some(length) = bytes.get(at + 4..at + 8) {
        let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let payload = at + BLOCK_HEADER..at + BLOCK_HEADER + length;
        let Some(stored) = bytes.get(payload.clone()) else {
            break;
        };
        // The checksum covers the block's header up to itself, and what follows it.
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[at..at + 20]), stored);
        put(&mut bytes, at + 20, crc);
        at = payload.start + length.next_multiple_of(8);
    }

    if let Some(footer) = bytes.len().checked_sub(16) {
        let crc = crc32c::crc32c(&bytes[footer..footer + 8]);
        put(&mut bytes, footer + 8, crc);
    }

    bytes
}

/// Prints a recording as text, whose length is limited by its chains.
fn print(file: &PerfFile<'_>, join: Option<Mode>) {
    let options = unwind_sim_perf_script::Options {
        join,
        ..unwind_sim_perf_script::Options::default()
    };
    let mut symbols = NoSymbols;
    let Ok(mut script) = Script::new(file, &options, &mut symbols, None) else {
        return;
    };
    let (mut text, mut seen) = (Vec::new(), 0);
    file.for_each(Order::Time, |event| {
        script.event(&event, &mut text);
        text.clear();
        seen += 1;
        match seen {
            ITEMS_MAX.. => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    script.finish(&mut text);
}

/// A perf.data file: reads it in both orders, with every part of every sample, and imports it.
pub fn perfdata(data: &[u8]) {
    if let Ok(file) = PerfFile::parse(data) {
        let features = file.features();

        // Every feature section, by number and by the reader of its kind: all must cope with any
        // bytes.
        for number in features.numbers() {
            let _ = (features.section(number), features.string(number));
        }

        let _ = (
            features.command_line(),
            features.cpus(),
            features.sample_time(),
        );
        let _ = (
            features.compression(),
            features.cpu_pmu_caps(),
            features.events(),
        );
        let _ = unwind_sim_perf_script::header::text(&file, data, None);

        file.build_ids().take(ITEMS_MAX).for_each(drop);

        // By time needs all events sorted; by file does not.
        for order in [Order::File, Order::Time] {
            let mut seen = 0;
            file.for_each(order, |event| look_at(&event, &mut seen));
        }

        // Each way of joining deferred callchains, and none.
        for join in [
            None,
            Some(Mode::Own),
            Some(Mode::Perf72),
            Some(Mode::Rfc2023),
        ] {
            print(&file, join);
        }
    }

    // Whether or not it could be parsed: the importer recognizes the kind of file by itself.
    import(data);
}

fn look_at(event: &Event<'_>, seen: &mut usize) -> ControlFlow<()> {
    let _ = (event.time(), event.id());
    if let Record::Sample(sample) = &event.record {
        let _ = sample.check();
        if let Ok(Some(chain)) = sample.callchain() {
            chain.entries().for_each(drop);
            let _ = chain.deferred_cookie();
        }
        if let Ok(Some((regs, stack))) = sample.user_regs_and_stack() {
            let _ = (regs.general(), stack);
        }
        if let Ok(Some(branches)) = sample.branch_stack() {
            branches.entries().for_each(drop);
        }
    }
    *seen += 1;
    if *seen < ITEMS_MAX {
        ControlFlow::Continue(())
    } else {
        ControlFlow::Break(())
    }
}

/// Imports without reading any other file of this machine.
fn import(data: &[u8]) {
    // A recording names files of the computer it was made on; a target must not depend on this one.
    let nowhere = std::env::temp_dir().join("unwind-sim-fuzz-has-no-files");
    let files = FinderOptions {
        symfs: Some(nowhere),
        ..FinderOptions::default()
    };
    let options = ImportOptions {
        files,
        stack_bytes_max: 1 << 16,
        ..ImportOptions::default()
    };

    let mut items = 0;

    // A small file may describe many items, for example by compression.
    let mut sink = |item: ImportItem<'_>| {
        if let ImportItem::Item(item) = item {
            drop(item.into_owned());
        }
        items += 1;
        if items < ITEMS_MAX {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    };

    let _ = import_bytes(Arc::new(data.to_vec()), &options, &mut sink);
}

/// An ELF core.
pub fn core(data: &[u8]) {
    import(data);
}

/// The memory dump of a machine with a kernel of a few symbols (`make-seeds.py` has two such
/// dumps).
pub fn vmcore(data: &[u8]) {
    // The addresses and offsets are those of the dumps that `make-seeds.py` writes.
    const MAP: &str = "ffffffff80e01000 D init_top_pgt\nffffffff81000000 T _text\n\
        ffffffff81000100 D linux_banner\nffffffff81000200 D init_task\n\
        ffffffff810003c0 D __per_cpu_offset\n0000000000000010 D current_task\n\
        ffffffff810003e0 D modules\n";
    const OFFSETS: [(&str, u64); 14] = [
        ("task_struct.tasks", 0),
        ("task_struct.thread_node", 16),
        ("task_struct.signal", 32),
        ("task_struct.pid", 40),
        ("task_struct.comm", 48),
        ("task_struct.stack", 64),
        ("task_struct.thread.sp", 72),
        ("signal_struct.thread_head", 0),
        ("module.list", 0),
        ("module.name", 16),
        ("module.core_layout.base", 32),
        ("module.core_layout.text_size", 40),
        ("module.arch.num_orcs", 44),
        ("module.arch.orc_unwind_ip", 48),
    ];

    let Ok(symbols) = KernelSymbols::from_map(MAP.as_bytes()) else {
        return;
    };

    // Debug information is not needed, since the offsets are given.
    let image = KernelImage::of_symbols(symbols, Some("6.1.0-tiny".into()));
    let offsets = OFFSETS.map(|(member, offset)| (member.to_owned(), offset));
    let options = ImportOptions {
        offsets: offsets.into(),
        ..ImportOptions::default()
    };
    let _ = import_vmcore(Arc::new(data.to_vec()), &image, &options, &mut |_| {
        ControlFlow::Continue(())
    });
}

/// An ELF image: reads it, its symbols and its tables.
pub fn elf(data: &[u8]) {
    // Some offsets all over the file: each lookup may read another part of the line tables.
    if let Some(mut lines) = source_lines(data, HELPER) {
        for offset in (0..data.len() as u64).step_by(data.len() / 64 + 1) {
            let _ = lines.at(offset);
        }
    }

    for options in [
        ReadOptions::default(),
        ReadOptions {
            symbols: false,
            plt: false,
            producers: true,
        },
    ] {
        let Ok(elf) = elf::read("fuzzed", Arc::new(data.to_vec()), &options) else {
            continue;
        };

        let image = Arc::new(elf.into_image());
        // With this range and this bias, every address is mapped, and is the one in the image.
        let mapping = Mapping {
            range: 0..u64::MAX,
            bias: 0,
            image: Some(image.clone()),
            name: "fuzzed".into(),
        };

        let mut cache = Cache::new();
        for range in image.text().iter().take(16) {
            // The edges of a range and its middle.
            for svma in [range.start, range.start.midpoint(range.end), range.end] {
                let _ = (image.symbol(svma), image.text_bytes(svma, 64));
                let _ = Dwarf::new().find(&mapping, svma, &mut cache);
            }
        }
    }
}

/// A program, loaded into an emulated address space as its own interpreter.
pub fn loader(data: &[u8]) {
    let program = Content::from(data.to_vec());
    let wants = load::interpreter(&program);
    let mut space = AddressSpace::new(PAGES_MAX);
    let options = LoadOptions {
        stack_size: 1 << 16,
        ..LoadOptions::default()
    };
    let interpreter = matches!(wants, Ok(Some(_))).then(|| program.clone());
    let _ = load::load(
        &mut space,
        &program,
        interpreter.as_ref(),
        &[b"fuzzed"],
        &[],
        &options,
    );
}
