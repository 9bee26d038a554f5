//! Kernels made by hand, read back from memory; and hostile ones.

use super::header::field;
use super::*;
use BootErrorKind as Kind;

const MIB: u64 = 1 << 20;
const CODE: u64 = 16 * MIB;
const DATA: u64 = 18 * MIB;
/// The offset of the first program header.
const HEADERS: usize = 64;

/// A kernel with two segments; the second one is larger in memory than in the file, and its virtual
/// address is low, as that of the per-CPU area.
fn kernel() -> Vec<u8> {
    let mut file = vec![0; HEADERS];
    file[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0");
    file[20] = 1;
    file[24..32].copy_from_slice(&(CODE + 2).to_le_bytes());
    file[32..40].copy_from_slice(&(HEADERS as u64).to_le_bytes());
    file[52..58].copy_from_slice(&[64, 0, 56, 0, 3, 0]);

    let mut segment = |kind: u32, words: [u64; 6]| {
        file.extend(kind.to_le_bytes());
        file.extend(5_u32.to_le_bytes());
        file.extend(words.into_iter().flat_map(u64::to_le_bytes));
    };
    segment(1, [232, 0xffff_ffff_8100_0000, CODE, 4, 4, 4096]);
    segment(1, [236, 0, DATA, 3, 5000, 4096]);
    // A PT_NOTE, which is not loaded.
    segment(4, [232, 0, 0, 4, 4, 4]);
    assert_eq!(file.len(), 232);
    file.extend(b"CODEDAT");
    file
}

/// A setup header: protocol 2.15, as a kernel of Debian has it.
fn setup_header() -> Vec<u8> {
    let mut bytes = vec![0; 0x26c - 0x1f1];
    let mut set = |offset: usize, value: &[u8]| {
        bytes[offset - 0x1f1..][..value.len()].copy_from_slice(value);
    };
    set(0x1f1, &[39]);
    set(0x200, &[0xeb, 0x6a]);
    set(0x202, b"HdrS\x0f\x02");
    set(0x211, &[0x02 | 0x20]);
    set(0x22c, &0x7fff_ffff_u32.to_le_bytes());
    set(0x236, &0x7f_u16.to_le_bytes());
    set(0x238, &2047_u32.to_le_bytes());
    set(0x250, &[0xff; 8]);
    set(0x258, &CODE.to_le_bytes());
    set(0x260, &(8 * MIB as u32).to_le_bytes());
    bytes
}

/// Memory that is not zero, so that what must be zero has to be written: as a page table entry, the
/// bytes are a present and writable page.
fn memory(mib: u64) -> Vec<u8> {
    vec![0xcf; (mib * MIB) as usize]
}

fn options(image: &[u8]) -> BootOptions<'_> {
    BootOptions {
        image,
        setup_header: None,
        initrd: None,
        command_line: "console=ttyS0",
        relocations: None,
        slide: 0,
        acpi: false,
    }
}

fn word<const N: usize>(ram: &[u8], address: u64) -> u64 {
    let mut word = [0; 8];
    word[..N].copy_from_slice(&ram[address as usize..][..N]);
    u64::from_le_bytes(word)
}

fn fault(options: &BootOptions<'_>, mib: u64) -> (Kind, u64) {
    let error = place(options, &mut memory(mib)).expect_err("a fault");
    (error.what, error.offset)
}

/// The fault of a kernel with changed bytes.
fn changed(offset: usize, bytes: &[u8]) -> (Kind, u64) {
    let mut image = kernel();
    image[offset..offset + bytes.len()].copy_from_slice(bytes);
    fault(&options(&image), 32)
}

