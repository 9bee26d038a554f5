//! Tests of `inspect` on the files of the corpus and on damaged files: it shows what is in the
//! file, and reports damage.

use super::*;
use unwind_sim_recordings::case_limits::CaseLimits;
use unwind_sim_unwind::image::SectionKind;

fn corpus(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(path)
}

fn opened(path: &Path) -> InputFile {
    InputFile::open(path).expect("it is there")
}

/// The text of the file at `path`.
fn inspect(
    path: &Path,
    rows: Option<&str>,
    kernel: &OpenOptions,
    case_limits: &CaseLimits,
) -> Result<String, InspectError> {
    super::inspect(&opened(path), rows, kernel, case_limits)
}

/// The first word after `key`, at the start of a line below the given heading.
fn number(text: &str, heading: &str, key: &str) -> u64 {
    let part = &text[text.find(heading).expect(heading)..];
    let mut lines = part.lines().map(str::trim_start);
    let line = lines.find_map(|l| l.strip_prefix(key)).expect(key);
    let word = line.split_whitespace().next().expect("a number");
    word.parse().expect("a number")
}

/// What a recording format without a page of its own gets: here a perf.data, which has one.
#[test]
fn a_recording_without_a_page_is_shown_as_a_trace() {
    let text = converted(&opened(&corpus("perfdata/dwarf.data"))).unwrap();
    assert!(text.starts_with("a perf.data, as\na trace\n"), "{text}");
    assert!(text.contains("  engine        perf.data\n"), "{text}");
}

