//! Stack walks, in ns per frame: compares ours with framehop, bare gimli and a bare frame-pointer
//! walk, after checking that all give the same addresses.
//!
//! `cargo bench --bench walk` prints criterion's statistics. Then it prints every figure and the
//! ratios to the peer, measured in turn so that a busy machine slows all of them: `-- none` prints
//! only these. `--test` only checks.
mod common;
mod ours;

use std::path::Path;

use common::programs::{self, FramePointer, Scratch};
use common::report::{self, BaselineRatio};
use common::snapshot::{RBP, Snapshot};
use common::timing::{Clock, Measured, Timing, cpu_time, duel};
use common::{framehop_peer, gimli_peer, synthetic};
use criterion::Criterion;
use std::time::Duration;

const ROUNDS: usize = 41;
const LIBLLVM: &str = "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1";
const FRAMES_MAX: usize = 1024;
const FRAMES_LIBLLVM: usize = 210;
const BARE: &str = "frame-pointer";
const WARM: &str = "framehop warm";
const COLD: &str = "framehop cold";
const FIRST: &str = "framehop first";
const GIMLI: &str = "gimli bare";

/// Peers' times relative to the bare walk (0.93 ns/frame) on the machine where the goals were set.
const KNOWN: [(&str, &[BaselineRatio]); 2] = [
    (
        "deep200",
        &[
            BaselineRatio {
                name: WARM,
                times_frame_pointer: 141.0,
            },
            BaselineRatio {
                name: COLD,
                times_frame_pointer: 329.0,
            },
            BaselineRatio {
                name: GIMLI,
                times_frame_pointer: 309.0,
            },
        ],
    ),
    (
        "rec200",
        &[
            BaselineRatio {
                name: WARM,
                times_frame_pointer: 10.3,
            },
            BaselineRatio {
                name: COLD,
                times_frame_pointer: 34.4,
            },
            BaselineRatio {
                name: GIMLI,
                times_frame_pointer: 283.0,
            },
        ],
    ),
];

/// Goals for one stack: our time relative to the peer's, at most.
struct Goals {
    /// A warm walk, relative to framehop's.
    warm: Option<f64>,
    /// A first walk, relative to framehop's.
    first: Option<f64>,
    /// A warm walk, relative to the bare frame-pointer walk.
    bare: Option<f64>,
}

/// Goal: the time with full provenance relative to our own addresses only, at most.
const PROVENANCE_GOAL: f64 = 2.5;
const REC200: Goals = Goals {
    warm: Some(0.85),
    first: Some(0.9),
    bare: Some(3.5),
};
const DEEP200: Goals = Goals {
    warm: Some(0.1),
    first: Some(0.5),
    bare: Some(3.5),
};
const LIBLLVM_GOALS: Goals = Goals {
    warm: None,
    first: Some(0.5),
    bare: None,
};

/// The saved frame pointers of a stack as a chain of word indices, with its return addresses: the
/// same dependent loads as a walk inside the process.
struct BareChain {
    words: Vec<u64>,
    start: u64,
}

impl BareChain {
    fn new(snapshot: &Snapshot) -> BareChain {
        let stack = snapshot.stack();
        let index = |address: u64| address.wrapping_sub(stack.base) / 8;
        let mut words: Vec<u64> = (0..stack.bytes.len() as u64 / 8)
            .filter_map(|i| stack.read(stack.base + i * 8))
            .collect();
        let mut at = snapshot.regs[RBP];

        // Addresses become indices beforehand, so that the walk is two loads per frame.
        while let Some(next) = stack.read(at) {
            words[index(at) as usize] = index(next);

            // Frame pointers lead upward; anything else ends the chain.
            at = if next > at { next } else { 0 };
        }
        BareChain {
            words,
            start: index(snapshot.regs[RBP]),
        }
    }

    /// Writes the return addresses and returns their number.
    #[inline(never)]
    fn walk(&self, out: &mut [u64]) -> u64 {
        let (mut at, mut frames) = (self.start as usize, 0);
        for slot in out {
            let Some([next, address]) = self.words.get(at..).and_then(|w| w.first_chunk()) else {
                break;
            };
            *slot = *address;
            at = *next as usize;
            frames += 1;
        }
        frames
    }
}

/// A walk that fills a vector with addresses.
type Walk<'a> = Box<dyn FnMut(&mut Vec<u64>) + 'a>;

