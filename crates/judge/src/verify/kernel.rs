//! Boots a kernel under the checker.

use super::checker::{Checker, KernelPlaces, Results};
use super::images::Images;
use crate::engine::{Engine, Setting};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unwind_sim_emulator::system::{Stopped, System};
use unwind_sim_unwind::image::{AddressSpace, Image, Mapping};

/// The configuration of a run.
pub struct KernelRequest<'a> {
    /// The unwinders, which must all read tables.
    pub engines: &'a [Engine],
    /// The setting of walks.
    pub setting: Setting,
    /// Whether to skip checks whose outcome cannot have changed.
    pub elide: bool,
    /// Whether to keep each finding of unwinders that are expected to err.
    pub each: bool,
    /// The kernel's image.
    pub image: Arc<Image>,
    /// The addresses of the image, where it runs.
    pub range: Range<u64>,
    /// By how much it runs above where it was linked.
    pub bias: u64,
    /// Where it switches stacks.
    pub places: KernelPlaces,
    /// The maximum number of instructions, those of user mode included.
    pub instructions_max: u64,
    /// The time limit.
    pub timeout: Option<Duration>,
}

/// The result of a run.
pub struct KernelRun {
    /// Why it ended; `None`: at the time limit.
    pub stopped: Option<Stopped>,
    /// What was checked and found.
    pub results: Results,
    /// The address space of the kernel.
    pub space: AddressSpace,
}

/// Physical memory that is mapped where it is, in which a kernel begins.
const IDENTITY: Range<u64> = 0x1000..1 << 32;
/// The addresses of modules and of generated code (Linux `Documentation/arch/x86/x86_64/mm.rst`).
const MODULES: Range<u64> = 0xffff_ffff_a000_0000..0xffff_ffff_ff00_0000;
/// The number of instructions between checks of the clock.
const SLICE: u64 = 1 << 20;

/// Runs `system`, in which a kernel was loaded, and checks it. `output` gets what the kernel writes to its
/// console, and `progress` the number of instructions.
pub fn run_kernel(
    system: &mut System,
    request: &KernelRequest<'_>,
    output: &mut dyn FnMut(&[u8]),
    progress: &mut dyn FnMut(u64),
) -> KernelRun {
    let mut checker = Checker::new(
        request.engines,
        Images::new(None),
        request.setting,
        request.elide,
    );
    if request.each {
        checker = checker.keeping_each();
    }
    let own = Mapping {
        range: request.range.clone(),
        bias: request.bias,
        image: Some(request.image.clone()),
        name: request.image.name().to_owned(),
    };
    let generated = |range| Mapping {
        range,
        bias: 0,
        image: None,
        name: String::new(),
    };
    for mapping in [generated(IDENTITY), generated(MODULES), own] {
        checker.map_code(mapping);
    }
    checker.follow_kernel(request.places.clone());

    let begin = Instant::now();
    let mut left = request.instructions_max;
    let stopped = loop {
        let slice = left.min(SLICE);
        let before = system.executed();
        let stopped = system.run(slice, &mut checker);
        left -= (system.executed() - before).min(left);
        if let Some(devices) = system.devices() {
            output(&devices.take_output());
        }
        if stopped != Stopped::Limit || left == 0 {
            break Some(stopped);
        }
        progress(system.executed());
        if request.timeout.is_some_and(|most| begin.elapsed() >= most) {
            break None;
        }
    };
    let (mut results, space) = checker.finish();
    results.memory.decoded = system.machine.code_bytes();
    KernelRun {
        stopped,
        results,
        space,
    }
}
