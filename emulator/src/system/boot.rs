//! Places a Linux kernel in the memory of a machine, as its decompressor leaves it.
//!
//! Sources: `Documentation/arch/x86/boot.rst` (the 64-bit boot protocol and the setup header) and
//! `Documentation/arch/x86/zero-page.rst`, Linux 6.12; `arch/x86/include/uapi/asm/bootparam.h`.
//! The kernel is at its linked physical address; its virtual addresses are those that it was linked
//! for, or moved ([`BootOptions::slide`]).
//!
//! Memory below 1 MiB, which the kernel neither needs nor overwrites before it has copied what it
//! needs (`reserve_real_mode`, `setup_arch`):
//!
//! | address   | content                                       |
//! |-----------|-----------------------------------------------|
//! | `0x90000` | `boot_params`, the zero page                  |
//! | `0x91000` | the command line                              |
//! | `0x92000` | the GDT                                       |
//! | `0x93000` | the page tables, six pages                    |
//! | `0x9e000` | the end of the stack, which grows down        |
//! | `0xf0000` | the ACPI tables, if there are any             |
//!
//! Not here: unpacking a bzImage, the contents of an initial RAM disk (`initramfs`), and the
//! registers, which the caller sets from [`Entry`].

pub(super) mod acpi;
mod error;
mod header;
mod image;
mod relocations;
#[cfg(test)]
mod tests;

pub use error::{BootError, BootErrorKind};

use header::{Header, field};
use image::Image;
use std::ops::Range;

/// Size of a page, bytes.
const PAGE: u64 = 4096;
/// Maximum memory, bytes: addresses from 3 to 4 GiB are kept for devices, as on a PC.
pub const RAM_MAX: u64 = 3 << 30;
/// The end of the memory below the video memory.
const LOW_END: u64 = 0xa_0000;
/// Where a PC's extended BIOS data area starts; reserved, as a BIOS does.
const EBDA: u64 = 0x9_fc00;
/// The start of the BIOS.
const BIOS: u64 = 0xf_0000;
/// The start of the memory above video memory and BIOS.
const HIGH: u64 = 0x10_0000;

const BOOT_PARAMS: u64 = 0x9_0000;
const COMMAND_LINE: u64 = 0x9_1000;
const GDT: u64 = 0x9_2000;
const PML4: u64 = 0x9_3000;
const PDPT: u64 = PML4 + PAGE;
const PAGE_DIRECTORIES: u64 = PDPT + PAGE;
const STACK_END: u64 = 0x9_e000;

/// How much is mapped, GiB: one page directory each.
const MAPPED_GIB: u64 = 4;
/// Present and writable.
const TABLE: u64 = 3;
/// Present, writable, and a page of 2 MiB (PS).
const LARGE_PAGE: u64 = 0x83;
/// Entries in a page table.
const ENTRIES: u64 = 512;

/// Flat segments of ring 0, accessed: none, 32-bit code, `__BOOT_CS` (0x10, 64-bit code) and
/// `__BOOT_DS` (0x18). Source: `arch/x86/boot/compressed/head_64.S`, `gdt`.
const DESCRIPTORS: [u64; 4] = [
    0,
    0x00cf_9b00_0000_ffff,
    0x00af_9b00_0000_ffff,
    0x00cf_9300_0000_ffff,
];

/// `E820_TYPE_RAM` and `E820_TYPE_RESERVED`.
const E820_RAM: u32 = 1;
const E820_RESERVED: u32 = 2;

