//! Order, bounds and faults of a run.

use super::super::list::List;
use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The name of a file, and whether it could be checked.
#[derive(Debug, PartialEq, Eq)]
struct SweptFile(String, Option<Cause>);

static MADE: AtomicUsize = AtomicUsize::new(0);

impl SweepOutput for SweptFile {
    fn new(entry: &ListedFile, swept: &SweepResult) -> SweptFile {
        MADE.fetch_add(1, Ordering::Relaxed);
        let name = entry.path().display().to_string();
        let cause = match swept {
            SweepResult::Checked(_) => None,
            SweepResult::Unreadable(why) => {
                assert!(!why.error.is_empty());
                Some(why.cause)
            }
        };
        assert!(!(name == "bug" && cause == Some(Cause::Io)), "it broke");
        SweptFile(name, cause)
    }

    /// So that little may wait.
    fn bytes(&self) -> usize {
        WAITING_BYTES_MAX / 2
    }
}

fn seen(text: &str, threads: usize) -> Vec<SweptFile> {
    let list = List::read(text.as_bytes()).expect("a list");
    let files: Vec<&ListedFile> = list.entries().iter().collect();
    let options = Options {
        threads,
        ..Options::default()
    };
    let mut all = Vec::new();
    let add = |piece| {
        all.push(piece);
        Ok::<(), ()>(())
    };
    run(&files, &options, add).expect("nothing fails");
    all
}

#[test]
fn files_come_in_the_lists_order_whatever_the_threads() {
    let elf = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/sframe/t_2.46");
    let folder = env!("CARGO_MANIFEST_DIR");
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let damaged = concat!(env!("CARGO_MANIFEST_DIR"), "/../target-of-no-link");
    let mut list: String = (0..150).map(|n| format!("none-{n}\n")).collect();
    list += &format!("{elf}\nbug\n{folder}\n{text}\n/dev/null\n{damaged}\n");
    let one = seen(&list, 1);
    assert_eq!(one.len(), 156);
    let causes: Vec<_> = one[149..].iter().map(|s| s.1).collect();
    let (io, other) = (Some(Cause::Io), Some(Cause::NotElf));
    let bug = Some(Cause::Bug);
    assert_eq!(causes, [io, None, bug, other, other, other, io]);
    assert_eq!(one[7].0, "none-7");
    for threads in [2, 3, 200] {
        assert_eq!(seen(&list, threads), one, "{threads}");
    }
    assert_eq!(seen("", 2), []);
}

#[test]
fn an_error_of_the_output_ends_it() {
    let text: String = (0..10_000).map(|n| format!("none-{n}\n")).collect();
    let list = List::read(text.as_bytes()).expect("a list");
    let files: Vec<&ListedFile> = list.entries().iter().collect();
    let options = Options {
        threads: 3,
        ..Options::default()
    };
    let mut written = 0;
    let result = run(&files, &options, |_: SweptFile| {
        written += 1;
        if written == 5 { Err("full") } else { Ok(()) }
    });
    assert_eq!((result, written), (Err("full"), 5));
    // Counted by all tests of this file.
    assert!(MADE.load(Ordering::Relaxed) < 5_000);
}
