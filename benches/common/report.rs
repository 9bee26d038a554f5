//! The output of a bench: each figure, its ratio to the peer and to the goal, and a note if a
//! peer's speed differs from the one on the machine where the goals were set.

use super::timing::Figure;

/// A peer's time relative to a bare frame-pointer walk, on the machine where the goals were set.
pub(crate) struct Known {
    pub(crate) name: &'static str,
    pub(crate) times_frame_pointer: f64,
}

const TOLERANCE: f64 = 0.30;

/// The figure with this name, if it was measured.
pub(crate) fn find<'a>(figures: &'a [Figure], name: &str) -> Option<&'a Figure> {
    figures.iter().find(|f| f.name == name)
}

/// Prints all figures of one stack, as ns per unit, with the ratio to the figure `baseline`.
pub(crate) fn print(title: &str, unit: &str, figures: &[Figure], baseline: Option<&Figure>) {
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

/// Prints our ratio to the peer, computed round by round; `goal` is the maximum.
pub(crate) fn ratio(title: &str, ours: &Figure, peer: &Figure, goal: Option<f64>) {
    let ratio = ours.ratio_to(peer);
    let verdict = goal.map_or(String::new(), |goal| {
        let word = if ratio <= goal { "met" } else { "MISSED" };
        format!(" (goal <= {goal:.2}: {word})")
    });
    println!(
        "{title:<14} ratio {} / {}: {ratio:.2}{verdict}",
        ours.name, peer.name
    );
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

/// Prints one line of a bench's table: the work, our time per `unit`, the peer's time and name, the
/// ratio of ours to the peer's (computed round by round), and the goal, which is the highest ratio.
pub(crate) fn row(work: &str, unit: &str, ours: &Figure, peer: &Figure, goal: Option<f64>) {
    let ratio = ours.ratio_to(peer);
    let goal = goal.map_or("-".to_owned(), |goal| {
        let word = if ratio <= goal { "met" } else { "MISSED" };
        format!("{goal:.2} {word}")
    });
    let [work_width, ours_width, peer_width] = COLUMNS;
    let ours = format!("{:.2} ns/{unit}", ours.min_ns());
    let peer = format!("{:.2} {}", peer.min_ns(), peer.name);
    println!(
        "{work:<work_width$} | {ours:<ours_width$} | {peer:<peer_width$} | {ratio:>5.2} | {goal}"
    );
}

/// Prints a note if a peer is more than 30 % off its known figure, relative to the bare walk.
pub(crate) fn check_known(title: &str, figures: &[Figure], bare: &Figure, known: &[Known]) {
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
