//! `emulate --kernel`: kernels of a few instructions boot in the emulated machine, end in every way, and
//! are refused. What the machine does with a real one is tested in `emulator`.
#![cfg(feature = "machine")]

pub(super) mod image;
mod verify;

use crate::cli::{json, run, status, stderr, stdout, tool};
use image::{HALT, LOOP, MASKED_TIMER, RESET, TO_32_BIT, TRIPLE_FAULT, WAIT};
use serde_json::Value;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

/// A folder with the files of a test.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Writes a file, and returns its path.
    fn put(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }

    /// Boots a vmlinux with this code.
    fn boot(&self, code: &[&[u8]], options: &[&str]) -> Output {
        let kernel = self.put("vmlinux", &image::vmlinux(code));
        boot(&kernel, options)
    }
}

fn boot(kernel: &str, options: &[&str]) -> Output {
    run(&[&["emulate", "--kernel", kernel], options].concat())
}

/// A static ELF file: its header is enough.
const STATIC: &[u8] = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0\
    \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x40\0\x38\0\0\0\0\0\0\0\0\0 a program";

#[test]
fn a_kernel_prints_and_halts() {
    let files = Files::new();
    let output = files.boot(&[&image::print("one\r\ntwo\r\n"), HALT], &[]);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    // The console is passed on as it is.
    assert_eq!(stdout(&output), "one\r\ntwo\r\n");
    // mov to %dx, two instructions for each byte, cli and hlt.
    assert_eq!(
        stderr(&output),
        "unwind-sim: the processor was halted with interrupts disabled, after 23 instructions and 0.000 \
         s of the kernel's time\nthe console's last lines:\n  one\n  two\n"
    );

    let output = files.boot(&[&image::print("x"), HALT], &["--stats", "--memory", "32M"]);
    let said = stderr(&output);
    assert!(said.contains("\n5 instructions in "), "{said}");
    assert!(said.ends_with("\n32 MiB of memory\n"), "{said}");
}

#[test]
fn a_kernel_that_resets_or_triple_faults_has_ended() {
    let files = Files::new();
    let panic = image::print("Kernel panic - not syncing\r\n");
    for (end, told) in [
        (
            RESET,
            "unwind-sim: the kernel reset the computer (keyboard), ",
        ),
        (TRIPLE_FAULT, "unwind-sim: triple fault at 0x1000"),
    ] {
        let output = files.boot(&[&panic, end], &[]);
        let said = stderr(&output);
        assert_eq!(status(&output), 0, "{said}");
        assert!(said.starts_with(told), "{said}");
        let last = "the console's last lines:\n  Kernel panic - not syncing\n";
        assert!(said.ends_with(last), "{said}");
    }
}

#[test]
fn a_kernel_that_does_not_end_is_not_judged() {
    let files = Files::new();
    let waits = "the processor waits, and nothing will happen";
    let exceptions = image::exceptions_for_ever();
    let not_modelled = "is not modelled: at 0x1000004, 48 cb";
    let limit = "the limit of instructions was reached, after 1000 instructions";
    for (code, options, told) in [
        (&[WAIT][..], &[][..], waits),
        (&[MASKED_TIMER, WAIT], &[], waits),
        (&[TO_32_BIT], &[], not_modelled),
        (&[&exceptions], &[], "exceptions for ever: "),
        (&[LOOP], &["--max-instructions", "1000"], limit),
        (&[LOOP], &["--timeout", "0.2"], "the time limit was reached"),
    ] {
        let output = files.boot(code, options);
        let said = stderr(&output);
        assert_eq!((stdout(&output), status(&output)), ("", 3), "{said}");
        assert!(said.contains(told), "{said}");
        let reason = "unwind-sim: exit status 3: the program or kernel did not end, ";
        assert!(said.contains(reason), "{said}");
    }

    // The last instruction before a limit, and one before it.
    for (most, wanted) in [("2", 0), ("1", 3)] {
        let output = files.boot(&[HALT], &["--max-instructions", most]);
        assert_eq!(status(&output), wanted, "{most}");
    }
}

