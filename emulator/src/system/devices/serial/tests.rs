//! What the 16550's datasheet says, and what Linux' 8250 driver looks for.

use super::{OUTPUT_BYTES_MAX, Serial};

const DATA: u16 = 0;
const IER: u16 = 1;
const IIR: u16 = 2;
const FCR: u16 = 2;
const LCR: u16 = 3;
const MCR: u16 = 4;
const LSR: u16 = 5;
const MSR: u16 = 6;
const SCRATCH: u16 = 7;

/// The steps of `autoconfig` in drivers/tty/serial/8250/8250_port.c that lead to a 16550A.
#[test]
fn linux_finds_a_16550a() {
    let mut serial = Serial::new();

    serial.write(IER, 0);
    assert_eq!(serial.read(IER), 0);
    serial.write(IER, 0xff);
    assert_eq!(serial.read(IER), 0x0f, "no UUE bit of an XScale");
    serial.write(IER, 0);

    // LOOP, OUT2 and RTS give DCD and CTS.
    serial.write(MCR, 0x1a);
    assert_eq!(serial.read(MSR) & 0xf0, 0x90);
    serial.write(MCR, 0x08);

    serial.write(LCR, 0xbf);
    serial.write(FCR, 0);
    serial.write(LCR, 0);
    serial.write(FCR, 1);
    assert_eq!(serial.read(IIR) & 0xc0, 0xc0);

    // Not one with an enhanced feature register, nor with 64 bytes.
    serial.write(LCR, 0x80);
    assert_ne!(serial.read(2), 0);
    serial.write(FCR, 0x21);
    assert_eq!(serial.read(IIR) & 0xe0, 0xc0);
    serial.write(LCR, 0);
    serial.write(SCRATCH, 0xa5);
    assert_eq!(serial.read(SCRATCH), 0xa5);
}

/// The test of `serial8250_do_startup` for chips that do not report an empty transmitter again.
#[test]
fn an_enabled_transmitter_interrupt_is_reported_each_time() {
    let mut serial = Serial::new();
    assert_eq!(serial.read(LSR), 0x60);

    for _ in 0..2 {
        serial.write(IER, 0x02);
        assert_eq!(serial.read(IIR), 0x02);
        assert_eq!(serial.read(IIR), 0x01, "reading it has ended it");
        serial.write(IER, 0);
    }
}

#[test]
fn other_enable_bits_do_not_report_the_transmitter_again() {
    let mut serial = Serial::new();
    serial.write(IER, 0x02);
    serial.read(IIR);
    serial.write(IER, 0x03);
    assert_eq!(serial.read(IIR), 0x01);
}

#[test]
fn sent_bytes_are_output_and_the_transmitter_is_empty_again() {
    let mut serial = Serial::new();
    serial.write(MCR, 0x08);
    serial.write(IER, 0x02);
    serial.read(IIR);
    assert!(!serial.interrupt());

    serial.write(DATA, b'h');
    assert!(serial.interrupt());
    assert!(serial.take_withdrawn());
    assert!(!serial.take_withdrawn());
    serial.write(DATA, b'i');
    assert_eq!(serial.read(LSR), 0x60);
    assert_eq!(serial.take_output(), b"hi");
}

#[test]
fn out2_gates_the_interrupt_line() {
    let mut serial = Serial::new();
    serial.write(IER, 0x02);
    assert!(!serial.interrupt());
    serial.write(MCR, 0x08);
    assert!(serial.interrupt());
    serial.write(MCR, 0x18);
    assert!(!serial.interrupt(), "loopback disconnects OUT2");
}

#[test]
fn the_divisor_hides_data_and_ier() {
    let mut serial = Serial::new();
    serial.write(IER, 0x05);
    serial.write(LCR, 0x83);
    serial.write(DATA, 0x0c);
    serial.write(IER, 0x01);
    assert_eq!([serial.read(0), serial.read(1)], [0x0c, 0x01]);

    serial.write(LCR, 0x03);
    assert_eq!(serial.read(IER), 0x05);
    assert_eq!(serial.read(LCR), 0x03);
    assert!(serial.take_output().is_empty());
}

#[test]
fn without_fifos_one_byte_is_received_at_a_time() {
    let mut serial = Serial::new();
    serial.write(IER, 0x01);
    serial.add_input(b"ab");
    assert_eq!(serial.read(LSR), 0x61);
    assert_eq!(serial.read(IIR), 0x04);
    assert_eq!([serial.read(DATA), serial.read(DATA)], *b"ab");
    assert_eq!(serial.read(LSR), 0x60);
    assert_eq!(serial.read(IIR), 0x01);
    assert_eq!(serial.read(DATA), 0);
}

