//! Generated code that a jitdump file describes, in recordings that name the file.

use super::*;
use crate::jitdump::tests::File;
use crate::world::World;
use unwind_sim_perf_data::regs::{PERF_REG_X86_IP, PERF_REG_X86_SP};
use unwind_sim_perf_data::write::{Body, EventSpec, Id, SampleData, Writer};
use unwind_sim_perf_data::{Mmap, MmapIdentity, Task, flag, misc, sample_type as st};
use unwind_sim_unwind::dwarf;
use unwind_sim_unwind::row::TableKind;

const PID: i32 = 7;
/// An anonymous mapping with generated code.
const ARENA: Range<u64> = 0x7000_0000..0x7001_0000;
const CODE: u64 = ARENA.start + 0x100;

use std::ops::Range;

/// A folder with a jitdump file, removed on drop.
struct Dir(PathBuf);

impl Dir {
    fn new(test: &str, file: Option<File>) -> Dir {
        let dir = std::env::temp_dir().join(format!("unwind-sim-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary directory");
        if let Some(file) = file {
            std::fs::write(dir.join("jit-7.dump"), file.0).expect("a temporary file");
        }
        Dir(dir)
    }

    fn options(&self) -> ImportOptions {
        ImportOptions {
            files: FinderOptions {
                symfs: Some(self.0.clone()),
                ..FinderOptions::default()
            },
            ..ImportOptions::default()
        }
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A recording whose times are those of `CLOCK_MONOTONIC`, or not.
struct Recording(Writer);

impl Recording {
    fn new(is_monotonic: bool) -> Recording {
        let ip_and_sp = 1 << PERF_REG_X86_IP | 1 << PERF_REG_X86_SP;
        let mut event = EventSpec {
            sample_type: st::IP | st::TID | st::TIME | st::REGS_USER,
            sample_regs_user: ip_and_sp,
            ..EventSpec::software("cpu-clock", 0)
        };
        if is_monotonic {
            event.flags |= flag::USE_CLOCKID;
            event.clock_id = 1;
        }
        Recording(Writer::new(vec![event]))
    }

    fn put(mut self, pid: i32, time: u64, body: &Body<'_>) -> Recording {
        let id = Id {
            pid,
            tid: pid,
            time,
            ..Id::default()
        };
        self.0.record(body, &id).expect("a record");
        self
    }

    fn map(self, time: u64, range: Range<u64>, path: &[u8]) -> Recording {
        let mmap = Mmap {
            pid: PID,
            tid: PID,
            address: range.start,
            length: range.end - range.start,
            file_offset: 0,
            protection: 5,
            flags: 2,
            identity: MmapIdentity::Path,
            path,
        };
        let cpumode = misc::CPUMODE_USER;
        self.put(PID, time, &Body::Mmap { mmap, cpumode })
    }

    fn sample(self, pid: i32, time: u64, ip: u64) -> Recording {
        let sample = SampleData {
            misc: misc::CPUMODE_USER,
            ip,
            user_regs: &[0x7ffc_0000, ip],
            ..SampleData::default()
        };
        self.put(pid, time, &Body::Sample(sample))
    }

    fn fork(self, time: u64, child: i32) -> Recording {
        let task = Task {
            pid: child,
            ppid: PID,
            tid: child,
            ptid: PID,
            time,
        };
        self.put(PID, time, &Body::Fork(task))
    }
}

/// What each sample's ip is called, and whether a row covers it.
fn names(recording: Recording, dir: &Dir) -> (Vec<String>, Imported) {
    let mut world = World::new();
    let mut images = Vec::new();
    let mut out = Vec::new();
    let bytes = Arc::new(recording.0.finish());
    let imported = import_bytes(bytes, &dir.options(), &mut |item| {
        match item {
            ImportItem::Image { image, .. } => images.push(image),
            ImportItem::Item(Item::Event(event)) => world.apply(&event, &images),
            ImportItem::Item(Item::Sample(sample)) => out.push(name(&world, &sample)),
        }
        ControlFlow::Continue(())
    });
    (out, imported.expect("perf.data"))
}

fn name(world: &World, sample: &Sample<'_>) -> String {
    let ip = sample.regs.sampled.rip();
    let mapping = world.space(sample.pid).find(ip);
    let Some((mapping, image)) = mapping.and_then(|m| Some((m, m.image.as_ref()?))) else {
        return "?".into();
    };
    let svma = mapping.svma(ip);
    let symbol = image.symbol(svma).map_or("??", |symbol| &symbol.name);
    let mut units = dwarf::units(image, TableKind::EhFrame).filter_map(Result::ok);
    if units.any(|unit| unit.range.contains(&svma)) {
        format!("{symbol} with a row")
    } else {
        symbol.to_owned()
    }
}

#[test]
fn the_time_of_a_sample_chooses_the_code() {
    let file = File::new(0)
        .unwinding(20)
        .load(20, 1, CODE, "first")
        .load(40, 2, CODE, "second")
        .moved(60, 2, CODE, CODE + 0x1000);
    let dir = Dir::new("jitdump-times", Some(file));
    let recording = || {
        let recording =
            Recording::new(true)
                .map(1, ARENA, b"//anon")
                .map(2, 0x1000..0x2000, b"/jit-7.dump");
        [10, 30, 50, 70]
            .iter()
            .fold(recording, |r, &time| r.sample(PID, time, CODE + 4))
    };
    // At time 10 no code is there yet; the last sample is at the place to which it was moved.
    let (found, imported) = names(recording().sample(PID, 71, CODE + 0x1004), &dir);
    assert_eq!(
        found,
        ["?", "first with a row", "second", "second", "second"]
    );
    assert_eq!(imported.file_problems, []);

    // Another clock: what was replaced is not used, what was moved is.
    let other = Recording::new(false)
        .map(1, ARENA, b"//anon")
        .map(2, 0x1000..0x2000, b"/jit-7.dump")
        .sample(PID, 30, CODE + 4)
        .sample(PID, 31, CODE + 0x1004);
    let (found, imported) = names(other, &dir);
    assert_eq!(found, ["?", "second"]);
    let kinds: Vec<String> = imported
        .file_problems
        .iter()
        .map(|p| p.to_string())
        .collect();
    assert!(
        kinds[0].contains("/jit-7.dump: jitdump: 2 functions were replaced"),
        "{kinds:?}"
    );
}

#[test]
fn code_stays_when_its_memory_is_mapped_again() {
    let dir = Dir::new("jitdump-again", Some(File::new(0).load(20, 1, CODE, "f")));
    // The arena becomes executable after the code was written; then a file takes its place.
    let recording = Recording::new(true)
        .map(2, 0x1000..0x2000, b"/jit-7.dump")
        .map(30, ARENA, b"//anon")
        .sample(PID, 31, CODE + 4)
        .map(40, ARENA, b"/a-library")
        .sample(PID, 41, CODE + 4);
    assert_eq!(names(recording, &dir).0, ["f", "?"]);
}

#[test]
fn a_child_has_the_code_of_the_fork_and_another_program_none() {
    let file = File::new(0)
        .load(20, 1, CODE, "f")
        .load(40, 2, CODE + 0x3000, "later");
    let dir = Dir::new("jitdump-fork", Some(file));
    let comm = unwind_sim_perf_data::Comm {
        pid: PID,
        tid: PID,
        name: b"other",
        exec: true,
    };
    let recording = Recording::new(true)
        .map(1, ARENA, b"//anon")
        .map(2, 0x1000..0x2000, b"/jit-7.dump")
        .fork(30, 8)
        .sample(8, 31, CODE + 4)
        .sample(8, 50, CODE + 0x3004)
        .sample(PID, 51, CODE + 0x3004)
        .put(PID, 52, &Body::Comm(comm))
        .sample(PID, 53, CODE + 0x3004);
    assert_eq!(names(recording, &dir).0, ["f", "?", "later", "?"]);
}

#[test]
fn a_missing_or_cut_file_is_reported() {
    let recording = || {
        Recording::new(true)
            .map(2, 0x1000..0x2000, b"/jit-7.dump")
            .sample(PID, 50, CODE + 4)
    };
    let dir = Dir::new("jitdump-missing", None);
    let (found, imported) = names(recording(), &dir);
    assert_eq!(
        (found, imported.file_problem_count),
        (vec!["?".to_owned()], 1)
    );
    assert!(
        imported.file_problems[0]
            .to_string()
            .starts_with("/jit-7.dump: not found")
    );

    let mut file = File::new(0)
        .load(20, 1, CODE, "f")
        .load(40, 2, CODE + 0x20, "cut");
    // As if the recording ended while the compiler wrote its last record.
    file.0.truncate(file.0.len() - 1);
    let (found, imported) = names(recording(), &Dir::new("jitdump-cut", Some(file)));
    assert_eq!(found, ["f"]);
    let problem = imported.file_problems[0].to_string();
    assert!(
        problem.contains("the functions before it (1) are used"),
        "{problem}"
    );
}