/// The address that the page tables give, walked as a processor does.
fn translate(ram: &[u8], cr3: u64, address: u64) -> Option<u64> {
    let mut table = cr3;
    for shift in [39, 30, 21] {
        let entry = word::<8>(ram, table + 8 * (address >> shift & 511));
        if entry & 3 != 3 {
            return None;
        }
        let next = entry & 0x000f_ffff_ffff_f000;
        if entry & 0x80 != 0 {
            assert_eq!(shift, 21);
            return Some(next + (address & 0x1f_ffff));
        }
        table = next;
    }
    panic!("a page of 4 KiB at {address:#x}");
}

#[test]
fn segments_are_at_their_physical_addresses() {
    let (image, mut ram) = (kernel(), memory(32));
    let entry = place(&options(&image), &mut ram).expect("a kernel");

    assert_eq!(entry.rip, CODE + 2);
    assert_eq!(&ram[CODE as usize..][..5], b"CODE\xcf");
    assert_eq!(&ram[DATA as usize..][..3], b"DAT");
    assert!(
        ram[DATA as usize + 3..][..4997]
            .iter()
            .all(|byte| *byte == 0)
    );
    assert_eq!(ram[DATA as usize + 5000], 0xcf);
    assert_eq!(ram[0], 0xcf);
}

#[test]
fn page_tables_map_four_gib_to_themselves() {
    let (image, mut ram) = (kernel(), memory(32));
    let entry = place(&options(&image), &mut ram).expect("a kernel");

    for page in 0..2048_u64 {
        let address = (page << 21) + 0x12345;
        assert_eq!(translate(&ram, entry.cr3, address), Some(address));
    }
    for address in [4 << 30, (4 << 30) + (5 << 21), 1 << 39, 1 << 47] {
        assert_eq!(translate(&ram, entry.cr3, address), None);
    }
}

#[test]
fn descriptors_are_flat_segments_of_ring_0() {
    let (image, mut ram) = (kernel(), memory(32));
    let (base, limit) = place(&options(&image), &mut ram).expect("a kernel").gdt;

    assert_eq!(limit, 31);
    assert_eq!(word::<8>(&ram, base), 0);
    // Base 0, limit 4 GiB; present, ring 0, code or data, accessed; 64-bit or 32-bit.
    let (code, data) = (word::<8>(&ram, base + 0x10), word::<8>(&ram, base + 0x18));
    for descriptor in [code, data] {
        assert_eq!(descriptor & 0xff00_00ff_ffff_0000, 0);
        assert_eq!(descriptor & 0x000f_0000_0000_ffff, 0x000f_0000_0000_ffff);
    }
    assert_eq!((code >> 40 & 0xff, code >> 52 & 0xf), (0x9b, 0xa));
    assert_eq!((data >> 40 & 0xff, data >> 52 & 0xf), (0x93, 0xc));
}

#[test]
fn what_is_placed_does_not_overlap() {
    let (image, mut ram) = (kernel(), memory(32));
    let line = "x".repeat(2047);
    let options = BootOptions {
        command_line: &line,
        ..options(&image)
    };
    let entry = place(&options, &mut ram).expect("a kernel");

    let line = word::<4>(&ram, entry.boot_params + 0x228);
    let (gdt, limit) = entry.gdt;
    let mut ranges = [
        (entry.boot_params, entry.boot_params + 4096),
        (line, line + 2048),
        (gdt, gdt + u64::from(limit) + 1),
        (entry.cr3, entry.cr3 + 6 * 4096),
        (entry.rsp - 5 * 4096, entry.rsp),
    ];
    ranges.sort_unstable();
    assert!(ranges[0].0 >= 0x1000 && ranges[4].1 <= 0x9_f000);
    for pair in ranges.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "{pair:x?}");
    }
}

