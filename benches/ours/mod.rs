//! Our side of the benches: the only file that uses our own unwinder.
#![allow(dead_code)] // each bench uses its own part

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use unwind_sim_judge::engine::Engine;
use unwind_sim_judge::stacks::{self, Consumer, Taken};
use unwind_sim_perf_data::PerfFile;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::{Addresses, Chain};
use unwind_sim_unwind::derived::{Tables, derive_all};
use unwind_sim_unwind::dwarf::{self, Dwarf};
use unwind_sim_unwind::elf::{self, image_from_elf};
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::{self, AddressSpace, Mapping};
use unwind_sim_unwind::memory::MemoryCopy as StackCopy;
use unwind_sim_unwind::orc::{Orc, derived::OrcEntry};
use unwind_sim_unwind::regs::{RegMask, Regs};
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::sframe::{Profile, Sframe, derived::SframeV3};
use unwind_sim_unwind::start::Start;
use unwind_sim_unwind::walk::{Limits, WalkTarget, walk};

use crate::common::image::{Elf, Image};
use crate::common::snapshot::{RBP, RIP, RSP, Snapshot};
use crate::common::timing::Measured;

/// The tables that our walks use; the name of each is part of its figures' names.
pub(crate) use unwind_sim_judge::unwinders::TABLES;

/// A walk that fills a vector with addresses.
type Walk<'a> = Box<dyn FnMut(&mut Vec<u64>) + 'a>;

/// Symbols are not needed, and the peers get none either.
const OPTIONS: elf::ReadOptions = elf::ReadOptions {
    symbols: false,
    plt: false,
    producers: false,
};

fn load(elf: &Elf) -> Option<image::Image> {
    let name = elf.path.display().to_string();
    image_from_elf(&name, Arc::new(elf.file.clone()), &OPTIONS).ok()
}

/// The mappings of an address space; each image is read once.
fn mappings(images: &[Image]) -> Vec<Mapping> {
    let of = |image: &Image| Mapping {
        range: image.range.clone(),
        bias: image.bias,
        image: load(&image.elf).map(Arc::new),
        name: String::new(),
    };
    images.iter().map(of).collect()
}

fn space(mappings: &[Mapping]) -> AddressSpace {
    let mut space = AddressSpace::new();
    mappings.iter().for_each(|m| space.map(m.clone()));
    space
}

fn start(snapshot: &Snapshot) -> Start {
    let regs = &snapshot.regs;
    Start::from_regs(Regs::frame(regs[RIP], regs[RSP], regs[RBP]))
}

/// Makes one walk that collects only addresses.
fn addresses<F: Finder>(
    finder: &F,
    space: &AddressSpace,
    snapshot: &Snapshot,
    cache: &mut Cache,
    out: &mut Vec<u64>,
) {
    let memory = StackCopy::new(snapshot.regs[RSP], &snapshot.stack);
    let place = WalkTarget {
        space,
        memory: &memory,
    };
    let mut sink = Addresses(std::mem::take(out));
    walk(
        finder,
        &place,
        &start(snapshot),
        &Limits::default(),
        cache,
        &mut sink,
    );
    *out = sink.0;
}

fn walks_of<'a, F: Finder + Copy + 'a>(
    table: &str,
    finder: F,
    snapshot: &'a Snapshot,
) -> Vec<(String, Walk<'a>)> {
    // Each walk has its own address space: it keeps what was read of the tables.
    let all = mappings(&snapshot.images);
    let (space_warm, mut cache) = (space(&all), Cache::new());
    let space_cold = space(&all);
    vec![
        (
            // Warm keeps both the rows and the tables that were read, cold only the tables, first
            // neither.
            format!("ours {table} warm"),
            Box::new(move |out| addresses(&finder, &space_warm, snapshot, &mut cache, out)),
        ),
        (
            format!("ours {table} cold"),
            Box::new(move |out| {
                addresses(&finder, &space_cold, snapshot, &mut Cache::new(), out);
            }),
        ),
        (
            format!("ours {table} first"),
            Box::new(move |out| {
                addresses(&finder, &space(&all), snapshot, &mut Cache::new(), out);
            }),
        ),
    ]
}

/// Carries rip, rsp and rbp, like framehop.
const DWARF: Dwarf = Dwarf::carrying(RegMask::FRAME);
const SFRAME: Sframe = Sframe::new(Profile::Spec, Tables::RealOrDerived);
const ORC: Orc = Orc::new(None, Tables::RealOrDerived);

/// Our walks over a snapshot, collecting only addresses and carrying rip, rsp and rbp: `ours TABLE
/// warm` (a persistent cache), `cold` (a new cache for every walk), `first` (also a new address
/// space; the files are read beforehand, like the peer's sections).
pub(crate) fn walks(snapshot: &Snapshot) -> Vec<(String, Walk<'_>)> {
    let mut walks = walks_of(TABLES[0], DWARF, snapshot);
    walks.extend(walks_of(TABLES[1], SFRAME, snapshot));
    walks.extend(walks_of(TABLES[2], ORC, snapshot));
    walks
}