/// Where it ended is said by the name of a function, if there is one.
#[test]
fn the_function_of_the_end_is_named() {
    let files = Files::new();
    let code = [image::UNKNOWN_PORT, TO_32_BIT];
    let named = |offset| {
        let kernel = image::vmlinux_with_symbols(&code, &[("code_32", offset)]);
        let output = boot(&files.put("vmlinux", &kernel), &[]);
        assert_eq!(status(&output), 3);
        stderr(&output).lines().next().expect("a line").to_owned()
    };
    let said = named(0);
    assert!(said.contains(", in code_32+0x6"), "{said}");
    // The instruction is before the function.
    let said = named(7);
    assert!(!said.contains(", in "), "{said}");

    let output = boot(&files.path("vmlinux"), &["--json"]);
    assert_eq!(lines(&output)[0]["place"], Value::Null);
    files.put("vmlinux", &image::vmlinux_with_symbols(&code, &[("f", 6)]));
    let output = boot(&files.path("vmlinux"), &["--json"]);
    let place = lines(&output)[0]["place"].clone();
    assert!(
        place
            .as_str()
            .is_some_and(|place| place.starts_with("f+0x0")),
        "{place}"
    );
}

#[test]
fn what_is_not_in_the_machine_is_named() {
    let files = Files::new();
    let code = [
        image::UNKNOWN_PORT,
        image::UNKNOWN_PORT,
        image::UNKNOWN_REGISTER,
    ];
    let output = files.boot(&code, &[]);
    let told = "not in the machine: register 0x1234567 (1), read of port 0xe9 (2)\n";
    assert!(stderr(&output).ends_with(told), "{}", stderr(&output));
}

#[test]
fn the_command_line_reaches_the_kernel() {
    let files = Files::new();
    let code = [&image::print_command_line(), HALT];
    let usual = "console=ttyS0 acpi=off pci=off panic=-1";
    for (options, wanted) in [
        (&[][..], usual.to_owned()),
        (&["--append", ""], usual.to_owned()),
        (&["--append", "quiet -- -x"], format!("{usual} quiet -- -x")),
    ] {
        let output = files.boot(&code, options);
        assert_eq!((stdout(&output), status(&output)), (&*wanted, 0));
    }

    let long = "x".repeat(2048);
    let output = files.boot(&code, &["--append", &long]);
    assert_eq!(status(&output), 2);
    let told = "bytes, but the kernel reads at most 2047; shorten it";
    assert!(stderr(&output).contains(told), "{}", stderr(&output));
}

#[test]
fn an_initramfs_is_made_of_the_program() {
    let files = Files::new();
    let code = [&image::print_initrd(), HALT];
    let init = files.put("init", STATIC);
    let output = files.boot(&code, &["--init", &init]);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let archive = output.stdout;
    assert!(archive.starts_with(b"070701"), "a header of newc");
    let has = |part: &[u8]| archive.windows(part.len()).any(|at| at == part);
    assert!(has(b"\0init\0") || has(b"init\0"));
    assert!(has(STATIC));
    assert!(has(b"TRAILER!!!"));

    // An archive is passed on as it is.
    let given = files.put("archive", &archive);
    let output = files.boot(&code, &["--initrd", &given]);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    assert!(output.stdout == archive);

    // Without either it has the program that is built in.
    let output = files.boot(&code, &[]);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let workload = std::fs::read("corpus/workload/workload").expect("the repository");
    let archive = output.stdout;
    assert!(archive.windows(workload.len()).any(|at| at == workload));
}

/// The program that is built in does its work only as a kernel's first process.
#[test]
fn the_workload_does_nothing_without_a_kernel() {
    let program = "corpus/workload/workload";
    let output = run(&["emulate", "--status", "program", "--", program]);
    let told = "workload: this is the first process of a kernel in `unwind-sim verify --kernel`, and does \
                nothing elsewhere\n";
    assert_eq!(status(&output), 2);
    assert!(stderr(&output).starts_with(told), "{}", stderr(&output));
}