#[test]
fn the_zero_page_has_the_header_and_the_memory() {
    let image = kernel();
    let header = setup_header();
    for given in [Some(&header[..]), None] {
        let mut ram = memory(32);
        let options = BootOptions {
            setup_header: given,
            ..options(&image)
        };
        let page = place(&options, &mut ram).expect("a kernel").boot_params;

        assert_eq!(&ram[page as usize + 0x202..][..6], b"HdrS\x0f\x02");
        assert_eq!(word::<1>(&ram, page + 0x210), 0xff);
        // LOADED_HIGH is set, KASLR_FLAG is not; other flags are the kernel's.
        let flags = if given.is_some() { 0x21 } else { 0x01 };
        assert_eq!(word::<1>(&ram, page + 0x211), flags);
        assert_eq!(word::<2>(&ram, page + 0x1fa), 0xffff);
        assert_eq!(word::<8>(&ram, page + 0x250), 0);
        assert_eq!(word::<8>(&ram, page + 0x258), CODE);
        assert_eq!(word::<2>(&ram, page + 0x236) & 1, 1);
        let size = if given.is_some() {
            8 * MIB
        } else {
            2 * MIB + 5000
        };
        assert_eq!(word::<4>(&ram, page + 0x260), size);

        let line = word::<4>(&ram, page + 0x228) as usize;
        assert_eq!(&ram[line..][..14], b"console=ttyS0\0");
        // No initial RAM disk, screen, sentinel, ACPI tables.
        assert_eq!(
            (word::<8>(&ram, page + 0x218), word::<8>(&ram, page + 0xc0)),
            (0, 0)
        );
        assert!(ram[page as usize..][..0x40].iter().all(|byte| *byte == 0));
        assert_eq!(
            (word::<1>(&ram, page + 0x1ef), word::<8>(&ram, page + 0x70)),
            (0, 0)
        );

        assert_eq!(word::<1>(&ram, page + 0x1e8), 4);
        let map: Vec<_> = (0..5)
            .map(|entry| page + 0x2d0 + 20 * entry)
            .map(|at| {
                (
                    word::<8>(&ram, at),
                    word::<8>(&ram, at + 8),
                    word::<4>(&ram, at + 16),
                )
            })
            .collect();
        let expected = [
            (0, 0x9_fc00, 1),
            (0x9_fc00, 0x400, 2),
            (0xf_0000, 0x1_0000, 2),
            (0x10_0000, 31 * MIB, 1),
            (0, 0, 0),
        ];
        assert_eq!(map, expected);
    }
}

#[test]
fn bytes_after_the_header_are_not_copied() {
    let image = kernel();
    let mut header = setup_header();
    header.resize(0x1000, 0x90);
    let mut ram = memory(32);
    let options = BootOptions {
        setup_header: Some(&header),
        ..options(&image)
    };
    let page = place(&options, &mut ram).expect("a kernel").boot_params;
    assert!(
        ram[page as usize + 0x26c..][..0x64]
            .iter()
            .all(|byte| *byte == 0)
    );
}

#[test]
fn the_initial_ram_disk_is_as_high_as_it_may_be() {
    let image = kernel();
    let initrd = vec![0xab; 5000];
    let mut header = setup_header();
    let at = |header: &[u8], mib| {
        let mut ram = memory(mib);
        let options = BootOptions {
            setup_header: Some(header),
            initrd: Some(&initrd),
            ..options(&image)
        };
        let page = place(&options, &mut ram)?.boot_params;
        assert_eq!(word::<4>(&ram, page + 0x21c), 5000);
        let start = word::<4>(&ram, page + 0x218);
        assert_eq!(ram[start as usize..][..5000], initrd);
        Ok::<_, BootError>(start)
    };

    assert_eq!(at(&header, 32), Ok(32 * MIB - 8192));
    // Just enough room above the kernel's 8 MiB from 16 MiB on.
    header[0x260 - 0x1f1..][..4].copy_from_slice(&(16 * MIB as u32 - 8192).to_le_bytes());
    assert_eq!(at(&header, 32), Ok(32 * MIB - 8192));
    header[0x260 - 0x1f1..][..4].copy_from_slice(&(16 * MIB as u32 - 8191).to_le_bytes());
    let error = at(&header, 32).expect_err("no room");
    let what = Kind::InitrdTooLarge {
        size: 5000,
        room: 8191,
    };
    assert_eq!((error.what, error.offset), (what, 32 * MIB - 8191));
}

