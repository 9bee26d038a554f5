//! The setup header of a bzImage, which is a part of the zero page.
//!
//! Source: `Documentation/arch/x86/boot.rst`, "The Real-Mode Kernel Header", Linux 6.12.

use super::error::{BootError, BootErrorKind};
use std::ops::Range;

/// Offsets in a bzImage and in the zero page, which are the same.
pub(super) mod field {
    /// `e820_entries`, one byte.
    pub(in super::super) const ACPI_RSDP_ADDR: u64 = 0x70;
    pub(in super::super) const E820_ENTRIES: u64 = 0x1e8;
    /// `setup_sects`, where the header starts.
    pub(in super::super) const SETUP_SECTS: u64 = 0x1f1;
    pub(super) const VID_MODE: u64 = 0x1fa;
    pub(super) const BOOT_FLAG: u64 = 0x1fe;
    /// A jump over the header; its second byte says where the header ends, counted from 0x202.
    pub(super) const JUMP: u64 = 0x200;
    /// The signature `HdrS`.
    pub(super) const HEADER: u64 = 0x202;
    pub(super) const VERSION: u64 = 0x206;
    pub(super) const TYPE_OF_LOADER: u64 = 0x210;
    pub(super) const LOADFLAGS: u64 = 0x211;
    pub(super) const CODE32_START: u64 = 0x214;
    pub(in super::super) const RAMDISK_IMAGE: u64 = 0x218;
    pub(in super::super) const RAMDISK_SIZE: u64 = 0x21c;
    pub(in super::super) const CMD_LINE_PTR: u64 = 0x228;
    pub(super) const INITRD_ADDR_MAX: u64 = 0x22c;
    pub(super) const KERNEL_ALIGNMENT: u64 = 0x230;
    pub(super) const RELOCATABLE_KERNEL: u64 = 0x234;
    pub(super) const MIN_ALIGNMENT: u64 = 0x235;
    pub(super) const XLOADFLAGS: u64 = 0x236;
    pub(super) const CMDLINE_SIZE: u64 = 0x238;
    /// The end of the header, counting `payload_length`.
    pub(super) const SETUP_DATA: u64 = 0x250;
    pub(super) const PREF_ADDRESS: u64 = 0x258;
    pub(in super::super) const INIT_SIZE: u64 = 0x260;
    /// The end of protocol 2.15's header: after `kernel_info_offset`.
    pub(super) const HEADER_END: u64 = 0x26c;
    /// The end of the zero page's part for the header (`edd_mbr_sig_buffer`).
    pub(super) const ROOM_END: u64 = 0x290;
    /// `e820_table`
    pub(in super::super) const E820_TABLE: u64 = 0x2d0;
    /// Size of a `boot_e820_entry`: address and size, 8 bytes each, and type, 4.
    pub(in super::super) const E820_ENTRY_SIZE: u64 = 20;

    /// Writes a field; one outside of `page` is left out.
    pub(in super::super) fn write(page: &mut [u8], offset: u64, bytes: &[u8]) {
        let start = offset as usize;
        if let Some(target) = page.get_mut(start..start + bytes.len()) {
            target.copy_from_slice(bytes);
        }
    }
}

/// The first boot protocol with a 64-bit entry point.
const PROTOCOL_64: u16 = 0x020c;
/// The protocol of a header that is made up.
const PROTOCOL: u16 = 0x020f;
const SIGNATURE: [u8; 4] = *b"HdrS";
/// A boot loader without a number of its own.
const LOADER_UNDEFINED: u8 = 0xff;
/// `LOADED_HIGH`: the kernel is at 1 MiB or above.
const LOADED_HIGH: u8 = 1;
/// `KASLR_FLAG`: the decompressor chose a random address.
const KASLR: u8 = 2;
/// `XLF_KERNEL_64`: there is a 64-bit entry point.
const XLF_KERNEL_64: u16 = 1;
/// `vid_mode`: as it is.
const VID_MODE_NORMAL: u16 = 0xffff;
/// `COMMAND_LINE_SIZE` of x86 without the NUL (`arch/x86/include/asm/setup.h`).
const COMMAND_LINE_MAX: u32 = 2047;
/// The last byte that an initial RAM disk may have: `initrd_addr_max` of all 64-bit kernels, and of
/// the protocol.
const INITRD_MAX: u32 = 0x7fff_ffff;
/// The alignment of x86-64 kernels, `MIN_KERNEL_ALIGN`: 2 MiB.
const ALIGNMENT_LOG: u8 = 21;

/// A setup header.
#[derive(Clone, Debug)]
pub(super) struct Header {
    /// The bytes from `setup_sects` on, to the end of the room for them.
    bytes: [u8; (field::ROOM_END - field::SETUP_SECTS) as usize],
}

