//! The memory of a process as a core and its files give it.

use super::*;
use crate::files::FinderOptions;
use crate::import::{ImportItem, import_bytes};
use std::path::PathBuf;
use unwind_sim_unwind::image::Doubt;
use unwind_sim_unwind::memory::Memory as _;

const PROGRAM: &str = "/usr/local/bin/stacks";

/// A file of `corpus/cores`, unpacked.
fn corpus(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("corpus/cores")
        .join(name);
    let packed = std::fs::read(path).unwrap_or_else(|error| panic!("{name}: {error}"));
    zstd::decode_all(&packed[..]).expect("zstd")
}

/// A folder with `bytes` as the program of the core.
fn files(bytes: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(&PROGRAM[1..]);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    std::fs::write(path, bytes).expect("written");
    folder
}

/// The first sample of `core`, whose files are below `symfs`.
fn first(core: Vec<u8>, symfs: &std::path::Path) -> Sample<'static> {
    let options = ImportOptions {
        files: FinderOptions {
            symfs: Some(symfs.into()),
            ..FinderOptions::default()
        },
        ..ImportOptions::default()
    };
    let mut found = None;
    import_bytes(Arc::new(core), &options, &mut |item| {
        if let ImportItem::Item(Item::Sample(sample)) = item {
            found = Some(sample.into_owned());
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })
    .expect("a core");
    found.expect("a sample")
}

/// Offset of the program header of the segment at `address`.
fn header_of(core: &[u8], address: u64) -> usize {
    let is = |at: &usize| {
        core[*at..*at + 4] == [1, 0, 0, 0] && core[*at + 16..*at + 24] == address.to_le_bytes()
    };
    (64..).step_by(56).take(64).find(is).expect("a segment")
}

#[test]
fn all_segments_are_memory_of_every_sample() {
    let sample = first(corpus("stacks.core.zst"), files(b"").path());
    let memory = sample.memory();
    // The text, and a return address on a stack below rsp that the thread left by a signal.
    assert_eq!(memory.read_u64(0x40_0000), Ok(0x0001_0102_464c_457f));
    assert_eq!(memory.read_u64(0x40_2ff8), Ok(0x40_01cc));
    assert!(sample.regions[0].address > 0x40_3000);
    let unmapped = 0x1000;
    assert!(memory.read_u64(unmapped).is_err());
}

/// A kernel omits pages that are as in the file; gdb reads those from the file, too. What could be
/// written is not read from there.
#[test]
fn pages_that_a_core_omits_are_read_from_the_file() {
    let program = corpus("stacks.elf.zst");
    let mut core = corpus("stacks.core.zst");
    let text = header_of(&core, 0x40_0000);
    core[text + 32..text + 40].fill(0);
    let symfs = files(&program);
    let sample = first(core.clone(), symfs.path());
    let word = |sample: &Sample<'_>, address| sample.memory().read_u64(address).ok();
    let in_file = u64::from_le_bytes(program[0x1b0..0x1b8].try_into().expect("eight bytes"));
    assert_eq!(word(&sample, 0x40_01b0), Some(in_file));
    assert_eq!(
        word(&first(core.clone(), files(b"").path()), 0x40_01b0),
        None
    );

    // The same pages, if the program could write them.
    core[text + 4] |= 2;
    assert_eq!(word(&first(core, symfs.path()), 0x40_01b0), None);
}

/// A core of gdb with NT_FILE, as `change` changes the note's type and data.
fn with_files(change: impl FnOnce(&mut [u8], &mut [u8])) -> Vec<u8> {
    let mut core = corpus("threads.core.zst");
    let note = core
        .windows(4)
        .position(|word| word == b"ELIF")
        .expect("NT_FILE");
    let (head, data) = core.split_at_mut(note + 12);
    // The type is followed by the name, CORE.
    change(&mut head[note..note + 4], data);
    core
}

/// What an import yields without any file, in the order of the core, and its problems.
fn yielded(core: Vec<u8>) -> (Vec<Event>, Vec<String>) {
    let options = ImportOptions {
        files: FinderOptions {
            symfs: Some("/nonexistent".into()),
            ..FinderOptions::default()
        },
        ..ImportOptions::default()
    };
    let mut events = Vec::new();
    let imported = import_bytes(Arc::new(core), &options, &mut |item| {
        if let ImportItem::Item(Item::Event(event)) = item {
            events.push(event);
        }
        ControlFlow::Continue(())
    });
    let problems = imported.expect("a core").problems;
    (events, problems.iter().map(ToString::to_string).collect())
}

/// createdump of .NET writes bytes where the kernel writes pages.
#[test]
fn offsets_in_bytes_are_noticed_and_said() {
    let (events, none) = yielded(corpus("threads.core.zst"));
    assert!(none.is_empty(), "{none:?}");
    // gdb writes bytes, too, but says so: its unit, the second word, is 1.
    let in_bytes = with_files(|_, data| {
        assert_eq!(data[8..16], 1_u64.to_le_bytes());
        data[8..16].copy_from_slice(&4096_u64.to_le_bytes());
    });
    let (changed, problems) = yielded(in_bytes);
    assert_eq!(changed, events);
    let [said] = &problems[..] else {
        panic!("{problems:?}");
    };
    assert!(said.starts_with("core: NT_FILE at offset 0x"), "{said}");
    assert!(said.contains("pages is impossible"), "{said}");
}