/// Where an initial RAM disk of two pages is, in memory that is zero and so takes no room.
fn initrd_of_two_pages(addr_max: u32, mib: u64) -> u64 {
    let (image, initrd) = (kernel(), vec![0xab; 8192]);
    let mut header = setup_header();
    header[0x22c - 0x1f1..][..4].copy_from_slice(&addr_max.to_le_bytes());
    let options = BootOptions {
        setup_header: Some(&header),
        initrd: Some(&initrd),
        ..options(&image)
    };
    let mut ram = vec![0; (mib * MIB) as usize];
    let page = place(&options, &mut ram).expect("a kernel").boot_params;
    word::<4>(&ram, page + 0x218)
}

#[test]
fn the_initial_ram_disk_is_where_the_kernel_can_use_it() {
    // `initrd_addr_max` is the last byte.
    let max = 28 * MIB as u32 - 1;
    assert_eq!(initrd_of_two_pages(max, 32), 28 * MIB - 8192);
    assert_eq!(initrd_of_two_pages(max - 1, 32), 28 * MIB - 3 * 4096);
    // Not above 2 GiB, whatever the header says.
    assert_eq!(initrd_of_two_pages(u32::MAX, 2064), 2048 * MIB - 8192);
}

#[test]
fn what_does_not_fit_is_reported() {
    let image = kernel();
    let no_memory = BootOptions {
        setup_header: None,
        ..options(&image)
    };
    let what = Kind::SegmentOutside {
        index: 1,
        end: DATA + 5000,
        memory: 18 * MIB,
    };
    assert_eq!(fault(&no_memory, 18), (what, 64 + 56 + 24));
    assert_eq!(fault(&no_memory, 0), (Kind::TooLittleMemory(0), 0));
    // Zero, so that it takes no room.
    let mut large = vec![0; RAM_MAX as usize + 4096];
    let error = place(&no_memory, &mut large).expect_err("too much");
    assert_eq!(error.what, Kind::TooMuchMemory(RAM_MAX + 4096));

    let header = setup_header();
    let small = BootOptions {
        setup_header: Some(&header),
        ..options(&image)
    };
    let what = Kind::KernelTooLarge {
        end: 24 * MIB,
        memory: 23 * MIB,
    };
    assert_eq!(fault(&small, 23), (what, 0x260));
    assert!(place(&small, &mut memory(24)).is_ok());

    let line = |size: usize| {
        let line = "x".repeat(size);
        let options = BootOptions {
            command_line: &line,
            ..options(&image)
        };
        place(&options, &mut memory(32))
            .err()
            .map(|error| error.what)
    };
    assert_eq!(line(2047), None);
    let what = Kind::CommandLineTooLong {
        size: 2048,
        max: 2047,
    };
    assert_eq!(line(2048), Some(what));

    // A header cannot ask for more than the page that is kept for it.
    let (mut header, long) = (setup_header(), "x".repeat(4096));
    header[0x238 - 0x1f1..][..4].copy_from_slice(&8192_u32.to_le_bytes());
    let options_long = BootOptions {
        setup_header: Some(&header),
        command_line: &long,
        ..options(&image)
    };
    let what = Kind::CommandLineTooLong {
        size: 4096,
        max: 4095,
    };
    assert_eq!(fault(&options_long, 32), (what, 4095));

    let nul = BootOptions {
        command_line: "a\0b",
        ..options(&image)
    };
    assert_eq!(fault(&nul, 32), (Kind::NulInCommandLine, 1));
}

