//! Captures of a small kernel, the seed of a fuzz target: valid and rejected ones.

use super::super::{ImportItem, ImportOptions, import_bytes};
use crate::input_file::InputFile;
use crate::model::{CallchainRequest, Item, Sample};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use unwind_sim_unwind::kernel::{RegsPtr, State, UnwinderKind, Uretprobes};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::truth::{TrueKind, Truth};

/// A kernel of version 6.1.0 with ORC tables.
fn vmlinux() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/kernel_image/vmlinux")
}

fn opened(path: &Path) -> InputFile {
    InputFile::open(path).expect("a file")
}

fn options() -> ImportOptions {
    ImportOptions {
        kernel: Some(opened(&vmlinux())),
        ..ImportOptions::default()
    }
}

fn import(capture: &Value, options: &ImportOptions) -> Result<Vec<Sample<'static>>, String> {
    let mut samples = Vec::new();
    let bytes = Arc::new(capture.to_string().into_bytes());
    let imported = import_bytes(bytes, options, &mut |item| {
        if let ImportItem::Item(Item::Sample(sample)) = item {
            samples.push(sample.into_owned());
        }
        ControlFlow::Continue(())
    });
    imported.map(|_| samples).map_err(|error| error.to_string())
}

/// zlib data in base64.
pub(super) fn packed(bytes: &[u8]) -> String {
    use base64::Engine as _;
    use std::io::Write as _;
    let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).expect("it is in memory");
    let bytes = out.finish().expect("it is in memory");
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn states(capture: &Value, options: &ImportOptions) -> Vec<State> {
    let samples = import(capture, options).expect("a valid capture");
    let kernel = samples[0].kernel.as_ref().expect("a kernel sample");
    kernel.states.clone()
}

fn point(state: Value) -> Value {
    let regs = json!({"rip": TEXT, "rsp": TASK, "eflags": 2, "cs": 16});
    json!({"kernel": "vmlinuz-6.1.0", "points": [{"regs": regs, "kernel": [state]}]})
}

const TEXT: u64 = 0xffff_ffff_8100_0000;
const TASK: u64 = 0xffff_c900_0000_0000;

/// Writes a System.map and returns options with nothing else.
fn with_map(folder: &Path) -> ImportOptions {
    let map = folder.join("System.map-6.1.0");
    let lines = "ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff81000100 T f\n\
                 ffffffff81002000 T _etext\nffffffff81003000 B _end\n";
    std::fs::write(&map, lines).expect("a file");
    let mut options = ImportOptions::default();
    options.kernel_files.system_map = Some(opened(&map));
    options
}

#[test]
fn any_number_may_be_hexadecimal() {
    let state = json!({"type": "0x1", "begin": "0x10", "graph_idx": "0xffffffff", "full_regs": true,
        "sp": "0xffffc90000000010", "ip": "0xffffffff81000005"});
    let mut capture = point(state);
    capture["points"][0]["callchain"] = json!(["0xffffffffffffff80", 5]);
    capture["steps"] = json!([{"i": "0x0", "regs": {"rip": "0xffffffff81000000", "cs": "0x10"},
        "stack_at": "0xffffc90000000000", "stack": packed(&[0; 8]),
        "stack_bounds": ["0xffffc90000000000", "0xffffc90000004000"],
        "kernel": [["0x1", 2, "0x3", 1, false, true, "0x0"]],
        "user_space": 0}]);

    let samples = import(&capture, &options()).expect("a valid capture");
    assert_eq!(samples[0].recorded[0].ips, [-128_i64 as u64, 5]);
    let kernel = samples[1].kernel.as_ref().expect("a kernel sample");
    let State::Orc(state) = kernel.states[0] else {
        panic!("{:?}", kernel.states);
    };
    assert_eq!(
        (state.ip, state.sp, state.bp, state.signal),
        (1, 2, 3, true)
    );

    // `graph_idx` is an `int` in the kernel, and may be printed as one.
    let negative = point(json!({"type": 1, "full_regs": 0, "graph_idx": -1}));
    assert!(import(&negative, &options()).is_ok());

    // Only hexadecimal numbers may be strings.
    let wrong = point(json!({"type": "1"}));
    let error = import(&wrong, &options()).expect_err("a decimal string");
    assert!(
        error.contains("points[0].kernel[0].type: not an unsigned number"),
        "{error}"
    );
}

