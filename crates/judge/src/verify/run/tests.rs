//! Tests of what counts for the exit status, the identity of contradictions, and how runs start and
//! end.

use super::*;
use crate::baseline::{Origin, Source};
use crate::spec::engine;
use crate::verify::fixture::{BIAS, CODE, FUNCTIONS, START, finding_at, image, program, results};
use crate::verify::walks::Disagreement;
use std::os::unix::fs::PermissionsExt as _;
use unwind_sim_emulator::linux::SignalOrigin;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::reason::{Code, Reason};

/// The address of the program's second mapping.
const AGAIN: u64 = 2 * BIAS;

/// Results of a run with the program mapped twice.
fn run_of(findings: Vec<Finding>) -> Results {
    let once = image("/bin/program", BIAS, &CODE, &FUNCTIONS);
    let again = unwind_sim_unwind::image::Mapping {
        range: AGAIN + START..AGAIN + START + CODE.len() as u64,
        bias: AGAIN,
        ..once.clone()
    };
    Results {
        findings,
        ..results(&[once, again], &[])
    }
}

/// A wrong CFA at `first+0x1`.
fn wrong() -> Finding {
    finding_at(0, CodeAddress::Instruction(BIAS + 0x1001))
}

fn of_check(check: Check) -> Finding {
    Finding { check, ..wrong() }
}

fn lost() -> Finding {
    let mut finding = wrong();
    finding.contradiction.reason = Some(Reason::NotHeld { what: "a rule" });
    finding
}

fn of_target() -> Finding {
    let mut finding = wrong();
    finding.contradiction.code = Code::RowOfTarget;
    finding
}

/// Whether these findings of one unwinder count.
fn counts(unwinder: &str, findings: Vec<Finding>, strict: bool) -> bool {
    let engines = [engine(unwinder).expect("an unwinder")];
    unexpected(&engines, &run_of(findings), strict, None)
}

/// A baseline of `dwarf` with a wrong CFA at `first+0x1`, met `count` times.
fn baseline(count: u64) -> Baseline {
    let found = format!(
        r#"{{"type":"contradiction","unwinder":"dwarf","check":"instruction","register":"rsp",
           "image":"program","place":"first+0x1","class":"wrong","code":"US501","count":{count}}}"#
    );
    let last = r#"{"type":"summary","program":"program","options":[]}"#;
    let file = tempfile::NamedTempFile::new().expect("a file");
    let lines = format!("{}\n{last}\n", found.replace('\n', ""));
    std::fs::write(file.path(), lines).expect("written");
    let origin = Origin {
        program: "program".into(),
        options: Vec::new(),
    };
    Baseline::read(file.path(), Source::Verify, &origin).expect("a baseline")
}

#[test]
fn what_is_wrong_counts_and_losses_only_if_strict() {
    for strict in [false, true] {
        assert!(!counts("dwarf", vec![], strict));
        assert!(counts("dwarf", vec![wrong()], strict));
        assert_eq!(counts("orc", vec![lost()], strict), strict);
        assert!(!counts("dwarf", vec![of_target()], strict));
        // One finding that counts is enough.
        assert!(counts("dwarf", vec![of_target(), wrong()], strict));
    }
}

#[test]
fn a_check_at_a_call_counts_where_the_unwinder_looks_up() {
    // Looked up by the return address - 1, and by the return address.
    for (unwinder, inside) in [
        ("dwarf", true),
        ("orc", true),
        ("sframe", false),
        ("sframe:callsite", true),
        ("sframe:kernel-v3", false),
    ] {
        let counts = |check| counts(unwinder, vec![of_check(check)], false);
        assert_eq!(counts(Check::InsideCall), inside, "{unwinder}");
        assert_eq!(counts(Check::AtReturn), !inside, "{unwinder}");
        assert!(counts(Check::Instruction), "{unwinder}");
        assert!(counts(Check::Walk), "{unwinder}");
    }
}

#[test]
fn an_unwinder_that_is_expected_to_err_may() {
    for unwinder in ["fp", "guess", "lbr", "lbr:8", "fp+dwarf"] {
        assert!(!counts(unwinder, vec![wrong()], true), "{unwinder}");
        assert!(!counts(unwinder, vec![of_check(Check::Walk)], true));
    }
    assert!(counts("dwarf+fp", vec![wrong()], false));
    // Each finding belongs to its own unwinder.
    let engines = ["fp", "dwarf"].map(|name| engine(name).expect("an unwinder"));
    let of = |unwinder| Finding {
        unwinder,
        ..wrong()
    };
    let is_unexpected = |unwinder| unexpected(&engines, &run_of(vec![of(unwinder)]), false, None);
    assert_eq!([0, 1].map(is_unexpected), [false, true]);
}