#[test]
fn malformed_kernels_are_reported() {
    assert_eq!(changed(0, b"\x7fELG"), (Kind::NotElf, 0));
    assert_eq!(changed(4, &[1]), (Kind::NotX86_64, 4));
    assert_eq!(changed(18, &[0xb7]), (Kind::NotX86_64, 4));
    assert_eq!(changed(16, &[3]), (Kind::Type(3), 16));
    assert_eq!(changed(54, &[32]), (Kind::ProgramHeaders, 64));
    assert_eq!(changed(56, &[200]), (Kind::ProgramHeaders, 64));
    assert_eq!(changed(32, &[0xff; 8]), (Kind::ProgramHeaders, u64::MAX));
    assert_eq!(changed(56, &[0]), (Kind::NothingToLoad, 64));
    assert_eq!(
        changed(24, &(CODE + 4).to_le_bytes()),
        (Kind::Entry(CODE + 4), 24)
    );

    // The second segment's offset, physical address, size in the file, size in memory.
    let second = HEADERS + 56;
    let at = |field: usize| (second + field) as u64;
    assert_eq!(changed(second + 8, &[237]), (Kind::Segment(1), at(8)));
    assert_eq!(changed(second + 8, &[0xff; 8]), (Kind::Segment(1), at(8)));
    assert_eq!(changed(second + 24, &[0xff; 8]), (Kind::Segment(1), at(8)));
    assert_eq!(changed(second + 32, &[0xff; 8]), (Kind::Segment(1), at(8)));
    assert_eq!(changed(second + 40, &[2, 0]), (Kind::Segment(1), at(8)));
    let low = Kind::SegmentTooLow {
        index: 1,
        start: MIB - 1,
    };
    assert_eq!(
        changed(second + 24, &(MIB - 1).to_le_bytes()),
        (low, at(24))
    );
}

#[test]
fn malformed_setup_headers_are_reported() {
    let image = kernel();
    let fault = |header: &[u8]| {
        let options = BootOptions {
            setup_header: Some(header),
            ..options(&image)
        };
        fault(&options, 32)
    };
    let changed = |offset: usize, value: u8| {
        let mut header = setup_header();
        header[offset - 0x1f1] = value;
        fault(&header)
    };

    assert_eq!(fault(&[]), (Kind::NotSetupHeader, 0x202));
    assert_eq!(changed(0x203, b'x'), (Kind::NotSetupHeader, 0x202));
    assert_eq!(changed(0x206, 0x0b), (Kind::Protocol(0x020b), 0x206));
    assert_eq!(changed(0x201, 0x61), (Kind::SetupHeaderShort(0x263), 0x201));
    assert_eq!(changed(0x201, 0x6b), (Kind::SetupHeaderCut(0x26d), 0x1f1));
    for size in 0..setup_header().len() {
        fault(&setup_header()[..size]);
    }
}

#[test]
fn every_prefix_and_every_changed_byte_ends_without_a_panic() {
    let image = kernel();
    let mut ram = memory(20);
    for size in 0..image.len() {
        let result = place(&options(&image[..size]), &mut ram);
        assert!(result.is_err(), "{size} bytes were accepted");
    }
    for at in 0..HEADERS + 3 * 56 {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut image = image.clone();
            image[at] = value;
            let _ = place(&options(&image), &mut ram);
        }
    }
}

#[test]
fn messages_say_where_and_what_to_do() {
    let error = place(&options(b"MZ"), &mut memory(2)).expect_err("a fault");
    let expected = "ELF file header at 0x0: not an ELF file; unpack a vmlinuz first";
    assert_eq!(error.to_string(), expected);
    let what = Kind::Protocol(0x0209).at("version", field::INIT_SIZE);
    assert!(
        what.to_string()
            .starts_with("version at 0x260: boot protocol 0x0209 is older")
    );
}

/// Entries for the lists, each preceded by a zero; physical addresses as those of a kernel's mapping.
fn relocations(lists: &[&[u64]]) -> Vec<u8> {
    let mut table = Vec::new();
    for list in lists {
        table.extend([0; 4]);
        let words = list.iter().map(|at| (*at + 0x8000_0000) as u32);
        table.extend(words.flat_map(u32::to_le_bytes));
    }
    table
}

