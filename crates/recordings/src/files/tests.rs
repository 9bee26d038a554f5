//! Real files: programs built by `cc`, then stripped, split, compressed and removed.

use super::*;
use std::io::Write;
use std::process::Command;
use unwind_sim_unwind::image::SectionKind;

/// A directory for one test, removed on drop.
struct Dir(PathBuf);

impl Dir {
    fn new(test: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("unwind-sim-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary directory");
        Dir(dir.canonicalize().expect("it was just made"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let out = Command::new(program)
            .args(arguments)
            .current_dir(&self.0)
            .output();
        let out = out.unwrap_or_else(|e| panic!("{program} must be installed for this test: {e}"));
        assert!(out.status.success(), "{program} {arguments:?}: {out:?}");
    }

    /// Builds a program with the local function `inner`, with these compiler flags.
    fn build(&self, name: &str, flags: &[&str]) -> PathBuf {
        let mut source = String::from("#include <stdio.h>\n");
        for n in 0..64 {
            source += &format!("int f{n}(int x) {{ return printf(\"%d\", x) + {n}; }}\n");
        }
        source += "static __attribute__((noinline)) int inner(int x) { return printf(\"%d\", x); }\n\
            int main(int c, char **v) { return inner(c) < 0 && v; }\n";
        std::fs::write(self.path("p.c"), source).expect("a temporary file");
        self.run(
            "cc",
            &[&["p.c", "-o", name, "-O1", "-Wl,--build-id=sha1"], flags].concat(),
        );
        self.path(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn request<'a>(path: &'a Path, build_id: &'a [u8]) -> MappingRequest<'a> {
    MappingRequest {
        pid: 1,
        name: path.to_str().expect("a temporary path is text"),
        range: 0x5555_0000_0000..0x5555_0010_0000,
        file_offset: 0,
        executable: false,
        build_id,
    }
}

fn finder(debug_dir: &Path) -> ImageFinder {
    ImageFinder::new(FinderOptions {
        debug_dirs: vec![debug_dir.to_owned()],
        debug_files: true,
        ..FinderOptions::default()
    })
}

fn has_inner(image: &Image) -> bool {
    image
        .symbols()
        .iter()
        .any(|s| s.name == "inner" && s.size != 0)
}

fn only_problem(finder: &ImageFinder) -> &FileProblemKind {
    let [problem] = finder.problems() else {
        panic!("expected one problem: {:?}", finder.problems());
    };
    &problem.kind
}

#[test]
fn every_executable_mapping_of_this_process_has_its_image_and_bias() {
    let mut finder = ImageFinder::new(FinderOptions {
        live: true,
        ..FinderOptions::system()
    });

    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    // Code whose symbol is known.
    let here: fn() = every_executable_mapping_of_this_process_has_its_image_and_bias;
    let here = here as usize as u64;
    let mut found = 0;

    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let hex = |word: &str| u64::from_str_radix(word, 16).expect("a hexadecimal number");
        let (start, end) = words[0].split_once('-').expect("a range");
        let range = hex(start)..hex(end);
        // Memory without a name has no image, nor has `[vsyscall]`.
        if words.len() < 6 || !words[1].contains('x') || words[5] == "[vsyscall]" {
            continue;
        }

        let (image, bias) = finder.mapping_for(&MappingRequest {
            pid: std::process::id(),
            name: words[5],
            range: range.clone(),
            file_offset: hex(words[2]),
            executable: true,
            build_id: &[],
        });
        let image = image.unwrap_or_else(|| panic!("{line}: {:?}", finder.problems()));

        // The segment's first byte is at the address that the kernel chose.
        let svma = range.start.wrapping_sub(bias);
        let inside = |r: &Range<u64>| r.start & !0xfff == svma;
        assert!(image.text().iter().any(inside), "{line}: {svma:#x}");

        if range.contains(&here) {
            let symbol = image.symbol(here.wrapping_sub(bias)).expect("a symbol");
            assert!(
                symbol.name.contains("every_executable_mapping"),
                "{symbol:?}"
            );
        }
        if words[5] == "[vdso]" {
            assert!(
                image
                    .symbols()
                    .iter()
                    .any(|s| s.name == "__vdso_gettimeofday")
            );
            assert!(image.section(SectionKind::EhFrame).is_some());
        }

        found += 1;
    }

    // At least the program, the C library, the dynamic linker and the vdso.
    assert!(found >= 4, "{found} mappings");
}

#[test]
fn a_stripped_file_gets_its_symbols_from_the_build_id_tree() {
    let dir = Dir::new("tree");
    let path = dir.build("p", &["-g"]);
    dir.run("objcopy", &["--only-keep-debug", "p", "kept"]);
    dir.run("strip", &["p"]);
    let mut alone = finder(&dir.path("nothing"));
    let (image, _) = alone.mapping_for(&request(&path, &[]));
    let image = image.expect("the program");
    assert!(!has_inner(&image));
    let hex: String = image
        .build_id()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    // `.build-id/ab/cdef.debug` (gdb's manual, "Debugging Information in Separate Files").
    let tree = dir.path("debug/.build-id").join(&hex[..2]);
    std::fs::create_dir_all(&tree).expect("a directory");
    std::fs::rename(dir.path("kept"), tree.join(format!("{}.debug", &hex[2..]))).expect("rename");

    let mut finder = finder(&dir.path("debug"));
    let build_id = image.build_id();
    let (with_debug, bias) = finder.mapping_for(&request(&path, build_id));
    let with_debug = with_debug.expect("the program");
    assert!(has_inner(&with_debug));
    assert!(with_debug.debug_file().is_some());
    assert!(with_debug.text_bytes(with_debug.text()[0].start, 1).len() == 1);
    assert!(with_debug.symbols().iter().any(|s| s.name == "printf@plt"));
    assert_eq!(bias, 0x5555_0000_0000);
    assert_eq!(finder.problems(), []);
    // The same image again, not an equal one.
    let (again, _) = finder.mapping_for(&request(&path, build_id));
    assert_eq!(again.map(|image| image.id()), Some(with_debug.id()));

    // Another build at the same path is not used; if there is nothing else, there is no image.
    let mut other = build_id.to_vec();
    other[0] ^= 1;
    assert!(finder.mapping_for(&request(&path, &other)).0.is_none());
    assert_eq!(only_problem(&finder).as_str(), "build-id-mismatch");
    assert_eq!(finder.problem_count(), 1);
}

#[test]
fn a_debug_link_is_followed_and_its_crc_checked() {
    let dir = Dir::new("link");
    let path = dir.build("p", &["-g", "-Wl,--build-id=none"]);
    dir.run("objcopy", &["--only-keep-debug", "p", "p.debug"]);
    dir.run("strip", &["p"]);
    dir.run("objcopy", &["--add-gnu-debuglink=p.debug", "p"]);
    let mut first = finder(&dir.path("nothing"));
    let (image, _) = first.mapping_for(&request(&path, &[]));
    let image = image.expect("the program");
    assert!(has_inner(&image));
    assert_eq!(first.problems(), []);
    // Source lines are read from it later. A mark of doubt is no reason to lose them.
    let file = std::fs::read(dir.path("p.debug")).expect("the debug file");
    assert!(image.debug_file() == Some(&file[..]));
    assert!(image.with_doubt(Doubt::Likely).debug_file() == Some(&file[..]));
    let whole: Owner = Arc::new(std::fs::read(&path).expect("the program"));
    let found = debug_file_of(&whole, &path, first.options()).expect("a debug file");
    assert!((*found).as_ref() == file);

    // Below another root, the file beside the program is meant, too.
    let mut below = ImageFinder::new(FinderOptions {
        symfs: Some(dir.path("")),
        debug_files: true,
        ..FinderOptions::default()
    });
    let (image, _) = below.mapping_for(&request(Path::new("/p"), &[]));
    assert!(image.expect("the program").debug_file() == Some(&file[..]));

    let debug = dir.path("p.debug");
    let mut bytes = std::fs::read(&debug).expect("the debug file");
    *bytes.last_mut().expect("not empty") ^= 1;
    std::fs::write(&debug, &bytes).expect("ours");
    let mut second = finder(&dir.path("nothing"));
    let (image, _) = second.mapping_for(&request(&path, &[]));
    let image = image.expect("the program");
    assert!(!has_inner(&image));
    assert!(image.debug_file().is_none());
    assert_eq!(only_problem(&second).as_str(), "crc-mismatch");
    assert!(debug_file_of(&whole, &path, second.options()).is_none());

    // What is not an ordinary file is neither opened nor waited for.
    std::fs::remove_file(&debug).expect("ours");
    dir.run("mkfifo", &["p.debug"]);
    assert!(debug_file_of(&whole, &path, second.options()).is_none());
}

#[test]
fn mini_debug_info_is_unpacked_and_its_damage_never_panics() {
    let dir = Dir::new("mini");
    let path = dir.build("p", &["-g"]);
    // MiniDebugInfo (gdb's manual): an ELF file that has symbols only, packed with xz.
    dir.run("objcopy", &["-S", "--keep-symbol=inner", "p", "mini"]);
    let plain = std::fs::read(dir.path("mini")).expect("the symbols");
    let file = std::fs::File::create(dir.path("mini.xz")).expect("a file");
    let mut packer =
        lzma_rust2::XzWriter::new(file, lzma_rust2::XzOptions::with_preset(6)).expect("a packer");
    packer.write_all(&plain).expect("packed");
    packer.finish().expect("packed");
    dir.run("strip", &["p"]);
    dir.run("objcopy", &["--add-section", ".gnu_debugdata=mini.xz", "p"]);
    let mut whole = finder(&dir.path("nothing"));
    let (image, _) = whole.mapping_for(&request(&path, &[]));
    assert!(has_inner(&image.expect("the program")));
    assert_eq!(whole.problems(), []);

    let bytes = std::fs::read(&path).expect("the program");
    let packed = std::fs::read(dir.path("mini.xz")).expect("xz");
    // Damage goes into the packed section, not into the rest of the program.
    let at = bytes
        .windows(packed.len())
        .position(|w| w == packed)
        .expect("it was added");
    let mut refused = 0;
    for offset in (0..packed.len()).step_by(7) {
        let mut bytes = bytes.clone();
        bytes[at + offset] ^= 0x20;
        let mut elf = elf::read("", Arc::new(bytes), &elf::ReadOptions::default()).expect("ELF");
        refused += debug::complete(&mut elf, &path, finder(&dir.path("nothing")).options())
            .1
            .len();
    }
    assert!(
        refused > packed.len() / 14,
        "xz has checksums: {refused} of {}",
        packed.len() / 7
    );
}

#[test]
fn a_compressed_debug_frame_is_unpacked_like_the_plain_one() {
    let dir = Dir::new("compressed");
    // Without `.eh_frame`, the compiler puts its rows into `.debug_frame`.
    let no_tables = [
        "-g",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
    ];

    let path = dir.build("plain", &no_tables);
    let frame = |path: &Path| {
        let mut finder = finder(&dir.path("nothing"));
        let (image, _) = finder.mapping_for(&request(path, &[]));
        let image = image.expect("the program");
        assert_eq!(finder.problems(), []);
        let section = image.section(SectionKind::DebugFrame);
        section.expect("a frame section").data.to_vec()
    };

    let plain = frame(&path);
    assert!(plain.len() > 64);

    for how in ["zlib", "zstd"] {
        let option = format!("--compress-debug-sections={how}");
        dir.run("objcopy", &[&option, "plain", how]);
        let packed = dir.path(how);
        let bytes = std::fs::read(&packed).expect("it was just made");
        let elf = elf::read("", Arc::new(bytes), &elf::ReadOptions::default()).expect("ELF");
        assert_eq!(elf.compressed.len(), 1, "{how} compressed it");
        assert_eq!(elf.compressed[0].size, plain.len() as u64);
        assert!(frame(&packed) == plain, "{how}");
    }
}

#[test]
fn a_removed_program_is_found_while_it_runs() {
    let dir = Dir::new("removed");
    let path = dir.path("sleeper");
    std::fs::copy("/bin/sleep", &path).expect("a program that waits");

    // A test that forks at this moment may briefly keep the copy open for writing.
    let mut child = loop {
        match Command::new(&path).arg("60").spawn() {
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::yield_now();
            }
            child => break child.expect("it runs"),
        }
    };

    let maps = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    let mine = |line: &&str| line.contains("sleeper") && line.contains("r-xp");
    while maps(child.id()).lines().find(mine).is_none() {
        std::thread::yield_now();
    }

    // From here on, maps has ` (deleted)` behind the path.
    std::fs::remove_file(&path).expect("ours");
    let maps = maps(child.id());
    let line = maps.lines().find(mine).expect("still mapped");
    let hex = |word: &str| u64::from_str_radix(word, 16).expect("a number");
    let (start, end) = line
        .split_once(' ')
        .and_then(|l| l.0.split_once('-'))
        .expect("a range");
    let name = &line[line.find('/').expect("a path")..];
    assert!(name.ends_with(candidates::DELETED), "{name}");

    let live = |live| {
        ImageFinder::new(FinderOptions {
            live,
            ..FinderOptions::default()
        })
    };
    let request = MappingRequest {
        pid: child.id(),
        name,
        range: hex(start)..hex(end),
        file_offset: hex(line.split_whitespace().nth(2).expect("an offset")),
        executable: true,
        build_id: &[],
    };

    let (image, _) = live(true).mapping_for(&request);
    let (nothing, bias) = live(false).mapping_for(&request);
    // Not before: `/proc/PID` goes with the process.
    child.kill().and_then(|()| child.wait()).expect("ours");

    assert!(image.is_some_and(|image| image.section(SectionKind::EhFrame).is_some()));
    // If the process is unknown, nothing is guessed; the bias then gives file offsets.
    assert!(nothing.is_none());
    assert_eq!(request.range.start - bias, request.file_offset);
}

#[test]
fn generated_code_has_the_symbols_of_its_map_file() {
    let dir = Dir::new("jit");
    // `again` is at the address of `first` and replaces it; the name after it has spaces.
    let lines = "7f0000001000 20 first\n7f0000001020 40 LazyCompile:~f /a b.js:1\nnonsense\n\
                 7f0000001000 18 again\n7f0000009000 8 elsewhere\n";
    std::fs::write(dir.path("perf-77.map"), lines).expect("ours");

    let mut finder = ImageFinder::new(FinderOptions {
        jit_dir: Some(dir.0.clone()),
        ..FinderOptions::default()
    });
    let mut request = MappingRequest {
        pid: 77,
        name: "//anon",
        range: 0x7f00_0000_0000..0x7f00_0000_2000,
        file_offset: 0,
        executable: true,
        build_id: &[],
    };

    let (image, bias) = finder.mapping_for(&request);
    let image = image.expect("symbols");
    assert_eq!(bias, 0);
    assert_eq!(image.symbols().len(), 2);
    let name = |at: u64| image.symbol(at).map(|s| s.name.as_str());
    assert_eq!(name(0x7f00_0000_1010), Some("again"));
    assert_eq!(name(0x7f00_0000_1050), Some("LazyCompile:~f /a b.js:1"));
    assert!(
        image.is_text(0x7f00_0000_1fff),
        "all of the mapping is code"
    );

    // The rest of the file is used in spite of its bad line.
    assert_eq!(only_problem(&finder), &FileProblemKind::JitLine { line: 3 });

    request.executable = false;
    assert!(finder.mapping_for(&request).0.is_none());
    // This process has no map.
    request.pid = 78;
    assert!(finder.mapping_for(&request).0.is_none());
}

#[test]
fn symfs_is_the_root_of_all_paths() {
    let dir = Dir::new("symfs");
    let built = dir.build("p", &[]);
    let below = dir.path("root/usr/bin");
    std::fs::create_dir_all(&below).expect("a directory");
    std::fs::rename(built, below.join("p")).expect("rename");
    let mut finder = ImageFinder::new(FinderOptions {
        symfs: Some(dir.path("root")),
        ..FinderOptions::default()
    });
    let found = |finder: &mut ImageFinder, path: &str| {
        finder
            .mapping_for(&request(Path::new(path), &[]))
            .0
            .is_some()
    };
    assert!(found(&mut finder, "/usr/bin/p"));
    assert!(found(&mut finder, "/../usr/bin/p"), ".. does not lead out");
    assert!(!found(&mut finder, "/bin/sh"));
    assert_eq!(only_problem(&finder), &FileProblemKind::NotFound);
}

/// What is not below the root is taken from its own path, but only if it is the recorded build.
#[test]
fn below_symfs_is_only_looked_first() {
    let dir = Dir::new("symfs-first");
    let path = dir.build("p", &[]);
    let id = elf::read(
        "p",
        Arc::new(std::fs::read(&path).expect("it")),
        &elf::ReadOptions::default(),
    );
    let id = id.expect("ELF").parts.build_id;

    let finder = |real_root| {
        ImageFinder::new(FinderOptions {
            symfs: Some(dir.path("root")),
            real_root,
            ..FinderOptions::default()
        })
    };
    let found =
        |finder: &mut ImageFinder, id: &[u8]| finder.mapping_for(&request(&path, id)).0.is_some();

    assert!(found(&mut finder(true), &id));
    // Without `real_root`, the file's own path is not looked at.
    assert!(!found(&mut finder(false), &id));

    let mut wrong = finder(true);
    assert!(!found(&mut wrong, &[7; 20]), "another build");
    assert_eq!(only_problem(&wrong).as_str(), "build-id-mismatch");
    assert_eq!(wrong.problems()[0].build_id, [7; 20]);
    assert!(
        !found(&mut finder(true), &[]),
        "no build ID says that it is the file"
    );

    // The file below the root comes first, whatever is at the path.
    let below = dir
        .path("root")
        .join(path.strip_prefix("/").expect("absolute"));
    std::fs::create_dir_all(below.parent().expect("a folder")).expect("a directory");
    std::fs::write(&below, "no ELF").expect("a file");
    let mut unnamed = finder(true);
    assert!(!found(&mut unnamed, &[]));
    assert_eq!(only_problem(&unnamed).as_str(), "elf");
}

/// A file without recorded build ID is used, but what can be checked is.
#[test]
fn a_file_that_may_have_been_replaced_is_reported() {
    let dir = Dir::new("replaced");
    let path = dir.build("p", &[]);
    let modified = std::fs::metadata(&path)
        .and_then(|m| m.modified())
        .expect("a time");

    let elf = elf::read(
        "p",
        Arc::new(std::fs::read(&path).expect("it")),
        &elf::ReadOptions::default(),
    );
    let elf = elf.expect("ELF");
    let code = elf
        .segments
        .iter()
        .find(|s| s.is_executable())
        .expect("code");

    // A mapping has whole pages, so its ends need not be those of the segment.
    let pages = code.offset & !4095..(code.offset + code.file_size).next_multiple_of(4096);

    let problems = |seconds: i64, length: u64, id: &[u8]| {
        let time = std::time::Duration::from_secs(seconds.unsigned_abs());
        let recorded = if seconds < 0 {
            modified - time
        } else {
            modified + time
        };
        let mut finder = ImageFinder::new(FinderOptions {
            recorded: Some(recorded),
            ..FinderOptions::default()
        });
        let start = 0x5555_0000_0000 + pages.start;
        let request = MappingRequest {
            range: start..start + length,
            file_offset: pages.start,
            executable: true,
            ..request(&path, id)
        };
        let [first, again] = [(); 2].map(|()| finder.mapping_for(&request).0.expect("it is used"));
        // A doubtful image is made once, too.
        assert_eq!(first.id(), again.id());
        let is_noted = !finder.problems().is_empty();
        assert_eq!(first.doubt(), is_noted.then_some(Doubt::Likely));
        let names = finder.problems().iter().map(|p| p.kind.as_str());
        names.collect::<Vec<_>>()
    };

    let length = pages.end - pages.start;
    assert!(problems(1, length, &[]).is_empty());
    assert_eq!(problems(-1, length, &[]), ["newer"]);
    assert_eq!(problems(1, length + 4096, &[]), ["other-segments"]);
    // The right build ID says that it is the file, whatever else there is.
    assert!(problems(-1, length + 4096, &elf.parts.build_id).is_empty());
}

/// A copy below `--symfs`, or of `--exe`, may be newer than the recording: the user says what it is.
#[test]
fn the_age_of_files_that_the_user_names_is_not_asked() {
    let dir = Dir::new("vouched");
    let path = dir.build("p", &[]);
    std::fs::create_dir_all(dir.path("root/opt")).unwrap();
    std::fs::copy(&path, dir.path("root/opt/program")).unwrap();
    let name = Path::new("/opt/program");
    let copy = dir.path("root/opt/program");
    let problems = |symfs: Option<PathBuf>, program: Option<PathBuf>, name: &Path| {
        let mut finder = ImageFinder::new(FinderOptions {
            recorded: Some(SystemTime::UNIX_EPOCH),
            symfs,
            program: program.map(|file| (name.display().to_string(), Some(file))),
            ..FinderOptions::default()
        });
        assert!(finder.mapping_for(&request(name, &[])).0.is_some());
        finder.problems().len()
    };
    assert_eq!(problems(None, None, &copy), 1);
    assert_eq!(problems(Some(dir.path("root")), None, name), 0);
    assert_eq!(problems(None, Some(copy), name), 0);
}

/// The unit of a function names its compiler, also in a separate or compressed debug file.
#[test]
fn producers_are_read_where_debug_information_is() {
    let dir = Dir::new("producer");
    let path = dir.build("p", &["-g", "-gz=zlib"]);
    let bytes = std::fs::read(&path).expect("it");
    let elf = elf::read("p", Arc::new(bytes.clone()), &elf::ReadOptions::default()).expect("ELF");

    let svma = |name: &str| {
        elf.parts
            .symbols
            .iter()
            .find(|s| s.name == name)
            .expect("a symbol")
            .address
    };

    let id = &elf.parts.build_id;
    let options = FinderOptions {
        debug_dirs: vec![dir.path("debug")],
        ..FinderOptions::default()
    };
    let made = producer(&bytes, svma("main"), id, &options).expect("a producer");
    assert!(made.source.ends_with("p.c"), "{made:?}");
    assert!(!made.text.is_empty());

    // `_start` is of the C library, which has another unit or none.
    let start = producer(&bytes, svma("_start"), id, &options);
    assert!(start.is_none_or(|p| p.source != made.source));

    dir.run("strip", &["-g", "-o", "stripped", "p"]);
    let stripped = std::fs::read(dir.path("stripped")).expect("it");
    // There is no separate debug file yet.
    assert_eq!(producer(&stripped, svma("main"), id, &options), None);
    let tree = candidates::in_tree(&dir.path("debug"), id, ".debug").expect("a build ID");
    std::fs::create_dir_all(tree.parent().expect("a folder")).expect("a directory");
    let tree = tree.to_str().expect("text");
    dir.run("objcopy", &["--only-keep-debug", "p", tree]);
    assert_eq!(producer(&stripped, svma("main"), id, &options), Some(made));

    // Cut or changed anywhere: no answer or an answer, never a panic.
    for at in (0..bytes.len()).step_by(97) {
        let mut changed = bytes.clone();
        changed[at] ^= 0xff;
        let _ = producer(&changed, svma("main"), &[], &options);
        let _ = producer(&bytes[..at], svma("main"), &[], &options);
    }
}

#[test]
fn an_image_in_memory_without_its_section_headers_is_read_by_segments() {
    let dir = Dir::new("memory");
    let path = dir.build("p", &[]);
    let file = std::fs::read(&path).expect("the program");
    let elf = elf::read("p", Arc::new(file.clone()), &elf::ReadOptions::default()).expect("ELF");

    let size = elf
        .segments
        .iter()
        .map(|s| s.range().end)
        .max()
        .expect("segments");
    let mut memory = vec![0; size.next_multiple_of(4096) as usize];
    // As it is loaded: each segment at its address. The section headers belong to none.
    for s in &elf.segments {
        let (from, to, len) = (s.offset as usize, s.address as usize, s.file_size as usize);
        memory[to..to + len].copy_from_slice(&file[from..from + len]);
    }

    let mut finder = finder(&dir.path("nothing"));
    let (image, bias) = finder
        .memory_image("p", 0x7000_0000, Arc::new(memory))
        .expect("an image");
    assert_eq!(bias, 0x7000_0000);
    assert_eq!(image.build_id(), elf.parts.build_id);
    assert_eq!(image.text(), elf.parts.text);

    let sections = |kind| elf.parts.sections.iter().find(move |s| s.kind == kind);
    let hdr = sections(SectionKind::EhFrameHdr).expect("a header");
    let ours = image.section(SectionKind::EhFrameHdr).expect("a header");
    assert_eq!((ours.address, &ours.data[..]), (hdr.address, &hdr.data[..]));
    let eh_frame = sections(SectionKind::EhFrame).expect("a table");
    let ours = image.section(SectionKind::EhFrame).expect("a table");
    assert_eq!(ours.address, eh_frame.address);
    // Without section headers, nothing says where the table ends.
    assert!(ours.data.starts_with(&eh_frame.data));
}

#[test]
fn a_removed_file_is_not_one_that_cannot_be_read() {
    let denied = FileProblemKind::Io(std::io::ErrorKind::PermissionDenied);
    let problem = |path, kind| FileProblem::new(path, &[], kind);
    assert!(problem("/usr/bin/git", denied.clone()).is_unread());
    assert!(!problem("/memfd:code (deleted)", denied).is_unread());
    assert!(!problem("/usr/bin/git", FileProblemKind::NotFound).is_unread());
}