#[test]
fn a_trace_is_counted_as_its_reader_counts_it() {
    let path = corpus("traces/seed-004.bin");
    let trace = Trace::open(&path).unwrap();
    let text = inspect(&path, None, &OpenOptions::default(), &CaseLimits::default()).unwrap();
    assert!(text.contains(&format!(
        "\n{} samples, {} events\n",
        trace.len(),
        trace.events()
    )));
    assert!(
        text.contains("3 complete, 0 to a depth, 0 unknown"),
        "{text}"
    );
    assert!(text.contains("2 hardware, 1 fake"), "{text}");
    let blocks: u64 = trace.blocks().map(|b| u64::from(b.stored_bytes)).sum();
    let table = text.split("\nblocks, bytes\n").nth(1).unwrap();
    let lines = table.split("\n\n").next().unwrap().lines().skip(1);
    let stored: u64 = lines
        .map(|l| l.split_whitespace().nth(3).unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(stored, blocks);
}

#[test]
fn sframe_is_counted_as_objdump_counts_it() {
    let listing = std::fs::read_to_string(corpus("sframe/v3flex.objdump.txt")).unwrap();
    let functions = listing.matches("func idx").count() as u64;
    let text = inspect(
        &corpus("sframe/v3flex"),
        None,
        &OpenOptions::default(),
        &CaseLimits::default(),
    )
    .unwrap();
    assert_eq!(number(&text, "\n.sframe:", "FDEs"), functions);
    assert!(text.contains("\n.sframe: 108 bytes, version 3\n"), "{text}");
}

#[test]
fn concatenated_tables_and_objects_are_noticed() {
    let path = std::env::temp_dir().join(format!("unwind-sim-concatenated-{}", std::process::id()));
    let mut bytes = std::fs::read(corpus("sframe/v3flex")).unwrap();
    let elf =
        unwind_sim_unwind::elf::read("", std::sync::Arc::new(bytes.clone()), &Default::default());
    let image = elf.unwrap().into_image();
    let section = image.section(SectionKind::Sframe).unwrap();
    let header = unwind_sim_unwind::sframe::Header::parse(&section.data).unwrap();

    // The last function and its row become bytes behind the table.
    let at = bytes
        .windows(section.data.len())
        .position(|part| part == &section.data[..])
        .unwrap();
    // In the header, `num_fdes` becomes 0, and `fre_len` 8 bytes less.
    bytes[at + 8..at + 12].copy_from_slice(&0u32.to_le_bytes());
    bytes[at + 16..at + 20].copy_from_slice(&(header.fre_len - 8).to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let text = inspect(&path, None, &OpenOptions::default(), &CaseLimits::default()).unwrap();
    assert!(
        text.contains("as in concatenated sections; no reader finds them"),
        "{text}"
    );

    // The low byte of `e_type`: ET_REL.
    bytes[16] = 1;
    std::fs::write(&path, &bytes).unwrap();

    // An object has relocations instead of addresses, so its table cannot be shown by address.
    let error = inspect(&path, None, &OpenOptions::default(), &CaseLimits::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("`unwind-sim tables dump` shows the rows of an object")
    );

    std::fs::remove_file(&path).unwrap();
}

/// binutils 2.45 writes an empty `.sframe` into `Scrt1.o`, V8 an empty `.eh_frame`.
#[test]
fn an_empty_table_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty");
    let mut bytes = std::fs::read(corpus("sframe/v3flex")).unwrap();
    for name in [".sframe", ".eh_frame"] {
        let header = section_header(&bytes, name);
        bytes[header + 32..header + 40].copy_from_slice(&0u64.to_le_bytes());
    }
    // Program headers, which supply what sections lack, lead to both.
    bytes[56..58].copy_from_slice(&0u16.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let text = inspect(&path, None, &OpenOptions::default(), &CaseLimits::default()).unwrap();
    for name in [".sframe", ".eh_frame"] {
        let line = format!("\n{name}: 0 bytes, an empty table of no function\n");
        assert!(text.contains(&line), "{name}:\n{text}");
    }
    assert!(!text.contains("malformed"), "{text}");
}

/// The offset of a section's header, by its name.
fn section_header(bytes: &[u8], name: &str) -> usize {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let half = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (headers, count) = (word(40), half(60));
    let names = word(headers + half(62) * 64 + 24);
    let has_name = |at: &usize| {
        let offset = u32::from_le_bytes(bytes[*at..*at + 4].try_into().unwrap());
        bytes[names + offset as usize..].starts_with(format!("{name}\0").as_bytes())
    };
    let mut all = (0..count).map(|i| headers + i * 64);
    all.find(has_name).expect("the section")
}

#[test]
fn rows_of_a_function_stand_side_by_side() {
    let path = corpus("sframe/v3flex");
    let text = inspect(
        &path,
        Some("_start"),
        &OpenOptions::default(),
        &CaseLimits::default(),
    )
    .unwrap();

    // Derived tables are there although the file has no such sections.
    for table in ["eh_frame", "sframe", "sframe(derived)", "orc(derived)"] {
        assert!(text.contains(&format!(" {table} ")), "{table}:\n{text}");
    }

    let error = inspect(
        &path,
        Some("no_such_function"),
        &OpenOptions::default(),
        &CaseLimits::default(),
    )
    .unwrap_err();
    assert!(matches!(error, InspectError::NoFunction { .. }), "{error}");

    // A trace has no tables of its own: they are in the files that it names.
    let error = inspect(
        &corpus("traces/seed-004.bin"),
        Some("main"),
        &OpenOptions::default(),
        &CaseLimits::default(),
    )
    .unwrap_err();
    assert!(matches!(error, InspectError::NoTables { .. }), "{error}");
}

/// Damage of any kind gives an error or a text, never a panic or a hang.
#[test]
fn damaged_files_are_withstood() {
    let folder = tempfile::tempdir().unwrap();
    for file in [
        "traces/seed-004.bin",
        "perfdata/dwarf-zstd.data",
        "perfdata/fp-pipe.data",
        "sframe/v3flex",
    ] {
        let whole = std::fs::read(corpus(file)).unwrap();
        let path = folder.path().join("damaged");

        // Both modes, as they read different parts of the file.
        let try_it = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            if let Err(error) =
                inspect(&path, None, &OpenOptions::default(), &CaseLimits::default())
            {
                assert!(!error.to_string().is_empty());
            }
            let _ = inspect(
                &path,
                Some("_start"),
                &OpenOptions::default(),
                &CaseLimits::default(),
            );
        };

        // Cut at about forty places, and with single bytes changed at about sixty-four.
        let step = (whole.len() / 40).max(1);
        for cut in (0..whole.len()).step_by(step) {
            try_it(&whole[..cut]);
        }

        for at in (0..whole.len()).step_by((whole.len() / 64).max(1)) {
            for flip in [0x01, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                try_it(&bytes);
            }
        }
    }
}

#[test]
fn dumps_say_what_they_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/vmcore");
    let text = |name| {
        inspect(
            &folder.join(name),
            None,
            &OpenOptions::default(),
            &CaseLimits::default(),
        )
        .unwrap()
    };
    let (cr3, info) = (text("cr3"), text("info"));
    assert!(cr3.starts_with("a kernel's dump\n"), "{cr3}");
    assert!(cr3.contains("given by the processors"), "{cr3}");
    assert!(info.contains("found with the image"), "{info}");
    assert!(info.contains("6.1.0-tiny"), "{info}");
    assert!(info.contains("\n  KASLR offset  0x600000\n"), "{info}");
    for text in [cr3, info] {
        assert!(text.contains("\n    200000-200400   1024\n"), "{text}");
        let processor = "\n          0  0xffffffff81600020  0xffffc9000000bf80  0x10\n";
        assert!(text.ends_with(processor), "{text}");
    }
}