#[test]
fn states_of_other_kernels_are_not_orcs() {
    let folder = tempfile::tempdir().expect("a folder");
    let map = with_map(folder.path());
    // A debugger script may read the members of all unwinders.
    let every = point(
        json!({"type": 1, "full_regs": 0, "got_irq": 1, "orig_sp": 7, "next_bp": 0,
        "bp": 9, "ip": TEXT, "sp": 3}),
    );

    let kind = |options: &ImportOptions, capture: &Value| states(capture, options)[0].kind();
    assert_eq!(kind(&map, &every), UnwinderKind::Fp);
    assert_eq!(kind(&options(), &every), UnwinderKind::Orc);
    // Without a member that only ORC or the frame pointer unwinder has.
    let guess = point(json!({"type": 1, "sp": 3}));
    assert_eq!(kind(&map, &guess), UnwinderKind::Guess);

    // What the capture says comes before what its states look like.
    let mut told = every.clone();
    told["unwinder"] = json!("guess");
    assert_eq!(kind(&map, &told), UnwinderKind::Guess);
    told["unwinder"] = json!("dwarf");
    let error = import(&told, &map).expect_err("an unknown unwinder");
    assert!(
        error.contains("unwinder: must be orc, fp or guess"),
        "{error}"
    );

    let brief = json!({"steps": [{"regs": {"rip": TEXT, "cs": 16},
        "kernel": [[TEXT, 2, 3, 1, 1, 0, 1]]}]});
    let State::Fp(state) = states(&brief, &map)[0] else {
        panic!("not a frame pointer state");
    };
    assert_eq!((state.ip, state.bp, state.error), (TEXT, 3, true));
}

#[test]
fn an_image_of_another_release_is_refused() {
    let mut capture = point(json!({"type": 1, "full_regs": 0}));
    for name in [
        "vmlinuz-6.1.0",
        "vmlinuz-6.1.0-50-cloud",
        "vmlinuz-6.1",
        "vmlinuz",
        "vmlinuz-mine",
    ] {
        capture["kernel"] = json!(name);
        assert!(import(&capture, &options()).is_ok(), "{name}");
    }

    // 6.1.0 may go on with a dot or a dash, not with another digit.
    for name in ["vmlinuz-6.1.01", "vmlinuz-6.12.0", "/boot/vmlinuz-5.10.0"] {
        capture["kernel"] = json!(name);
        let error = import(&capture, &options()).expect_err(name);
        assert!(
            error.contains("the image is of 6.1.0") && error.contains("--force"),
            "{error}"
        );
        let forced = ImportOptions {
            force: true,
            ..options()
        };
        assert!(import(&capture, &forced).is_ok(), "{name}");
    }
}

#[test]
fn hostile_words_do_not_panic() {
    // An ip in the module area, and an sp below 8.
    let states = json!([
        {"type": 1, "full_regs": 0, "sp": 3, "ip": "0xffffffffc0000010"},
        {"type": 1, "full_regs": 0, "sp": 0, "ip": TEXT},
        {"type": 0, "full_regs": 0}]);
    let mut capture = point(json!({"type": 1, "full_regs": 0}));
    capture["points"][0]["kernel"] = states;
    assert!(import(&capture, &options()).is_ok());

    // In a trace, the registers of the start can only be written as 1.
    for (value, wanted) in [
        (json!("START"), Some(RegsPtr::Start)),
        (json!(0), Some(RegsPtr::None)),
        (json!(1), None),
        (json!(2), Some(RegsPtr::At(2))),
    ] {
        let capture = point(json!({"type": 1, "full_regs": 0, "prev_regs": value}));
        let read = import(&capture, &options()).ok().map(|samples| {
            match samples[0].kernel.as_ref().expect("a kernel sample").states[0] {
                State::Orc(state) => state.prev_regs,
                ref other => panic!("{other:?}"),
            }
        });
        assert_eq!(read, wanted);
    }
}

