//! Real stacks of programs compiled here: the walk reaches the root, the fast path equals the
//! generic one, and the pcs alone equal those of the full provenance.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use unwind_sim_unwind::cache::{Cache, RowId};
use unwind_sim_unwind::chain::{Addresses, Chain};
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::{AddressSpace, Image, Mapping};
use unwind_sim_unwind::memory::MemoryCopy;
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::regs::{Reg, RegMask, Regs};
use unwind_sim_unwind::start::Start;
use unwind_sim_unwind::walk::{Limits, WalkTarget, walk};

/// [`Dwarf`], applying every rule in its full form.
struct Generic(Dwarf);

impl Finder for Generic {
    fn name(&self) -> &str {
        "generic"
    }
    fn carries(&self) -> RegMask {
        self.0.carries()
    }
    fn find(&self, mapping: &Mapping, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
        self.0.find(mapping, svma, cache)
    }
    fn fast(&self) -> bool {
        false
    }
}

/// The output of a program of `benches/programs` (see its `snapshot.h` for the layout).
struct Snapshot {
    regs: Regs,
    stack: Vec<u8>,
    space: AddressSpace,
}

fn snapshot(name: &str, flags: &[&str]) -> Result<Snapshot, String> {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../benches/programs/{name}.c"));
    let scratch = Scratch::new(&format!("{name}{}", flags.concat()));
    let (program, output) = (scratch.0.join(name), scratch.0.join("snapshot"));
    let mut cc = Command::new("cc");
    let cc = cc
        .args(["-O2", "-fno-optimize-sibling-calls", "-o"])
        .args(flags);
    let status = cc.arg("-o").arg(&program).arg(&source).status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("cc: {status}"),
        Err(error) => return Err(format!("cc: {error}")),
    }
    let status = Command::new(&program).arg(&output).status();
    assert!(status.is_ok_and(|s| s.success()), "{name} failed");
    Ok(load(&std::fs::read(&output).unwrap()))
}

/// A directory that is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("unwind-sim-walk-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn load(bytes: &[u8]) -> Snapshot {
    let bytes = bytes.strip_prefix(b"UWSNAP1\0").unwrap();
    let word = |i: usize| u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().unwrap());
    let mut regs = Regs::UNKNOWN;
    for i in 0..17 {
        regs.set(Reg::from_dwarf(i as u16).unwrap(), word(i));
    }
    let stack_end = 19 * 8 + word(17) as usize;
    let maps = std::str::from_utf8(&bytes[stack_end..stack_end + word(18) as usize]).unwrap();
    let mut space = AddressSpace::new();
    maps.lines().filter_map(mapping).for_each(|m| space.map(m));
    Snapshot {
        regs,
        stack: bytes[19 * 8..stack_end].to_vec(),
        space,
    }
}

/// Parses an executable file mapping in `/proc/PID/maps`.
fn mapping(line: &str) -> Option<Mapping> {
    // A path may have spaces.
    let (fields, path) = line.split_at(line.find('/')?);
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    if !fields[1].contains('x') {
        return None;
    }
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = fields[0].split_once('-')?;
    let (range, offset) = (hex(start)?..hex(end)?, hex(fields[2])?);
    let image: Arc<Image> = crate::common::image(path)?;
    // Current linkers keep offset and address of the text congruent and, in these files, equal.
    Some(Mapping {
        bias: range.start - offset,
        range,
        image: Some(image),
        name: path.to_string(),
    })
}

fn chain<F: Finder>(finder: &F, snapshot: &Snapshot, cache: &mut Cache) -> Chain {
    let mut chain = Chain::default();
    chain.end = run(finder, snapshot, cache, &mut chain);
    chain
}

fn run<F: Finder, S: unwind_sim_unwind::chain::Sink>(
    finder: &F,
    snapshot: &Snapshot,
    cache: &mut Cache,
    sink: &mut S,
) -> unwind_sim_unwind::chain::End {
    let place = WalkTarget {
        space: &snapshot.space,
        memory: &MemoryCopy::new(snapshot.regs.rsp(), &snapshot.stack),
    };
    let start = Start::from_regs(snapshot.regs.restricted(RegMask::CALLEE_SAVED));
    walk(finder, &place, &start, &Limits::default(), cache, sink)
}

#[test]
fn real_stacks() {
    for name in ["rec200", "deep200"] {
        for flags in ["-fomit-frame-pointer", "-fno-omit-frame-pointer"] {
            let snapshot = match snapshot(name, &[flags]) {
                Ok(snapshot) => snapshot,
                Err(reason) => return crate::common::skip("real_stacks", &reason),
            };
            for mask in [RegMask::CALLEE_SAVED, RegMask::FRAME] {
                check(&snapshot, Dwarf::carrying(mask), name);
            }
        }
    }
}

fn check(snapshot: &Snapshot, dwarf: Dwarf, name: &str) {
    let (mut fast, mut slow) = (Cache::new(), Cache::new());
    // The second time, everything is hot.
    for _ in 0..2 {
        let by_fast = chain(&dwarf, snapshot, &mut fast);
        assert_eq!(by_fast.end.reason, Reason::RootReached, "{name}");
        assert!(
            by_fast.frames.len() > 200,
            "{name}: {} frames",
            by_fast.frames.len()
        );
        assert_eq!(
            by_fast,
            chain(&Generic(dwarf), snapshot, &mut slow),
            "{name}"
        );
        let mut addresses = Addresses::default();
        let end = run(&dwarf, snapshot, &mut fast, &mut addresses);
        let pcs: Vec<u64> = by_fast.frames.iter().map(|f| f.pc.value()).collect();
        assert_eq!((addresses.0, end), (pcs, by_fast.end), "{name}");
    }
}
