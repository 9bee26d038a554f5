//! The files with hostile names and contents.

use super::WORD;
use crate::cli::root;
use crate::common::compiler::Scratch;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use unwind_sim_perf_data::write::{Body, EventSpec, Id, SampleData, StackCopy, Writer};
use unwind_sim_perf_data::{Comm, Mmap, MmapIdentity, misc, sample_type as st};

/// [`WORD`], and a byte that is not UTF-8. No part of it ends a string or is a slash.
fn name() -> Vec<u8> {
    [WORD.as_bytes(), b"\xff"].concat()
}

/// What stands for [`name`] in the source of the program; it is as long.
fn placeholder() -> String {
    let mut text = "hostile_".repeat(8);
    text.truncate(name().len());
    text
}

/// A function whose table does not know that it moves rsp, in code of 0x40 bytes each.
const SOURCE: &str = "
        .globl _start
        .text
_start: .cfi_startproc
        .cfi_undefined rip
        call NAME
        mov $60, %eax
        xor %edi, %edi
        syscall
        .cfi_endproc
        .balign 0x40
NAME:   .cfi_startproc
        sub $24, %rsp
        nop
        call last
        add $24, %rsp
        ret
        .cfi_endproc
        .size NAME, . - NAME
        .balign 0x40
last:   .cfi_startproc
        nop
        ret
        .cfi_endproc
        .section .comment, \"MS\", @progbits, 1
        .asciz \"GCC: NAME\"
        .section NAME_section, \"a\"
        .asciz \"NAME\"
";

/// An unwinder that says its argument on standard error, where its lines are its own, and answers it.
const UNWINDER: &str = r#"#!/bin/sh
printf '%s\377' "$1" | tr -d '\n\t' >&2
echo >&2
read -r line
printf '{"type":"%s"}\n' "$1"
"#;

const TEXT: u64 = 0x40_1000;

/// The same bytes with `to` wherever `from`, which is as long, was.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut out = bytes.to_vec();
    let places: Vec<usize> = memchr::memmem::find_iter(bytes, from).collect();
    assert!(!places.is_empty(), "{}", from.escape_ascii());
    for at in places {
        out[at..at + to.len()].copy_from_slice(to);
    }
    out
}

fn recorded(program: &Path) -> Vec<u8> {
    // The registers that perf numbers 0 to 8 and 16 to 23: rax to rip, r8 to r15.
    let event = EventSpec {
        sample_type: st::IP | st::TID | st::TIME | st::CALLCHAIN | st::REGS_USER | st::STACK_USER,
        sample_regs_user: 0xff_01ff,
        sample_stack_user: 64,
        ..EventSpec::software(WORD, 0)
    };

    let mut writer = Writer::new(vec![event]);
    let id = |time| Id {
        pid: 7,
        tid: 7,
        time,
        ..Id::default()
    };

    let name = name();
    let comm = Body::Comm(Comm {
        pid: 7,
        tid: 7,
        exec: false,
        name: &name,
    });
    writer.record(&comm, &id(1)).expect("a record");

    // A file that is not there any more has a hostile name, too.
    let gone = [b"/gone/", &name[..]].concat();
    let own = program.as_os_str().as_bytes();
    for (address, path) in [(TEXT, own), (0x50_0000, &gone[..])] {
        let mmap = Mmap {
            pid: 7,
            tid: 7,
            address,
            length: 4096,
            file_offset: 0x1000,
            identity: MmapIdentity::Path,
            // PROT_READ and PROT_EXEC, MAP_PRIVATE.
            protection: 5,
            flags: 2,
            path,
        };
        let cpumode = misc::CPUMODE_USER;
        writer
            .record(&Body::Mmap { mmap, cpumode }, &id(2))
            .expect("a record");
    }

    let (inside, caller, lost) = (TEXT + 0x44, TEXT + 5, 0x50_0010);
    for (time, ip) in [(3, inside), (4, lost)] {
        // -512 is `PERF_CONTEXT_USER`.
        let chain = [u64::MAX - 511, ip, caller];
        let mut registers = [0; 17];
        // perf's numbers: 7 is rsp and 8 is rip (`asm/perf_regs.h`).
        (registers[7], registers[8]) = (0x7fff_0000, ip);
        let mut stack = [0; 64];

        // The return address of both samples.
        stack[24..32].copy_from_slice(&caller.to_le_bytes());
        let sample = Body::Sample(SampleData {
            ip,
            callchain: &chain,
            user_regs: &registers,
            user_stack: StackCopy {
                bytes: &stack,
                size: stack.len(),
            },
            ..SampleData::default()
        });
        writer.record(&sample, &id(time)).expect("a record");
    }

    writer.finish()
}

