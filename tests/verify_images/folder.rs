//! Builds a folder of static programs and libraries, and verifies them. They make their system
//! calls themselves and are linked to fixed addresses, so that nothing depends on a libc.

use std::fs;
use std::process::Command;
use tempfile::TempDir;
use unwind_sim_emulator::linux::{End, RunningProgram};
use unwind_sim_emulator::linux::{Outcome, ProcessOptions};
use unwind_sim_judge::engine::Setting;
use unwind_sim_judge::spec;
use unwind_sim_judge::verify::{self, Check, Finding, Request, Run, groups};
use unwind_sim_unwind::reason::Code;
use unwind_sim_view::verification;

/// More than any of the programs executes.
const INSTRUCTIONS_MAX: u64 = 100_000;

/// The start of every program's source.
const HEAD: &str = r#"
        .macro  EXIT
        xor     %edi, %edi
        mov     $231, %eax
        syscall
        .endm
        .macro  START
        .globl  _start
        .type   _start, @function
_start: .cfi_startproc
        .cfi_undefined rip
        .endm
        .macro  END
        .cfi_endproc
        .size   _start, . - _start
        .endm
        # Maps the first two pages of a file at 0x700000, as code.
        .macro  MAP path
        lea     \path(%rip), %rdi
        xor     %esi, %esi
        mov     $2, %eax
        syscall
        mov     %rax, %r8
        mov     $0x700000, %edi
        mov     $0x2000, %esi
        mov     $5, %edx
        mov     $0x12, %r10d
        xor     %r9d, %r9d
        mov     $9, %eax
        syscall
        .endm
        .macro  UNMAP
        mov     $0x700000, %edi
        mov     $0x2000, %esi
        mov     $11, %eax
        syscall
        .endm
        # Memory of no file at the same address.
        .macro  MAP_NOTHING prot
        mov     $0x700000, %edi
        mov     $0x2000, %esi
        mov     $\prot, %edx
        mov     $0x32, %r10d
        mov     $-1, %r8
        xor     %r9d, %r9d
        mov     $9, %eax
        syscall
        .endm
        .macro  CALL_IT
        mov     $0x701000, %eax
        call    *%rax
        .endm
        # A function whose rows ignore its push.
        .macro  WRONG name
        .globl  \name
        .type   \name, @function
\name:  .cfi_startproc
        push    %rbx
        nop
        pop     %rbx
        ret
        .cfi_endproc
        .size   \name, . - \name
        .endm
        # The same code, with right rows.
        .macro  RIGHT name
        .globl  \name
        .type   \name, @function
\name:  .cfi_startproc
        push    %rbx
        .cfi_def_cfa_offset 16
        nop
        pop     %rbx
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size   \name, . - \name
        .endm
        # The same code, without a row.
        .macro  BARE name
        .globl  \name
        .type   \name, @function
\name:  push    %rbx
        nop
        pop     %rbx
        ret
        .size   \name, . - \name
        .endm
        .section .note.GNU-stack, "", @progbits
        .text
"#;

pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(TempDir::new().expect("a temporary directory"))
    }

    fn link(&self, name: &str, text: &str, options: &[&str]) {
        let source = self.0.path().join(format!("{name}.s"));
        fs::write(&source, format!("{HEAD}{text}\n")).expect("a file");
        let mut compiler = Command::new("cc");
        compiler.args(["-nostdlib", "-Wl,--build-id", "-o"]);
        compiler
            .arg(self.0.path().join(name))
            .args(options)
            .arg(&source);
        let output = compiler.output().expect("a C compiler");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {message}");
    }

    pub(crate) fn program(&self, name: &str, text: &str) {
        let options = ["-static", "-no-pie", "-Wl,-Ttext=0x401000"];
        self.link(name, text, &options);
    }

    /// The code starts a page after the library's start, in the file, too.
    pub(crate) fn library(&self, name: &str, text: &str) {
        let options = ["-shared", "-Wl,-z,noseparate-code", "-Wl,-Ttext=0x1000"];
        self.link(name, text, &options);
    }

    pub(crate) fn verify(&self, name: &str, unwinder: &str, elide: bool) -> Run {
        let engines = [spec::engine(unwinder).expect("an unwinder")];
        let path = format!("/{name}").into_bytes();
        let program = RunningProgram {
            path: path.clone(),
            options: ProcessOptions {
                args: vec![path],
                // The program sees the folder as its root.
                root: self.0.path().to_owned(),
                ..ProcessOptions::default()
            },
        };

        let request = Request {
            engines: &engines,
            setting: Setting::default(),
            elide,
            each: true,
            tables_from: None,
            instructions_max: INSTRUCTIONS_MAX,
            timeout: None,
        };

        let run = verify::run(program, &request, &mut |_| {}).expect("it starts");

        // A run that ended early would find too little.
        assert_eq!(run.end, End::Outcome(Outcome::Exited(0)));
        assert_eq!(run.results.disagreements, []);
        run
    }

    /// Where dwarf's rows are wrong at instructions: function, image, code, address and count. The
    /// result must not depend on whether checks are skipped.
    pub(crate) fn found(&self, name: &str) -> Vec<(String, String, Code, u64, u64)> {
        let [quick, slow] = [true, false].map(|elide| self.verify(name, "dwarf", elide));
        assert_eq!(text(&quick), text(&slow));
        let findings = quick.results.findings.iter();
        let findings = findings.filter(|f| f.check == Check::Instruction);
        findings.map(|finding| told(&quick, finding)).collect()
    }
}

pub(crate) fn told(run: &Run, finding: &Finding) -> (String, String, Code, u64, u64) {
    let place = groups::location(finding, &run.results.places);
    let (function, image) = (place.function, place.image);
    (
        function.unwrap_or_default(),
        image.unwrap_or_default(),
        finding.code,
        finding.address,
        finding.count,
    )
}

pub(crate) fn text(run: &Run) -> String {
    verification::text(&verification::Subject {
        names: &["dwarf".to_owned()],
        results: &run.results,
        coverage: &[],
        again: &|_, address| format!("--only {address:#x}"),
        all: true,
    })
}

pub(crate) fn is(
    one: &(String, String, Code, u64, u64),
    function: &str,
    image: &str,
    code: Code,
) -> bool {
    (one.0.as_str(), one.1.as_str(), one.2) == (function, image, code)
}