fn provenance_of<'a, F: Finder + 'a>(
    table: &str,
    finder: F,
    snapshot: &'a Snapshot,
) -> Measured<'a> {
    let (space, mut cache) = (space(&mappings(&snapshot.images)), Cache::new());
    let mut chain = Chain::default();
    Measured::new(format!("ours {table} provenance"), move || {
        let memory = StackCopy::new(snapshot.regs[RSP], &snapshot.stack);
        let place = WalkTarget {
            space: &space,
            memory: &memory,
        };

        // The vectors of the last chain are used again, as in a replay of many samples.
        chain = std::mem::take(&mut chain).emptied();
        let limits = Limits::default();
        chain.end = walk(
            &finder,
            &place,
            &start(snapshot),
            &limits,
            &mut cache,
            &mut chain,
        );

        // Times are given per frame.
        chain.frames.len() as u64
    })
}

/// Our walks with full provenance and a warm cache: `ours TABLE provenance`.
pub(crate) fn provenance(snapshot: &Snapshot) -> Vec<Measured<'_>> {
    vec![
        provenance_of(TABLES[0], DWARF, snapshot),
        provenance_of(TABLES[1], SFRAME, snapshot),
        provenance_of(TABLES[2], ORC, snapshot),
    ]
}

/// Compiles the whole `.eh_frame` of a file into our rows and returns the number of gimli's rows
/// that this covers (`rows`), so that both sides count the same units: `ours TABLE`. SFrame and ORC
/// rows are derived from it.
pub(crate) fn compilers(elf: &Elf, rows: u64) -> Vec<Measured<'_>> {
    let Some(image) = load(elf).map(Arc::new) else {
        return Vec::new();
    };

    // One contestant for each kind of table.
    let compiler = |table: &str, compile: fn(&image::Image, &mut Cache)| {
        let image = image.clone();
        Measured::new(format!("ours {table}"), move || {
            // A new cache each time: a second compilation would find everything.
            let mut cache = Cache::new();
            compile(&image, &mut cache);
            std::hint::black_box(&cache);
            rows
        })
    };

    vec![
        compiler(TABLES[0], |image, cache| {
            dwarf::compile_all(image, TableKind::EhFrame, cache);
        }),
        compiler(TABLES[1], |image, cache| {
            derive_all::<SframeV3>(image, cache);
        }),
        compiler(TABLES[2], |image, cache| {
            derive_all::<OrcEntry>(image, cache);
        }),
    ]
}

/// Receives one chain of addresses.
pub(crate) type ChainSink<'a> = &'a mut (dyn FnMut(&[u64]) + Send);

/// Passes the chains on to a sink.
struct ForwardSamples<'a>(ChainSink<'a>);

impl Consumer for ForwardSamples<'_> {
    fn stack(&mut self, taken: &Taken<'_>) {
        (self.0)(taken.pcs);
    }
}

fn replay_with<C: Consumer + Send>(path: &Path, consumers: &mut [C]) -> Option<u64> {
    let map = unwind_sim_recordings::mapped::map_file(path).ok()?;
    let file = PerfFile::parse((*map).as_ref()).ok()?;
    let engine = Engine::Table(Box::new(DWARF));
    Some(stacks::replay(&file, &stacks::plain_options(&engine), consumers).stacks)
}

/// From perf.data to addresses with our reader and our dwarf unwinder on one thread: passes the
/// chain of every sample with registers and a stack copy to `each`, and returns their number.
pub(crate) fn replay(path: &Path, each: ChainSink<'_>) -> Option<u64> {
    replay_with(path, &mut [ForwardSamples(each)])
}

/// Counts frames, so that no walk can be optimized away.
#[derive(Default)]
struct Frames(usize);

impl Consumer for Frames {
    fn stack(&mut self, taken: &Taken<'_>) {
        self.0 += taken.pcs.len();
    }
}

/// The same on `threads` threads, discarding the chains; returns their number.
pub(crate) fn replay_on(path: &Path, threads: usize) -> Option<u64> {
    let mut consumers: Vec<Frames> = (0..threads).map(|_| Frames::default()).collect();
    let stacks = replay_with(path, &mut consumers);
    std::hint::black_box(consumers.iter().map(|f| f.0).sum::<usize>());
    stacks
}

/// One of our commands, and the peer to compare it with.
pub(crate) struct OurCommand {
    pub(crate) name: &'static str,
    pub(crate) command: Command,
    /// The peer, and the goal for how many times faster than it we are.
    pub(crate) against: &'static str,
    pub(crate) times_goal: f64,
}

/// Our commands for comparing whole processes, on one thread; their output goes to a file.
pub(crate) fn commands(recording: &Path) -> Vec<OurCommand> {
    let of = |name, format, against, times_goal| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
        command.arg("replay").arg(recording);
        command.args(["--unwinder", "dwarf", "--threads", "1", "--format", format]);
        OurCommand {
            name,
            command,
            against,
            times_goal,
        }
    };
    vec![
        of("ours firefox", "firefox", "samply import", 2.0),
        of("ours folded", "folded", "samply import", 3.0),
        of("ours folded (perf)", "folded", "perf script", 10.0),
    ]
}