/// Steps, each with the stack at that point: a call, an interrupt in the callee, its return, and a
/// return to where nothing is known.
#[test]
fn the_truth_of_steps_is_what_was_seen() {
    const END: u64 = TASK + 0x4000;
    let (caller, callee, handler) = (TEXT, TEXT + 0x100, TEXT + 0x200);

    // call rel32; in the callee nop, ret; in the handler iretq.
    let code = json!({
        format!("{caller:#x}"): packed(&[0xe8, 0xfb, 0, 0, 0, 0xc3]),
        format!("{callee:#x}"): packed(&[0x90, 0xc3]),
        format!("{handler:#x}"): packed(&[0x48, 0xcf]),
    });

    let sp = END - 0x100;
    // The processor aligns rsp to 16 bytes, then pushes five words.
    let frame_at = ((sp - 8) & !15) - 40;
    let mut stack = vec![0; 0x100 + 0x80];
    let mut put = |at: u64, word: u64| {
        let at = (at - (sp - 0x80)) as usize;
        stack[at..at + 8].copy_from_slice(&word.to_le_bytes());
    };
    // The return address of the call, and that of its caller.
    put(sp - 8, caller + 5);
    put(sp, TEXT + 0x300);
    // rip, cs, rflags, rsp and ss.
    for (n, word) in [callee, 16, 0x246, sp - 8, 0x18].into_iter().enumerate() {
        put(frame_at + 8 * n as u64, word);
    }

    let stack = packed(&stack);
    let step = |i: u64, rip: u64, rsp: u64| {
        json!({"i": i, "regs": {"rip": rip, "rsp": rsp, "cs": 16, "eflags": 2}, "kernel": [],
            "stack_type": "TASK", "stack_bounds": [TASK, END], "stack_at": sp - 0x80,
            "stack": stack})
    };

    let mut steps = vec![
        step(0, caller, sp),
        step(1, callee, sp - 8),
        step(2, handler, frame_at),
        step(3, callee, sp - 8),
        step(4, callee + 1, sp - 8),
        step(5, caller + 5, sp),
        step(6, TEXT + 0x300, sp + 8),
    ];

    let chains = |steps: &[Value]| -> Vec<Vec<u64>> {
        let capture = json!({"code": code, "steps": steps});
        let samples = import(&capture, &options()).expect("a valid capture");
        let pcs = |truth: &Truth| truth.frames().iter().map(|f| f.pc).collect();
        assert!(samples.iter().all(|s| !s.truth.is_complete()));
        assert!(
            samples
                .iter()
                .all(|s| s.kernel.as_ref().is_some_and(|k| k.boundary.is_none()))
        );
        let trapped = samples
            .get(2)
            .map(|s| s.truth.frames().iter().map(|f| f.kind).collect());
        let kinds = vec![TrueKind::Top, TrueKind::Trapped, TrueKind::Call];
        assert!(trapped.is_none_or(|k: Vec<TrueKind>| k.is_empty() || k == kinds));
        samples.iter().map(|s| pcs(&s.truth)).collect()
    };

    // Calls from before the first step were not seen, so their frames are not known.
    let none: Vec<u64> = Vec::new();
    let called = vec![callee, caller + 5];
    let expected = [
        none.clone(),
        called.clone(),
        vec![handler, callee, caller + 5],
        called,
        vec![callee + 1, caller + 5],
        none.clone(),
        none.clone(),
    ];
    assert_eq!(chains(&steps), expected);

    // After a missing step nothing is known.
    steps.remove(1);
    assert_eq!(chains(&steps)[1], none);
}

