//! What the 8259A's datasheet says.

use super::Pics;

const MASTER: u16 = 0x20;
const MASTER_DATA: u16 = 0x21;
const SLAVE: u16 = 0xa0;
const SLAVE_DATA: u16 = 0xa1;

const NON_SPECIFIC_EOI: u8 = 0x20;
const READ_REQUESTS: u8 = 0x0a;
const READ_IN_SERVICE: u8 = 0x0b;

/// Both controllers, vectors 0x30 and 0x38, nothing masked.
fn pics(icw4: u8) -> Pics {
    let mut pics = Pics::new();
    for (command, data, base, wiring) in [
        (MASTER, MASTER_DATA, 0x30, 0x04),
        (SLAVE, SLAVE_DATA, 0x38, 0x02),
    ] {
        pics.write(command, 0x11);
        pics.write(data, base);
        pics.write(data, wiring);
        pics.write(data, icw4);
    }
    pics
}

fn pulse(pics: &mut Pics, irq: u8) {
    pics.set_line(irq, false);
    pics.set_line(irq, true);
}

fn read(pics: &mut Pics, port: u16, what: u8) -> u8 {
    pics.write(port, what);
    pics.read(port)
}

#[test]
fn the_mask_reads_as_it_was_written() {
    // Linux' probe_8259A.
    let mut pics = Pics::new();
    pics.write(SLAVE_DATA, 0xff);
    pics.write(MASTER_DATA, !(1 << 2));
    assert_eq!(pics.read(MASTER_DATA), 0xfb);
    assert_eq!(pics.read(SLAVE_DATA), 0xff);
}

#[test]
fn firmware_leaves_everything_masked() {
    let mut pics = Pics::new();
    (0..16).for_each(|irq| pulse(&mut pics, irq));
    assert!(!pics.output());
}

#[test]
fn lower_inputs_come_first() {
    let mut pics = pics(1);
    for irq in [7, 3, 12, 9, 1] {
        pulse(&mut pics, irq);
    }

    let mut vectors = Vec::new();
    while pics.output() {
        let vector = pics.acknowledge();
        vectors.push(vector);
        if vector >= 0x38 {
            pics.write(SLAVE, NON_SPECIFIC_EOI);
        }
        pics.write(MASTER, NON_SPECIFIC_EOI);
    }
    assert_eq!(vectors, [0x31, 0x39, 0x3c, 0x33, 0x37]);
}

#[test]
fn an_interrupt_in_service_blocks_lower_ones() {
    let mut pics = pics(1);
    pulse(&mut pics, 3);
    assert_eq!(pics.acknowledge(), 0x33);

    pulse(&mut pics, 5);
    assert!(!pics.output());
    pulse(&mut pics, 1);
    assert!(pics.output());
    assert_eq!(pics.acknowledge(), 0x31);
    assert_eq!(read(&mut pics, MASTER, READ_IN_SERVICE), 0b1010);
    assert_eq!(read(&mut pics, MASTER, READ_REQUESTS), 1 << 5);

    // A non-specific EOI ends the one with the highest priority.
    pics.write(MASTER, NON_SPECIFIC_EOI);
    assert_eq!(read(&mut pics, MASTER, READ_IN_SERVICE), 0b1000);
    assert!(!pics.output());
    pics.write(MASTER, 0x63);
    assert_eq!(pics.acknowledge(), 0x35);
}

#[test]
fn edges_count_once_and_levels_as_long_as_they_last() {
    let mut pics = pics(1);
    pics.write(0x4d0, 0xff);
    assert_eq!(pics.read(0x4d0), 0xf8, "IRQ 0, 1 and 2 are always edges");
    pics.set_line(1, true);
    pics.set_line(5, true);

    assert_eq!(pics.acknowledge(), 0x31);
    pics.write(MASTER, NON_SPECIFIC_EOI);
    for _ in 0..3 {
        assert_eq!(pics.acknowledge(), 0x35);
        pics.write(MASTER, NON_SPECIFIC_EOI);
    }
    pics.set_line(5, false);
    assert!(!pics.output());
}

#[test]
fn a_request_that_has_gone_is_spurious() {
    let mut pics = pics(1);
    pics.set_line(4, true);
    pics.set_line(4, false);
    assert!(!pics.output());
    assert_eq!(pics.acknowledge(), 0x37);
    assert_eq!(read(&mut pics, MASTER, READ_IN_SERVICE), 0);
}

