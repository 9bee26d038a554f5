//! The ACPI tables of the computer: without them, Linux has no local APIC where its reader of MP tables is not
//! built in (`CONFIG_X86_MPPARSE`).
//!
//! They say that there is a local APIC behind two 8259, that the power can be switched off, and that there is
//! neither an I/O APIC nor a device that is not a PC's anyway.
//!
//! Source: ACPI specification 6.5, chapter 5, and 4.8 for the registers.

use super::{BIOS, BootError, put};

/// Where the tables are: in what firmware keeps of the memory below 1 MiB.
const TABLES: u64 = BIOS;
/// The addresses of tables are multiples of this; that of the FACS must be.
const ALIGNMENT: usize = 64;

/// The first port of PM1a: its event registers, and its control register.
pub(in crate::system) const PM1_EVENT: u16 = 0x600;
pub(in crate::system) const PM1_CONTROL: u16 = 0x604;
/// The type of sleep that is no power: the content of `\_S5`.
pub(in crate::system) const SOFT_OFF: u8 = 5;

/// The interrupt of power management, which never comes.
const SYSTEM_CONTROL_INTERRUPT: u16 = 9;
const LOCAL_APIC: u32 = 0xfee0_0000;
/// Size of a table's header, bytes.
const HEADER: usize = 36;

/// Writes the tables. Returns where the first one is, the RSDP.
pub(super) fn place(ram: &mut [u8]) -> Result<u64, BootError> {
    let (root, tables) = tables();
    put(ram, TABLES, &tables)?;
    Ok(root)
}

/// The address of the RSDP, and the tables.
fn tables() -> (u64, Vec<u8>) {
    let mut all = Vec::new();
    let facs = add(&mut all, facs());
    let dsdt = add(&mut all, table(b"DSDT", 2, &soft_off()));
    let fadt = add(&mut all, table(b"FACP", 3, &fadt(facs, dsdt)));
    let madt = add(&mut all, table(b"APIC", 4, &madt()));
    let entries: Vec<u8> = [fadt, madt]
        .into_iter()
        .flat_map(u64::to_le_bytes)
        .collect();
    let xsdt = add(&mut all, table(b"XSDT", 1, &entries));
    let rsdp = add(&mut all, rsdp(xsdt));
    (rsdp, all)
}

/// Adds a table. Returns its address.
fn add(all: &mut Vec<u8>, table: Vec<u8>) -> u64 {
    all.resize(all.len().next_multiple_of(ALIGNMENT), 0);
    let address = TABLES + all.len() as u64;
    all.extend(table);
    address
}

/// A table with its header.
fn table(signature: &[u8; 4], revision: u8, content: &[u8]) -> Vec<u8> {
    let mut table = signature.to_vec();
    table.extend(((HEADER + content.len()) as u32).to_le_bytes());
    table.extend([revision, 0]);
    // Who made the table, its name, its revision; what compiled it, and that one's revision.
    table.extend(b"UNWSIMUNWINDSI");
    table.extend(1u32.to_le_bytes());
    table.extend(b"UNWS");
    table.extend(1u32.to_le_bytes());
    table.extend(content);
    table[9] = checksum(&table);
    table
}

/// What makes the sum of all bytes 0, in place of a byte that is 0.
fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte))
}

/// The root pointer, of revision 2. The first checksum is of its first 20 bytes.
fn rsdp(xsdt: u64) -> Vec<u8> {
    let mut rsdp = b"RSD PTR \0UNWSIM".to_vec();
    rsdp.push(2);
    rsdp.extend(0u32.to_le_bytes());
    rsdp[8] = checksum(&rsdp);
    rsdp.extend(36u32.to_le_bytes());
    rsdp.extend(xsdt.to_le_bytes());
    rsdp.extend([0; 4]);
    rsdp[32] = checksum(&rsdp);
    rsdp
}

/// The firmware control structure, which has no checksum. Nothing of it is used.
fn facs() -> Vec<u8> {
    let mut facs = vec![0; 64];
    facs[..4].copy_from_slice(b"FACS");
    facs[4] = 64;
    facs[32] = 2;
    facs
}

/// `Name (\_S5, Package () {5, 5, 0, 0})` in AML.
fn soft_off() -> Vec<u8> {
    let mut code = vec![0x08];
    code.extend(b"_S5_");
    code.extend([0x12, 8, 4, 0x0a, SOFT_OFF, 0x0a, SOFT_OFF, 0, 0]);
    code
}