/// After user space, everything is known.
#[test]
fn steps_from_user_space_are_complete() {
    const END: u64 = TASK + 0x4000;
    let (entry, end) = (TASK + 0x1_0000, TASK + 0x1_1000);
    let words = [0x40_1000_u64, 0x33, 0x246, 0x7fff_0000, 0x2b];
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let regs = json!({"rip": TEXT, "rsp": end - 40, "cs": 16, "eflags": 2});
    let stacks = json!([{"type": "ENTRY", "begin": entry, "end": end, "data_at": end - 40,
        "data": packed(&bytes)}]);
    let capture = json!({"steps": [
        {"i": 0, "user": 1},
        {"i": 1, "regs": regs, "stack_type": "TASK", "stack_bounds": [TASK, END],
            "stack_at": TASK, "stack": packed(&[0; 8]), "stacks": stacks, "kernel": []}]});
    let samples = import(&capture, &options()).expect("a valid capture");
    assert!(samples[0].truth.is_complete());
    let kernel = samples[0].kernel.as_ref().expect("a kernel sample");
    let boundary = kernel.boundary.expect("what the processor pushed");
    assert_eq!((boundary.ip, boundary.sp), (0x40_1000, 0x7fff_0000));
    assert_eq!(boundary.pushed_at, Some(end - 40 - 128));
}

#[test]
fn a_system_map_alone_is_enough_without_orc() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = with_map(folder.path());
    let capture = point(json!({"type": 1, "bp": 9, "got_irq": 0, "ip": TEXT}));
    let samples = import(&capture, &options).expect("a valid capture");
    let kernel = samples[0].kernel.as_ref().expect("a kernel sample");
    assert_eq!(
        (kernel.release.as_str(), kernel.states[0].kind()),
        ("6.1.0", UnwinderKind::Fp)
    );
    let bad = folder.path().join("other.map");
    std::fs::write(&bad, "0000000000401000 T main\n").expect("a file");
    options.kernel_files.system_map = Some(opened(&bad));
    let error = import(&capture, &options).expect_err("not a kernel's");
    assert!(error.contains("no symbols _stext and _etext"), "{error}");
}

#[test]
fn what_the_kernel_was_asked_for_and_what_probes_took_are_read() {
    let with = |user: Value, request: Value| {
        let mut capture = point(json!({"type": 1}));
        capture["points"][0]["callchain"] = json!(["0xffffffffffffff80", 5]);
        capture["points"][0]["callchain_request"] = request;
        capture["points"][0]["user"] = user;
        import(&capture, &options())
    };

    let of = |user: Value, request: Value| {
        let samples = with(user, request).expect("a valid capture");
        let sample = &samples[0];
        let user = sample
            .kernel
            .as_ref()
            .expect("a kernel sample")
            .user
            .clone();
        (
            sample.recorded[0].request,
            user.and_then(|user| user.uretprobes),
        )
    };

    // Nothing said is nothing known.
    assert_eq!(of(json!({}), json!(null)), (None, None));

    // Numbers may be hexadecimal, as strings, or decimal.
    let taken =
        json!({"uretprobes": {"trampoline": "0x7fffffffe000", "originals": ["0x401000", 7]}});
    let asked = json!({"kernel": false, "add_mark": 0, "max_stack": 4, "cookie": "0x300000001"});
    // What an empty request means.
    let usual = CallchainRequest {
        kernel: true,
        user: true,
        add_mark: true,
        crosstask: false,
        max_stack: 0,
        cookie: None,
    };
    let expected = CallchainRequest {
        kernel: false,
        add_mark: false,
        max_stack: 4,
        cookie: Some(0x3_0000_0001),
        ..usual
    };
    let probes = Uretprobes {
        trampoline: 0x7fff_ffff_e000,
        originals: vec![0x40_1000, 7],
    };
    assert_eq!(of(taken, asked), (Some(expected), Some(probes)));

    // An empty object says that no probe took anything, which is more than no object.
    let none = Uretprobes {
        trampoline: u64::MAX,
        originals: Vec::new(),
    };
    let empty = of(json!({"uretprobes": {}}), json!({}));
    assert_eq!(empty, (Some(usual), Some(none)));

    // One more than the kernel's `MAX_URETPROBE_DEPTH`.
    let many = json!({"uretprobes": {"originals": vec![1; 65]}});
    let error = with(many, json!({})).expect_err("the kernel keeps 64");
    assert!(
        error.contains("points[0].user.uretprobes.originals: more than 64"),
        "{error}"
    );
    let error = with(json!({}), json!({"max_stack": "0x100000000"})).expect_err("32 bits");
    assert!(
        error.contains("callchain_request.max_stack: more than 32 bits"),
        "{error}"
    );
}