#[test]
fn the_fifo_reports_its_trigger_and_the_timeout() {
    let mut serial = Serial::new();
    serial.write(IER, 0x01);
    serial.write(FCR, 0x81);

    serial.add_input(b"1234567");
    assert_eq!(
        serial.read(IIR),
        0xcc,
        "fewer than 8: the character timeout"
    );
    serial.add_input(b"8");
    assert_eq!(serial.read(IIR), 0xc4);

    // The 17th waits until there is room; nothing is lost.
    let text: Vec<u8> = (b'9'..b'9' + 20).collect();
    serial.add_input(&text);
    let mut received = Vec::new();
    while serial.read(LSR) & 1 != 0 {
        received.push(serial.read(DATA));
    }
    assert_eq!(received, (b'1'..b'9' + 20).collect::<Vec<u8>>());
}

#[test]
fn the_receiver_can_be_emptied() {
    let mut serial = Serial::new();
    serial.write(FCR, 0x01);
    serial.add_input(b"abc");
    serial.write(FCR, 0x03);
    assert_eq!(serial.read(LSR), 0x60);

    serial.add_input(b"d");
    serial.write(FCR, 0);
    assert_eq!(
        serial.read(LSR),
        0x60,
        "switching the FIFOs off empties them"
    );
    assert_eq!(serial.read(IIR), 0x01);
}

#[test]
fn loopback_receives_what_is_sent() {
    let mut serial = Serial::new();
    serial.write(FCR, 0x01);
    serial.write(MCR, 0x10);
    serial.add_input(b"x");
    serial.write(DATA, b'y');
    assert_eq!(serial.read(DATA), b'y');
    assert_eq!(serial.read(LSR), 0x60);
    assert!(serial.take_output().is_empty());

    // The line is connected again.
    serial.write(MCR, 0x00);
    assert_eq!(serial.read(DATA), b'x');
}

#[test]
fn an_overrun_is_a_line_status_until_it_is_read() {
    let mut serial = Serial::new();
    serial.write(FCR, 0x01);
    serial.write(MCR, 0x10);
    serial.write(IER, 0x05);
    (0..17).for_each(|byte| serial.write(DATA, byte));

    assert_eq!(serial.read(IIR), 0xc6);
    assert_eq!(serial.read(LSR), 0x63);
    assert_eq!(serial.read(LSR), 0x61);
    assert_eq!(serial.read(IIR), 0xc4);
    assert_eq!(serial.read(DATA), 0, "the first byte is still there");
}

#[test]
fn changes_of_the_modem_lines_are_reported_once() {
    let mut serial = Serial::new();
    assert_eq!(serial.read(MSR), 0xb0, "a terminal is connected");
    serial.write(IER, 0x08);

    // All outputs off: CTS, DSR and DCD fall.
    serial.write(MCR, 0x10);
    assert_eq!(serial.read(IIR), 0x00);
    assert_eq!(serial.read(MSR), 0x0b);
    assert_eq!(serial.read(IIR), 0x01);

    // The ring indicator reports only its end.
    serial.write(MCR, 0x14);
    assert_eq!(serial.read(MSR), 0x40);
    serial.write(MCR, 0x10);
    assert_eq!(serial.read(MSR), 0x04);
}

#[test]
fn output_is_bounded() {
    let mut serial = Serial::new();
    for _ in 0..OUTPUT_BYTES_MAX + 3 {
        serial.write(DATA, b'.');
    }
    assert_eq!(serial.take_output().len(), OUTPUT_BYTES_MAX);
    assert_eq!(serial.dropped(), 3);
}

/// What is typed is not lost to a driver that starts: it empties the FIFOs and reads what is left.
#[test]
fn typed_bytes_wait_for_a_driver_that_listens() {
    let mut serial = Serial::new();
    serial.add_typed(b"ab");
    serial.write(FCR, 1);
    serial.write(FCR, 7);
    // `serial8250_do_startup`: interrupts are enabled last, after OUT2.
    for _ in 0..2 {
        assert_eq!((serial.read(LSR), serial.read(DATA)), (0x60, 0));
        assert_eq!(serial.read(IIR), 0xc1);
    }
    serial.write(IER, 5);
    assert_eq!(serial.read(LSR), 0x60, "its interrupts reach nobody");
    serial.write(IER, 0);
    serial.write(MCR, 8);
    assert_eq!(serial.read(LSR), 0x60);
    serial.write(IER, 5);
    // `serial8250_do_set_termios` of Linux 6.12: the FIFO is emptied once more.
    serial.write(FCR, 0);
    serial.write(FCR, 1);
    assert_eq!((serial.read(LSR), serial.read(DATA)), (0x61, b'a'));
    serial.write(FCR, 7);
    assert_eq!((serial.read(LSR), serial.read(DATA)), (0x61, b'b'));

    // A driver that polls; one that transmits does not.
    let mut serial = Serial::new();
    serial.add_typed(b"ab");
    for _ in 0..100 {
        assert_eq!(serial.read(LSR), 0x60);
        serial.write(DATA, b'x');
    }
    let polls = (0..).find(|_| serial.read(LSR) == 0x61);
    assert_eq!(polls, Some(super::POLLS - 1));
    assert_eq!((serial.read(DATA), serial.read(LSR)), (b'a', 0x61));
    assert_eq!((serial.read(DATA), serial.read(LSR)), (b'b', 0x60));
}