/// The files that commands are given. They are in a folder whose name is hostile, too.
pub(super) struct Files {
    scratch: Scratch,
    pub(super) folder: PathBuf,
}

impl Files {
    pub(super) fn make() -> Result<Files, String> {
        let scratch = Scratch::new();
        let folder = scratch.path(WORD);
        fs::create_dir(&folder).expect("a folder");
        let source = SOURCE.replace("NAME", &placeholder());
        let args = ["-static", "-nostdlib", "-no-pie", "-Wl,-Ttext=0x401000"];
        let plain = scratch.cc("program.s", &source, &args)?;
        let files = Files { scratch, folder };
        let program = fs::read(plain).expect("a program");
        let program = replaced(&program, placeholder().as_bytes(), &name());
        files.put("program", &program, 0o755);
        files.put("perf.data", &recorded(&files.path("program")), 0o644);
        files.put("unwinder", UNWINDER.as_bytes(), 0o755);
        files.put_core();
        files.put_cases();
        files.put_texts();
        Ok(files)
    }

    /// A core whose program has a hostile path, and a BPF object with a hostile map.
    fn put_core(&self) {
        let core = fs::read(root("corpus/cores/stacks.core.zst")).expect("the corpus");
        let core = zstd::decode_all(&core[..]).expect("zstd");
        let own = b"/usr/local/bin/stacks";
        let path = format!("/{WORD}");
        self.put(
            "core",
            &replaced(&core, own, &path.as_bytes()[..own.len()]),
            0o644,
        );

        let object = fs::read(root("corpus/bpf/snapshot.bpf.o")).expect("the corpus");
        self.put(
            "bpf.o",
            &replaced(&object, b"outputs", b"a\x1b[m\nF\x7f"),
            0o644,
        );
    }

    /// A case that is right, one that does not assemble, one that is malformed, and a folder of one.
    fn put_cases(&self) {
        let case = fs::read_to_string(root("corpus/cases/frame/enter-and-leave-make-a-frame.s"));
        let case = case.expect("the corpus");
        let line = WORD.replace(['\n', '\r', '\t'], "");
        let right = case.replacen("claim: ", &format!("claim: {line}"), 1);
        let failing = format!("nop\n\t.error \"{line}\"\n\t{line}");
        let failing = case.replacen("nop", &failing, 1);
        self.put("case.s", right.as_bytes(), 0o644);
        self.put("failing-case.s", failing.as_bytes(), 0o644);
        self.put(
            "wrong-case.s",
            format!("#! {line}: {line}\n").as_bytes(),
            0o644,
        );

        let folder = self.path("cases.s");
        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join(format!("{WORD}.s")), right).expect("a case");
        let included = self.scratch.path("prelude.inc");
        fs::copy(root("corpus/cases/prelude.inc"), included).expect("a file");
    }

    fn put_texts(&self) {
        self.put("scenario", format!("{WORD}\n").as_bytes(), 0o644);
        self.put("bidi", "\u{202e}\u{200b}x\n".as_bytes(), 0o644);
        self.put("not-a-recording", &name(), 0o644);
        self.put("keys", b"w Right\nDown\n? Enter\n", 0o644);
        self.put("known.json", format!("{{\"{WORD}\n").as_bytes(), 0o644);
        // A list has a path on each line.
        let list = [self.path("program").as_os_str().as_bytes(), b"\n"].concat();
        self.put("list", &list, 0o644);
    }

    /// A path in the folder. Traces have paths as UTF-8, so the program's is; others are not.
    /// The compiler's messages have the lines of a case's path.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        if name.ends_with(".s") {
            return self.scratch.path(name);
        }
        let mut name = name.as_bytes().to_vec();
        if [&b"gone"[..], b"perf.data"].contains(&&name[..]) {
            name.push(0xff);
        }
        self.folder.join(OsStr::from_bytes(&name))
    }

    fn put(&self, name: &str, bytes: &[u8], mode: u32) {
        let path = self.path(name);
        fs::write(&path, bytes).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
    }

    /// The argument that a word of [`VIEWS`] stands for: `@NAME` is a file, `%` the hostile word.
    pub(super) fn argument(&self, word: &str) -> OsString {
        let (before, file) = match word.split_once('@') {
            Some((before, file)) => (before, Some(file)),
            None => (word, None),
        };
        let mut out = before.replace('%', WORD).into_bytes();
        if let Some(file) = file {
            let (file, behind) = file.split_once('@').unwrap_or((file, ""));
            out.extend_from_slice(self.path(file).as_os_str().as_bytes());
            out.extend_from_slice(behind.replace('%', WORD).as_bytes());
        }
        OsString::from_vec(out)
    }
}