/// The mappings that the list would name are found by headers in memory and the linker's list.
#[test]
fn a_missing_list_of_files_is_said_and_made_up_for() {
    let (events, _) = yielded(corpus("threads.core.zst"));
    let (changed, problems) = yielded(with_files(|kind, _| kind.copy_from_slice(b"none")));

    let named = |events: &[Event]| {
        let maps = events.iter().filter_map(|event| match event {
            Event::Map {
                range, name, bias, ..
            } => {
                // The same file has several paths.
                let file = name.rsplit('/').next().unwrap_or(name);
                Some((range.start, file.to_owned(), *bias))
            }
            _ => None,
        });
        let code: Vec<_> = maps.filter(|(_, name, _)| name != "anon").collect();
        code
    };

    let (before, after) = (named(&events), named(&changed));
    // gdb leaves the C library's header out, and its file is not here.
    assert!(after.len() >= 3, "{after:x?}");
    for map in &after {
        assert!(before.contains(map), "{map:x?} in {before:x?}");
    }

    let [said] = &problems[..] else {
        panic!("{problems:?}");
    };
    assert!(said.contains("no NT_FILE note"), "{said}");
}

/// The problems with the program of the core, if neither has a build id and the file is `program`.
fn problems_without_build_id(mut program: Vec<u8>) -> Vec<String> {
    let mut core = corpus("stacks.core.zst");
    for bytes in [&mut core, &mut program] {
        // n_namesz, n_descsz, n_type, name of NT_GNU_BUILD_ID.
        let head = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
        let note = bytes.windows(head.len()).position(|b| b == head);
        // Another n_type, so that the note is not found.
        bytes[note.expect("a build id") + 8] = 0x77;
    }

    let symfs = files(&program);
    let options = ImportOptions {
        files: FinderOptions {
            symfs: Some(symfs.path().into()),
            ..FinderOptions::default()
        },
        ..ImportOptions::default()
    };

    let mut doubts = Vec::new();
    let imported = import_bytes(Arc::new(core), &options, &mut |item| {
        if let ImportItem::Image { image, .. } = item {
            doubts.extend(image.doubt());
        }
        ControlFlow::Continue(())
    });

    let problems = imported.expect("a core").file_problems;
    let of_program = problems.iter().filter(|p| p.path == PROGRAM);
    assert!(of_program.clone().all(|p| p.kind.is_doubt()));
    let certain = of_program.clone().map(|_| Doubt::Certain);
    assert_eq!(doubts, certain.collect::<Vec<_>>());
    of_program.map(|p| p.kind.to_string()).collect()
}

/// The file's headers are in the core. Code may hold a debugger's breakpoints.
#[test]
fn a_file_that_begins_otherwise_than_memory_is_noted() {
    let program = corpus("stacks.elf.zst");
    assert!(problems_without_build_id(program.clone()).is_empty());
    let changed = |at: usize| {
        let mut program = program.clone();
        program[at] ^= 1;
        problems_without_build_id(program)
    };
    assert!(changed(0x1b0).is_empty());
    let [said] = &changed(0x18)[..] else {
        panic!("one note expected");
    };
    assert!(
        said.starts_with("its byte at offset 0x18 is not the one in memory"),
        "{said}"
    );
}

/// Text that was copied to anonymous memory and moved back has no entry in the list of files.
#[test]
fn anonymous_code_between_mappings_of_a_file_is_the_files() {
    let (events, _) = yielded(corpus("threads.core.zst"));
    let text = 0x5555_5555_5000_u64;
    // Zeroes the entries of mappings that start in this range.
    let without = |range: std::ops::Range<u64>| {
        with_files(|_, list| {
            let count = u64::from_le_bytes(list[..8].try_into().expect("a word"));
            // Behind the count and the page size: start, end and offset of each mapping.
            let entries = list[16..].chunks_exact_mut(24);
            for entry in entries.take(usize::try_from(count).expect("few")) {
                let start = u64::from_le_bytes(entry[..8].try_into().expect("a word"));
                if range.contains(&start) {
                    entry[..16].fill(0);
                }
            }
        })
    };
    let program = |events: &[Event]| {
        let is_there =
            |event: &&Event| matches!(event, Event::Map { range, .. } if range.start == text);
        events.iter().find(is_there).cloned()
    };
    let found = program(&yielded(without(text..text + 1)).0);
    assert_eq!(found, program(&events));
    let has_image = |map: &Option<Event>| matches!(map, Some(Event::Map { image: Some(_), .. }));
    assert!(has_image(&found), "{found:x?}");

    // With no mapping of the file behind it, nothing says whose such memory is.
    let alone = program(&yielded(without(text..text + 0x10_0000)).0);
    assert!(alone.is_some() && !has_image(&alone), "{alone:x?}");
}

