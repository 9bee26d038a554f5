//! Kernels of a few instructions: an ELF file as a linker makes one, and a bzImage around it.

/// The physical address of the code, which is at the start of the segment, and its virtual address.
pub(super) const CODE: u64 = 16 << 20;
const VIRTUAL: u64 = 0xffff_ffff_8000_0000 + CODE;
/// Size of the ELF header and of the one program header.
const HEADERS: u64 = 64 + 56;
/// Size of the segment in memory.
const MEMORY: u64 = 0x4000;

/// mov $0x3f8, %dx: the port of the console.
const CONSOLE: &[u8] = &[0x66, 0xba, 0xf8, 0x03];
/// mov $8, %ecx; then, eight times: out %al, (%dx); shr $8, %rax; dec %ecx; jnz
const PUT_RAX: &[u8] = &[
    0xb9, 8, 0, 0, 0, 0xee, 0x48, 0xc1, 0xe8, 8, 0xff, 0xc9, 0x75, 0xf7,
];

/// cli; hlt
pub(in crate::cli) const HALT: &[u8] = &[0xfa, 0xf4];
/// sti; hlt
pub(super) const WAIT: &[u8] = &[0xfb, 0xf4];
/// mov $0xfe, %al; out %al, $0x64; and a jump to itself until it has happened
pub(super) const RESET: &[u8] = &[0xb0, 0xfe, 0xe6, 0x64, 0xeb, 0xfe];
/// push $0; push $0; lidt (%rsp); ud2: a descriptor table without room for any exception
pub(super) const TRIPLE_FAULT: &[u8] = &[0x6a, 0, 0x6a, 0, 0x0f, 0x01, 0x1c, 0x24, 0x0f, 0x0b];
/// push $8; push $0; lretq: 32-bit code, which is not modelled
pub(super) const TO_32_BIT: &[u8] = &[0x6a, 8, 0x6a, 0, 0x48, 0xcb];
/// A jump to itself.
pub(super) const LOOP: &[u8] = &[0xeb, 0xfe];
/// Programs channel 0 of the timer, whose interrupt is masked: mov $0x34, %al; out %al, $0x43; xor
/// %eax, %eax; out %al, $0x40; out %al, $0x40
pub(super) const MASKED_TIMER: &[u8] =
    &[0xb0, 0x34, 0xe6, 0x43, 0x31, 0xc0, 0xe6, 0x40, 0xe6, 0x40];
/// in $0xe9, %al: no device
pub(super) const UNKNOWN_PORT: &[u8] = &[0xe4, 0xe9];
/// mov $0x1234567, %ecx; rdmsr: with a descriptor table without room, the end
pub(super) const UNKNOWN_REGISTER: &[u8] = &[0xb9, 0x67, 0x45, 0x23, 0x01, 0x0f, 0x32];

/// Writes a text to the console.
pub(in crate::cli) fn print(text: &str) -> Vec<u8> {
    // mov $byte, %al; out %al, (%dx)
    let bytes = text.bytes().flat_map(|byte| [0xb0, byte, 0xee]);
    CONSOLE.iter().copied().chain(bytes).collect()
}

/// Writes a text to the console for ever.
pub(super) fn print_for_ever(byte: u8) -> Vec<u8> {
    // mov $byte, %al; out %al, (%dx); jmp to the out
    [CONSOLE, &[0xb0, byte, 0xee, 0xeb, 0xfd]].concat()
}

/// Writes the kernel's command line to the console.
pub(super) fn print_command_line() -> Vec<u8> {
    let code = [
        // mov 0x228(%rsi), %ebx: `cmd_line_ptr`
        &[0x8b, 0x9e, 0x28, 2, 0, 0][..],
        // mov (%rbx), %al; test %al, %al; jz to the end; out; inc %ebx; jmp to the mov
        &[
            0x8a, 0x03, 0x84, 0xc0, 0x74, 5, 0xee, 0xff, 0xc3, 0xeb, 0xf5,
        ],
    ];
    [CONSOLE, &code.concat()].concat()
}

/// Writes the initial RAM disk to the console.
pub(super) fn print_initrd() -> Vec<u8> {
    let code = [
        // mov 0x218(%rsi), %ebx; mov 0x21c(%rsi), %ecx: `ramdisk_image`, `ramdisk_size`
        &[0x8b, 0x9e, 0x18, 2, 0, 0, 0x8b, 0x8e, 0x1c, 2, 0, 0][..],
        // test %ecx, %ecx; jz to the end; mov (%rbx), %al; out; inc %ebx; dec %ecx; jmp to the test
        &[
            0x85, 0xc9, 0x74, 9, 0x8a, 0x03, 0xee, 0xff, 0xc3, 0xff, 0xc9, 0xeb, 0xf3,
        ],
    ];
    [CONSOLE, &code.concat()].concat()
}

