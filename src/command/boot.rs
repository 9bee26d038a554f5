//! `--kernel`, `--init` and the like: a kernel that the machine boots.

use super::args::parse_address;
use super::machine::{not_a_size, parse_size};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use unwind_sim_emulator::Processor;
use unwind_sim_emulator::system::boot::{BootOptions, RAM_MAX};
use unwind_sim_emulator::system::initramfs;
use unwind_sim_judge::input::FileKind;
use unwind_sim_judge::shell::quoted;
use unwind_sim_record::boot::Boot;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::kernel::{self, Bootable, KernelImage, OpenOptions};
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_unwind::image::{AddressSpace, Mapping, Owner};

/// The command line of every kernel; --append adds to it. Of what a PC has, the machine has no ACPI
/// tables and no PCI; a kernel that panics resets the computer, which ends the run.
const COMMAND_LINE: &str = "console=ttyS0 acpi=off pci=off panic=-1";
/// That of a computer with ACPI: it has a local APIC, which performance counters interrupt. Without `noapic` Linux
/// expects an I/O APIC, and leaves the 8259 masked.
const COMMAND_LINE_ACPI: &str = "console=ttyS0 noapic pci=off panic=-1";
/// The default memory, bytes.
const MEMORY: u64 = 512 << 20;
/// The least memory, bytes: what comes before the kernel.
const MEMORY_MIN: u64 = 1 << 20;
/// Maximum size of --console-input, bytes: it is kept in memory.
const CONSOLE_INPUT_MAX: u64 = 64 << 20;

/// The first process of a kernel that is given none: it uses much of the kernel and powers off
/// (`corpus/workload/`).
const WORKLOAD: &[u8] = include_bytes!("../../corpus/workload/workload");

/// `__START_KERNEL_map`: the virtual address at which a kernel is linked for physical address 0.
const START_KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;

/// What a kernel that is booted gets.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct BootOptionArgs {
    /// With --kernel: the first process, a static program. An initramfs with it as /init is made. With
    /// neither --init nor --initrd it is a program that is built in: it uses as much of the kernel as it can,
    /// writes what became of each part, as in "workload: pipes: ok", and powers off.
    #[arg(
        long,
        value_name = "PROG",
        requires = "kernel",
        conflicts_with = "initrd"
    )]
    init: Option<PathBuf>,
    /// With --kernel: the initramfs, an archive of cpio (newc) whose /init is the first process; it may
    /// be compressed.
    #[arg(long, value_name = "FILE", requires = "kernel")]
    initrd: Option<PathBuf>,
    /// With --kernel: add to the kernel's command line, which is "console=ttyS0 acpi=off pci=off
    /// panic=-1".
    #[arg(
        long,
        value_name = "ARGS",
        requires = "kernel",
        allow_hyphen_values = true
    )]
    append: Option<String>,
    /// With --kernel: the memory of the computer, in bytes, at most 3G. SIZE may end with K, M or G.
    /// The default is 512M.
    #[arg(long, value_name = "SIZE", requires = "kernel", value_parser = parse_memory)]
    memory: Option<usize>,
    /// With --kernel: what is typed at the console. By default nothing is.
    #[arg(long, value_name = "FILE", requires = "kernel")]
    console_input: Option<PathBuf>,
    /// With --kernel: give the processor performance counters and last branch records (LBR), so that perf's
    /// hardware events exist and interrupt with NMIs. The processor must be Intel's x86-64-v3, as by default.
    #[arg(long, requires = "kernel")]
    pmu: bool,
}

/// A kernel to boot, and the computer around it.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct BootArgs {
    /// Boot this kernel, a vmlinuz or vmlinux, instead of running a program. `emulate` writes its console
    /// to standard output, `verify` the last lines to standard error.
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    #[command(flatten)]
    options: BootOptionArgs,
    /// With --kernel: move the kernel by this many bytes (hex), a multiple of 0x200000, as KASLR does. By
    /// default it is not moved.
    #[arg(long, value_name = "OFFSET", requires = "kernel", value_parser = parse_address)]
    kaslr: Option<u64>,
}

