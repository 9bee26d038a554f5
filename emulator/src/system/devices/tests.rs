//! The devices together, as Linux uses them.

use super::{Devices, Reset, TICKS_PER_SECOND, Unknown};
use crate::test_random::Random;

/// 2024-02-29 12:34:56 UTC.
const DATE: u64 = 1_709_210_096;
const APIC: u64 = 0xfee0_0000;
/// Vectors that Linux gives to the 8259's inputs.
const VECTORS: u8 = 0x30;

fn out(devices: &mut Devices, port: u16, value: u8) {
    devices.port_write(port, 1, u32::from(value), 0);
}

/// Initializes the 8259s as Linux does; all inputs stay masked.
fn init_8259(devices: &mut Devices) {
    for (port, value) in [
        (0x21, 0xff),
        (0x20, 0x11),
        (0x21, VECTORS),
        (0x21, 0x04),
        (0x21, 0x01),
        (0xa0, 0x11),
        (0xa1, VECTORS + 8),
        (0xa1, 0x02),
        (0xa1, 0x01),
        (0x21, 0xff),
        (0xa1, 0xff),
    ] {
        out(devices, port, value);
    }
}

/// Programs channel 0 as a rate generator.
fn start_pit(devices: &mut Devices, count: u16, now: u64) {
    devices.port_write(0x43, 1, 0x34, now);
    for byte in count.to_le_bytes() {
        devices.port_write(0x40, 1, u32::from(byte), now);
    }
}

#[test]
fn the_timer_interrupts_through_the_8259_before_the_apic_is_enabled() {
    let mut devices = Devices::new(DATE);
    init_8259(&mut devices);
    start_pit(&mut devices, 11_932, 0);

    let masked = devices.next_event(0).expect("the timer runs");
    devices.update(masked);
    assert!(!devices.interrupt(), "IRQ 0 is masked");

    devices.port_write(0x21, 1, 0xfe, masked);
    assert!(
        devices.interrupt(),
        "the edge was latched while it was masked"
    );
    assert_eq!(devices.acknowledge(), VECTORS);
    assert!(!devices.interrupt());

    // 100 interrupts a second, 10 ms apart.
    let mut now = masked;
    for _ in 0..99 {
        devices.port_write(0x20, 1, 0x60, now);
        assert!(!devices.interrupt());
        now = devices.next_event(now).expect("periodic");
        devices.update(now - 1);
        assert!(!devices.interrupt(), "one tick early");
        devices.update(now);
        assert_eq!(devices.acknowledge(), VECTORS);
    }
    assert!(now.abs_diff(TICKS_PER_SECOND) < 100_000, "{now}");
}

#[test]
fn with_the_apic_enabled_lint0_decides() {
    let mut devices = Devices::new(DATE);
    init_8259(&mut devices);
    start_pit(&mut devices, 0, 0);
    out(&mut devices, 0x21, 0xfe);

    devices.update(TICKS_PER_SECOND);
    assert!(devices.interrupt());

    devices.mmio_write(APIC + 0xf0, 4, 0x1ff, TICKS_PER_SECOND);
    assert!(!devices.interrupt(), "LINT0 is masked");
    devices.mmio_write(APIC + 0x350, 4, 0x700, TICKS_PER_SECOND);
    assert!(devices.interrupt());

    // The task priority does not hold back an ExtINT.
    devices.set_task_priority(15);
    assert!(devices.interrupt());
    assert_eq!(devices.acknowledge(), VECTORS);
    assert_eq!(
        devices.mmio_read(APIC + 0x110, 4, TICKS_PER_SECOND),
        0,
        "not in the APIC's ISR"
    );
}

#[test]
fn with_the_apic_disabled_the_8259_is_wired_to_the_processor() {
    let mut devices = Devices::new(DATE);
    init_8259(&mut devices);
    start_pit(&mut devices, 0, 0);
    out(&mut devices, 0x21, 0xfe);

    assert!(devices.is_device(APIC + 0x20));
    assert_eq!(devices.msr_read(0x1b, 0), Some(0xfee0_0900));
    assert_eq!(devices.msr_write(0x1b, 0xfee0_0100, 0), Some(()));
    assert!(!devices.is_device(APIC + 0x20));

    devices.update(TICKS_PER_SECOND);
    assert!(devices.interrupt());
    assert_eq!(devices.acknowledge(), VECTORS);
}