/// A kernel whose words in its second segment are changed when it moves.
#[test]
fn a_moved_kernel_is_relocated() {
    let image = kernel();
    let slide = 0x0120_0000;
    let at = |ram: &[u8], table: &[u8], slide| {
        let mut ram = ram.to_vec();
        let options = BootOptions {
            relocations: Some(table),
            slide,
            ..options(&image)
        };
        let page = place(&options, &mut ram)?.boot_params;
        let words = [DATA + 8, DATA + 16, DATA + 20].map(|at| word::<4>(&ram, at));
        Ok::<_, BootError>((word::<8>(&ram, DATA + 8), words, ram[page as usize + 0x211]))
    };
    let ram = memory(32);

    let three = relocations(&[&[DATA + 8], &[DATA + 16], &[DATA + 20]]);
    let minus = u64::from((slide as u32).wrapping_neg());
    let moved = Ok((slide, [slide, minus, slide], 3));
    assert_eq!(at(&ram, &three, slide), moved);
    // The kernel is told that it was moved, and else not, and nothing is changed.
    assert_eq!(at(&ram, &three, 0), Ok((0, [0, 0, 0], 1)));

    // Since Linux 6.15.
    let two = relocations(&[&[DATA + 8], &[DATA + 16, DATA + 20]]);
    assert_eq!(at(&ram, &two, slide), Ok((slide, [slide, slide, slide], 3)));
    // A list may be empty.
    let empty = relocations(&[&[], &[], &[DATA + 20]]);
    assert_eq!(at(&ram, &empty, slide), Ok((0, [0, 0, slide], 3)));

    // The last word of the kernel, and one that is not all in it; one before its start.
    let end = DATA + 5000;
    assert!(at(&ram, &relocations(&[&[end - 8], &[]]), slide).is_ok());
    for (list, what) in [(end - 7, 4), (CODE - 1, 4)] {
        let error = at(&ram, &relocations(&[&[list], &[]]), slide).expect_err("outside");
        let entry = (list + 0x8000_0000) as u32;
        assert_eq!((error.what, error.offset), (Kind::Relocation(entry), what));
    }
}

#[test]
fn a_kernel_that_cannot_be_moved_is_reported() {
    let image = kernel();
    let fault = |relocations: Option<&[u8]>, slide| {
        let options = BootOptions {
            relocations,
            slide,
            ..options(&image)
        };
        fault(&options, 32)
    };

    let table = relocations(&[&[DATA], &[]]);
    let slide = 2 << 20;
    assert_eq!(fault(None, slide), (Kind::NoRelocations, 0));
    // Its end is at 18 MiB and 5000 bytes, and must be below 1 GiB.
    let most = (1 << 30) - (20 << 20);
    for slide in [1 << 20, slide + 1, most + slide, 1 << 30, u64::MAX - 4095] {
        let what = Kind::Slide { slide, most };
        assert_eq!(fault(Some(&table), slide), (what, slide), "{slide:#x}");
    }
    let options = BootOptions {
        relocations: Some(&table),
        slide: most,
        ..options(&image)
    };
    assert!(place(&options, &mut memory(32)).is_ok());

    let last = table.len() as u64 - 1;
    let cut = &table[..table.len() - 1];
    assert_eq!(fault(Some(cut), slide), (Kind::RelocationTable, last));
    for lists in [&[][..], &[&[DATA][..]], &[&[], &[], &[], &[]]] {
        let table = relocations(lists);
        assert_eq!(fault(Some(&table), slide), (Kind::RelocationTable, 0));
    }
    // Nothing stands before the first zero.
    let late = [&[1, 2, 3, 0x81][..], &table].concat();
    assert_eq!(fault(Some(&late), slide), (Kind::RelocationTable, 0));
}