impl Header {
    /// Reads the header of a bzImage: its bytes from 0x1f1 on.
    pub(super) fn parse(given: &[u8]) -> Result<Header, BootError> {
        let at = |offset: u64| given.get((offset - field::SETUP_SECTS) as usize..);
        let signature = at(field::HEADER).and_then(|rest| rest.first_chunk());
        if signature != Some(&SIGNATURE) {
            return Err(BootErrorKind::NotSetupHeader.at("setup header", field::HEADER));
        }

        let version = at(field::VERSION).and_then(|rest| rest.first_chunk());
        let version = version.copied().map_or(0, u16::from_le_bytes);
        if version < PROTOCOL_64 {
            return Err(BootErrorKind::Protocol(version).at("version", field::VERSION));
        }

        // Later fields are the header's only if it says so: after them there is code.
        let jump = at(field::JUMP + 1).and_then(|rest| rest.first());
        let end = field::HEADER + u64::from(jump.copied().unwrap_or_default());
        let end = end.min(field::ROOM_END);
        if end < field::INIT_SIZE + 4 {
            return Err(BootErrorKind::SetupHeaderShort(end).at("setup header", field::JUMP + 1));
        }
        let Some(bytes) = given.get(..(end - field::SETUP_SECTS) as usize) else {
            return Err(BootErrorKind::SetupHeaderCut(end).at("setup header", field::SETUP_SECTS));
        };

        let mut header = Header {
            bytes: [0; (field::ROOM_END - field::SETUP_SECTS) as usize],
        };
        field::write(&mut header.bytes, 0, bytes);
        Ok(header)
    }

    /// A header for a kernel at `range`.
    pub(super) fn made(range: &Range<u64>) -> Header {
        let mut header = Header {
            bytes: [0; (field::ROOM_END - field::SETUP_SECTS) as usize],
        };
        header.set(field::BOOT_FLAG, &0xaa55_u16.to_le_bytes());
        let length = (field::HEADER_END - field::HEADER) as u8;
        header.set(field::JUMP, &[0xeb, length]);
        header.set(field::HEADER, &SIGNATURE);
        header.set(field::VERSION, &PROTOCOL.to_le_bytes());
        header.set_u32(field::CODE32_START, range.start as u32);
        header.set_u32(field::INITRD_ADDR_MAX, INITRD_MAX);
        header.set_u32(field::KERNEL_ALIGNMENT, 1 << ALIGNMENT_LOG);
        header.set(field::RELOCATABLE_KERNEL, &[0]);
        header.set(field::MIN_ALIGNMENT, &[ALIGNMENT_LOG]);
        header.set(field::XLOADFLAGS, &XLF_KERNEL_64.to_le_bytes());
        header.set_u32(field::CMDLINE_SIZE, COMMAND_LINE_MAX);
        header.set(field::PREF_ADDRESS, &range.start.to_le_bytes());
        header.set_u32(field::INIT_SIZE, (range.end - range.start) as u32);
        header
    }

    /// How much memory the kernel needs from its start on, bytes.
    pub(super) fn init_size(&self) -> u64 {
        u64::from(self.u32(field::INIT_SIZE))
    }

    /// The size of the longest command line, bytes, without its NUL.
    pub(super) fn command_line_max(&self) -> u64 {
        u64::from(self.u32(field::CMDLINE_SIZE))
    }

    /// The last byte that the initial RAM disk may have.
    pub(super) fn initrd_max(&self) -> u64 {
        u64::from(self.u32(field::INITRD_ADDR_MAX).min(INITRD_MAX))
    }

    /// Sets what a boot loader says of itself, and what a decompressor says that moved the kernel.
    pub(super) fn set_loader(&mut self, is_moved: bool) {
        let mut flags = (self.u32(field::LOADFLAGS) as u8 | LOADED_HIGH) & !KASLR;
        if is_moved {
            flags |= KASLR;
        }
        self.set(field::TYPE_OF_LOADER, &[LOADER_UNDEFINED, flags]);
        self.set(field::VID_MODE, &VID_MODE_NORMAL.to_le_bytes());
        // A list in memory that is not there.
        self.set(field::SETUP_DATA, &0_u64.to_le_bytes());
    }

    pub(super) fn set_u32(&mut self, offset: u64, value: u32) {
        self.set(offset, &value.to_le_bytes());
    }

    /// Writes the header to its place in the zero page.
    pub(super) fn write(&self, page: &mut [u8]) {
        field::write(page, field::SETUP_SECTS, &self.bytes);
    }

    /// A field; the header has room for all of them.
    fn u32(&self, offset: u64) -> u32 {
        let rest = self.bytes.get((offset - field::SETUP_SECTS) as usize..);
        let bytes = rest.and_then(|rest| rest.first_chunk());
        bytes.copied().map_or(0, u32::from_le_bytes)
    }

    fn set(&mut self, offset: u64, bytes: &[u8]) {
        field::write(&mut self.bytes, offset - field::SETUP_SECTS, bytes);
    }
}