#[test]
fn errors_of_values_have_their_place() {
    let deep = format!(
        r#"{{"points":[{{"regs":{{"rip":{}0{}}}}}]}}"#,
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    for (text, error) in [
        (
            r#"{"points":[{"regs":{"rip":1e999}}]}"#,
            "points[0].regs.rip: number out of range",
        ),
        (
            r#"{"points":[{"regs":{"rip":0}},7]}"#,
            "points[1]: not an object",
        ),
        (r#"{"points":{}}"#, "points: not a list"),
        (r#"{"kernel":7}"#, "kernel: not a string"),
        (
            r#"{"kernel":"\ud800"}"#,
            "kernel: unexpected end of hex escape",
        ),
        (&deep, "points[0].regs.rip: recursion limit exceeded"),
        // Only what is no JSON at all has a line and a column.
        (
            "{\"points\":[\n}",
            "JSON: expected value at line 2 column 1",
        ),
    ] {
        let bytes = Arc::new(text.as_bytes().to_vec());
        let imported = import_bytes(bytes, &options(), &mut |_| ControlFlow::Continue(()));
        let found = imported.expect_err(error).to_string();
        assert_eq!(found, format!("capture: {error}"));
    }
}

/// What nobody asks for is only checked, and of two values with one key the last counts.
#[test]
fn other_keys_are_ignored() {
    let text = r#"{"mine":[1e999,"\ud800"],"points":7,"points":[{"regs":{"rip":1,"rip":2}}]}"#;
    let mut rip = None;
    let bytes = Arc::new(text.as_bytes().to_vec());
    let imported = import_bytes(bytes, &options(), &mut |item| {
        if let ImportItem::Item(Item::Sample(sample)) = item {
            rip = sample.regs.sampled.get(Reg::Rip);
        }
        ControlFlow::Continue(())
    });
    assert!(imported.is_ok(), "{imported:?}");
    assert_eq!(rip, Some(2));
}

#[test]
fn what_unpacks_to_very_much_is_refused() {
    // 1 MiB, of which the capture has a thousandth.
    let piece = packed(&vec![0; 1 << 20]);
    let error = |capture: Value| import(&capture, &options()).map(|_| ()).err();

    let code = |count: u64| -> Value {
        let pieces = (0..count).map(|n| (format!("{:#x}", TEXT + (n << 20)), json!(piece)));
        json!({"code": serde_json::Map::from_iter(pieces)})
    };
    assert_eq!(error(code(64)), None);
    let refused = Some("capture: code: more than 64 MiB of memory".to_owned());
    assert_eq!(error(code(65)), refused);

    let memory = |count: u64| {
        let mut capture = point(json!({"type": 1, "full_regs": 0}));
        let pieces = (0..count).map(|n| json!({"at": n << 20, "data": piece}));
        capture["points"][0]["user"] = json!({"memory": Value::from_iter(pieces)});
        capture
    };
    assert_eq!(error(memory(64)), None);
    let refused = Some("capture: points[0].user.memory: more than 64 MiB of memory".to_owned());
    assert_eq!(error(memory(65)), refused);

    let modules = |count: u64| {
        let module = json!({"ip_at": "0xffffffffc0000000", "ip": piece, "orc": piece});
        json!({"modules": Value::from_iter((0..count).map(|_| module.clone()))})
    };
    assert_eq!(error(modules(32)), None);
    let refused = Some("capture: modules[32].orc: more than 64 MiB of tables".to_owned());
    assert_eq!(error(modules(33)), refused);
}