/// The summary counts everything that `--rows` finds malformed, and no more rows than there are.
#[test]
fn summaries_count_what_rows_find() {
    for file in ["sframe/v3flex", "sframe/t_2.46", "sframe/t_2.40"] {
        changed_tables(&corpus(file), SectionKind::Sframe);
    }
    let case = corpus("cases/orc/wrong-offset-in-an-orc-table.s");
    let built = unwind_sim_judge::cases::build_case(&case, false).expect("the case can be built");
    changed_tables(&built.path, SectionKind::OrcUnwind);
}

fn changed_tables(file: &Path, kind: SectionKind) {
    assert!(!is_malformed(file, kind, "as it is"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed");
    let whole = std::fs::read(file).unwrap();
    let parts = elf::open(&opened(file)).unwrap().parts;
    let section = parts.sections.iter().find(|s| s.kind == kind).unwrap();
    let len = section.data.len();

    // The section is found by its bytes, as its file offset is not kept.
    let mut places = whole.windows(len);
    let start = places.position(|bytes| bytes == &section.data[..]).unwrap();

    let mut malformed = 0;
    // Two of the flips at each byte or, with UNWIND_SIM_SLOW=1, all.
    let flips = [[0x01, 0xff], [0x02, 0x60]];
    let is_slow = std::env::var_os("UNWIND_SIM_SLOW").is_some();

    for at in start..start + len {
        let chosen = if is_slow {
            &flips[..]
        } else {
            &flips[at % 2..][..1]
        };

        for flip in chosen.as_flattened() {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            std::fs::write(&path, &bytes).unwrap();
            let shown = format!("{}: byte {at:#x} ^ {flip:#x}", file.display());
            malformed += usize::from(is_malformed(&path, kind, &shown));
        }
    }

    // If no change was noticed, the test would prove nothing.
    assert!(malformed > 0, "{}", file.display());
}

/// Whether `--rows` finds anything malformed in a table. The summary must agree.
fn is_malformed(path: &Path, kind: SectionKind, shown: &str) -> bool {
    let text = inspect(path, None, &OpenOptions::default(), &CaseLimits::default()).unwrap();
    let heading = format!("\n{}: ", kind.as_str());
    let part = text.split(&heading).nth(1).expect("the section's part");
    let part = part.split("\n\n").next().unwrap();
    let line = |key| part.lines().find_map(|l| l.trim_start().strip_prefix(key));
    if let Some((found, stated)) = line("FREs").and_then(|l| l.split_once(" of ")) {
        let number = |text: &str| text.trim().parse::<u64>().unwrap();
        assert!(number(found) <= number(stated), "{shown}\n{part}");
    }
    let Some(counted) = line("malformed") else {
        assert!(part.contains("unknown layout"), "{shown}\n{part}");
        return false;
    };
    let counted: u64 = counted.trim().parse().unwrap();
    let image = elf::open(&opened(path)).unwrap().into_image();
    let ranges = image.text().iter();
    let faults: Vec<String> = ranges
        .flat_map(|r| rows::faults(&opened(path), kind, r))
        .collect();
    for fault in &faults {
        assert!(part.contains(fault), "{shown}: {fault}\n{part}");
    }
    assert!(faults.is_empty() || counted > 0, "{shown}\n{part}");
    !faults.is_empty()
}
