//! Finds places that are in no image a program is linked with, before the program runs.
//!
//! This runs the dynamic linker in the emulated machine: with `LD_TRACE_LOADED_OBJECTS`, glibc's
//! maps everything that a program needs, and exits (`ld.so(8)`). Images that a program loads later,
//! and those of other programs that it starts, are not known here.

use super::{At, MAIN, locate, parse_number};
use std::ops::Range;
use std::time::{Duration, Instant};
use unwind_sim_emulator::linux::RunningProgram;
use unwind_sim_emulator::linux::{Input, Kernel, MappedFile, Outcome, Output, ProcessObserver};
use unwind_sim_emulator::machine::Executed;
use unwind_sim_emulator::{Access, Core, Observer, Permissions};
use unwind_sim_recordings::files::{FinderOptions, ImageFinder, MappingRequest};
use unwind_sim_recordings::names::{demangle, file_name};
use unwind_sim_recordings::similar::Nearest;

/// The variable that makes glibc's dynamic linker exit before the program starts.
const TRACE_ONLY: &[u8] = b"LD_TRACE_LOADED_OBJECTS=1";
/// File name of glibc's dynamic linker; others ignore the variable and run the program.
const LINKER: &str = "ld-linux";
/// Number of instructions between checks whether everything was found.
const SLICE: u64 = 1 << 16;
/// Maximum time to wait for the dynamic linker.
const TIME_MAX: Duration = Duration::from_secs(2);

/// The names of places in `at` and `from` that are in no image of `program`: neither in its own
/// file nor in a library that it is linked with. Empty if that cannot be determined before it runs.
pub fn not_linked(
    program: &RunningProgram,
    at: &At,
    from: Option<&str>,
    finder: FinderOptions,
) -> Vec<NotLinked> {
    let mut names: Vec<&str> = from.into_iter().collect();
    for point in at.points() {
        names.push(&point.name);
        names.extend(point.own.as_deref());
    }

    // An address needs no image, and a program's first function needs no symbol.
    names.retain(|name| !name.starts_with("0x") && *name != MAIN);
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Vec::new();
    }

    let missing = names.into_iter().map(UnlinkedPlace::new).collect();
    let mut search = Search {
        finder: ImageFinder::new(finder),
        missing,
        files: Vec::new(),
    };

    if search.run(program) {
        search.missing.into_iter().map(|m| m.found).collect()
    } else {
        // The recording itself will tell.
        Vec::new()
    }
}

/// A place that no linked image has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotLinked {
    /// As it was given.
    pub name: String,
    /// A symbol that may have been meant.
    pub similar: Option<String>,
}

/// A place that no image had so far.
struct UnlinkedPlace {
    found: NotLinked,
    /// For the symbol of the place, without an offset.
    nearest: Nearest,
}

impl UnlinkedPlace {
    fn new(name: &str) -> UnlinkedPlace {
        let with_offset = name.rsplit_once('+');
        let with_offset = with_offset.filter(|(_, offset)| parse_number(offset).is_some());
        let symbol = with_offset.map_or(name, |(symbol, _)| symbol);
        UnlinkedPlace {
            found: NotLinked {
                name: name.to_owned(),
                similar: None,
            },
            nearest: Nearest::new(symbol),
        }
    }

    fn compare(&mut self, symbol: &str) {
        if self.nearest.is_nearer(symbol) {
            self.found.similar = Some(symbol.to_owned());
        }
    }
}

struct Search {
    finder: ImageFinder,
    missing: Vec<UnlinkedPlace>,
    /// File names of the mapped files so far, without duplicates.
    files: Vec<String>,
}

impl Search {
    /// Looks at images until all names are found or all are mapped. False if that failed.
    fn run(&mut self, program: &RunningProgram) -> bool {
        let mut options = program.options.clone();
        options.env.push(TRACE_ONLY.to_vec());
        // This run takes nothing from the user and leaves nothing behind.
        options.stdin = Input::Bytes(Vec::new());
        (options.stdout, options.stderr) = (Output::Capture, Output::Capture);
        options.allow_write = false;
        let Ok(mut process) = Kernel::start(&program.path, options) else {
            return false;
        };

        let begin = Instant::now();
        // What the kernel maps is reported before the first instruction.
        let mut outcome = process.run(0, self);

        // Without a dynamic linker, the program is all there is.
        if self.files.len() == 1 {
            return true;
        }

        if !self.files.iter().any(|name| name.starts_with(LINKER)) {
            return false;
        }

        while outcome == Outcome::Limit && !self.missing.is_empty() {
            // Should the program itself run, it is not waited for.
            if begin.elapsed() > TIME_MAX {
                return false;
            }
            outcome = process.run(SLICE, self);
        }

        self.missing.is_empty() || outcome == Outcome::Exited(0)
    }
}

impl Observer for Search {
    fn before(&mut self, _: &Core, _: &Executed) {}

    fn after(&mut self, _: &Core, _: &Executed, _: u64) {}
}

impl ProcessObserver for Search {
    fn mapped(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Option<MappedFile<'_>>,
    ) {
        // Samples are wanted at instructions, so only mappings with code can have the place.
        let Some(file) = file.filter(|_| permissions.allow(Access::Execute)) else {
            return;
        };

        let path = String::from_utf8_lossy(file.path);
        let name = file_name(&path).to_owned();
        if !self.files.contains(&name) {
            self.files.push(name);
        }
        if self.missing.is_empty() {
            return;
        }

        let request = MappingRequest {
            pid: 0,
            name: &path,
            range: range.clone(),
            file_offset: file.offset,
            executable: true,
            build_id: &[],
        };

        // What this image has is no longer missing.
        let (image, bias) = self.finder.mapping_for(&request);
        let lacks =
            |m: &UnlinkedPlace| locate(image.as_deref(), bias, &range, &m.found.name).is_empty();
        self.missing.retain(lacks);
        let Some(image) = image else { return };
        // The nearest names are for the message.
        for symbol in image.symbols() {
            let name = demangle(&symbol.name);
            self.missing.iter_mut().for_each(|m| m.compare(&name));
        }
    }
}
