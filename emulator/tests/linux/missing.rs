//! Paths of `/proc`, `/sys` and `/dev` that every Linux has and the machine has not: whatever a
//! program asks of them, that is reported.

use super::{build, options, start};
use std::path::Path;
use unwind_sim_emulator::linux::{Notice, Outcome};

const INSTRUCTIONS_MAX: u64 = 100_000;
const ENOENT: i32 = 2;
const CALLS: [&str; 12] = [
    "open",
    "name",
    "stat",
    "lstat",
    "newfstatat",
    "statx",
    "statfs",
    "access",
    "readlink",
    "chdir",
    "truncate",
    "inotify",
];
/// Those that the machine lacks, and the folder that the report names.
const MISSING: [(&str, &str); 8] = [
    ("/proc/self/mountstats", "/proc"),
    ("/proc/self/net/dev", "/proc"),
    ("/proc/net/dev", "/proc"),
    ("/proc/interrupts", "/proc"),
    ("/proc/cmdline", "/proc"),
    ("/sys/class", "/sys"),
    ("/sys/devices/system/cpu/../../../kernel", "/sys"),
    ("/sys/block/", "/sys"),
];

#[test]
fn what_is_not_modelled_is_reported_whatever_asks_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = build("missing", directory.path());
    let notices = |call: &str, path: &str| {
        let options = options(&program, &[call, path], directory.path());
        let mut kernel = start(&program, options);
        let outcome = kernel.run(INSTRUCTIONS_MAX, &mut ());
        assert_eq!(outcome, Outcome::Exited(ENOENT), "{call} {path}");
        let notices = kernel.notices().iter().map(Notice::to_string);
        notices.collect::<Vec<_>>()
    };

    for (path, tree) in MISSING {
        // Linux itself says what every Linux has, as far as it is mounted.
        let is_mounted = Path::new(tree).join("kernel").exists() || tree == "/proc";
        assert!(!is_mounted || Path::new(path).exists(), "{path}");
        for call in CALLS {
            let notices = notices(call, path);
            let what = format!("a file of {tree} that every Linux has");
            assert!(
                matches!(&notices[..], [one] if one.ends_with(&what)),
                "{call} {path}: {notices:?}"
            );
        }
    }

    for call in CALLS {
        assert_eq!(notices(call, "/dev/kmsg").len(), 1, "{call}");
        // Not every Linux has these.
        for path in [
            "/proc/none",
            "/proc/77777/mem",
            "/sys/fs/selinux",
            "/dev/kvm",
            "/none/proc",
        ] {
            let none: [String; 0] = [];
            assert_eq!(notices(call, path), none, "{call} {path}");
        }
    }
}
