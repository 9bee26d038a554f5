//! Boots a kernel under the checker.

use super::checker::{Checker, KernelPlaces, Results};
use super::coverage::{Coverage, coverage};
use super::images::Images;
use super::run::Request;
use std::io;
use std::ops::Range;
use unwind_sim_record::boot::{self, Boot, BootRun, BootRunError};
use unwind_sim_record::emulate::Bounds;
use unwind_sim_recordings::kernel::KernelImage;
use unwind_sim_unwind::image::{AddressSpace, Mapping};

/// The result of a run.
pub struct KernelRun {
    /// How it ended.
    pub boot: BootRun,
    /// What was checked and found.
    pub results: Results,
    /// How much of the kernel was executed, by section.
    pub coverage: Vec<Coverage>,
    /// The address space of the kernel.
    pub space: AddressSpace,
}

/// Physical memory that is mapped where it is, in which a kernel begins.
const IDENTITY: Range<u64> = 0x1000..1 << 32;
/// The addresses of modules and of generated code (Linux `Documentation/arch/x86/x86_64/mm.rst`).
const MODULES: Range<u64> = 0xffff_ffff_a000_0000..0xffff_ffff_ff00_0000;
/// The symbol of the code that goes on with the stack of another task.
const SWITCH: &str = "__switch_to_asm";
/// The symbols of the code at which a new task begins, newest first: it was renamed in 6.6.
const BEGIN: [&str; 2] = ["ret_from_fork_asm", "ret_from_fork"];

/// Where the kernel, moved up by `slide`, switches stacks. `None` if its symbols do not say so.
pub fn places(kernel: &KernelImage, slide: u64) -> Option<KernelPlaces> {
    let at = |name: &str| {
        let mut all = kernel.symbols.iter();
        all.find(|s| s.name == name).map(|s| s.address)
    };
    let start = at(SWITCH)?;
    let later = kernel.symbols.iter().map(|s| s.address);
    let end = later.filter(|&address| address > start).min()?;
    let moved = |range: &Range<u64>| range.start + slide..range.end + slide;
    let own = kernel.image.text().iter().map(moved);
    Some(KernelPlaces {
        switch: moved(&(start..end)),
        begin: BEGIN.into_iter().find_map(at)? + slide,
        code: own.chain([IDENTITY, MODULES]).collect(),
    })
}

/// Boots a kernel, whose image is `kernel`, and checks it. `progress` is called from time to time.
///
/// # Errors
/// If the kernel cannot be loaded.
pub fn run_kernel(
    boot: &Boot<'_>,
    (kernel, places): (&KernelImage, &KernelPlaces),
    request: &Request<'_>,
    progress: &mut dyn FnMut(),
) -> Result<KernelRun, BootRunError> {
    let slide = boot.options.slide;
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
        range: kernel.range.start + slide..kernel.range.end + slide,
        bias: slide,
        image: Some(kernel.image.clone()),
        name: kernel.image.name().to_owned(),
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
    checker.follow_kernel(places.clone());

    let bounds = Bounds {
        instructions_max: request.instructions_max,
        timeout: request.timeout,
    };
    let mut console = |_: &[u8]| -> io::Result<()> {
        progress();
        Ok(())
    };
    let boot = boot::run_observed(boot, bounds, &mut console, &mut checker)?;
    let (results, space) = checker.finish();
    let coverage = coverage(kernel, slide, &results);
    Ok(KernelRun {
        boot,
        results,
        coverage,
        space,
    })
}

#[cfg(test)]
mod tests;