/// The fixed description.
fn fadt(facs: u64, dsdt: u64) -> Vec<u8> {
    // No VGA; no keyboard controller; devices of a PC.
    const BOOT_ARCHITECTURE: u16 = 1 << 2 | 1;
    // WBINVD works; C1; neither a power nor a sleep button nor an alarm among the fixed registers; a reset
    // register.
    const FLAGS: u32 = 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 10;
    const RESET_PORT: u16 = 0xcf9;
    const RESET: u8 = 6;
    // More than this is no latency of a state that exists.
    const NO_C2: u16 = 101;
    const NO_C3: u16 = 1001;

    let mut fadt = vec![0; 244 - HEADER];
    let mut set = |at: usize, bytes: &[u8]| {
        let at = at - HEADER;
        fadt[at..at + bytes.len()].copy_from_slice(bytes);
    };
    set(36, &(facs as u32).to_le_bytes());
    set(40, &(dsdt as u32).to_le_bytes());
    set(46, &SYSTEM_CONTROL_INTERRUPT.to_le_bytes());
    set(56, &u32::from(PM1_EVENT).to_le_bytes());
    set(64, &u32::from(PM1_CONTROL).to_le_bytes());
    set(88, &[4, 2]);
    set(96, &NO_C2.to_le_bytes());
    set(98, &NO_C3.to_le_bytes());
    set(109, &BOOT_ARCHITECTURE.to_le_bytes());
    set(112, &FLAGS.to_le_bytes());
    set(116, &port(RESET_PORT, 1));
    set(128, &[RESET]);
    set(132, &facs.to_le_bytes());
    set(140, &dsdt.to_le_bytes());
    set(148, &port(PM1_EVENT, 4));
    set(172, &port(PM1_CONTROL, 2));
    fadt
}

/// A generic address: ports of this many bytes, accessed as such, or as words.
fn port(port: u16, bytes: u8) -> [u8; 12] {
    const SYSTEM_IO: u8 = 1;
    let access = bytes.min(2);
    let mut address = [SYSTEM_IO, 8 * bytes, 0, access, 0, 0, 0, 0, 0, 0, 0, 0];
    address[4..6].copy_from_slice(&port.to_le_bytes());
    address
}

/// The interrupt controllers: two 8259 and a local APIC, whose LINT1 is the NMI.
fn madt() -> Vec<u8> {
    const HAS_8259: u32 = 1;
    let mut madt = Vec::new();
    madt.extend(LOCAL_APIC.to_le_bytes());
    madt.extend(HAS_8259.to_le_bytes());
    // Processor 0, APIC 0, enabled.
    madt.extend([0, 8, 0, 0, 1, 0, 0, 0]);
    // All processors.
    madt.extend([4, 6, 0xff, 0, 0, 1]);
    madt
}

#[cfg(test)]
mod tests {
    use super::{TABLES, tables};

    fn sum(bytes: &[u8]) -> u8 {
        bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
    }

    /// Follows all addresses, as a kernel does.
    #[test]
    fn the_tables_are_found_from_their_root() {
        let (root, all) = tables();
        let at = |address: u64| &all[(address - TABLES) as usize..];
        let word = |bytes: &[u8], at: usize| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
        };
        let whole = |address: u64| {
            let table = at(address);
            let size = u32::from_le_bytes(table[4..8].try_into().expect("4 bytes"));
            let table = &table[..size as usize];
            assert_eq!(sum(table), 0, "{:?}", &table[..4]);
            table
        };
        let root = &at(root)[..36];
        assert_eq!(
            (&root[..8], sum(&root[..20]), sum(root)),
            (&b"RSD PTR "[..], 0, 0)
        );
        let xsdt = whole(word(root, 24));
        let tables: Vec<_> = xsdt[36..]
            .chunks(8)
            .map(|entry| whole(word(entry, 0)))
            .collect();
        let names: Vec<_> = tables.iter().map(|table| &table[..4]).collect();
        assert_eq!(names, [b"FACP", b"APIC"]);
        assert_eq!(whole(word(tables[0], 140))[..4], *b"DSDT");
        let facs = word(tables[0], 132);
        assert_eq!((&at(facs)[..4], facs % 64), (&b"FACS"[..], 0));
    }
}
