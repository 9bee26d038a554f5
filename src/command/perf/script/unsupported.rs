//! Options of perf that `perf script` does not support, each with the nearest supported one.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;

const CHOOSE: &str = "--comms, --pid, --tid and --time choose samples";
const RECORDS: &str = "`unwind-sim inspect FILE` shows the records";
const SCRIPTS: &str = "scripts are not run; -F chooses fields, --format writes profiles";
const TRACES: &str = "traces of a processor's branches (AUX) are not decoded; `unwind-sim inspect \
                      FILE` shows the records";
const GUESTS: &str = "samples of guests are counted on standard error, not printed";
const NAMES: &str = "names are always demangled";
const TIMES: &str = "-F +time and --ns show times from boot; --time chooses them";
const FILTERS: &str = "filters are not loaded; --comms, --pid, --tid and --time choose samples";

/// Long option, short option, and what to use instead.
const OPTIONS: [(&str, &str, &str); 54] = [
    ("--addr-range", "", CHOOSE),
    ("--addr2line", "", "-F +srcline reads the lines itself"),
    (
        "--all-cpus",
        "-a",
        "it is an option of recording: perf record -a",
    ),
    ("--call-ret-trace", "", TRACES),
    ("--call-trace", "", TRACES),
    (
        "--cpu",
        "-C",
        "-F +cpu shows the CPU; --comms, --pid, --tid and --time choose samples",
    ),
    ("--debug-mode", "-d", RECORDS),
    ("--deltatime", "", TIMES),
    ("--demangle", "", NAMES),
    ("--demangle-kernel", "", NAMES),
    ("--dlarg", "", FILTERS),
    ("--dlfilter", "", FILTERS),
    (
        "--dsos",
        "",
        "-F +dso shows the file; --comms, --pid, --tid and --time choose samples",
    ),
    ("--dump-raw-trace", "-D", RECORDS),
    ("--dump-unsorted-raw-trace", "", RECORDS),
    (
        "--full-source-path",
        "",
        "-F +srcline shows the file's name without its folder",
    ),
    ("--gen-script", "-g", SCRIPTS),
    ("--graph-function", "", CHOOSE),
    ("--guest-code", "", GUESTS),
    ("--guestkallsyms", "", GUESTS),
    ("--guestmodules", "", GUESTS),
    ("--guestmount", "", GUESTS),
    ("--guestvmlinux", "", GUESTS),
    (
        "--inline",
        "",
        "inlined functions are not printed; -F +srcline shows the line",
    ),
    ("--insn-trace", "", TRACES),
    ("--itrace", "", TRACES),
    (
        "--Latency",
        "-L",
        "-F comm,tid,cpu,time,event,trace prints the same without flags",
    ),
    ("--list", "-l", SCRIPTS),
    ("--list-dlfilters", "", FILTERS),
    (
        "--max-blocks",
        "",
        "branches are not shown as code; `unwind-sim inspect FILE` counts them",
    ),
    (
        "--merge-callchains",
        "",
        "--like perf-7.2 joins deferred callchains as perf does",
    ),
    ("--no-demangle", "", NAMES),
    (
        "--per-event-dump",
        "",
        "one type at a time: -F sw: -F trace:comm,trace",
    ),
    ("--reltime", "", TIMES),
    ("--script", "-s", SCRIPTS),
    ("--show-bpf-events", "", RECORDS),
    ("--show-cgroup-events", "", RECORDS),
    (
        "--show-info",
        "-I",
        "--header shows all but topologies and caches",
    ),
    ("--show-kernel-path", "", "-F +dso shows [kernel.kallsyms]"),
    (
        "--show-lost-events",
        "",
        "losses are reported on standard error",
    ),
    ("--show-mmap-events", "", RECORDS),
    ("--show-namespace-events", "", RECORDS),
    (
        "--show-on-off-events",
        "",
        "--time chooses samples by their time",
    ),
    ("--show-round-events", "", RECORDS),
    ("--show-switch-events", "", RECORDS),
    ("--show-task-events", "", RECORDS),
    ("--show-text-poke-events", "", RECORDS),
    (
        "--stop-bt",
        "",
        "--max-stack N ends callchains after N frames",
    ),
    ("--switch-off", "", "--time chooses samples by their time"),
    ("--switch-on", "", "--time chooses samples by their time"),
    (
        "--symbols",
        "-S",
        "-F +sym shows symbols; --comms, --pid, --tid and --time choose samples",
    ),
    (
        "--verbose",
        "-v",
        "what is left out is always reported on standard error",
    ),
    (
        "--vmlinux",
        "-k",
        "--kallsyms FILE gives the kernel's symbols",
    ),
    ("--xed", "", TRACES),
];

/// The message for an option of perf that `perf script` does not support; `None` for other errors.
pub(crate) fn explain(words: &[OsString], error: &clap::Error) -> Option<String> {
    let is_ours = words.windows(2).any(|pair| pair == ["perf", "script"]);
    if error.kind() != ErrorKind::UnknownArgument || !is_ours {
        return None;
    }
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let mut all = OPTIONS.iter();
    let (_, _, nearest) = all.find(|(long, short, _)| long == given || short == given)?;
    Some(format!("perf script {given} is not supported: {nearest}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[derive(clap::Parser)]
    struct Ours {
        #[command(flatten)]
        args: super::super::Args,
    }

    /// No supported option is listed.
    #[test]
    fn what_is_supported_is_not_in_the_list() {
        let ours = Ours::command();
        for (long, short, nearest) in OPTIONS {
            let same = |arg: &clap::Arg| {
                let short = short.strip_prefix('-').and_then(|text| text.chars().next());
                arg.get_long() == long.strip_prefix("--")
                    || short.is_some() && arg.get_short() == short
            };
            assert!(!ours.get_arguments().any(same), "{long}");
            assert!(!nearest.is_empty() && !nearest.contains('\n'), "{long}");
        }
    }
}
