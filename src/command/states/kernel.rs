//! The states of a kernel that the machine boots.

use super::{Shown, StateArgs, Subject};
use crate::command::boot::BootArgs;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use unwind_sim_judge::engine::Setting;
use unwind_sim_judge::shell::{quoted, quoted_path};
use unwind_sim_judge::states::{Direction, Index, States, Target};
use unwind_sim_judge::unwinders;
use unwind_sim_record::kernel_stacks::KernelPlaces;
use unwind_sim_record::reversible_kernel::{KernelSubject, ReversibleKernel};
use unwind_sim_recordings::kernel::KernelImage;
use unwind_sim_recordings::printable::PrintableName as _;

/// The states that are searched for a function, unless `--max-instructions` says more: more than a boot
/// has.
const SEARCHED_MAX: u64 = 1 << 33;

impl StateArgs {
    /// What the command line names, if anything: a recording or case, what follows `--`, which is a
    /// program, or a kernel to boot.
    pub(crate) fn subject(
        &self,
        path: Option<&Path>,
        program: &[std::ffi::OsString],
    ) -> Result<Option<Subject>> {
        let is_alone = path.is_none() && program.is_empty();
        let boots = self.boot.has_process() || self.kernel.is_given() && is_alone;
        if !boots {
            if let Some(option) = self
                .boot
                .given()
                .or((!self.nmi.is_empty()).then_some("--nmi"))
            {
                bail!(
                    "{option} is for a kernel that is booted: --kernel FILE without a recording, case or program"
                );
            }
            return Ok(Subject::of(path, program));
        }

        let Some(image) = self.kernel.image() else {
            bail!(
                "--kernel names a version here; what is booted is an image: --kernel FILE --init PROG"
            );
        };
        let image = quoted_path(image);
        if let Some(path) = path {
            let path = quoted_path(path);
            bail!(
                "--init and --initrd boot a kernel, and {path} is a recording or case, which has its own: leave \
                 out either"
            );
        }
        if let Some(program) = program.first() {
            bail!(
                "--kernel boots a kernel, which starts the program of --init: --kernel {image} --init {}",
                quoted(program)
            );
        }
        let options = [
            (self.samples, "--samples"),
            (self.symfs.is_some(), "--symfs"),
            (self.defect, "--defect"),
            (self.walks.view.is_some(), "--view"),
            (self.machine.schedule.is_printed(), "--print-schedule"),
        ];
        let given = options.iter().find(|(given, _)| *given);
        let option = given.map(|(_, option)| *option);
        let of_program = self.machine.given_for_program().or(self.case.given());
        let of_recording = self.kernel.given_for_recording();
        if let Some(option) = option.or(of_program).or(of_recording) {
            bail!(
                "{option} does not go with a kernel that is booted; with --kernel there are --init, --initrd, \
                 --append, --memory, --console-input, --kaslr, --nmi, --cpu, --seed, --clock and \
                 --max-instructions"
            );
        }
        Ok(Some(Subject::kernel()))
    }

    /// Boots the kernel, and calls `show` with its states.
    pub(super) fn of_kernel<R>(&self, show: impl FnOnce(Shown<'_>) -> Result<R>) -> Result<R> {
        let path = self.kernel.image().context("no --kernel given")?;
        let args = BootArgs::of(path, self.kernel.offset(), &self.boot);
        let files = args.open()?;
        let image = files.image()?;
        let Some(places) = KernelPlaces::of(&image, files.slide()) else {
            bail!(
                "{} has no symbols of the code that switches between tasks (__switch_to_asm), without which \
                 the stacks of a kernel cannot be told apart; a kernel with CONFIG_KALLSYMS has them",
                path.printable()
            );
        };
        let nmis = self
            .nmi
            .iter()
            .map(|when| Nmi::parse(when, &image, files.slide()));
        let nmis = nmis.collect::<Result<Vec<Nmi>>>()?;
        let run = self.wanted(&unwinders::KERNEL, self.walks.changed(Setting::default())?)?;

        let clock = u64::try_from(self.machine.clock()).context("--clock")?;
        let boot = files.boot(self.machine.cpu().processor(), self.machine.seed(), clock);
        let subject = KernelSubject {
            image,
            path: path.to_owned(),
            places,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let kernel = ReversibleKernel::start(&boot, subject, stop.clone());
        let kernel = kernel.with_context(|| path.printable().to_string())?;
        let mut states = States::of_program(kernel, stop.clone());
        states.set_limit(self.max_instructions);
        for (nmi, when) in nmis.iter().zip(&self.nmi) {
            nmi.send(&mut states)
                .with_context(|| format!("--nmi {when}"))?;
        }

        let words = args.options_text().join(" ");
        show(Shown {
            run: &run,
            states,
            index: Index::nothing(),
            stop,
            searched_to: self.max_instructions.min(SEARCHED_MAX),
            source: format!("--kernel {} {words}", quoted_path(path))
                .trim_end()
                .to_owned(),
            // A debugger is given the vmlinux by its user: it cannot read a vmlinuz.
            executable: None,
        })
    }
}

/// When an NMI comes.
enum Nmi {
    /// At this state.
    State(u64),
    /// Before the instruction at this address, when that is executed for the first time behind the last
    /// NMI.
    At(u64),
}

impl Nmi {
    fn parse(when: &str, image: &KernelImage, slide: u64) -> Result<Nmi> {
        if let Ok(number) = when.parse() {
            return Ok(Nmi::State(number));
        }
        let Some(place) = when.strip_prefix("at:") else {
            bail!("--nmi {when}: expected the number of a state, or at:SYMBOL[+OFFSET]");
        };
        let (name, offset) = match place.split_once('+') {
            Some((name, offset)) => {
                let offset = unwind_sim_record::parse_number(offset);
                (
                    name,
                    offset.with_context(|| format!("--nmi {when}: the offset is not a number"))?,
                )
            }
            None => (place, 0),
        };
        let address = image.symbols.address(name);
        let address = address.with_context(|| format!("--nmi: the kernel has no symbol {name}"))?;
        Ok(Nmi::At(address + slide + offset))
    }

    fn send(&self, states: &mut States) -> Result<()> {
        let from = states.position().unwrap_or(0);
        let number = match self {
            Nmi::State(number) => *number,
            Nmi::At(address) => {
                let found = states.find(&Target::Address(*address), from, Direction::Forward)?;
                found.context("no instruction there is executed")?
            }
        };
        if number < from {
            bail!("it comes before the one in front of it");
        }
        states.send_nmi(number);
        // The next one is looked for behind it.
        states.with(number + 1, &mut |_| {})?;
        Ok(())
    }
}