fn parse_memory(text: &str) -> Result<usize, String> {
    let size = parse_size(text).ok_or_else(|| not_a_size(text))?;
    if !(MEMORY_MIN..=RAM_MAX).contains(&size) {
        return Err(format!("{size} bytes are not between 1M and 3G"));
    }
    usize::try_from(size).map_err(|_| format!("{size} bytes are more than there can be"))
}

/// A kernel whose files are open and unpacked.
pub(crate) struct BootFiles {
    file: InputFile,
    kernel: Bootable,
    initrd: Vec<u8>,
    console_input: Option<Owner>,
    command_line: String,
    memory: usize,
    has_counters: bool,
    slide: u64,
}

impl BootOptionArgs {
    /// Whether a kernel gets a first process.
    pub(crate) fn has_process(&self) -> bool {
        self.init.is_some() || self.initrd.is_some()
    }

    /// The first option that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let options = [
            (self.init.is_some(), "--init"),
            (self.initrd.is_some(), "--initrd"),
            (self.append.is_some(), "--append"),
            (self.memory.is_some(), "--memory"),
            (self.console_input.is_some(), "--console-input"),
            (self.pmu, "--pmu"),
        ];
        let given = options.iter().find(|(given, _)| *given);
        given.map(|(_, option)| *option)
    }
}

impl BootArgs {
    /// A kernel whose image and place were given elsewhere.
    pub(crate) fn of(kernel: &Path, kaslr: Option<u64>, options: &BootOptionArgs) -> BootArgs {
        BootArgs {
            kernel: Some(kernel.to_owned()),
            options: options.clone(),
            kaslr,
        }
    }

    /// Whether a kernel is to be booted.
    pub(crate) fn is_given(&self) -> bool {
        self.kernel.is_some()
    }

    /// The options that change what a kernel does, as they are written.
    pub(crate) fn options_text(&self) -> Vec<String> {
        let name = |option: &str, path: &Option<PathBuf>| {
            let path = path.as_ref()?;
            Some(format!("{option} {}", quoted(path)))
        };
        let all = [
            name("--init", &self.options.init),
            name("--initrd", &self.options.initrd),
            name("--console-input", &self.options.console_input),
            self.options
                .append
                .as_ref()
                .map(|more| format!("--append {}", quoted(more))),
            self.options.memory.map(|size| format!("--memory {size}")),
            self.kaslr.map(|slide| format!("--kaslr {slide:#x}")),
        ];
        all.into_iter().flatten().collect()
    }

    /// Opens, unpacks and checks the files.
    pub(crate) fn open(&self) -> Result<BootFiles> {
        let path = self.kernel.as_deref().context("no --kernel given")?;
        let file = InputFile::expect(
            path,
            "a kernel's image (vmlinuz, vmlinux)",
            &kinds(FileKind::may_be_kernel),
        )?;
        let kernel = kernel::bootable(&file)?;

        let initrd = match (&self.options.init, &self.options.initrd) {
            (Some(program), _) => initramfs_of(program)?,
            (None, Some(archive)) => archive_of(archive)?,
            (None, None) => initramfs::with_init(WORKLOAD),
        };

        let console_input = self.options.console_input.as_deref();
        let console_input = console_input.map(|path| contents(path, "a file", CONSOLE_INPUT_MAX));

        let mut command_line = match self.options.pmu {
            true => COMMAND_LINE_ACPI.to_owned(),
            false => COMMAND_LINE.to_owned(),
        };
        if let Some(more) = self
            .options
            .append
            .as_deref()
            .filter(|more| !more.is_empty())
        {
            command_line = format!("{command_line} {more}");
        }

        Ok(BootFiles {
            file,
            kernel,
            initrd,
            console_input: console_input.transpose()?,
            command_line,
            memory: self.options.memory.unwrap_or(MEMORY as usize),
            has_counters: self.options.pmu,
            slide: self.kaslr.unwrap_or(0),
        })
    }
}