/// What is loaded.
#[derive(Clone, Copy, Debug)]
pub struct BootOptions<'a> {
    /// The unpacked kernel, an ELF file (`vmlinux`).
    pub image: &'a [u8],
    /// The setup header: the bytes of the bzImage from 0x1f1 on, as many as there are. Without it,
    /// one is made up.
    pub setup_header: Option<&'a [u8]>,
    /// The initial RAM disk.
    pub initrd: Option<&'a [u8]>,
    /// The kernel's command line.
    pub command_line: &'a str,
    /// What follows the ELF file in the payload of a bzImage: what has to be changed if the kernel
    /// moves.
    pub relocations: Option<&'a [u8]>,
    /// How far the kernel's virtual addresses are moved, bytes: a multiple of 2 MiB, as address space
    /// randomisation (KASLR) chooses one. 0 leaves the kernel as it was linked.
    pub slide: u64,
    /// Whether there are ACPI tables: see [`System::add_acpi`](super::System::add_acpi).
    pub acpi: bool,
}

/// The processor's state at the kernel's first instruction: 64-bit mode, paging on, interrupts off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The first instruction.
    pub rip: u64,
    /// The address of `boot_params`, which goes into rsi.
    pub boot_params: u64,
    /// The page tables, which map the first 4 GiB to themselves.
    pub cr3: u64,
    /// The end of a stack of 20 KiB.
    pub rsp: u64,
    /// Base and limit of the GDT. cs is 0x10; ds, es and ss are 0x18.
    pub gdt: (u64, u16),
}

/// Places kernel, initial RAM disk and boot parameters in `ram`, guest physical memory from 0 on.
///
/// Memory outside of what is placed is left alone. All of `ram` is reported to the kernel, except the
/// usual hole from 640 KiB to 1 MiB.
///
/// # Errors
/// If one of the inputs is malformed, or does not fit. `ram` may then be written in part.
pub fn place(options: &BootOptions<'_>, ram: &mut [u8]) -> Result<Entry, BootError> {
    let memory = ram.len() as u64 & !(PAGE - 1);
    if memory > RAM_MAX {
        return Err(BootErrorKind::TooMuchMemory(memory).at("memory", RAM_MAX));
    }
    if memory < HIGH {
        return Err(BootErrorKind::TooLittleMemory(memory).at("memory", memory));
    }

    let image = Image::parse(options.image)?;
    image.place(options.image, ram)?;

    let mut header = match options.setup_header {
        Some(bytes) => Header::parse(bytes)?,
        None => Header::made(&image.range),
    };

    // From its start the kernel uses `init_size` bytes, for .bss and .brk, for example.
    let used = image.range.start.saturating_add(header.init_size());
    let kernel = image.range.start..used.max(image.range.end);
    if kernel.end > memory {
        let what = BootErrorKind::KernelTooLarge {
            end: kernel.end,
            memory,
        };
        return Err(what.at("init_size", field::INIT_SIZE));
    }

    relocations::apply(options.relocations, options.slide, &kernel, ram)?;
    place_command_line(options.command_line, &mut header, ram)?;
    if let Some(initrd) = options.initrd.filter(|initrd| !initrd.is_empty()) {
        place_initrd(initrd, &kernel, memory, &mut header, ram)?;
    }
    header.set_loader(options.slide != 0);

    let root = options.acpi.then(|| acpi::place(ram)).transpose()?;
    put(ram, BOOT_PARAMS, &zero_page(&header, memory, root))?;
    place_tables(ram)?;

    Ok(Entry {
        rip: image.entry,
        boot_params: BOOT_PARAMS,
        cr3: PML4,
        rsp: STACK_END,
        gdt: (GDT, (8 * DESCRIPTORS.len() - 1) as u16),
    })
}

/// Writes the command line with its NUL.
fn place_command_line(line: &str, header: &mut Header, ram: &mut [u8]) -> Result<(), BootError> {
    if let Some(nul) = line.bytes().position(|byte| byte == 0) {
        return Err(BootErrorKind::NulInCommandLine.at("command line", nul as u64));
    }
    // `cmdline_size` does not count the NUL; a page is kept for both.
    let max = header.command_line_max().min(PAGE - 1);
    let size = line.len() as u64;
    if size > max {
        return Err(BootErrorKind::CommandLineTooLong { size, max }.at("command line", max));
    }

    put(ram, COMMAND_LINE, line.as_bytes())?;
    put(ram, COMMAND_LINE + size, &[0])?;
    header.set_u32(field::CMD_LINE_PTR, COMMAND_LINE as u32);
    Ok(())
}

