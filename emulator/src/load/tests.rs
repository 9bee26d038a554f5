//! Comparison with a real process on Linux, and hostile files.

use super::auxv::*;
use super::*;
use crate::address_space::MapError;
use std::collections::BTreeMap;
use std::process::Command;

fn interpreter(program: &[u8]) -> Result<Option<Vec<u8>>, LoadError> {
    super::interpreter(&program.to_vec().into())
}

fn load(
    space: &mut AddressSpace,
    program: &[u8],
    interpreter: Option<&Vec<u8>>,
    args: &[&[u8]],
    env: &[&[u8]],
    options: &LoadOptions,
) -> Result<Loaded, LoadError> {
    let linker = interpreter.map(|linker| linker.clone().into());
    let program = program.to_vec().into();
    super::load(space, &program, linker.as_ref(), args, env, options)
}

fn file(path: &str) -> Vec<u8> {
    let bytes = std::fs::read(path);
    bytes.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The program and its interpreter.
fn files(path: &str) -> (Vec<u8>, Option<(String, Vec<u8>)>) {
    let program = file(path);
    let interpreter = interpreter(&program).expect("a program").map(|path| {
        let path = String::from_utf8(path).expect("a path of this machine");
        let bytes = file(&path);
        (path, bytes)
    });
    (program, interpreter)
}

fn run(path: &str, argument: &str) -> Vec<u8> {
    let out = Command::new(path).arg(argument).env_clear().output();
    out.expect("it runs").stdout
}

fn word(space: &AddressSpace, at: u64) -> u64 {
    let mut bytes = [0; 8];
    space.read(at, &mut bytes).expect("on the stack");
    u64::from_le_bytes(bytes)
}

fn string(space: &AddressSpace, at: u64) -> Vec<u8> {
    let byte = |at| {
        let mut byte = [0];
        space.read(at, &mut byte).expect("on the stack");
        byte[0]
    };
    (at..).map(byte).take_while(|&b| b != 0).collect()
}

/// The pages of a file in `/proc/PID/maps`: (offset from its base, offset in the file,
/// permissions). Pages that ld.so makes read-only (RELRO) have their original permissions.
type Pages = BTreeMap<u64, (u64, String)>;

fn real_pages(maps: &str, path: &str) -> (u64, Pages) {
    let real = std::fs::canonicalize(path).expect("it exists");
    let (mut base, mut out) = (u64::MAX, Pages::new());
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.len() < 6 || std::path::Path::new(words[5]) != real {
            continue;
        }
        let hex = |word: &str| u64::from_str_radix(word, 16).expect("hexadecimal");
        let (start, end) = words[0].split_once('-').expect("a range");
        base = base.min(hex(start));
        for page in (hex(start)..hex(end)).step_by(PAGE_SIZE as usize) {
            let offset = hex(words[2]) + page - hex(start);
            out.insert(page, (offset, words[1][..3].to_owned()));
        }
    }
    (
        base,
        out.into_iter()
            .map(|(page, rest)| (page - base, rest))
            .collect(),
    )
}

fn our_pages(loaded: &Loaded, which: ElfFile, relro: &Range<u64>) -> Pages {
    let mut out = Pages::new();
    let of = |m: &&Mapping| m.which == which && m.is_file;
    let base = loaded
        .mappings
        .iter()
        .filter(of)
        .map(|m| m.range.start)
        .min();
    for m in loaded.mappings.iter().filter(of) {
        for page in m.range.clone().step_by(PAGE_SIZE as usize) {
            let offset = m.file_offset + page - m.range.start;
            let page = page - base.expect("there is one");
            let mut shown = format!("{:?}", m.permissions);
            if relro.contains(&page) {
                shown = "r--".to_owned();
            }
            out.insert(page, (offset, shown));
        }
    }
    out
}

/// `PT_GNU_RELRO` in whole pages, from the file's base.
fn relro(path: &str) -> Range<u64> {
    let bytes = std::fs::read(path).expect("it exists");
    let elf = goblin::elf::Elf::parse(&bytes).expect("ELF");
    let headers = elf.program_headers.iter();
    let mut headers = headers.filter(|p| p.p_type == goblin::elf::program_header::PT_GNU_RELRO);
    headers.next().map_or(0..0, |p| {
        p.p_vaddr & !(PAGE_SIZE - 1)..(p.p_vaddr + p.p_memsz) & !(PAGE_SIZE - 1)
    })
}

