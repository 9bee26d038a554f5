//! The demo of deferred callchains: the records of a perf.data, and the chains joined from them.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use unwind_sim_perf_data::PerfFile;
use unwind_sim_perf_data::callchain::Context;
use unwind_sim_perf_data::stitch::{ItemKind, Mode, items, stitch};

const HEAD: &str = "\
A sample is taken in an NMI. The user stack may be paged out, so it cannot be read there, and the
walk is put off until the task returns to user space. Until then the sample has a promise instead of
user frames: the marker PERF_CONTEXT_USER_DEFERRED and a cookie. Linux does this since 6.19.

The records, in order:
";

const JOINED: &str = "
Two samples of one stay in the kernel share one record: the user stack has not moved between them.
Joined by their cookie:
";

const TAIL: &str = "
The cookie came with the final form; the proposal of 2023 matched by thread and order, and gave the
next record's frames to a sample whose own record was lost. What to try:
  unwind-sim demo deferral -o deferral.data
  unwind-sim perf script --no-merge-callchains deferral.data
  unwind-sim perf stitch --samples deferral.data
";

/// The text of the demo.
pub(super) fn text(bytes: &[u8]) -> String {
    let mut out = HEAD.to_owned();
    let Ok(file) = PerfFile::parse(bytes) else {
        return out;
    };

    let mut all = Vec::new();
    items(&file, |item| {
        all.push(item);
        ControlFlow::Continue(())
    });

    // First what the file has, in its order: a sample whose user part is deferred holds a cookie in
    // place of the frames, and a later record brings them.
    for item in &all {
        match &item.what {
            ItemKind::Sample { chain, .. } => {
                let _ = writeln!(out, "\n  sample of thread {}", item.tid);
                frames(&mut out, chain);
            }
            ItemKind::Record {
                cookie,
                frames: user,
            } => {
                let cookie = cookie.unwrap_or_default();
                let _ = writeln!(
                    out,
                    "\n  user frames for cookie {cookie:#x}, thread {}",
                    item.tid
                );
                frames(&mut out, user);
            }
            _ => {}
        }
    }

    out.push_str(JOINED);

    // Then the chains that are joined from these records.
    for sample in stitch(Mode::Own, all).0 {
        let _ = writeln!(out, "\n  thread {}: {}", sample.tid, sample.how.as_str());
        frames(&mut out, &sample.chain);
    }

    out.push_str(TAIL);
    out
}

/// The words of a callchain, with the names of markers. The word after the marker of a deferred
/// chain is the cookie.
fn frames(out: &mut String, words: &[u64]) {
    let mut is_cookie = false;
    for &word in words {
        let context = Context::from_marker(word).filter(|_| !is_cookie);
        let name = match context {
            _ if is_cookie => "  the cookie",
            Some(Context::Kernel) => "  PERF_CONTEXT_KERNEL",
            Some(Context::User) => "  PERF_CONTEXT_USER",
            Some(Context::UserDeferred) => "  PERF_CONTEXT_USER_DEFERRED",
            Some(_) => "  a marker",
            None => "",
        };
        is_cookie = context == Some(Context::UserDeferred);
        let _ = writeln!(out, "    {word:>16x}{name}");
    }
}
