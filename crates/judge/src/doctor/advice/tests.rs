//! What is advised in which situation.

use super::*;
use crate::doctor::origin::{Author, Language};

/// What a test changes of a profile that perf recorded with `--call-graph dwarf`.
struct Given {
    kind: Kind,
    image: &'static str,
    made: Made,
    copied: u64,
    origin: Origin,
    only_leaves: bool,
    problem: Option<FileProblem>,
    is_doubtful: bool,
    has_row: bool,
    row: Option<ProvenRow>,
    is_fp_cut: bool,
    needed: Option<Needed>,
    generator: Generator,
    is_generated: bool,
    lack: Option<Lack>,
    function: &'static str,
    subjects: Vec<(&'static str, u64, u64)>,
}

fn given(kind: Kind) -> Given {
    Given {
        kind,
        image: "/home/me/prog",
        made: Made {
            engine: Engine::Import(FileKind::PerfData),
            ..Made::default()
        },
        copied: 0,
        origin: Origin::by(Author::Unknown(Vec::new())),
        only_leaves: false,
        problem: None,
        is_doubtful: false,
        has_row: true,
        row: None,
        is_fp_cut: false,
        needed: None,
        generator: Generator::default(),
        is_generated: false,
        lack: None,
        function: "work",
        subjects: vec![("dwarf", 10, 10)],
    }
}

fn advised(given: &Given) -> String {
    let subject = |&(name, whole, broken): &(&str, u64, u64)| Subject {
        name: name.to_owned(),
        whole,
        broken,
        ..Subject::default()
    };
    let subjects: Vec<Subject> = given.subjects.iter().map(subject).collect();

    advice(&Situation {
        kind: given.kind,
        image: given.image,
        made: &given.made,
        copied: given.copied,
        origin: &given.origin,
        only_leaves: given.only_leaves,
        problem: given.problem.as_ref(),
        is_doubtful: given.is_doubtful,
        has_row: given.has_row,
        row: given.row,
        is_fp_cut: given.is_fp_cut,
        needed: given.needed,
        generator: given.generator,
        is_generated: given.is_generated,
        lack: given.lack,
        function: given.function,
        subjects: &subjects,
        subject: 0,
    })
}

fn in_language(kind: Kind, language: Language, author: Author) -> String {
    let mut given = given(kind);
    given.origin = Origin {
        language,
        ..Origin::by(author)
    };
    advised(&given)
}

#[test]
fn a_longer_copy_is_asked_for_until_there_is_none() {
    let asked = |copied| {
        let mut given = given(Kind::CopyTooShort);
        given.copied = copied;
        advised(&given)
    };
    assert!(asked(512).contains("dwarf,16384"), "{}", asked(512));
    assert!(asked(8192).contains("dwarf,32768"), "{}", asked(8192));
    assert!(asked(32_768).contains("dwarf,65528"), "{}", asked(32_768));
    let longest = asked(65_528);
    assert!(!longest.contains("dwarf"), "{longest}");
    for word in ["shorter", "--call-graph lbr", "--call-graph fp"] {
        assert!(longest.contains(word), "{longest}");
    }
    // Short stacks do not hide what was asked for.
    let mut short = given(Kind::CopyTooShort);
    (short.copied, short.made.stack_copy) = (128, 65_528);
    assert!(!advised(&short).contains("dwarf"), "{}", advised(&short));
}

#[test]
fn a_systems_file_is_not_built_again() {
    let advice = |image| {
        let mut given = given(Kind::NoFramePointer);
        given.image = image;
        advised(&given)
    };
    assert!(advice("/home/me/prog").contains("-fno-omit-frame-pointer"));
    assert!(!advice("/usr/lib/libc.so.6").contains("-fno-omit-frame-pointer"));
}

#[test]
fn rows_are_asked_of_whoever_can_write_them() {
    let row = |language, author| in_language(Kind::NoRow, language, author);
    let source = |name: &str| Author::Compiler(name.into());
    let gcc = row(Language::Gcc, source("a.c"));
    assert!(gcc.contains("-fasynchronous-unwind-tables"), "{gcc}");
    assert!(!gcc.contains(".cfi"), "{gcc}");
    let assembly = row(Language::Gcc, Author::Assembly("a.S".into()));
    assert!(assembly.contains(".cfi directives in a.S"), "{assembly}");
    assert!(row(Language::Rust, source("a.rs")).contains("force-unwind-tables"));
    assert!(row(Language::Unknown, Author::Linker).contains("--ld-generated-unwind-info"));
    // Where no author is known, a table may have no row because a person wrote none.
    let unknown = row(Language::Gcc, Author::Unknown(Vec::new()));
    assert!(
        unknown.contains(".cfi directives") && unknown.contains("-fasync"),
        "{unknown}"
    );
    assert!(advised(&given(Kind::StartFile)).contains("nothing of yours"));
}

#[test]
fn only_an_unwinder_that_did_better_is_advised() {
    let with = |subjects: &[(&'static str, u64, u64)]| {
        let mut given = given(Kind::NoRow);
        given.copied = 8192;
        given.subjects = subjects.to_vec();
        advised(&given)
    };
    let worse = with(&[("dwarf", 10, 10), ("fp", 2, 18), ("dwarf+fp", 10, 10)]);
    assert!(!worse.contains("--unwinder"), "{worse}");
    assert!(!worse.contains("--call-graph fp"), "{worse}");
    let better = with(&[("dwarf", 10, 10), ("fp", 2, 18), ("dwarf+fp", 19, 1)]);
    assert!(better.contains("`--unwinder dwarf+fp`"), "{better}");
    // It walked fewer stacks, so that it is not better although it broke fewer.
    let fewer = with(&[("dwarf", 10, 10), ("fp", 2, 0)]);
    assert!(!fewer.contains("--unwinder"), "{fewer}");
    let perf = with(&[("dwarf", 10, 10), (super::super::PERF, 20, 0)]);
    assert!(perf.contains("chains that perf recorded"), "{perf}");
}

#[test]
fn frame_pointers_that_end_with_the_copy_too_are_not_worse() {
    let mut cut = given(Kind::CopyTooShort);
    (cut.copied, cut.subjects) = (65_528, vec![("dwarf", 0, 9), ("fp", 0, 9)]);
    assert!(!advised(&cut).contains("--call-graph fp"));
    // How far the next word is says nothing of frame pointers, which failed for another reason.
    cut.needed = Some(Needed {
        least: 70_000,
        most: 80_000,
    });
    assert!(!advised(&cut).contains("--call-graph fp"));
    cut.is_fp_cut = true;
    assert!(advised(&cut).contains("--call-graph fp"));
}

#[test]
fn the_checker_is_named_only_if_it_finds_something() {
    let advice = |row| {
        let mut given = given(Kind::WrongRow);
        given.row = row;
        advised(&given)
    };
    let check = "tables check";
    assert!(advice(Some(ProvenRow::Contradicted)).contains("check --explain /home/me/prog"));
    let unproven = advice(Some(ProvenRow::Unproven("value")));
    assert!(unproven.contains("check --unproven") && unproven.contains("(value)"));
    assert!(!advice(Some(ProvenRow::Proven)).contains(check));
    assert!(!advice(None).contains(check));
}

#[test]
fn nothing_is_advised_that_the_recording_already_did() {
    let mut lbr = given(Kind::BranchRecords);
    (lbr.made.branch_calls, lbr.subjects) = (true, vec![("lbr", 0, 5)]);
    assert!(advised(&lbr).contains("--stitch-lbr"));
    lbr.subjects = vec![("lbr:stitch", 0, 5)];
    assert!(!advised(&lbr).contains("stitch"), "{}", advised(&lbr));
    lbr.subjects = vec![("lbr", 0, 5), ("lbr:stitch", 0, 5)];
    assert!(!advised(&lbr).contains("stitch"), "{}", advised(&lbr));
    for kind in Kind::ALL {
        let mut given = given(kind);
        given.made.branch_calls = true;
        given.made.callchains = true;
        given.made.stack_copy = 65_528;
        let text = advised(&given);
        assert!(!text.contains("--call-graph lbr"), "{kind:?}: {text}");
        assert!(!text.contains("--call-graph dwarf"), "{kind:?}: {text}");
        let mut fp = self::given(kind);
        (fp.made.callchains, fp.subjects) = (true, vec![(super::super::PERF, 1, 5)]);
        let text = advised(&fp);
        assert!(!text.contains("--call-graph fp"), "{kind:?}: {text}");
    }
}

/// A crash cannot be recorded again, and a trace was not recorded by perf.
#[test]
fn only_profiles_are_recorded_again() {
    for kind in Kind::ALL {
        for engine in [
            Engine::Import(FileKind::Core),
            Engine::KernelDump,
            Engine::Ptrace,
            Engine::Case,
        ] {
            let mut given = given(kind);
            given.made.engine = engine;
            let text = advised(&given);
            assert!(!text.is_empty());
            for word in ["--call-graph", "perf record", "perf_event", "sysctl"] {
                assert!(!text.contains(word), "{engine:?} {kind:?}: {text}");
            }
        }
    }
    let mut cut = given(Kind::CutCore);
    (cut.made.engine, cut.made.is_cut) = (Engine::Import(FileKind::Core), true);
    assert!(advised(&cut).contains("ulimit -c unlimited"));
    let mut core = given(Kind::NotRecorded);
    core.made.engine = Engine::Import(FileKind::Core);
    assert!(advised(&core).contains("coredump_filter"));
}

#[test]
fn longer_chains_are_asked_for_where_the_limit_is() {
    let mut cut = given(Kind::ChainCut);
    let sysctl = advised(&cut);
    assert!(sysctl.contains("127") && sysctl.contains("sysctl kernel.perf_event_max_stack=1024"));
    cut.made.max_stack = 512;
    let more = advised(&cut);
    assert!(more.contains("max-stack=1024/"), "{more}");
}

/// Where no table has a row, copies of the stack help nobody.
#[test]
fn copies_are_asked_for_where_rows_lead() {
    let mut profile = given(Kind::NoFramePointer);
    profile.made.engine = Engine::Import(FileKind::PerfData);
    profile.copied = 0;
    assert!(advised(&profile).contains("--call-graph dwarf"));
    profile.has_row = false;
    assert!(!advised(&profile).contains("--call-graph dwarf"));
}

#[test]
fn frame_pointers_are_asked_for_in_the_language() {
    let fp = |language| in_language(Kind::NoFramePointer, language, Author::Unknown(Vec::new()));
    assert!(fp(Language::Rust).contains("-C force-frame-pointers=yes"));
    assert!(fp(Language::Clang).contains("-fno-omit-frame-pointer"));
    assert!(fp(Language::Go).contains("assembly"));
    assert!(fp(Language::Ldc).contains("--frame-pointer=all"));
    assert!(fp(Language::Pascal).contains("-OoNOSTACKFRAME"));
    assert!(fp(Language::Unknown).contains("GCC and clang: -f"));
    let mut leaves = given(Kind::NoFramePointer);
    leaves.only_leaves = true;
    leaves.origin.language = Language::Gcc;
    let text = advised(&leaves);
    assert!(
        text.contains("their callers are missing, up to the first with one"),
        "{text}"
    );
    assert!(text.contains("-mno-omit-leaf-frame-pointer"), "{text}");
    assert!(!text.contains("-fno-omit-frame-pointer"), "{text}");
    // Its author already asked for frame pointers.
    let mut asked = given(Kind::NoFramePointer);
    asked.origin.producer = Some("GNU C17 12.2.0 -O2 -fno-omit-frame-pointer".into());
    asked.origin.language = Language::Gcc;
    assert!(!advised(&asked).contains(" -fno-omit-frame-pointer"));
}

#[test]
fn a_file_that_may_be_another_is_checked_first() {
    let mut doubtful = given(Kind::WrongRow);
    doubtful.is_doubtful = true;
    let text = advised(&doubtful);
    assert!(
        text.starts_with("make sure that the file is the build that ran"),
        "{text}"
    );
    assert!(!advised(&given(Kind::WrongRow)).contains("make sure"));
}

#[test]
fn a_missing_file_is_named_by_its_build_id() {
    let mut missing = given(Kind::NoFile);
    let text = advised(&missing);
    assert!(!text.contains("debuginfod"), "{text}");
    missing.problem = Some(FileProblem::new(
        "/bin/a",
        &[0xab, 0x01],
        FileProblemKind::NotFound,
    ));
    assert!(advised(&missing).contains("debuginfod-find executable ab01"));
    let mut denied = given(Kind::UnreadableFile);
    let kind = FileProblemKind::Io(std::io::ErrorKind::PermissionDenied);
    denied.problem = Some(FileProblem::new("/bin/a", &[], kind));
    assert!(advised(&denied).contains("permission denied"));
}

#[test]
fn a_copy_is_as_long_as_the_next_word_needs() {
    let asked = |copied, least, most| {
        let mut given = given(Kind::CopyTooShort);
        (given.copied, given.needed) = (copied, Some(Needed { least, most }));
        advised(&given)
    };

    assert!(
        asked(8192, 9000, 9000).contains("dwarf,32768"),
        "{}",
        asked(8192, 9000, 9000)
    );

    // Twice as far as the furthest word, in whole pages: what comes next is further up.
    let far = asked(8192, 9000, 24_024);
    assert!(
        far.contains("dwarf,49152") && far.contains("24024 bytes above rsp"),
        "{far}"
    );

    // Beyond what perf can copy, but only in some of the stacks.
    let partly = asked(8192, 9000, 100_000);
    assert!(
        partly.contains("dwarf,65528") && partly.contains("no copy reaches in some"),
        "{partly}"
    );

    // perf copies at most 65,528 bytes.
    let never = asked(1024, 100_016, 100_016);
    assert!(!never.contains("--call-graph dwarf"), "{never}");
    assert!(
        never.contains("no copy reaches") && never.contains("--call-graph fp"),
        "{never}"
    );
}

#[test]
fn branch_records_are_not_asked_of_amd() {
    let mut amd = given(Kind::NoFramePointer);
    assert!(advised(&amd).contains("--call-graph lbr"));
    amd.made.processor = "AuthenticAMD,25,17,1".into();
    assert!(!advised(&amd).contains("lbr"), "{}", advised(&amd));
}

#[test]
fn generated_code_has_the_remedy_of_its_own_runtime() {
    let of = |runtime, has_jitdump| {
        let mut given = given(Kind::Jit);
        given.generator = Generator {
            runtime,
            has_jitdump,
            is_on_stack: false,
        };
        advised(&given)
    };

    let java = of(Some(Runtime::HotSpot), false);
    assert!(
        java.contains("PreserveFramePointer") && !java.contains("node"),
        "{java}"
    );

    let node = of(Some(Runtime::V8), false);
    assert!(
        node.contains("--call-graph fp") && !node.contains("java"),
        "{node}"
    );

    assert!(of(Some(Runtime::LuaJit), false).contains("none: LuaJIT"));
    assert!(of(Some(Runtime::Beam), false).contains("+JPperf true"));

    // A jitdump file has the rows, whatever the runtime is.
    let python = of(Some(Runtime::CPython), true);
    assert!(python.contains("perf inject --jit"), "{python}");

    let unknown = of(None, false);
    assert!(
        unknown.contains("not known") && !unknown.contains("java"),
        "{unknown}"
    );

    // The same in a chain by frame pointers.
    let mut php = given(Kind::NoFramePointer);
    (php.is_generated, php.generator.runtime) = (true, Some(Runtime::Php));
    assert!(
        advised(&php).contains("PHP") && !advised(&php).contains("-fno-omit"),
        "{}",
        advised(&php)
    );
}

#[test]
fn a_missing_register_and_a_missing_copy_are_told_apart() {
    let of = |lack| {
        let mut given = given(Kind::NotRecorded);
        (given.lack, given.copied) = (lack, 8192);
        advised(&given)
    };
    assert!(of(Some(Lack::Register)).contains("--user-regs"));
    let copy = of(Some(Lack::Copy));
    assert!(
        copy.contains("not in memory") && !copy.contains("--user-regs"),
        "{copy}"
    );
    assert!(!of(None).contains("--user-regs"), "{}", of(None));

    // perf attached to a process and was not to list what it had mapped.
    let mappings = of(Some(Lack::Mappings));
    assert!(
        mappings.contains("--synth") && !mappings.contains("install"),
        "{mappings}"
    );

    // The file is there: to install it would change nothing.
    let code = of(Some(Lack::Code));
    assert!(
        code.contains("record again") && !code.contains("install"),
        "{code}"
    );
}

/// A core lists all mappings, so no filter has left out what is not among them.
#[test]
fn a_stack_that_is_not_mapped_was_not_filtered_out() {
    let of = |lack| {
        let mut core = given(Kind::NotRecorded);
        (core.lack, core.made.engine) = (lack, Engine::Import(FileKind::Core));
        advised(&core)
    };
    let filtered = of(None);
    assert!(filtered.contains("coredump_filter"), "{filtered}");
    let unmapped = of(Some(Lack::Stack));
    assert!(
        unmapped.contains("rsp was overwritten") && !unmapped.contains("coredump_filter"),
        "{unmapped}"
    );
}

/// What no author can mend is not asked of one.
#[test]
fn code_that_has_no_rows_on_purpose_is_left_alone() {
    let mut clone = given(Kind::NoRow);
    (clone.image, clone.function) = ("/lib/libc.so.6", "__GI___clone3");
    clone.origin = Origin::by(Author::Assembly("clone3.S".into()));
    let text = advised(&clone);
    assert!(text.starts_with("none") && !text.contains(".cfi"), "{text}");
    clone.function = "__llvm_retpoline_r11";
    let thunk = advised(&clone);
    assert!(thunk.starts_with("none: LLVM"), "{thunk}");
    clone.function = "memcpy";
    assert!(advised(&clone).contains(".cfi"), "{}", advised(&clone));

    let mut nested = given(Kind::Jit);
    nested.generator.is_on_stack = true;
    assert!(
        advised(&nested).contains("nested function"),
        "{}",
        advised(&nested)
    );
}

/// Go's scheduler has left a goroutine there; it is not a coroutine whose author could mark its end.
#[test]
fn gos_scheduler_has_no_end_to_mark() {
    let by = |language| in_language(Kind::StackEnd, language, Author::Unknown(Vec::new()));
    assert!(
        by(Language::Go).starts_with("nothing"),
        "{}",
        by(Language::Go)
    );
    assert!(
        by(Language::Gcc).contains(".cfi_undefined"),
        "{}",
        by(Language::Gcc)
    );
}

#[test]
fn a_program_for_another_machine_is_not_to_be_installed_again() {
    use unwind_sim_unwind::elf;
    let of = |header: &[u8]| {
        let mut bytes = header.to_vec();
        bytes.resize(128, 0);
        let error = elf::read("", std::sync::Arc::new(bytes), &elf::ReadOptions::default());
        let error = error.map(drop).expect_err("no such file can be read");
        let mut file = given(Kind::UnreadableFile);
        let kind = FileProblemKind::Elf(error);
        file.problem = Some(FileProblem::new("/bin/prog", &[], kind));
        advised(&file)
    };
    // EI_CLASS is ELFCLASS32 (gABI).
    let foreign = of(b"\x7fELF\x01\x01");
    assert!(
        foreign.starts_with("none") && !foreign.contains("install"),
        "{foreign}"
    );
    let damaged = of(b"not ELF");
    assert!(damaged.contains("install"), "{damaged}");
}

/// What cannot be measured in the recording is said to be so; what was measured has its numbers.
#[test]
fn gains_are_measured_or_said_to_be_unseen() {
    const UNSEEN: &str = "cannot be seen in this recording";
    let mut profile = given(Kind::NoFramePointer);
    profile.copied = 0;
    assert!(advised(&profile).ends_with(UNSEEN), "{}", advised(&profile));

    // The caller of the innermost function is what is missing.
    profile.only_leaves = true;
    assert!(!advised(&profile).contains(UNSEEN), "{}", advised(&profile));

    let mut better = given(Kind::NoRow);
    better.subjects.push(("dwarf+fp", 15, 5));
    let text = advised(&better);
    assert!(
        text.contains("whole are 15, 10 by dwarf") && !text.contains(UNSEEN),
        "{text}"
    );

    let mut fp = given(Kind::NoRow);
    fp.subjects.push(("fp", 12, 8));
    let text = advised(&fp);
    assert!(
        text.contains("`--call-graph fp`") && text.contains("12 by fp, 10 by dwarf"),
        "{text}"
    );

    // Nothing is to be done.
    assert!(!advised(&given(Kind::StartFile)).contains(UNSEEN));
    assert!(!advised(&given(Kind::OverwrittenReturn)).contains(UNSEEN));
}

/// A memfd may hold a file, and not a Python's trampolines.
#[test]
fn what_a_memfd_holds_is_not_said_to_be_pythons() {
    let mut memfd = given(Kind::Jit);
    (memfd.image, memfd.is_generated) = ("/memfd:plug (deleted)", true);
    memfd.generator.runtime = Some(Runtime::CPython);
    let profile = advised(&memfd);
    assert!(
        profile.contains("no remedy was tried") && !profile.contains("-X perf"),
        "{profile}"
    );
    memfd.made.engine = Engine::Import(FileKind::Core);
    assert!(
        advised(&memfd).contains("--exe FILE"),
        "{}",
        advised(&memfd)
    );
    // Its first page had a build ID, so it is a file.
    memfd.kind = Kind::NoFile;
    let file = advised(&memfd);
    assert!(
        file.contains("--exe FILE") && file.contains("`memfd:plug` with --symfs"),
        "{file}"
    );
    (memfd.kind, memfd.image) = (Kind::Jit, "//anon");
    assert!(advised(&memfd).contains("-X perf"), "{}", advised(&memfd));
}

/// What was tried and shows no more whole stacks is not advised.
#[test]
fn frame_pointers_are_not_advised_in_vain() {
    let mut jit = given(Kind::Jit);
    (jit.image, jit.is_generated) = ("//anon", true);
    assert!(advised(&jit).contains("if its code keeps frame pointers"));
    jit.subjects.push(("dwarf+fp", 10, 10));
    let text = advised(&jit);
    assert!(
        text.starts_with("none is known") && !text.contains("if its code"),
        "{text}"
    );
}