#[test]
fn a_program_is_mapped_as_linux_maps_it() {
    let path = "/bin/cat";
    let (program, linker) = files(path);
    let (linker_path, linker) = linker.expect("dynamic");
    let mut space = AddressSpace::default();
    let options = LoadOptions::default();
    let loaded = load(&mut space, &program, Some(&linker), &[], &[], &options);
    let loaded = loaded.expect("it runs here");

    // A real process prints its own mappings.
    let maps = String::from_utf8(run(path, "/proc/self/maps")).expect("text");
    for (which, path) in [
        (ElfFile::Program, path),
        (ElfFile::Interpreter, &linker_path),
    ] {
        let (_, real) = real_pages(&maps, path);

        // More pages than one mapping, or the text was not understood.
        assert!(real.len() > 4, "{maps}");
        assert_eq!(our_pages(&loaded, which, &relro(path)), real, "{path}");
    }

    // Without randomization, the addresses are Linux's own.
    assert_eq!(loaded.bias, ELF_ET_DYN_BASE);
    let last = |which| {
        let of = loaded.mappings.iter().filter(move |m| m.which == which);
        of.map(|m| m.range.end).max()
    };
    assert_eq!(last(ElfFile::Interpreter), Some(MMAP_BASE));

    // The heap begins behind the program.
    assert_eq!(last(ElfFile::Program), Some(loaded.brk));
}

#[test]
fn the_auxiliary_vector_is_that_of_linux() {
    let path = "/bin/cat";
    let (program, linker) = files(path);
    let (linker_path, linker) = linker.expect("dynamic");
    let mut space = AddressSpace::default();

    let options = LoadOptions {
        path: path.into(),
        ..LoadOptions::default()
    };
    let args: [&[u8]; 2] = [b"/bin/cat", b"/proc/self/auxv"];
    let loaded = load(&mut space, &program, Some(&linker), &args, &[], &options);
    let loaded = loaded.expect("it runs here");

    // The vector of a real process.
    let words = run(path, "/proc/self/auxv");
    let words = words
        .as_chunks::<8>()
        .0
        .iter()
        .map(|w| u64::from_le_bytes(*w));
    let words: Vec<u64> = words.collect();
    let real: Vec<(u64, u64)> = words
        .as_chunks::<2>()
        .0
        .iter()
        .map(|p| (p[0], p[1]))
        .collect();

    // By kind, since order and number may differ.
    let theirs: BTreeMap<u64, u64> = real.iter().copied().collect();
    let ours: BTreeMap<u64, u64> = loaded.auxv.iter().map(|e| (e.kind, e.value)).collect();

    // In the kernel's order, without the entries that are not modelled.
    let order: Vec<u64> = loaded.auxv.iter().map(|e| e.kind).collect();
    let known = real
        .iter()
        .map(|e| e.0)
        .filter(|kind| ours.contains_key(kind));
    assert_eq!(known.collect::<Vec<_>>(), order);

    // These do not depend on where anything is.
    for kind in [
        AT_PAGESZ, AT_CLKTCK, AT_PHENT, AT_PHNUM, AT_FLAGS, AT_SECURE,
    ] {
        assert_eq!(ours[&kind], theirs[&kind], "auxv {kind}");
    }

    // Addresses relative to their bases.
    let their_bias = theirs[&AT_PHDR] - (ours[&AT_PHDR] - loaded.bias);
    assert_eq!(their_bias % PAGE_SIZE, 0);
    assert_eq!(
        theirs[&AT_ENTRY] - their_bias,
        ours[&AT_ENTRY] - loaded.bias
    );
    assert_eq!(
        theirs[&AT_PLATFORM] - theirs[&AT_RANDOM],
        ours[&AT_PLATFORM] - ours[&AT_RANDOM]
    );
    assert_eq!(theirs[&AT_EXECFN] % PAGE_SIZE, ours[&AT_EXECFN] % PAGE_SIZE);

    // The interpreter's base, and the entry point in it: there execution starts.
    assert_eq!(Some(ours[&AT_BASE]), loaded.interpreter_bias);
    let linker = goblin::elf::Elf::parse(&linker).expect(&linker_path).entry;
    assert_eq!(loaded.entry, ours[&AT_BASE] + linker);
}