/// What `quick_pit_calibrate` of Linux does: count the TSC while channel 2's high byte falls.
#[test]
fn the_tsc_is_calibrated_by_channel_2() {
    let mut devices = Devices::new(DATE);
    let mut now = 0;
    devices.port_write(0x61, 1, 0x01, now);
    devices.port_write(0x43, 1, 0xb0, now);
    devices.port_write(0x42, 1, 0xff, now);
    devices.port_write(0x42, 1, 0xff, now);

    let mut wait = |high: u8, now: &mut u64| {
        for _ in 0..1_000_000 {
            *now += 50;
            devices.port_read(0x42, 1, *now);
            *now += 50;
            if devices.port_read(0x42, 1, *now) == u32::from(high) {
                return *now;
            }
        }
        panic!("the counter does not reach {high:#x}");
    };
    let start = wait(0xfe, &mut now);
    let end = wait(0xfe - 100, &mut now);

    let frequency = (end - start) * 1_193_182 / (100 * 256);
    assert!(
        frequency.abs_diff(TICKS_PER_SECOND) < TICKS_PER_SECOND / 2000,
        "{frequency}"
    );
}

/// What `pit_calibrate_tsc` does: wait for channel 2's output at port 0x61.
#[test]
fn the_output_of_channel_2_rises_after_50_ms() {
    let mut devices = Devices::new(DATE);
    let count: u16 = 59_659;
    devices.port_write(0x61, 1, 0x01, 0);
    devices.port_write(0x43, 1, 0xb0, 0);
    for byte in count.to_le_bytes() {
        devices.port_write(0x42, 1, u32::from(byte), 0);
    }

    assert_eq!(devices.port_read(0x61, 1, 49_990_000) & 0x20, 0);
    assert_eq!(devices.port_read(0x61, 1, 50_010_000) & 0x20, 0x20);
}

#[test]
fn received_bytes_interrupt_on_irq_4() {
    let mut devices = Devices::new(DATE);
    init_8259(&mut devices);
    out(&mut devices, 0x21, 0xef);
    out(&mut devices, 0x3f9, 0x01);
    out(&mut devices, 0x3fc, 0x0b);
    assert!(!devices.interrupt());

    devices.add_input(b"x");
    assert!(devices.interrupt());
    assert_eq!(devices.acknowledge(), VECTORS + 4);
    assert_eq!(devices.port_read(0x3f8, 1, 0), u32::from(b'x'));
    out(&mut devices, 0x20, 0x20);
    assert!(!devices.interrupt());

    devices.add_input(b"y");
    assert!(
        devices.interrupt(),
        "the line has fallen, so this is an edge"
    );
}

#[test]
fn every_byte_sent_is_an_edge_of_irq_4() {
    let mut devices = Devices::new(DATE);
    init_8259(&mut devices);
    out(&mut devices, 0x21, 0xef);
    out(&mut devices, 0x3fc, 0x0b);
    out(&mut devices, 0x3f9, 0x02);
    assert_eq!(devices.acknowledge(), VECTORS + 4);
    out(&mut devices, 0x20, 0x20);
    assert!(!devices.interrupt());

    out(&mut devices, 0x3f8, b'a');
    assert!(devices.interrupt());
    assert_eq!(devices.take_output(), b"a");
    assert!(devices.take_output().is_empty());
}

#[test]
fn the_clock_interrupts_through_the_slave() {
    let mut devices = Devices::new(DATE);
    init_8259(&mut devices);
    out(&mut devices, 0x21, 0xfb);
    out(&mut devices, 0xa1, 0xfe);
    out(&mut devices, 0x70, 0x0b);
    out(&mut devices, 0x71, 0x12);

    // The serial line and channel 0 of the timer are masked; the clock ticks once a second.
    devices.update(TICKS_PER_SECOND - 1);
    assert!(!devices.interrupt());
    devices.update(TICKS_PER_SECOND);
    assert_eq!(devices.acknowledge(), VECTORS + 8);
}

#[test]
fn registers_in_memory_are_32_bits_wide() {
    let mut devices = Devices::new(DATE);
    assert_eq!(devices.mmio_read(APIC + 0x30, 4, 0), 0x0005_0014);
    assert_eq!(devices.mmio_read(APIC + 0x30, 8, 0), 0x0005_0014);
    assert_eq!(devices.mmio_read(APIC + 0x30, 1, 0), 0x14);
    assert_eq!(devices.mmio_read(APIC + 0x32, 1, 0), 0x05);
    assert_eq!(devices.mmio_read(APIC + 0x34, 4, 0), 0);

    // A byte is not written, and nothing else is there.
    devices.mmio_write(APIC + 0xf0, 1, 0xff, 0);
    devices.mmio_write(APIC + 0x1000, 4, 0, 0);
    assert_eq!(devices.mmio_read(0x1000, 2, 0), 0xffff);
    assert_eq!(
        devices.unknown().collect::<Vec<_>>(),
        [
            (Unknown::MmioRead(0x1000), 1),
            (Unknown::MmioWrite(APIC + 0xf0), 1),
            (Unknown::MmioWrite(APIC + 0x1000), 1)
        ]
    );
}