/// All walks over one snapshot, which must agree; the peers' come first.
fn walks<'a>(snapshot: &'a Snapshot) -> Vec<(String, Walk<'a>)> {
    let (regs, stack, images) = (&snapshot.regs, snapshot.stack(), &snapshot.images[..]);
    let mut walks: Vec<(String, Walk<'a>)> = Vec::new();

    // Here both the tables and the rows are kept.
    let unwinder = framehop_peer::unwinder(images);
    let mut cache = framehop_peer::Cache::new();
    walks.push((
        WARM.into(),
        Box::new(move |out| framehop_peer::walk(&unwinder, &mut cache, regs, stack, out)),
    ));

    // Here the tables have been read, but the cache has no rows.
    let unwinder = framehop_peer::unwinder(images);
    walks.push((
        COLD.into(),
        Box::new(move |out| {
            let mut cache = framehop_peer::Cache::new();
            framehop_peer::walk(&unwinder, &mut cache, regs, stack, out);
        }),
    ));

    // Here nothing has been read.
    walks.push((
        FIRST.into(),
        Box::new(move |out| {
            let unwinder = framehop_peer::unwinder(images);
            let mut cache = framehop_peer::Cache::new();
            framehop_peer::walk(&unwinder, &mut cache, regs, stack, out);
        }),
    ));

    let mut gimli = gimli_peer::Gimli::new(images);
    walks.push((
        GIMLI.into(),
        Box::new(move |out| gimli.walk(regs, stack, out)),
    ));
    walks.extend(ours::walks(snapshot));
    walks
}

/// Runs every walk twice; all must give the same addresses. Returns their number.
fn check(title: &str, walks: &mut [(String, Walk<'_>)]) -> usize {
    let mut expected: Option<(String, Vec<u64>)> = None;
    for (name, walk) in walks {
        for pass in ["first", "second"] {
            let mut addresses = Vec::new();
            walk(&mut addresses);
            let (peer, expected) = expected.get_or_insert((name.clone(), addresses.clone()));
            let differs = (0..addresses.len().max(expected.len()))
                .find(|&i| addresses.get(i) != expected.get(i));
            if let Some(at) = differs {
                panic!(
                    "{title}: {name} ({pass} walk) and {peer} differ at frame {at}: {:x?} against \
                     {:x?}; {} and {} frames",
                    addresses.get(at),
                    expected.get(at),
                    addresses.len(),
                    expected.len()
                );
            }
        }
    }
    expected.map_or(0, |(_, addresses)| addresses.len())
}

/// Measures one snapshot: first with criterion, then in turn.
fn measure(c: &mut Criterion, test: bool, snapshot: &Snapshot, goals: &Goals, bare: &BareChain) {
    let title = &snapshot.name;
    let mut walks = walks(snapshot);

    // Nothing is measured unless all walks agree.
    let frames = check(title, &mut walks);
    println!("{title:<14} {frames} frames, {} walks agree", walks.len());

    // Criterion shows each walk alone; the ratios below come from walks in turn.
    let mut group = c.benchmark_group(title);
    for (name, walk) in &mut walks {
        let mut out = Vec::with_capacity(frames);
        group.bench_function(name.as_str(), |b| {
            b.iter_custom(|calls| {
                cpu_time(|| {
                    for _ in 0..calls {
                        out.clear();
                        walk(&mut out);
                    }
                })
            });
        });
    }
    group.finish();

    if test {
        return;
    }

    let mut out = vec![0; FRAMES_MAX];

    // The bare chain is the first, since all figures are relative to it.
    let bare = Measured::new(BARE, move || bare.walk(&mut out));
    let others = walks.into_iter().map(|(name, mut walk)| {
        let mut out = Vec::with_capacity(frames);
        Measured::new(name, move || {
            out.clear();
            walk(&mut out);
            out.len() as u64
        })
    });

    let mut rivals: Vec<Measured<'_>> = std::iter::once(bare).chain(others).collect();

    // Walks that keep where each frame was found do more than addresses, and have no peer.
    rivals.extend(ours::provenance(snapshot));
    conclude(title, &duel(Clock::ThreadCpu, ROUNDS, &mut rivals), goals);
}

/// Prints the figures of one snapshot and their ratios, and checks the peers' known figures.
fn conclude(title: &str, figures: &[Timing], goals: &Goals) {
    let bare = &figures[0];
    report::print(title, "frame", figures, Some(bare));
    report::head();
    for table in ours::TABLES {
        let warm = format!("ours {table} warm");
        for (state, peer, goal) in [
            ("warm", WARM, goals.warm),
            ("warm", BARE, goals.bare),
            ("cold", COLD, None),
            ("first", FIRST, goals.first),
            ("provenance", &warm, Some(PROVENANCE_GOAL)),
        ] {
            let ours = report::find(figures, &format!("ours {table} {state}"));
            if let (Some(ours), Some(peer)) = (ours, report::find(figures, peer)) {
                let work = format!("walk {title} {table} {state}");
                report::row(&work, "frame", ours, peer, goal);
            }
        }
    }
    if let Some((_, known)) = KNOWN.iter().find(|(name, _)| *name == title) {
        report::check_known(title, figures, bare, known);
    }
}

fn main() {
    let test = std::env::args().any(|a| a == "--test");
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .configure_from_args();
    let scratch = Scratch::new();

    // The frame-pointer walk needs another build of the same program.
    let programs = [("rec200", &REC200), ("deep200", &DEEP200)].map(|(name, goals)| {
        let omit = programs::snapshot(&scratch, name, FramePointer::Omit);
        let keep = programs::snapshot(&scratch, name, FramePointer::Keep);
        omit.and_then(|omit| Ok((omit, BareChain::new(&keep?), goals)))
    });

    // Its chain is also the unit for the synthetic stack, which has no frame pointers.
    let mut bare_of_deep200 = None;
    for program in programs {
        match program {
            Ok((snapshot, bare, goals)) => {
                measure(&mut criterion, test, &snapshot, goals, &bare);
                bare_of_deep200 = Some(bare);
            }
            Err(reason) => println!("skipped: {reason} (a C compiler is needed: package gcc)"),
        }
    }

    match (
        synthetic::stack("libLLVM", Path::new(LIBLLVM), FRAMES_LIBLLVM, 0),
        bare_of_deep200,
    ) {
        (Some(snapshot), Some(bare)) => {
            measure(&mut criterion, test, &snapshot, &LIBLLVM_GOALS, &bare);
        }
        (None, _) => println!("skipped: libLLVM: no {LIBLLVM} (package libllvm14)"),
        (Some(_), None) => println!("skipped: libLLVM: no frame-pointer walk to compare with"),
    }

    criterion.final_summary();
    report::finish();
}