/// gdb leaves out what files have: the library's text, and its constants.
#[test]
fn mappings_without_a_segment_are_not_said_to_be_code() {
    let options = ImportOptions {
        files: FinderOptions {
            symfs: Some("/nonexistent".into()),
            ..FinderOptions::default()
        },
        ..ImportOptions::default()
    };
    let core = corpus("threads.core.zst");
    let imported = import_bytes(Arc::new(core), &options, &mut |_| ControlFlow::Continue(()));
    let starts: Vec<u64> = (imported.expect("a core").without_segment.iter())
        .map(|range| range.start)
        .collect();
    let expected = [
        0x5555_5555_6000,
        0x7fff_f7df_b000,
        0x7fff_f7f5_1000,
        0x7fff_f7ff_1000,
    ];
    assert_eq!(starts, expected);
}

/// The offset of the data of each note of this type, whose name is CORE.
fn notes_of(core: &[u8], kind: u32) -> Vec<usize> {
    let head = [&kind.to_le_bytes()[..], b"CORE\0\0\0\0"].concat();
    let starts = core.windows(head.len()).enumerate();
    let starts = starts.filter(|(_, bytes)| *bytes == head);
    starts.map(|(at, _)| at + head.len()).collect()
}

/// The samples of a core: the thread, and its crash.
fn crashes(core: Vec<u8>) -> Vec<(u32, u32, Option<String>)> {
    let mut found = Vec::new();
    import_bytes(Arc::new(core), &ImportOptions::default(), &mut |item| {
        if let ImportItem::Item(Item::Sample(sample)) = item {
            let crash = sample.crash().map(|crash| crash.to_string());
            found.push((sample.pid, sample.tid, crash));
        }
        ControlFlow::Continue(())
    })
    .expect("a core");
    found
}

/// The kernel writes the signal into the notes of all threads; only the first one died of it.
#[test]
fn the_first_thread_is_the_one_that_crashed() {
    let illegal = "SIGILL (ILL_ILLOPN) at 0x4001f2".to_owned();
    let of_kernel = [(31400, 31400, Some(illegal))];
    assert_eq!(crashes(corpus("stacks.core.zst")), of_kernel);

    // gdb stopped this program at a breakpoint.
    let mut core = corpus("threads.core.zst");
    let stopped = [28958, 28961, 28962].map(|tid| (28958, tid, None));
    assert_eq!(crashes(core.clone()), stopped);
    let (statuses, infos) = (notes_of(&core, 1), notes_of(&core, 0x5349_4749));
    assert_eq!((statuses.len(), infos.len()), (3, 3));
    for at in &statuses {
        core[at + 12..at + 14].copy_from_slice(&11_u16.to_le_bytes());
    }
    let mut crashed = stopped.clone();
    crashed[0].2 = Some("SIGSEGV".to_owned());
    assert_eq!(crashes(core.clone()), crashed, "without its siginfo_t");
    core[infos[0]] = 11;
    core[infos[0] + 8..infos[0] + 12].copy_from_slice(&2_i32.to_le_bytes());
    core[infos[0] + 16..infos[0] + 24].copy_from_slice(&0x5000_u64.to_le_bytes());
    crashed[0].2 = Some("SIGSEGV (SEGV_ACCERR) at 0x5000".to_owned());
    assert_eq!(crashes(core.clone()), crashed);

    // Without a signal in NT_PRSTATUS, that of the siginfo_t counts.
    core[statuses[0] + 12] = 0;
    assert_eq!(crashes(core.clone()), crashed);

    // Stopped for gcore.
    core[infos[0]] = 19;
    assert_eq!(crashes(core), stopped);
}

/// Valgrind writes 0 as the process of a core whose third thread crashed.
#[test]
fn the_lowest_thread_is_the_process_where_a_core_does_not_say() {
    let mut core = corpus("threads.core.zst");
    let info = notes_of(&core, 3)[0];
    core[info + 24..info + 28].fill(0);
    let statuses = notes_of(&core, 1);
    let (first, third) = (statuses[0] + 32, statuses[2] + 32);
    let tids = [first, third].map(|at| core[at..at + 4].to_vec());
    core[first..first + 4].copy_from_slice(&tids[1]);
    core[third..third + 4].copy_from_slice(&tids[0]);
    let found = crashes(core);
    let ids: Vec<(u32, u32)> = found.iter().map(|(pid, tid, _)| (*pid, *tid)).collect();
    assert_eq!(ids, [(28958, 28962), (28958, 28961), (28958, 28958)]);
}

/// Where a file was cut, the end of its last segment is not the end of the mapping.
#[test]
fn the_memory_of_a_core_that_was_cut_is_not_whole() {
    let is_whole = |core: Vec<u8>| {
        let sample = first(core, files(b"").path());
        sample.process_memory.expect("of a core").is_whole
    };
    let mut core = corpus("stacks.core.zst");
    assert!(is_whole(core.clone()));
    core.pop();
    assert!(!is_whole(core));
}