#[test]
fn the_stack_holds_arguments_environment_and_vector() {
    let (program, linker) = files("/bin/cat");
    let linker = linker.map(|l| l.1);
    let mut space = AddressSpace::default();

    let options = LoadOptions {
        path: b"/bin/cat".into(),
        ..LoadOptions::default()
    };

    let (args, env): ([&[u8]; 3], [&[u8]; 2]) = ([b"cat", b"", b"x y"], [b"A=1", b"PATH=/bin"]);
    let loaded = load(&mut space, &program, linker.as_ref(), &args, &env, &options);
    let loaded = loaded.expect("it runs here");

    // rsp is at the number of arguments, aligned to 16 bytes (psABI).
    assert_eq!(loaded.rsp % 16, 0);
    assert!(loaded.stack.contains(&loaded.rsp));
    assert_eq!(word(&space, loaded.rsp), 3);

    // The count, argv, a null pointer, envp, a null pointer, the vector (psABI 3.4.1).
    let mut at = loaded.rsp + 8;
    for text in args.iter().chain(&[&b""[..]]).chain(&env) {
        let pointer = word(&space, at);
        at += 8;
        if at == loaded.rsp + 8 + 4 * 8 {
            assert_eq!(pointer, 0, "the end of argv");
        } else {
            assert_eq!(&string(&space, pointer)[..], *text);
        }
    }
    assert_eq!(word(&space, at), 0, "the end of envp");

    for (index, entry) in loaded.auxv.iter().enumerate() {
        let at = at + 8 + 16 * index as u64;
        assert_eq!(
            (word(&space, at), word(&space, at + 8)),
            (entry.kind, entry.value)
        );

        // Where an entry points, there is what it promises.
        match entry.kind {
            AT_EXECFN => assert_eq!(string(&space, entry.value), b"/bin/cat"),
            AT_PLATFORM => assert_eq!(string(&space, entry.value), b"x86_64"),
            AT_RANDOM => {
                let mut random = [0; 16];
                space.read(entry.value, &mut random).expect("on the stack");
                assert_eq!(random, options.random);
            }
            AT_PHDR => {
                let mut headers = [0; 56];
                space.read(entry.value, &mut headers).expect("mapped");

                // e_phoff, of which the first byte is enough here.
                let offset = program[32] as usize;
                assert_eq!(headers, program[offset..offset + 56]);
            }
            _ => {}
        }
    }

    // 4 MiB: more than a quarter of the stack.
    let many: Vec<&[u8]> = vec![&[b'x'; 4096]; 1024];
    let failed = load(
        &mut AddressSpace::default(),
        &program,
        linker.as_ref(),
        &many,
        &[],
        &options,
    );

    assert!(matches!(
        failed.unwrap_err().what,
        LoadErrorKind::Arguments(_)
    ));
}

#[test]
fn code_and_data_are_the_files_and_bss_is_zero() {
    let (program, linker) = files("/bin/cat");
    let linker = linker.map(|l| l.1);
    let mut space = AddressSpace::default();
    let options = LoadOptions::default();
    let loaded = load(&mut space, &program, linker.as_ref(), &[], &[], &options).expect("it runs");
    let elf = goblin::elf::Elf::parse(&program).expect("ELF");
    let mut bss = 0;
    for p in elf.program_headers.iter().filter(|p| p.p_type == 1) {
        let at = p.p_vaddr + loaded.bias;
        let mut out = vec![0xff; p.p_memsz as usize];
        space.read(at, &mut out).expect("mapped");
        let (from_file, zeros) = out.split_at(p.p_filesz as usize);
        assert!(from_file == &program[p.file_range()]);
        assert!(zeros.iter().all(|&b| b == 0));
        bss += zeros.len();
        let executable = space.fetch(at, &mut [0]).is_ok();
        assert_eq!(executable, p.is_executable());
        let writable = space.clone().write(at, &[0]).is_ok();
        assert_eq!(writable, p.is_write());
    }
    assert!(bss > 0);
    assert!(space.fetch(loaded.entry, &mut [0; 16]).is_ok());
}

/// The dynamic linker run as a program, and a file that requests an interpreter but gets none.
#[test]
fn a_program_without_an_interpreter_comes_below_the_stack() {
    let (program, linker) = files("/bin/cat");
    let linker = linker.expect("dynamic").1;
    let mut space = AddressSpace::default();
    let options = LoadOptions::default();
    let loaded = load(&mut space, &linker, None, &[b"ld.so"], &[], &options).expect("it runs");
    assert_eq!(loaded.interpreter_bias, None);
    let end = loaded.mappings.iter().map(|m| m.range.end).max();
    assert_eq!(end, Some(MMAP_BASE));
    let mut space = AddressSpace::default();
    let failed = load(&mut space, &program, None, &[], &[], &options).unwrap_err();
    assert_eq!(failed.what, LoadErrorKind::NoInterpreter);
    let mut again = || load(&mut space, &program, Some(&linker), &[], &[], &options);
    again().expect("it runs");
    let twice = again().unwrap_err();
    assert_eq!(twice.what, LoadErrorKind::Overlap(ELF_ET_DYN_BASE));
}