#[test]
fn what_is_known_counts_if_it_is_met_more_often() {
    let engines = [engine("dwarf").expect("an unwinder")];
    let met = |count| Finding { count, ..wrong() };
    let again = Finding {
        count: 4,
        ..finding_at(1, CodeAddress::Instruction(AGAIN + 0x1001))
    };
    let is_new = |findings: &[Finding], known| {
        let known = baseline(known);
        unexpected(&engines, &run_of(findings.to_vec()), false, Some(&known))
    };
    assert!(!is_new(&[], 1));
    assert!(!is_new(&[met(3)], 3));
    assert!(is_new(&[met(3)], 2));
    // Equal findings in both mappings are added up.
    assert!(!is_new(&[met(3), again.clone()], 7));
    assert!(is_new(&[met(3), again], 6));
    // A finding that does not count is not added.
    assert!(!is_new(&[met(3), of_check(Check::AtReturn)], 3));
    let elsewhere = finding_at(0, CodeAddress::Instruction(BIAS + 0x1004));
    assert!(is_new(&[elsewhere], 7));
    assert!(is_new(&[of_check(Check::Walk)], 7));
}

#[test]
fn a_disagreement_of_our_own_always_counts() {
    let engines = [engine("fp").expect("an unwinder")];
    let mut results = run_of(vec![]);
    assert!(!unexpected(&engines, &results, false, Some(&baseline(9))));
    results.disagreements.push(Disagreement {
        unwinder: 0,
        address: BIAS,
        place: 0,
        number: 0,
        what: "a walk".into(),
    });
    assert!(unexpected(&engines, &results, false, None));
    assert!(unexpected(&engines, &results, false, Some(&baseline(9))));
}

#[test]
fn a_contradiction_is_known_by_unwinder_check_register_code_place_and_class() {
    let places = run_of(vec![]).places;
    let expected = Key {
        unwinder: "dwarf".into(),
        what: "instruction rsp".into(),
        code: "US501".into(),
        place: "program first+0x1".into(),
        class: Some("wrong".into()),
    };
    assert_eq!(key("dwarf", &wrong(), &places), expected);

    // Behind a call that is the last instruction of its function: the place is still in that one.
    let behind = CodeAddress::Return(BIAS + 0x1009);
    let other = Finding {
        check: Check::AtReturn,
        code: Code::RowBehindCall,
        reg: unwind_sim_unwind::regs::Reg::Rbx,
        ..finding_at(0, behind)
    };
    let expected = Key {
        unwinder: "sframe".into(),
        what: "call (ra) rbx".into(),
        code: "US505".into(),
        place: "program first+0x9".into(),
        class: Some("wrong".into()),
    };

    assert_eq!(key("sframe", &other, &places), expected);

    // In no image, and of another class.
    let mut nowhere = finding_at(9, CodeAddress::Instruction(0x77));
    nowhere.contradiction.code = Code::RowOfTarget;
    let key = key("dwarf", &nowhere, &places);

    assert_eq!(
        (&*key.place, key.class.as_deref()),
        (" 0x77", Some("target"))
    );
}

#[test]
fn a_run_ends_unmodelled_where_the_machine_cannot_go_on() {
    let (rip, call) = (0x1000, "futex");
    // ud2
    let bytes = vec![0x0f, 0x0b];
    for outcome in [
        Outcome::Unsupported { rip, bytes },
        Outcome::Blocked { rip, call },
        Outcome::OutOfPages { rip },
    ] {
        assert!(End::Outcome(outcome.clone()).is_not_modelled(), "{outcome}");
        assert_eq!(
            End::Outcome(outcome.clone()).to_string(),
            outcome.to_string()
        );
    }

    let (signal, why) = (6, SignalOrigin::Sent);
    for end in [
        End::Outcome(Outcome::Exited(1)),
        End::Outcome(Outcome::Killed { signal, rip, why }),
        End::Outcome(Outcome::Limit),
        End::Outcome(Outcome::StreamTimeout { rip, call }),
        End::Timeout,
        End::Stopped,
    ] {
        assert!(!end.is_not_modelled(), "{end}");
    }
}

#[test]
fn ends_are_told_in_words() {
    let exited = End::Outcome(Outcome::Exited(3));
    assert_eq!(exited.to_string(), "exited with status 3");
    assert_eq!(
        End::Timeout.to_string(),
        "stopped: the time limit was reached"
    );
    assert_eq!(End::Stopped.to_string(), "stopped by a signal");
}

#[test]
fn a_program_alone_has_its_path_as_only_argument() {
    let alone = RunningProgram::alone(Path::new("/bin/program"));
    assert_eq!(alone.path, b"/bin/program");
    assert_eq!(alone.options.args, [b"/bin/program"]);
    assert!(alone.options.env.is_empty());
    assert_eq!(alone.options.root, Path::new("/"));
}