#[test]
fn the_memory_is_the_one_asked_for() {
    let files = Files::new();
    let code = [&image::print_memory(), HALT];
    let mib = 1_u64 << 20;
    for (options, wanted) in [
        (&[][..], 512 * mib),
        (&["--memory", "32M"], 32 * mib),
        (&["--memory", "40000K"], 40_000 << 10),
        (&["--memory", "3G"], 3 << 30),
    ] {
        let output = files.boot(&code, options);
        assert_eq!(status(&output), 0, "{}", stderr(&output));
        // The last region of the map starts at 1 MiB.
        assert_eq!(output.stdout, (wanted - mib).to_le_bytes(), "{options:?}");
    }

    for (size, told) in [
        ("4G", "4294967296 bytes are not between 1M and 3G"),
        ("3221225473", "3221225473 bytes are not between 1M and 3G"),
        ("0", "0 bytes are not between 1M and 3G"),
        ("much", "`much` is not a number, with K, M or G if any"),
    ] {
        let output = files.boot(&code, &["--memory", size]);
        let said = stderr(&output);
        assert_eq!((stdout(&output), status(&output)), ("", 2), "{said}");
        assert!(said.contains(told) && said.contains("--memory"), "{said}");
    }

    // What the kernel needs is more than there is.
    let output = files.boot(&code, &["--memory", "8M"]);
    assert_eq!(status(&output), 2);
    let told = "memory at 0x800000; give the machine more memory";
    assert!(stderr(&output).contains(told), "{}", stderr(&output));
}

#[test]
fn what_is_typed_is_read() {
    let files = Files::new();
    let code = [&image::echo(), HALT];
    let typed = "what somebody types, more than sixteen bytes\n";
    let input = files.put("typed", typed.as_bytes());
    // If something is lost, it waits.
    let ends = "--max-instructions=100000";
    let output = files.boot(&code, &[ends, "--console-input", &input]);
    assert_eq!((stdout(&output), status(&output)), (typed, 0));

    // Nothing is typed: it waits.
    let output = files.boot(&code, &["--max-instructions", "100000"]);
    assert_eq!((stdout(&output), status(&output)), ("", 3));

    // Standard input is a file like others.
    let kernel = files.path("vmlinux");
    let mut command = tool(&[
        "emulate",
        "--kernel",
        &kernel,
        "--console-input",
        "/dev/stdin",
        ends,
    ]);
    command.stdin(std::fs::File::open(&input).expect("it is there"));
    let output = command.output().expect("the tool runs");
    assert_eq!((stdout(&output), status(&output)), (typed, 0));
}

/// With counters there is ACPI, and so a way to switch the power off. Without, the port is none.
#[test]
fn with_counters_the_power_can_be_switched_off() {
    // mov $0x604, %edx; mov $0x3400, %eax (SLP_EN, and the type of \_S5); out %ax, (%dx)
    const OFF: &[u8] = b"\xba\x04\x06\x00\x00\xb8\x00\x34\x00\x00\x66\xef";
    let files = Files::new();
    for (options, told) in [
        (&["--pmu"][..], "the power was switched off"),
        (&[], "halted with interrupts disabled"),
    ] {
        let output = files.boot(&[OFF, HALT], options);
        assert_eq!(status(&output), 0);
        assert!(stderr(&output).contains(told), "{}", stderr(&output));
    }
    for cpu in ["v3,amd", "v2"] {
        let output = files.boot(&[HALT], &["--pmu", "--cpu", cpu]);
        let said = stderr(&output);
        assert_eq!((stdout(&output), status(&output)), ("", 2), "{said}");
        let told = "only Intel's Skylake (level v3) has performance counters here";
        assert!(said.contains(told), "{said}");
    }
}

/// What comes is written at once: who waits for a line does not wait for the end.
#[test]
fn the_console_is_written_as_it_comes() {
    use std::io::{BufRead, BufReader};
    let files = Files::new();
    let kernel = files.put(
        "vmlinux",
        &image::vmlinux(&[&image::print("login:\n"), LOOP]),
    );
    let mut command = tool(&["emulate", "--kernel", &kernel, "--timeout", "60"]);
    let start = Instant::now();
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .expect("the tool runs");
    let mut line = String::new();
    let out = child.stdout.take().expect("a pipe");
    let read = BufReader::new(out).read_line(&mut line);
    // It did not write when it ended.
    assert!(start.elapsed() < Duration::from_secs(30), "{line}");
    child.kill().expect("our child");
    child.wait().expect("our child");
    assert_eq!((read.ok(), line.as_str()), (Some(7), "login:\n"));
}

