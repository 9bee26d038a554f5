//! The output of a bench: each figure, its ratio to the peer and to the goal, and a note if a
//! peer's speed differs from the one on the machine where the goals were set.

use super::timing::Timing;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A peer's time relative to a bare frame-pointer walk, on the machine where the goals were set.
pub(crate) struct BaselineRatio {
    pub(crate) name: &'static str,
    pub(crate) times_frame_pointer: f64,
}

const TOLERANCE: f64 = 0.30;

/// The figure with this name, if it was measured.
pub(crate) fn find<'a>(figures: &'a [Timing], name: &str) -> Option<&'a Timing> {
    figures.iter().find(|f| f.name == name)
}

/// Prints all figures of one stack, as ns per unit, with the ratio to the figure `baseline`.
pub(crate) fn print(title: &str, unit: &str, figures: &[Timing], baseline: Option<&Timing>) {
    for f in figures {
        let times = baseline.map_or(String::new(), |b| {
            format!("  {:8.1}x {}", f.ratio_to(b), b.name)
        });
        println!(
            "{title:<14} {:<26} {:>10.2} ns/{unit} min {:>10.2} median{times}",
            f.name,
            f.min_ns(),
            f.median_ns()
        );
    }
}

/// The width of the columns of [`row`]: work, ours, peer.
const COLUMNS: [usize; 3] = [30, 18, 36];

/// Prints the names of the columns of [`row`].
pub(crate) fn head() {
    let [work, ours, peer] = COLUMNS;
    println!(
        "{:<work$} | {:<ours$} | {:<peer$} | ratio | goal",
        "work", "ours", "peer"
    );
}

/// The number of lines that this process printed.
static ROWS: AtomicUsize = AtomicUsize::new(0);

/// Where the lines of all benches that one `cargo bench` runs are kept, one after the other: the
/// process that started them tells them from those of another run.
fn kept() -> PathBuf {
    let cargo = std::os::unix::process::parent_id();
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-table-{cargo}"))
}

/// Keeps a line for [`finish`], in the place of an earlier one for the same work.
fn keep(line: &str) -> std::io::Result<()> {
    let work = |line: &str| line.split('|').next().map(str::to_owned);
    let path = kept();
    let earlier = std::fs::read_to_string(&path).unwrap_or_default();
    let others = earlier.lines().filter(|other| work(other) != work(line));
    let mut all = String::new();
    for line in others.chain([line]) {
        let _ = writeln!(all, "{line}");
    }
    std::fs::write(path, all)
}

/// Prints one table of the lines of all benches of this `cargo bench` so far, if others ran before:
/// the last one prints them all. Forgets those of earlier runs.
pub(crate) fn finish() {
    let path = kept();
    let files = path.parent().and_then(|folder| folder.read_dir().ok());
    for file in files.into_iter().flatten().flatten() {
        let is_table = file
            .file_name()
            .as_encoded_bytes()
            .starts_with(b"bench-table-");
        if is_table && file.path() != path {
            let _ = std::fs::remove_file(file.path());
        }
    }
    let all = std::fs::read_to_string(&path).unwrap_or_default();
    if all.lines().count() > ROWS.load(Ordering::Relaxed) {
        println!("\nall benches so far:");
        head();
        print!("{all}");
    }
}

/// Prints one line of a bench's table: the work, our time per `unit`, the peer's time and name, the
/// ratio of ours to the peer's (computed round by round), and the goal, which is the highest ratio.
pub(crate) fn row(work: &str, unit: &str, ours: &Timing, peer: &Timing, goal: Option<f64>) {
    let ratio = ours.ratio_to(peer);
    let goal = goal.map_or("-".to_owned(), |goal| {
        let word = if ratio <= goal { "met" } else { "MISSED" };
        format!("{goal:.2} {word}")
    });
    let [work_width, ours_width, peer_width] = COLUMNS;
    let ours = format!("{:.2} ns/{unit}", ours.min_ns());
    let peer = format!("{:.2} {}", peer.min_ns(), peer.name);
    let line = format!(
        "{work:<work_width$} | {ours:<ours_width$} | {peer:<peer_width$} | {ratio:>5.2} | {goal}"
    );
    println!("{line}");
    ROWS.fetch_add(1, Ordering::Relaxed);
    let is_test = std::env::args().any(|argument| argument == "--test");
    if let Some(error) = (!is_test).then(|| keep(&line)).and_then(Result::err) {
        println!("note: the line cannot be kept: {error}");
    }
}

/// Prints a note if a peer is more than 30 % off its known figure, relative to the bare walk.
pub(crate) fn check_known(title: &str, figures: &[Timing], bare: &Timing, known: &[BaselineRatio]) {
    for k in known {
        let Some(figure) = find(figures, k.name) else {
            continue;
        };
        let times = figure.ratio_to(bare);
        let off = times / k.times_frame_pointer - 1.0;
        if off.abs() > TOLERANCE {
            println!(
                "{title:<14} note: {} is {times:.1}x the bare frame-pointer walk here, {:.1}x where \
                 the goals were set ({:+.0} %): read the ratios with care",
                k.name,
                k.times_frame_pointer,
                off * 100.0
            );
        }
    }
}

/// Prints a note if other work keeps this machine busy, which makes wall-clock figures unreliable.
pub(crate) fn note_load() {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = text
        .split_ascii_whitespace()
        .next()
        .and_then(|l| l.parse::<f64>().ok());
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    if let Some(load) = load.filter(|load| *load > processors as f64) {
        println!("note: load {load} on {processors} processors: wall-clock figures are unreliable");
    }
}
