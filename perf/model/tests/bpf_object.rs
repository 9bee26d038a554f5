//! Reading objects: what the shipped ones hold, that they are what clang makes of their sources,
//! and that corrupt ones are refused without a panic.

use std::path::{Path, PathBuf};
use std::process::Command;
use unwind_sim_perf_model::bpf::maps::kind;
use unwind_sim_perf_model::bpf::{
    Context, Handlers, Limits, Object, ObjectErrorKind, PerfEventData, PlainEnv,
};

const NAMES: [&str; 8] = [
    "iprange",
    "profile",
    "lines",
    "ring",
    "snapshot",
    "walk",
    "registers",
    "stacks",
];

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/bpf")
}

fn shipped(name: &str) -> Vec<u8> {
    std::fs::read(corpus().join(format!("{name}.bpf.o"))).unwrap()
}

#[test]
fn shipped_objects_hold_what_their_sources_say() {
    let object = Object::parse(&shipped("profile")).unwrap();
    let maps: Vec<_> = object
        .maps
        .iter()
        .map(|map| {
            let sizes = (map.key_size, map.value_size, map.max_entries);
            (map.name.as_str(), map.kind, sizes)
        })
        .collect();
    assert_eq!(
        maps,
        [
            ("stacks", kind::STACK_TRACE, (4, 1016, 16384)),
            ("counts", kind::HASH, (40, 8, 40960)),
            (".bss", kind::ARRAY, (4, 8, 1)),
        ]
    );

    // Helpers look at the license.
    assert_eq!(object.license, "GPL");

    // The section says of which type the program is.
    let [program] = &object.programs[..] else {
        panic!("not one program");
    };
    assert_eq!(
        (program.name.as_str(), program.section.as_str()),
        ("profile", "perf_event")
    );

    // A subprogram of .text is appended, and the call leads to it.
    let object = Object::parse(&shipped("lines")).unwrap();
    let program = &object.programs[0];
    let functions: Vec<_> = program.functions.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(functions, ["cache_lines", "line_of"]);
    let call = program
        .insns
        .iter()
        .position(|insn| (insn.code, insn.src) == (0x85, 1))
        .unwrap();
    let target = call as i64 + 1 + i64::from(program.insns[call].imm);
    assert_eq!(target as usize, program.functions[1].start);

    let object = Object::parse(&shipped("iprange")).unwrap();
    let map = &object.maps[0];
    assert_eq!(
        (map.name.as_str(), map.kind, map.max_entries),
        ("channel", kind::PERF_EVENT_ARRAY, 256)
    );
}

#[test]
fn shipped_objects_are_what_clang_makes_of_their_sources() {
    let version = Command::new("clang-14").arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        return crate::skip::skip(
            "shipped_objects_are_what_clang_makes_of_their_sources",
            "there is no clang-14",
        );
    }
    // Not in the folder of the build, which may be somebody else's.
    let folder = tempfile::tempdir().unwrap();
    for name in NAMES {
        let output = folder.path().join(format!("{name}.bpf.o"));
        let status = Command::new("clang-14")
            .args(["-target", "bpf", "-O2", "-g", "-Wall", "-Werror", "-c"])
            .arg(corpus().join(format!("{name}.bpf.c")))
            .arg("-o")
            .arg(&output)
            .status()
            .unwrap();
        assert!(status.success(), "{name}");
        let built = Object::parse(&std::fs::read(output).unwrap()).unwrap();
        let shipped = Object::parse(&shipped(name)).unwrap();
        assert_eq!(
            (&built.maps, &built.license),
            (&shipped.maps, &shipped.license)
        );

        // Debug information may differ, so the instructions are compared, not the files.
        for (built, shipped) in built.programs.iter().zip(&shipped.programs) {
            assert_eq!(built.insns, shipped.insns, "{name}: {}", shipped.name);
            assert_eq!(built.functions, shipped.functions);
        }
        assert_eq!(built.programs.len(), shipped.programs.len());
    }
}

/// Reads, loads and runs whatever the bytes are.
fn use_all(bytes: &[u8]) -> bool {
    let Ok(object) = Object::parse(bytes) else {
        return false;
    };
    let limits = Limits {
        cpus: 2,
        map_bytes: 1 << 25,
    };
    let Ok(mut handlers) = Handlers::load(&object, limits) else {
        return false;
    };

    // Small limits: a changed byte may make an endless loop.
    handlers.maps.open_outputs(2);
    handlers.budget = 500;

    // All registers have the same value, in the range that the shipped handler looks for.
    let mut data = PerfEventData::new();
    for offset in (0..184).step_by(8) {
        data.set_word(offset, 0xffff_ffff_8121_4c3c);
    }
    for program in 0..handlers.programs().len() {
        let mut env = PlainEnv {
            kernel_stack: vec![1, 2, 3],
            ..PlainEnv::default()
        };
        let result = handlers.run(program, &mut env, Context::PerfEvent(&data));
        // A fault is an answer, and must have a text.
        if let Err(fault) = result {
            assert!(!fault.to_string().is_empty());
        }
    }
    true
}

#[test]
fn changed_bytes_are_refused_or_harmless() {
    const CHANGES: [u8; 3] = [0x01, 0x80, 0xff];
    // Every byte is changed, in one of the ways or, with UNWIND_SIM_SLOW=1, in all.
    let is_slow = std::env::var_os("UNWIND_SIM_SLOW").is_some();
    for name in NAMES {
        let whole = shipped(name);
        assert!(use_all(&whole));
        let (mut refused, mut used) = (0, 0);
        for at in 0..whole.len() {
            let changes = if is_slow {
                &CHANGES[..]
            } else {
                &CHANGES[at % CHANGES.len()..][..1]
            };
            for change in changes {
                let mut bytes = whole.clone();
                bytes[at] ^= change;
                if use_all(&bytes) {
                    used += 1
                } else {
                    refused += 1
                }
            }
        }

        // Both outcomes must occur often, or the changes did not reach what is read.
        assert!(refused > 200 && used > 200, "{name}: {refused} {used}");
    }
}

#[test]
fn cut_files_are_refused() {
    let whole = shipped("profile");
    for length in 0..whole.len() {
        let error = Object::parse(&whole[..length]).unwrap_err();
        assert!(error.offset <= whole.len() as u64, "{error}");
    }
}

#[test]
fn errors_say_what_and_where() {
    let mut bytes = shipped("lines");
    bytes[18] = 62;
    let error = Object::parse(&bytes).unwrap_err();
    assert_eq!(
        (&error.kind, error.offset),
        (&ObjectErrorKind::Machine(62), 18)
    );
    assert_eq!(
        error.to_string(),
        "BPF object: ELF header at offset 0x12: machine 62 is not BPF (247); compile with -target \
         bpf"
    );
    let error =
        Object::parse(b"PERFILE2 and more than the 64 bytes that a header of ELF64 must have");
    assert_eq!(
        error.unwrap_err().to_string(),
        "BPF object: ELF header at offset 0x0: not a little-endian ELF64 file"
    );
}