/// The headers of a program at a fixed address with one segment, changed by `change`.
fn tiny(change: impl Fn(&mut [u8])) -> Result<Loaded, LoadError> {
    let mut bytes = vec![0u8; 0x2000];

    // elf(5): a static program for x86-64 with one PT_LOAD, larger in memory than in the file.
    let mut put = |at: usize, from: &[u8]| bytes[at..at + from.len()].copy_from_slice(from);
    put(0, b"\x7fELF\x02\x01\x01");
    // ET_EXEC, EM_X86_64 and the version; the entry; the program header's place, size and number.
    put(16, &[2, 0, 62, 0, 1]);
    put(24, &0x40_1000_u64.to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(52, &[64, 0, 56, 0, 1, 0]);
    // PT_LOAD with all permissions; below, its offset, addresses, sizes and alignment.
    put(64, &[1, 0, 0, 0, 7]);
    for (index, word) in [0u64, 0x40_0000, 0x40_0000, 0x2000, 0x5000, 0x1000]
        .iter()
        .enumerate()
    {
        put(72 + 8 * index, &word.to_le_bytes());
    }

    change(&mut bytes);
    let mut space = AddressSpace::new(1 << 12);
    load(
        &mut space,
        &bytes,
        None,
        &[b"p"],
        &[],
        &LoadOptions::default(),
    )
}

#[test]
fn hostile_headers_are_refused_by_name() {
    let loaded = tiny(|_| {}).expect("a good program");
    assert_eq!(
        (loaded.entry, loaded.bias, loaded.brk),
        (0x40_1000, 0, 0x40_5000)
    );
    assert_eq!(loaded.mappings.len(), 2);
    assert!(!loaded.mappings[1].is_file);

    let refused = |at: usize, with: &[u8]| {
        let change = |bytes: &mut [u8]| bytes[at..at + with.len()].copy_from_slice(with);
        tiny(change).map(|_| ()).unwrap_err()
    };

    // The places are those of `Elf64_Ehdr`, and from 64 on of `Elf64_Phdr` (elf(5)).
    assert_eq!(refused(0, b"MZ").what, LoadErrorKind::NotElf);
    // EM_386, then ET_CORE.
    assert_eq!(refused(18, &[3]).what, LoadErrorKind::NotX86_64);
    assert_eq!(refused(16, &[4]).what, LoadErrorKind::Type(4));
    // The highest byte of `e_phoff`, PN_XNUM as `e_phnum`, the size of an `Elf32_Phdr`, PT_NULL.
    assert_eq!(refused(39, &[0x7f]).what, LoadErrorKind::ProgramHeaders);
    assert_eq!(
        refused(56, &[0xff, 0xff]).what,
        LoadErrorKind::ProgramHeaders
    );
    assert_eq!(refused(54, &[32]).what, LoadErrorKind::ProgramHeaders);
    assert_eq!(refused(64, &[0]).what, LoadErrorKind::NothingToLoad);
    assert_eq!(refused(72, &[1]).what, LoadErrorKind::Misaligned);
    assert_eq!(refused(72 + 33, &[0x10]).what, LoadErrorKind::Segment);
    assert_eq!(refused(80, &[0xff; 8]).what, LoadErrorKind::Segment);
    assert!(matches!(refused(87, &[0x40]).what, LoadErrorKind::Map(_)));
    assert!(matches!(
        refused(111, &[0xff]).what,
        LoadErrorKind::Overlap(_)
    ));

    let low = refused(80, &[0, 0, 0, 0]);
    assert!(matches!(
        low.what,
        LoadErrorKind::Map(MapError::Range { start: 0, .. })
    ));
    assert_eq!((low.which, low.section), (ElfFile::Program, "PT_LOAD"));
}

#[test]
fn no_damage_panics() {
    // The file header and the program header of `tiny`.
    for at in 0..120 {
        for bit in 0..8 {
            let _ = tiny(|bytes| bytes[at] ^= 1 << bit);
        }
        for value in [0, 0x7f, 0x80, 0xff] {
            let _ = tiny(|bytes| bytes[at] = value);
        }
    }

    let (program, linker) = files("/bin/cat");
    let linker = linker.expect("dynamic").1;
    let mut damaged = program.to_vec();
    for (at, &byte) in program.iter().enumerate().take(0x400) {
        // One damaged byte at a time, in the program, then in its interpreter.
        damaged[at] ^= 1 << (at % 8);

        let bytes = damaged.clone();
        let mut space = AddressSpace::new(1 << 10);
        let _ = load(
            &mut space,
            &bytes,
            Some(&linker),
            &[],
            &[],
            &LoadOptions::default(),
        );
        let _ = load(
            &mut AddressSpace::new(1 << 10),
            &program,
            Some(&bytes),
            &[],
            &[],
            &LoadOptions::default(),
        );
        damaged[at] = byte;
    }

    // A shorter file ends in its headers: 64 + 13 × 56 bytes.
    for len in 0..1024 {
        let bytes = program[..len].to_vec();
        assert!(interpreter(&bytes).is_err() || len >= 0x318);
    }
}