#[test]
fn msrs_of_the_apic() {
    let mut devices = Devices::new(DATE);
    for (msr, expected) in [
        (0x1b, true),
        (0x6e0, true),
        (0x7ff, false),
        (0x800, true),
        (0x8ff, true),
        (0x900, false),
    ] {
        assert_eq!(Devices::is_msr(msr), expected, "{msr:#x}");
    }
    assert_eq!(devices.msr_read(0x10, 0), None);
    assert_eq!(devices.msr_write(0x10, 0, 0), None);
    assert_eq!(devices.msr_read(0x803, 0), None);

    devices
        .msr_write(0x1b, 0xfee0_0d00, 0)
        .expect("x2APIC mode");
    assert_eq!(devices.msr_read(0x803, 0), Some(0x0005_0014));
    assert!(!devices.is_device(APIC));

    // SVR, the timer with vector 0xec, its deadline.
    devices.msr_write(0x80f, 0x1ff, 0).expect("allowed");
    devices.msr_write(0x832, 0x4_00ec, 0).expect("allowed");
    devices.msr_write(0x6e0, 5000, 0).expect("allowed");
    assert_eq!(devices.next_event(0), Some(5000));
    devices.update(5000);
    assert!(devices.interrupt());
    assert_eq!(devices.acknowledge(), 0xec);
    assert_eq!(devices.acknowledge(), 0xff, "the spurious vector");
}

#[test]
fn resets_are_asked_for() {
    for (port, value, reset) in [
        (0x64, 0xfe, Reset::Keyboard),
        (0xcf9, 0x06, Reset::ResetControl),
        (0x92, 0x03, Reset::SystemControl),
    ] {
        let mut devices = Devices::new(DATE);
        out(&mut devices, 0x64, 0xa8);
        out(&mut devices, 0xcf9, 0x02);
        out(&mut devices, 0x92, 0x02);
        assert_eq!(devices.reset(), None);

        out(&mut devices, port, value);
        assert_eq!(devices.reset(), Some(reset));
    }
}

#[test]
fn ports_without_a_device_read_as_ones_and_are_counted() {
    let mut devices = Devices::new(DATE);
    assert_eq!(devices.port_read(0x2f8, 1, 0), 0xff);
    assert_eq!(devices.port_read(0x2f8, 2, 0), 0xffff);
    // PCI's address register, of which one byte is the reset control register.
    devices.port_write(0xcf8, 4, 0x8000_0000, 0);
    assert_eq!(devices.port_read(0xcf8, 4, 0), u32::MAX);

    let unknown: Vec<_> = devices.unknown().collect();
    assert_eq!(
        unknown,
        [
            (Unknown::PortRead(0x2f8), 2),
            (Unknown::PortRead(0xcf8), 1),
            (Unknown::PortWrite(0xcf8), 1)
        ]
    );
    assert_eq!(devices.reset(), None);
}

#[test]
fn unknown_accesses_are_bounded() {
    let mut devices = Devices::new(DATE);
    for port in 0x1000..0x2000 {
        devices.port_read(port, 1, 0);
    }
    assert_eq!(devices.unknown().count(), 64);
}

/// Accesses of a pseudorandom guest: nothing panics, and events are never in the past.
#[test]
fn any_access_is_survived() {
    const PORTS: [u16; 24] = [
        0x20, 0x21, 0xa0, 0xa1, 0x4d0, 0x4d1, 0x40, 0x41, 0x42, 0x43, 0x61, 0x64, 0x70, 0x71, 0x92,
        0x3f8, 0x3f9, 0x3fa, 0x3fb, 0x3fc, 0x3fd, 0x3fe, 0xcf9, 0xffff,
    ];
    let mut source = Random::new(1);
    let mut random = || source.bits();

    for start in [0, u64::MAX - 1_000_000_000_000] {
        let mut devices = Devices::new(random());
        let mut now: u64 = start;
        for _ in 0..200_000 {
            now = now.saturating_add(random() >> (24 + random() % 40));
            let (value, size) = (random(), 1 << (random() % 3));
            let port = PORTS[(random() % PORTS.len() as u64) as usize];
            let register = APIC + (random() & 0xff0);
            let msr = [0x1b, 0x6e0, 0x800 + (value >> 32) as u32 % 0x40][(random() % 3) as usize];
            // Small values are the ones that mean something.
            let value = value >> (random() % 64);

            match random() % 9 {
                0 => drop(devices.port_read(port, size, now)),
                1 | 2 => devices.port_write(port, size, value as u32, now),
                3 => drop(devices.mmio_read(register + value % 16, size as usize, now)),
                4 => devices.mmio_write(register, 4, value, now),
                5 => drop(devices.msr_write(msr, value, now)),
                6 => drop(devices.msr_read(msr, now)),
                7 if devices.interrupt() => drop(devices.acknowledge()),
                _ => devices.add_input(&[value as u8]),
            }
            devices.update(now);
            if let Some(next) = devices.next_event(now) {
                assert!(next >= now, "{next} {now}");
            }
        }
    }
}