/// Writes the initial RAM disk as high as it may be, as boot loaders do.
fn place_initrd(
    initrd: &[u8],
    kernel: &Range<u64>,
    memory: u64,
    header: &mut Header,
    ram: &mut [u8],
) -> Result<(), BootError> {
    // `initrd_addr_max` is the last byte, not the one after it.
    let end = memory.min(header.initrd_max().saturating_add(1));
    let size = initrd.len() as u64;
    let start = end.checked_sub(size).map(|start| start & !(PAGE - 1));
    let Some(start) = start.filter(|start| *start >= kernel.end) else {
        let what = BootErrorKind::InitrdTooLarge {
            size,
            room: end.saturating_sub(kernel.end),
        };
        return Err(what.at("initial RAM disk", kernel.end));
    };

    put(ram, start, initrd)?;
    header.set_u32(field::RAMDISK_IMAGE, start as u32);
    header.set_u32(field::RAMDISK_SIZE, size as u32);
    Ok(())
}

/// The zero page: the setup header, the e820 map, and where the ACPI tables begin. All else is zero: no screen.
fn zero_page(header: &Header, memory: u64, root: Option<u64>) -> Vec<u8> {
    // The kernel ignores a map of fewer than two entries (`append_e820_table`). As a PC's BIOS has
    // it, so that the kernel's messages are the same as there.
    let map = [
        (0..EBDA, E820_RAM),
        (EBDA..LOW_END, E820_RESERVED),
        (BIOS..HIGH, E820_RESERVED),
        (HIGH..memory, E820_RAM),
    ];

    let mut page = vec![0; PAGE as usize];
    header.write(&mut page);
    field::write(
        &mut page,
        field::ACPI_RSDP_ADDR,
        &root.unwrap_or(0).to_le_bytes(),
    );
    field::write(&mut page, field::E820_ENTRIES, &[map.len() as u8]);
    let mut at = field::E820_TABLE;
    for (range, kind) in map {
        field::write(&mut page, at, &range.start.to_le_bytes());
        field::write(&mut page, at + 8, &(range.end - range.start).to_le_bytes());
        field::write(&mut page, at + 16, &kind.to_le_bytes());
        at += field::E820_ENTRY_SIZE;
    }
    page
}

/// Writes the GDT and page tables that map the first 4 GiB to themselves.
fn place_tables(ram: &mut [u8]) -> Result<(), BootError> {
    put(ram, GDT, &bytes(DESCRIPTORS))?;

    // Unused entries must be zero, whatever was in memory.
    let zero = [0; PAGE as usize];
    put(ram, PML4, &zero)?;
    put(ram, PDPT, &zero)?;
    put(ram, PML4, &bytes([PDPT | TABLE]))?;
    let directories = (0..MAPPED_GIB).map(|gib| (PAGE_DIRECTORIES + gib * PAGE) | TABLE);
    put(ram, PDPT, &bytes(directories))?;

    let pages = (0..MAPPED_GIB * ENTRIES).map(|page| (page << 21) | LARGE_PAGE);
    put(ram, PAGE_DIRECTORIES, &bytes(pages))
}

/// The bytes of 64-bit words.
fn bytes(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// The memory in a range.
fn part(ram: &mut [u8], start: u64, size: u64) -> Option<&mut [u8]> {
    let start = usize::try_from(start).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    ram.get_mut(start..end)
}

/// Writes bytes to memory.
fn put(ram: &mut [u8], address: u64, bytes: &[u8]) -> Result<(), BootError> {
    let memory = ram.len() as u64;
    let Some(target) = part(ram, address, bytes.len() as u64) else {
        return Err(BootErrorKind::TooLittleMemory(memory).at("memory", address));
    };
    target.copy_from_slice(bytes);
    Ok(())
}
