//! Checks what the page of the adapters for external unwinders promises
//! (`examples/own-unwinders/peers`). The libraries may have any version, so only what every version
//! can do is required.

use crate::common::skip::skip;
use std::path::{Path, PathBuf};
use std::process::Command;
use unwind_sim_judge::engine::{Setting, examine};
use unwind_sim_judge::input::{Input, InputError};
use unwind_sim_judge::own::CommandUnwinder;
use unwind_sim_judge::run::Column;
use unwind_sim_judge::shell::quoted_path;
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::view::{Filter, View};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::regs::RegMask;
use unwind_sim_unwind::unwinder::Unwinder;
use unwind_sim_unwind::verdict::Verdict;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Builds the adapter in `folder`; `None` if its unwinder is not installed.
fn adapter(name: &str, folder: &Path) -> Option<CommandUnwinder> {
    let source = root("examples/own-unwinders/peers").join(format!("{name}.c"));
    let installed = if source.exists() {
        // Preprocessing it checks that the headers are installed.
        Command::new("cc").arg("-E").arg(source).output()
    } else {
        Command::new(name).arg("--version").output()
    };
    if !installed.is_ok_and(|output| output.status.success()) {
        skip("peer_unwinders", format!("{name} is not installed"));
        return None;
    }
    let script = root("examples/own-unwinders/peers/build.sh");
    let output = Command::new("sh")
        .arg(script)
        .arg(folder)
        .arg(name)
        .output();
    let output = output.expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(said, "", "the compiler's warnings");
    let path = folder.join(format!("unwind-sim-unwinder-{name}"));
    Some(CommandUnwinder::start(&quoted_path(&path)).expect("it starts"))
}

/// The verdicts on the chains of the first samples of a trace.
fn verdicts(trace: &str, samples: u64, unwinder: &dyn Unwinder) -> Vec<Verdict> {
    let path = root("corpus/traces").join(trace);
    let input = Input::open(&path, &OpenOptions::default()).expect("a trace of the corpus");
    let column = Column {
        engine: 0,
        variant: None,
        version: None,
    };
    let (mut out, mut cache) = (Vec::new(), Cache::new());
    let filter = Filter {
        limit: Some(samples),
        ..Filter::default()
    };
    let take = &mut |view: &View<'_>| {
        let start = column.variant_for(view);
        out.push(examine(view, unwinder, start, &Setting::default(), &mut cache).verdict);
        Ok(())
    };
    input
        .for_each::<InputError>(&filter, take)
        .expect("a sound trace");
    out
}

/// Enough samples of `throws.bin` to see calls, the dynamic linker and constructors.
const SAMPLES: u64 = 60;

/// Checks that the unwinder is right wherever ours is, with `registers` carried from frame to
/// frame, except for at most `wrong` samples.
fn is_right_where_we_are(
    unwinder: &CommandUnwinder,
    registers: RegMask,
    trace: &str,
    wrong: usize,
) {
    let ours = verdicts(trace, SAMPLES, &Dwarf::carrying(registers));
    let theirs = verdicts(trace, SAMPLES, unwinder);
    assert_eq!(unwinder.fault(), None);
    let right = ours.iter().filter(|v| **v == Verdict::Ok).count();
    assert!(right > wrong, "{trace}");
    let pairs = ours.iter().zip(&theirs);
    let as_ours = pairs.filter(|(ours, theirs)| **ours == Verdict::Ok && **theirs == Verdict::Ok);
    assert!(as_ours.count() + wrong >= right, "{trace}: {theirs:?}");
}

#[test]
fn libunwind_is_right_where_its_table_is() {
    let folder = tempfile::tempdir().expect("a folder");
    if let Some(own) = adapter("libunwind", folder.path()) {
        // libunwind needs .eh_frame_hdr, which the kernel's tables in seed-004.bin lack.
        is_right_where_we_are(&own, RegMask::CALLEE_SAVED, "throws.bin", 0);
    }
}

#[test]
fn libdw_is_right_where_we_are() {
    let folder = tempfile::tempdir().expect("a folder");
    if let Some(own) = adapter("libdw", folder.path()) {
        is_right_where_we_are(&own, RegMask::CALLEE_SAVED, "throws.bin", 0);
        is_right_where_we_are(&own, RegMask::CALLEE_SAVED, "seed-004.bin", 0);
    }
}

#[test]
fn gdb_is_right_where_we_are() {
    let folder = tempfile::tempdir().expect("a folder");
    if let Some(own) = adapter("gdb", folder.path()) {
        is_right_where_we_are(&own, RegMask::CALLEE_SAVED, "seed-004.bin", 0);
        // gdb also reads the code before a pc, from whole files.
        if crate::common::has_libc_of_throws() {
            is_right_where_we_are(&own, RegMask::CALLEE_SAVED, "throws.bin", 0);
        } else {
            skip(
                "gdb_is_right_where_we_are",
                "throws.bin was recorded with other libraries",
            );
        }
    }
}

/// framehop carries only rip, rsp and rbp.
#[test]
fn framehop_is_right_where_three_registers_are_enough() {
    let own = std::env::current_exe().expect("the path of this test");
    let built = own
        .ancestors()
        .nth(2)
        .expect("a folder")
        .join("examples/framehop_unwinder");
    assert!(
        built.is_file(),
        "cargo builds it with the tests: cargo build --example framehop_unwinder"
    );
    let own = CommandUnwinder::start(&quoted_path(&built)).expect("it starts");
    // In the first instructions of a function framehop assumes that it was called, whatever the
    // table says. The PLT's target `_dl_runtime_resolve_xsavec` has two more words on the stack.
    is_right_where_we_are(&own, RegMask::FRAME, "throws.bin", 4);
    is_right_where_we_are(&own, RegMask::FRAME, "seed-004.bin", 0);
}