/// Writes the size of the last region of the memory map, a word of 64 bits, to the console.
pub(super) fn print_memory() -> Vec<u8> {
    // mov 0x314(%rsi), %rax: `e820_table[3].size`
    [CONSOLE, &[0x48, 0x8b, 0x86, 0x14, 3, 0, 0], PUT_RAX].concat()
}

/// Writes a random number, a word of 64 bits, to the console.
pub(super) fn print_random() -> Vec<u8> {
    // rdrand %rax
    [CONSOLE, &[0x48, 0x0f, 0xc7, 0xf0], PUT_RAX].concat()
}

/// Reads a line from the console and writes it there.
pub(super) fn echo() -> Vec<u8> {
    let code = [
        // mov $0x3fd, %dx; in (%dx), %al; test $1, %al; jz to the in: until there is something
        &[0x66, 0xba, 0xfd, 3, 0xec, 0xa8, 1, 0x74, 0xfb][..],
        // mov $0x3f8, %dx; in (%dx), %al; out %al, (%dx); cmp $'\n', %al; jne to the start
        &[0x66, 0xba, 0xf8, 3, 0xec, 0xee, 0x3c, 0x0a, 0x75, 0xed],
    ];
    code.concat()
}

/// Writes the linked address of the code, a word of 64 bits, to the console; it is at [`RELOCATED`].
pub(super) fn print_address() -> Vec<u8> {
    // movabs $VIRTUAL, %rax
    [&[0x48, 0xb8][..], &VIRTUAL.to_le_bytes(), CONSOLE, PUT_RAX].concat()
}

/// Offset in [`print_address`] of what changes if the kernel moves.
const RELOCATED: u64 = 2;

/// The address that [`print_address`] writes if the kernel is not moved.
pub(super) const ADDRESS: u64 = VIRTUAL;

/// Code whose handler of invalid instructions is an invalid instruction, on a stack of its own.
pub(super) fn exceptions_for_ever() -> Vec<u8> {
    const GDT: u64 = 0x100;
    const IDT: u64 = 0x200;
    const TSS: u64 = 0x300;
    let at = |offset: u64| ((CODE + offset) as u32).to_le_bytes();

    // lgdt, lidt; mov $0x20, %ax; ltr %ax; ud2
    let mut code = [
        &[0x0f, 0x01, 0x14, 0x25][..],
        &at(GDT - 16),
        &[0x0f, 0x01, 0x1c, 0x25],
        &at(IDT - 16),
        &[0x66, 0xb8, 0x20, 0, 0x0f, 0, 0xd8],
    ]
    .concat();
    let handler = CODE + code.len() as u64;
    code.extend([0x0f, 0x0b]);
    code.resize(0x400, 0);

    let mut put = |offset: u64, bytes: &[u8]| {
        code[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    };
    // Limits and addresses of the tables, for the two instructions.
    for (offset, limit) in [(GDT, 0x2f_u16), (IDT, 0x6f)] {
        put(offset - 16, &limit.to_le_bytes());
        put(offset - 14, &(CODE + offset).to_le_bytes());
    }
    // 64-bit code is 0x10, data 0x18; then a task state segment of 0x68 bytes, with its first stack.
    put(GDT + 0x10, &0x00af_9b00_0000_ffff_u64.to_le_bytes());
    put(GDT + 0x18, &0x00cf_9300_0000_ffff_u64.to_le_bytes());
    let (low, high) = ((CODE + TSS) & 0xff_ffff, (CODE + TSS) >> 24);
    let task = 0x67 | low << 16 | 0x89 << 40 | high << 56;
    put(GDT + 0x20, &task.to_le_bytes());
    put(TSS + 0x24, &(CODE + MEMORY).to_le_bytes());
    // An interrupt gate for vector 6, with that stack.
    let gate = (handler & 0xffff) | 0x10 << 16 | 1 << 32 | 0x8e << 40 | (handler >> 16) << 48;
    put(IDT + 16 * 6, &gate.to_le_bytes());
    code
}

/// A vmlinux with this code, one of the functions above after another.
pub(in crate::cli) fn vmlinux(code: &[&[u8]]) -> Vec<u8> {
    let code = code.concat();
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // e_type ET_EXEC, e_machine x86-64, e_version; e_entry, e_phoff and e_shoff
    file.extend([2, 0, 0x3e, 0, 1, 0, 0, 0]);
    file.extend([CODE, 64, 0].iter().flat_map(|word| word.to_le_bytes()));
    // e_flags; e_ehsize, e_phentsize, e_phnum, and no sections
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);

    // PT_LOAD, readable and executable; offset, addresses, sizes, alignment
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    let size = code.len() as u64;
    let segment = [HEADERS, VIRTUAL, CODE, size, MEMORY, 0x1000];
    file.extend(segment.iter().flat_map(|word| word.to_le_bytes()));
    assert_eq!(file.len() as u64, HEADERS);
    file.extend(code);
    file
}