#[test]
fn the_slave_is_in_service_in_both() {
    let mut pics = pics(1);
    pulse(&mut pics, 8);
    assert_eq!(pics.acknowledge(), 0x38);
    assert_eq!(read(&mut pics, MASTER, READ_IN_SERVICE), 1 << 2);
    assert_eq!(read(&mut pics, SLAVE, READ_IN_SERVICE), 1);

    // The slave's next request waits for the master's end of interrupt.
    pulse(&mut pics, 10);
    pics.write(SLAVE, NON_SPECIFIC_EOI);
    assert!(!pics.output());
    pics.write(MASTER, NON_SPECIFIC_EOI);
    assert_eq!(pics.acknowledge(), 0x3a);
}

#[test]
fn special_fully_nested_mode_lets_the_slave_nest() {
    let mut pics = pics(0x11);
    pulse(&mut pics, 12);
    assert_eq!(pics.acknowledge(), 0x3c);
    pulse(&mut pics, 8);
    assert!(pics.output());
    assert_eq!(pics.acknowledge(), 0x38);
}

#[test]
fn auto_eoi_leaves_nothing_in_service() {
    let mut pics = pics(3);
    pulse(&mut pics, 8);
    pulse(&mut pics, 9);
    assert_eq!(pics.acknowledge(), 0x38);
    assert_eq!(read(&mut pics, MASTER, READ_IN_SERVICE), 0);
    assert_eq!(pics.acknowledge(), 0x39);
    assert!(!pics.output());
}

#[test]
fn auto_eoi_can_rotate() {
    let mut pics = pics(3);
    pics.write(MASTER, 0x80);
    pulse(&mut pics, 3);
    assert_eq!(pics.acknowledge(), 0x33);
    pulse(&mut pics, 3);
    pulse(&mut pics, 6);
    assert_eq!(pics.acknowledge(), 0x36);
}

#[test]
fn special_mask_mode_unblocks_what_a_masked_interrupt_blocks() {
    let mut pics = pics(1);
    pulse(&mut pics, 3);
    pics.acknowledge();
    pulse(&mut pics, 5);
    pics.write(MASTER_DATA, 1 << 3);
    assert!(!pics.output());

    pics.write(MASTER, 0x68);
    assert!(pics.output());
    assert_eq!(pics.acknowledge(), 0x35);
    // Only the unmasked one is ended without its number.
    pics.write(MASTER, NON_SPECIFIC_EOI);
    pics.write(MASTER, NON_SPECIFIC_EOI);
    assert_eq!(read(&mut pics, MASTER, READ_IN_SERVICE), 1 << 3);
}

#[test]
fn rotation_gives_the_serviced_input_the_lowest_priority() {
    let mut pics = pics(1);
    pulse(&mut pics, 3);
    pics.acknowledge();
    pics.write(MASTER, 0xa0);

    pulse(&mut pics, 3);
    pulse(&mut pics, 6);
    assert_eq!(pics.acknowledge(), 0x36);

    // Priorities can also be set: 5 is the lowest, so 6 is the highest.
    let mut pics = self::pics(1);
    pics.write(MASTER, 0xc5);
    pulse(&mut pics, 0);
    pulse(&mut pics, 6);
    assert_eq!(pics.acknowledge(), 0x36);
}

#[test]
fn a_poll_acknowledges() {
    let mut pics = pics(1);
    pics.write(MASTER, 0x0c);
    assert_eq!(pics.read(MASTER), 0, "no request");

    pulse(&mut pics, 4);
    pics.write(MASTER, 0x0c);
    assert_eq!(pics.read(MASTER), 0x84);
    assert!(!pics.output());
    assert_eq!(read(&mut pics, MASTER, READ_IN_SERVICE), 1 << 4);
}

#[test]
fn initialization_forgets_edges_and_the_mask() {
    let mut pics = pics(1);
    pics.write(MASTER_DATA, 0xff);
    pulse(&mut pics, 4);
    pics.write(MASTER, 0x13);
    pics.write(MASTER_DATA, 0x50);
    pics.write(MASTER_DATA, 0x01);
    assert_eq!(pics.read(MASTER_DATA), 0);
    assert!(!pics.output());

    // Single (bit 1 of ICW1): there was no ICW3.
    pulse(&mut pics, 4);
    assert_eq!(pics.acknowledge(), 0x54);
}