#[test]
fn tables_are_read_from_an_elf_file_or_it_is_told_why_not() {
    let root = tempfile::tempdir().expect("a directory");
    let path = root.path().join("tables");
    let missing = std::fs::read(&path)
        .expect_err("it is not there")
        .to_string();
    let told = |path: &Path| match read_image(path) {
        Err(VerifyError::Tables { path: its, what }) => {
            assert_eq!(its, path);
            what
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(told(&path), missing);
    std::fs::write(&path, "text").expect("written");
    let what = told(&path);
    assert!(what.ends_with("not an ELF file"), "{what}");
    let error = read_image(&path).expect_err("no ELF file").to_string();
    assert_eq!(error, format!("{}: {what}", path.display()));
    std::fs::write(&path, program(&[0xc3])).expect("written");
    let image = read_image(&path).expect("an image");
    assert_eq!(image.name(), path.display().to_string());
    assert_eq!(image.text_bytes(0x40_0078, 15), [0xc3]);
}

/// `mov eax, 60; xor edi, edi; syscall`
const EXIT: [u8; 9] = [0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05];
/// A jump to itself.
const LOOP: [u8; 2] = [0xeb, 0xfe];

/// Runs `/program` with this code below its own root. Returns the result, and the numbers of
/// instructions that were passed to `progress`.
fn run_alone(code: &[u8], request: &Request<'_>) -> (Result<Run, VerifyError>, Vec<u64>) {
    let root = tempfile::tempdir().expect("a directory");
    let path = root.path().join("program");
    std::fs::write(&path, program(code)).expect("written");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("changed");
    let mut program = RunningProgram::alone(Path::new("/program"));
    program.options.root = root.path().into();
    let mut told = Vec::new();
    let mut progress = |instructions| {
        told.push(instructions);
        assert!(told.len() < 9, "it does not end: {told:?}");
    };
    let ran = run(program, request, &mut progress);
    (ran, told)
}

fn request(engines: &[Engine], instructions_max: u64, timeout: Option<Duration>) -> Request<'_> {
    Request {
        engines,
        setting: Setting::default(),
        elide: true,
        each: true,
        tables_from: None,
        instructions_max,
        timeout,
    }
}

#[test]
fn a_run_ends_with_the_program() {
    let engines = [engine("dwarf").expect("an unwinder")];
    let (ran, told) = run_alone(&EXIT, &request(&engines, 100, None));
    let ran = ran.expect("it runs");
    assert_eq!(ran.end, End::Outcome(Outcome::Exited(0)));
    assert_eq!((ran.results.instructions, ran.results.addresses), (3, 3));
    assert_eq!(told, [0; 0]);
    // The program was found below its root.
    let mapping = ran.space.find(0x40_0078).expect("the program");
    assert_eq!(mapping.image.as_ref().map(|i| i.name()), Some("/program"));
    assert!(ran.results.memory.decoded > 0);
    assert!(ran.notices.is_empty(), "{:?}", ran.notices);
}

#[test]
fn a_run_ends_at_the_last_instruction_that_is_asked_for() {
    let engines = [engine("dwarf").expect("an unwinder")];
    const SLICE: u64 = 1_048_576;
    // Long before the time is over.
    let hour = Some(Duration::from_secs(3600));
    for (most, expected) in [
        (100, &[][..]),
        (SLICE, &[]),
        (2 * SLICE + 5, &[SLICE, 2 * SLICE]),
    ] {
        let (ran, told) = run_alone(&LOOP, &request(&engines, most, hour));
        let ran = ran.expect("it runs");
        assert_eq!(ran.end, End::Outcome(Outcome::Limit), "{most}");
        assert_eq!(ran.results.instructions, most);
        assert_eq!(told, expected, "{most}");
    }
}

#[test]
fn a_run_ends_when_the_time_is_over() {
    let engines = [engine("dwarf").expect("an unwinder")];
    let most = 1 << 40;
    let (ran, told) = run_alone(&LOOP, &request(&engines, most, Some(Duration::ZERO)));
    assert_eq!(ran.expect("it runs").end, End::Timeout);
    assert_eq!(told.len(), 1);
}

#[test]
fn what_cannot_be_read_or_started_is_told() {
    let engines = [engine("dwarf").expect("an unwinder")];
    let root = tempfile::tempdir().expect("a directory");
    let mut tables = request(&engines, 100, None);
    tables.tables_from = Some(root.path().join("tables"));
    let (ran, _) = run_alone(&EXIT, &tables);
    assert!(matches!(ran, Err(VerifyError::Tables { .. })));
    let mut program = RunningProgram::alone(Path::new("/program"));
    program.options.root = root.path().into();
    let ran = run(program, &request(&engines, 100, None), &mut |_| {});
    assert!(matches!(ran, Err(VerifyError::Start(_))));
}