/// A vmlinux with this code and a table of symbols: functions, in order, each with its offset in the code.
pub(in crate::cli) fn vmlinux_with_symbols(code: &[&[u8]], functions: &[(&str, u64)]) -> Vec<u8> {
    let mut file = vmlinux(code);
    let size = code.concat().len() as u64;
    // The names of symbols, which are those of sections, too, at the same place.
    let mut names = b"\0.text\0".to_vec();
    let mut symbols = vec![0; 24];
    for (number, (function, offset)) in functions.iter().enumerate() {
        let next = functions.get(number + 1).map_or(size, |(_, next)| *next);
        // Its name, a global function in section 1, its address and size.
        symbols.extend((names.len() as u32).to_le_bytes());
        symbols.extend([0x12, 0, 1, 0]);
        let words = [VIRTUAL + offset, next - offset];
        symbols.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        names.extend(function.bytes().chain([0]));
    }
    let names_at = file.len() as u64;
    file.extend(&names);
    file.resize(file.len().next_multiple_of(8), 0);

    // The first symbol is zero.
    let symbols_at = file.len() as u64;
    file.extend(&symbols);

    let headers_at = file.len() as u64;
    let mut section =
        |name: usize, kind: u32, flags: u64, place: [u64; 3], link: u32, entry: u64| {
            file.extend((name as u32).to_le_bytes());
            file.extend(kind.to_le_bytes());
            let words = [&[flags][..], &place].concat();
            file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            // sh_link; sh_info, the first symbol that is not local; alignment and size of an entry
            file.extend(link.to_le_bytes());
            file.extend(1_u32.to_le_bytes());
            file.extend([8, entry].iter().flat_map(|word: &u64| word.to_le_bytes()));
        };
    section(0, 0, 0, [0; 3], 0, 0);
    section(1, 1, 6, [VIRTUAL, HEADERS, size], 0, 0);
    let symbols_len = symbols.len() as u64;
    section(0, 2, 0, [0, symbols_at, symbols_len], 3, 24);
    section(0, 3, 0, [0, names_at, names.len() as u64], 0, 0);

    // e_shoff; e_shentsize, e_shnum, e_shstrndx
    file[40..48].copy_from_slice(&headers_at.to_le_bytes());
    file[58..64].copy_from_slice(&[64, 0, 4, 0, 3, 0]);
    file
}

/// The relocations of a kernel that is [`print_address`]: the lists of Linux 6.12.
pub(super) fn relocations() -> Vec<u8> {
    let word = ((VIRTUAL + RELOCATED) as u32).to_le_bytes();
    [[0; 4], word, [0; 4], [0; 4]].concat()
}

/// A bzImage with this payload behind its setup sector: protocol 2.15.
pub(super) fn bzimage(payload: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 1024];
    let mut put = |offset: usize, bytes: &[u8]| {
        file[offset..][..bytes.len()].copy_from_slice(bytes);
    };
    put(0x1f1, &[1]);
    put(0x1fe, &[0x55, 0xaa]);
    // A jump over the header, which ends at 0x26c.
    put(0x200, &[0xeb, 0x6a]);
    put(0x202, b"HdrS\x0f\x02");
    // initrd_addr_max, xloadflags, cmdline_size
    put(0x22c, &0x7fff_ffff_u32.to_le_bytes());
    put(0x236, &1_u16.to_le_bytes());
    put(0x238, &2047_u32.to_le_bytes());
    // payload_offset, payload_length; pref_address, init_size
    put(0x248, &0_u32.to_le_bytes());
    put(0x24c, &(payload.len() as u32).to_le_bytes());
    put(0x258, &CODE.to_le_bytes());
    put(0x260, &(1_u32 << 20).to_le_bytes());
    file.extend(payload);
    file
}