/// The kinds of files of which `is_taken` holds.
fn kinds(is_taken: fn(FileKind) -> bool) -> Vec<FileKind> {
    let all = FileKind::ALL.iter().copied();
    all.filter(|kind| is_taken(*kind)).collect()
}

/// The bytes of any file, at most `max`.
fn contents(path: &Path, wanted: &'static str, max: u64) -> Result<Owner> {
    let is_file = |kind| !matches!(kind, FileKind::Folder | FileKind::Special);
    let file = InputFile::expect(path, wanted, &kinds(is_file))?;
    let bytes = file.bytes_within(max);
    bytes.with_context(|| path.printable().to_string())
}

/// An initramfs with this program.
fn initramfs_of(path: &Path) -> Result<Vec<u8>> {
    let file = InputFile::expect(path, "a program (ELF)", &[FileKind::Elf])?;
    let program = file.whole().with_context(|| path.printable().to_string())?;
    if let Some(loader) = initramfs::interpreter(&program) {
        bail!(
            "{} needs {loader}, which an initramfs of one program does not have; link it with \
             -static, or give an archive with both: --initrd",
            path.printable()
        );
    }
    Ok(initramfs::with_init(&program))
}

/// An initramfs that somebody made.
fn archive_of(path: &Path) -> Result<Vec<u8>> {
    let archive = contents(path, "an initial RAM disk (cpio)", RAM_MAX)?;
    let archive = (*archive).as_ref();
    initramfs::check(archive).with_context(|| path.printable().to_string())?;
    Ok(archive.to_vec())
}

impl BootFiles {
    /// The kernel in a computer with this processor, whose random numbers have this seed, and whose
    /// clock starts at this time.
    pub(crate) fn boot(&self, processor: Processor, seed: u64, clock: u64) -> Boot<'_> {
        let kernel = &self.kernel;
        Boot {
            options: BootOptions {
                image: &kernel.image,
                setup_header: kernel.setup_header.as_deref(),
                initrd: Some(&self.initrd),
                command_line: &self.command_line,
                relocations: kernel.relocations.as_deref(),
                slide: self.slide,
                acpi: self.has_counters,
            },
            memory: self.memory,
            processor,
            has_counters: self.has_counters,
            seed,
            clock,
            console_input: (self.console_input.as_ref()).map_or(&[], |owner| (**owner).as_ref()),
        }
    }

    /// The kernel with its tables and symbols.
    pub(crate) fn image(&self) -> Result<KernelImage> {
        Ok(kernel::open(&self.file, &OpenOptions::default())?)
    }

    /// By how much the kernel is moved.
    pub(crate) fn slide(&self) -> u64 {
        self.slide
    }

    /// Memory, bytes.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// The path of the kernel's file.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// The function of the kernel at an address, and the offset in it, if its symbols say so.
    pub(crate) fn place(&self, address: u64) -> Option<String> {
        let kernel = kernel::open(&self.file, &OpenOptions::default()).ok()?;
        // Until it has page tables of its own, a kernel runs at its physical addresses, which are not
        // moved.
        let (address, bias) = match address.checked_add(START_KERNEL_MAP) {
            Some(linked) => (linked, 0),
            None => (address, self.slide),
        };
        let range = kernel.range.start.checked_add(bias)?..kernel.range.end.checked_add(bias)?;
        if !range.contains(&address) {
            return None;
        }

        let mut space = AddressSpace::new();
        space.map(Mapping {
            range,
            bias,
            name: kernel.image.name().to_owned(),
            image: Some(kernel.image.clone()),
        });
        let place = Location::at(&space, address);
        place.function.is_some().then(|| place.to_string())
    }
}