/// Who stops reading has seen enough.
#[test]
fn a_closed_pipe_ends_the_run() {
    let files = Files::new();
    let kernel = files.put("vmlinux", &image::vmlinux(&[&image::print_for_ever(b'x')]));
    let mut command = tool(&["emulate", "--kernel", &kernel]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the tool runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((stderr(&output), status(&output)), ("", 0));
}

#[test]
fn a_run_depends_on_nothing_but_the_seed() {
    let files = Files::new();
    let code = [&image::print_random(), HALT];
    let numbers = ["0", "0", "1"].map(|seed| {
        let options = ["--cpu", "v3,intel,+rdrand", "--seed", seed];
        let output = files.boot(&code, &options);
        assert_eq!(status(&output), 0, "{}", stderr(&output));
        assert_eq!(output.stdout.len(), 8);
        output.stdout
    });
    assert_eq!(numbers[0], numbers[1]);
    assert_ne!(numbers[0], numbers[2]);

    // The processor is the one that was asked for: without the instruction there is an exception.
    let output = files.boot(&code, &[]);
    assert!(stderr(&output).contains("triple fault"));
}

#[test]
fn a_kernel_is_moved_as_its_relocations_say() {
    let files = Files::new();
    let vmlinux = image::vmlinux(&[&image::print_address(), HALT]);
    let payload = [&vmlinux[..], &image::relocations()].concat();
    let vmlinuz = files.put("vmlinuz", &image::bzimage(&payload));
    for (options, slide) in [
        (&[][..], 0),
        (&["--kaslr", "0"], 0),
        (&["--kaslr", "0x12400000"], 0x1240_0000_u64),
        (&["--kaslr", "200000"], 0x20_0000),
    ] {
        let output = boot(&vmlinuz, options);
        assert_eq!(status(&output), 0, "{}", stderr(&output));
        let wanted = (image::ADDRESS + slide).to_le_bytes();
        assert_eq!(output.stdout, wanted, "{options:?}");
    }

    for (offset, told) in [
        ("0x100000", "0x100000 is not a multiple of 0x200000 up to "),
        (
            "0x40000000",
            "0x40000000 is not a multiple of 0x200000 up to ",
        ),
        ("x", "`x` is not a hexadecimal number"),
    ] {
        let output = boot(&vmlinuz, &["--kaslr", offset]);
        assert_eq!(status(&output), 2);
        assert!(stderr(&output).contains(told), "{}", stderr(&output));
    }

    // A kernel that nothing was kept of, and one whose table is cut off.
    for (file, told) in [
        (
            vmlinux.clone(),
            "vmlinux: relocations at 0x0: the kernel has none, so it cannot be moved",
        ),
        (
            image::bzimage(&vmlinux),
            "vmlinux: relocations at 0x0: the kernel has none",
        ),
        (
            image::bzimage(&payload[..payload.len() - 1]),
            "vmlinux: relocations at 0xf: not two or three lists",
        ),
    ] {
        let path = files.put("vmlinux", &file);
        let output = boot(&path, &["--kaslr", "0x200000"]);
        let said = stderr(&output);
        assert_eq!((stdout(&output), status(&output)), ("", 2), "{said}");
        assert!(said.contains(told), "{said}");
    }
}

/// A file that nothing can be made of is refused, and the place in it is said.
#[test]
fn malformed_files_are_refused() {
    let files = Files::new();
    let kernel = files.put("kernel", &image::vmlinux(&[HALT]));
    let mut vmlinuz = image::bzimage(&image::vmlinux(&[HALT]));
    assert_eq!(status(&boot(&files.put("vmlinuz", &vmlinuz), &[])), 0);

    let changed = |offset: usize, bytes: &[u8]| {
        let mut file = vmlinuz.clone();
        file[offset..][..bytes.len()].copy_from_slice(bytes);
        file
    };
    for (file, told) in [
        (
            changed(0x24c, &[0xff; 4]),
            "boot header at offset 0x248: the payload lies outside the file",
        ),
        (
            changed(1024, b"bad!"),
            "payload at offset 0x400: starts with [62, 61, 64, 21]",
        ),
        (
            changed(0x400, b"\x28\xb5\x2f\xfd"),
            "payload at offset 0x400: zstd cannot be unpacked",
        ),
        (
            changed(0x206, &[0x0b]),
            "version at 0x206: boot protocol 0x020b is older",
        ),
        (
            changed(1024 + 25, &[0x40]),
            "ELF file header at 0x18: the entry point 0x1004000 is not",
        ),
        (
            changed(1024 + 16, &[1]),
            "ELF file header at 0x10: ELF type 1 is not a kernel's",
        ),
    ] {
        let path = files.put("broken", &file);
        let output = boot(&path, &[]);
        let said = stderr(&output);
        assert_eq!((stdout(&output), status(&output)), ("", 2), "{said}");
        assert!(said.contains(&format!("{path}: {told}")), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    vmlinuz.truncate(0x400 + 100);
    let output = boot(&files.put("cut", &vmlinuz), &[]);
    assert_eq!(status(&output), 2);

    for (file, told) in [
        (
            &b"\0\0\0\x00070701"[..],
            "initial RAM disk at 0x4: the entry needs 110 bytes",
        ),
        (
            b"\0\0\0\0no archive",
            "initial RAM disk at 0x4: neither a cpio header nor compressed",
        ),
        (b"", "initial RAM disk at 0x0: the archive is empty"),
    ] {
        let path = files.put("broken", file);
        let output = boot(&kernel, &["--initrd", &path]);
        let said = stderr(&output);
        assert_eq!((stdout(&output), status(&output)), ("", 2), "{said}");
        assert!(said.contains(&format!("{path}: {told}")), "{said}");
    }
}

#[test]
fn what_cannot_be_read_is_refused() {
    let files = Files::new();
    let kernel = files.put("kernel", &image::vmlinux(&[HALT]));
    let (missing, folder) = (files.path("missing"), files.path(""));
    for option in ["--kernel", "--init", "--initrd", "--console-input"] {
        for path in [missing.as_str(), &folder, "/dev/zero"] {
            let mut words = vec!["emulate", option, path];
            if option != "--kernel" {
                words.extend(["--kernel", &kernel]);
            }
            let output = run(&words);
            assert_eq!(status(&output), 2, "{words:?}");
            assert!(stderr(&output).contains(path), "{}", stderr(&output));
        }
    }

    // Not a program, and one that needs another file.
    let text = files.put("text", b"#!/bin/sh\n");
    let dynamic = files.put("dynamic", &dynamic(b"/lib64/ld-linux-x86-64.so.2\0"));
    for (path, told) in [
        (&text, "not a program (ELF)"),
        (
            &dynamic,
            "needs /lib64/ld-linux-x86-64.so.2, which an initramfs of one program does not have",
        ),
    ] {
        let output = boot(&kernel, &["--init", path]);
        assert_eq!(status(&output), 2);
        let said = stderr(&output);
        assert!(
            said.contains(path.as_str()) && said.contains(told),
            "{said}"
        );
    }
}

/// A program with a dynamic linker.
fn dynamic(linker: &[u8]) -> Vec<u8> {
    let mut file = STATIC[..64].to_vec();
    file[32] = 64;
    file[56] = 1;
    // PT_INTERP, its offset, addresses and sizes, alignment
    file.extend([3, 0, 0, 0, 4, 0, 0, 0]);
    let size = linker.len() as u64;
    let words = [64 + 56, 0, 0, size, size, 1];
    file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    file.extend(linker);
    file
}

#[test]
fn wrong_combinations_name_the_right_one() {
    let files = Files::new();
    let kernel = files.put("kernel", &image::vmlinux(&[HALT]));
    let init = files.put("init", STATIC);
    let (kernel, init) = (kernel.as_str(), init.as_str());
    let for_programs = "is for programs that run without a kernel; with --kernel there are --init,";
    for (words, told) in [
        (&["--init", init][..], "--kernel <FILE>"),
        (&["--initrd", init], "--kernel <FILE>"),
        (&["--append", "quiet"], "--kernel <FILE>"),
        (&["--memory", "32M"], "--kernel <FILE>"),
        (&["--console-input", init], "--kernel <FILE>"),
        (&["--kaslr", "0"], "--kernel <FILE>"),
        (&["--pmu"], "--kernel <FILE>"),
        (
            &["--kernel", kernel, "--init", init, "--initrd", init],
            "'--init <PROG>' cannot be used with '--initrd <FILE>'",
        ),
        (
            &["--kernel", kernel, "--init", init, "--", "prog"],
            "unwind-sim emulate --kernel FILE --init prog",
        ),
        (
            &["--kernel", kernel, "prog"],
            "emulate --kernel FILE --init prog",
        ),
        (
            &["--kernel", kernel, "--flat", "code@0"],
            "'--kernel <FILE>' cannot be used with '--flat <FILE@ADDR>'",
        ),
        (&["--json", "prog"], "--json is for --flat and --kernel"),
        (&["--kernel", kernel, "--status", "program"], for_programs),
        (&["--kernel", kernel, "--root", "/tmp"], for_programs),
        (&["--kernel", kernel, "--env", "A=b"], for_programs),
        (&["--kernel", kernel, "--clear-env"], for_programs),
        (&["--kernel", kernel, "--limit", "tasks=5"], for_programs),
        (&["--kernel", kernel, "--schedule", "turns"], for_programs),
        (&["--kernel", kernel, "--print-schedule", "-"], for_programs),
        (&["--kernel", kernel, "--allow-write"], for_programs),
        (&["--kernel", kernel, "--allow-fs", "nfs"], for_programs),
        (&["--kernel", kernel, "--defect"], for_programs),
    ] {
        let output = run(&[&["emulate"], words].concat());
        let said = stderr(&output);
        assert_eq!((stdout(&output), status(&output)), ("", 2), "{said}");
        assert!(said.contains(told), "{words:?}: {said}");
    }
}

/// The lines of `--json`, each of the schema.
fn lines(output: &Output) -> Vec<Value> {
    let schema: Value =
        serde_json::from_str(stdout(&run(&["generate", "json-schema"]))).expect("JSON");
    let parse = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        json::fits(&line, &schema, &schema).unwrap_or_else(|what| panic!("{what}\n{line}"));
        line
    };
    stdout(output).lines().map(parse).collect()
}

#[test]
fn json_has_the_console_and_the_end() {
    let files = Files::new();
    let long = "y".repeat(5000);
    let text = format!("one\r\n\x1b[1mtwo\r\n{long}");
    let output = files.boot(&[&image::print(&text), HALT], &["--json"]);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let all = lines(&output);
    let console = all.iter().filter(|line| line["type"] == "console");
    let console: Vec<&str> = console.filter_map(|line| line["text"].as_str()).collect();
    assert_eq!(console, ["one", "\x1b[1mtwo", &long[..4096], &long[4096..]]);
    let last = all.last().expect("a line");
    assert_eq!(
        (&last["type"], &last["end"]),
        (&"summary".into(), &"halted".into())
    );
    assert_eq!(last["instructions"], 1 + 2 * text.len() + 2);
    assert_eq!(last["console"][0], "one");
    assert_eq!(last["rip"], Value::Null);

    let unknown = [image::UNKNOWN_PORT, TO_32_BIT];
    for (code, end, wanted, rip) in [
        (&[RESET][..], "reset", 0, Value::Null),
        (&[TRIPLE_FAULT], "triple-fault", 0, "0x1000008".into()),
        (&unknown, "unmodelled", 3, "0x1000006".into()),
        (&[WAIT], "waits-for-ever", 3, Value::Null),
    ] {
        let output = files.boot(code, &["--json"]);
        assert_eq!(status(&output), wanted, "{end}");
        let all = lines(&output);
        let [line] = all.as_slice() else {
            panic!("{end}: {} lines", all.len());
        };
        assert_eq!((&line["end"], &line["rip"]), (&end.into(), &rip));
        if end == "unmodelled" {
            let port = serde_json::json!([{"kind": "port-read", "address": "0xe9", "count": 1}]);
            assert_eq!(line["unknown"], port);
        }
    }
}
