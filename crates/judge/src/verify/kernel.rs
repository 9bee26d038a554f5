//! Boots a kernel under the checker.

mod nmi;
mod walks;

pub use nmi::{NmiPlan, NmiResults};
pub(super) use walks::Place as WalkPlace;
pub use walks::{KernelWalked, KernelWalks, Reliability, WalkFinding, WalkTally, unexpected_walks};

use super::checker::{Checker, Results};
use super::coverage::{Coverage, coverage};
use super::images::Images;
use super::run::Request;
use nmi::{Nmis, Stopping};
use std::io;
use unwind_sim_emulator::system::System;
use unwind_sim_record::boot::{self, Boot, BootRun, BootRunError, Observed, Slice};
use unwind_sim_record::emulate::Bounds;
use unwind_sim_record::kernel_generated::KernelGenerated;
use unwind_sim_record::kernel_modules::KernelModules;
use unwind_sim_record::kernel_stacks::{IDENTITY, KernelPlaces, MODULES};
use unwind_sim_recordings::kernel::KernelImage;
use unwind_sim_unwind::image::{AddressSpace, Mapping};

/// The result of a run.
pub struct KernelRun {
    /// How it ended.
    pub boot: BootRun,
    /// What was checked and found.
    pub results: Results,
    /// What became of the walks of its own unwinders.
    pub walks: Vec<KernelWalked>,
    /// What became of the NMIs, if any were asked for.
    pub nmis: Option<NmiResults>,
    /// How much of the kernel was executed, by section.
    pub coverage: Vec<Coverage>,
    /// The address space of the kernel.
    pub space: AddressSpace,
}

/// What is done beside the check of rows.
#[derive(Default)]
pub struct Beside {
    /// The walks of the kernel's own unwinders.
    pub walks: Option<KernelWalks>,
    /// The NMIs that are sent, and the walks in their handlers.
    pub nmis: Option<(NmiPlan, Option<KernelWalks>)>,
}

/// Boots a kernel, whose image is `kernel`, and checks it. `progress` is called from time to time.
///
/// # Errors
/// If the kernel cannot be loaded.
pub fn run_kernel(
    boot: &Boot<'_>,
    (kernel, places): (&KernelImage, &KernelPlaces),
    beside: Beside,
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
    let modules = KernelModules::of(kernel, slide);
    let generated = KernelGenerated::of(kernel, slide);
    checker.follow_kernel(places.clone(), modules, generated);
    if let Some(walks) = beside.walks {
        checker.walk_kernel(walks);
    }

    let bounds = Bounds {
        instructions_max: request.instructions_max,
        timeout: request.timeout,
    };
    let mut console = |_: &[u8]| -> io::Result<()> {
        progress();
        Ok(())
    };
    let (boot, nmis) = match beside.nmis {
        None => {
            let boot = boot::run_observed(boot, bounds, &mut console, &mut checker)?;
            (boot, None)
        }
        Some((plan, walks)) => {
            let mut nmis = Nmis::new(&plan, walks);
            let mut slice = |system: &mut System, limit, observer: &mut Stopping<'_, '_>| {
                nmis.run(system, limit, observer)
            };
            let observer = &mut Stopping::new(&mut checker);
            let by = (observer, &mut slice as Slice<'_, _>);
            let boot = boot::run_by(boot, bounds, &mut console, by, &Observed::all())?;
            (boot, Some(nmis.finish()))
        }
    };
    let walks = checker.finish_kernel_walks();
    let (results, space) = checker.finish();
    let coverage = coverage(kernel, slide, &results);
    Ok(KernelRun {
        boot,
        results,
        walks,
        nmis,
        coverage,
        space,
    })
}

#[cfg(test)]
mod tests;
