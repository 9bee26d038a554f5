//! What the 8254's datasheet says, mode by mode.

use super::{Pit, clock, time};

const CONTROL: u16 = 3;

/// A timer with the channel programmed for both bytes in the mode.
fn pit(channel: u8, mode: u8, count: u16) -> Pit {
    let mut pit = Pit::new();
    pit.interrupt(0);
    pit.write(CONTROL, channel << 6 | 0x30 | mode << 1, 0);
    for byte in count.to_le_bytes() {
        pit.write(u16::from(channel), byte, 0);
    }
    pit
}

/// The latched counter after the clocks.
fn counter(pit: &mut Pit, channel: u8, clocks: u64) -> u16 {
    pit.write(CONTROL, channel << 6, time(clocks));
    let mut byte = || pit.read(u16::from(channel), time(clocks));
    u16::from_le_bytes([byte(), byte()])
}

/// Output of the channel, from the read-back command.
fn status(pit: &mut Pit, channel: u8, clocks: u64) -> u8 {
    pit.write(CONTROL, 0xe0 | 2 << channel, time(clocks));
    pit.read(u16::from(channel), time(clocks))
}

fn output(pit: &mut Pit, channel: u8, clocks: u64) -> bool {
    status(pit, channel, clocks) & 0x80 != 0
}

#[test]
fn clocks_and_times_agree() {
    for clocks in [0, 1, 2, 1_193_181, 1_193_182, 1 << 40] {
        assert_eq!(clock(time(clocks)), clocks);
        if clocks > 0 {
            assert_eq!(clock(time(clocks) - 1), clocks - 1);
        }
    }
    assert_eq!(clock(1_000_000_000), 1_193_182);
}

#[test]
fn mode_0_rises_once() {
    let mut pit = pit(0, 0, 100);
    assert!(!output(&mut pit, 0, 100));
    assert!(output(&mut pit, 0, 101));
    // It takes one clock to load the count.
    assert_eq!(counter(&mut pit, 0, 1), 100);
    assert_eq!(counter(&mut pit, 0, 11), 90);
    // The counter goes on from 0xffff.
    assert_eq!(counter(&mut pit, 0, 103), 0xfffe);

    assert_eq!(pit.next_event(0), Some(time(101)));
    assert_eq!(pit.interrupt(time(100)), (false, false));
    assert_eq!(pit.interrupt(time(101)), (true, true));
    assert_eq!(pit.interrupt(time(1000)), (false, true));
    assert_eq!(pit.next_event(time(1000)), None);
}

#[test]
fn mode_2_is_low_for_the_last_clock_of_each_period() {
    let mut pit = pit(0, 2, 10);
    let levels: Vec<bool> = (1..=21).map(|clocks| output(&mut pit, 0, clocks)).collect();
    for (position, level) in levels.iter().enumerate() {
        assert_eq!(*level, position % 10 != 9, "{position}");
    }
    let counts: Vec<u16> = (1..=11)
        .map(|clocks| counter(&mut pit, 0, clocks))
        .collect();
    assert_eq!(counts, [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 10]);

    assert_eq!(pit.next_event(0), Some(time(11)));
    assert_eq!(pit.interrupt(time(11)), (true, true));
    assert_eq!(pit.next_event(time(11)), Some(time(21)));
    assert_eq!(pit.interrupt(time(20)), (false, false));
    assert_eq!(pit.next_event(time(30)), Some(time(30)), "overdue");
}

#[test]
fn a_new_count_of_mode_2_waits_for_the_end_of_the_period() {
    let mut pit = pit(0, 2, 100);
    for byte in [50, 0] {
        pit.write(0, byte, time(11));
    }
    assert_eq!(counter(&mut pit, 0, 51), 50);
    assert_eq!(counter(&mut pit, 0, 101), 50);
    assert_eq!(pit.next_event(time(51)), Some(time(101)));
    assert_eq!(pit.interrupt(time(102)), (true, true));
    assert_eq!(pit.next_event(time(102)), Some(time(151)));
}

#[test]
fn mode_3_is_a_square_wave() {
    for (count, high) in [(10, 5), (9, 5)] {
        let mut pit = pit(0, 3, count);
        for position in 0..30 {
            let level = output(&mut pit, 0, 1 + position);
            assert_eq!(
                level,
                position % u64::from(count) < high,
                "{count} {position}"
            );
        }
    }

    let mut pit = pit(0, 3, 10);
    let counts: Vec<u16> = (1..=6).map(|clocks| counter(&mut pit, 0, clocks)).collect();
    assert_eq!(counts, [10, 8, 6, 4, 2, 10]);
}

#[test]
fn mode_3_counts_odd_counts_from_the_even_one_below() {
    let mut pit = pit(0, 3, 9);
    let counts: Vec<u16> = (1..=10)
        .map(|clocks| counter(&mut pit, 0, clocks))
        .collect();
    assert_eq!(counts, [8, 6, 4, 2, 0, 8, 6, 4, 2, 8]);
}

#[test]
fn mode_4_strobes_once() {
    let mut pit = pit(0, 4, 100);
    assert!(output(&mut pit, 0, 100));
    assert!(!output(&mut pit, 0, 101));
    assert!(output(&mut pit, 0, 102));

    assert_eq!(pit.next_event(0), Some(time(102)));
    assert_eq!(pit.interrupt(time(102)), (true, true));
    assert_eq!(pit.next_event(time(102)), None);
}

#[test]
fn mode_1_waits_for_the_gate() {
    let mut pit = pit(2, 1, 100);
    assert!(output(&mut pit, 2, 1000));
    pit.set_gate(true, time(1000));
    assert!(!output(&mut pit, 2, 1100));
    assert!(output(&mut pit, 2, 1101));

    // It can be triggered again.
    pit.set_gate(false, time(1150));
    pit.set_gate(true, time(1200));
    assert!(!output(&mut pit, 2, 1300));
}

#[test]
fn the_gate_holds_the_counter() {
    let mut pit = pit(2, 0, 1000);
    assert_eq!(counter(&mut pit, 2, 500), 1000, "the gate is low");
    pit.set_gate(true, time(500));
    assert_eq!(counter(&mut pit, 2, 600), 900);
    pit.set_gate(false, time(600));
    assert_eq!(counter(&mut pit, 2, 5000), 900);
    pit.set_gate(true, time(6000));
    assert!(!pit.speaker(time(6899)));
    assert!(pit.speaker(time(6900)));
}

#[test]
fn the_gate_restarts_a_period() {
    let mut pit = pit(2, 2, 1000);
    pit.set_gate(true, 0);
    assert_eq!(counter(&mut pit, 2, 501), 500);
    pit.set_gate(false, time(501));
    pit.set_gate(true, time(600));
    assert_eq!(counter(&mut pit, 2, 601), 1000);
}

#[test]
fn a_latched_count_stays_until_it_is_read() {
    let mut pit = pit(0, 2, 0x1234);
    pit.write(CONTROL, 0, time(1));
    pit.write(CONTROL, 0, time(100));
    assert_eq!(pit.read(0, time(200)), 0x34);
    assert_eq!(pit.read(0, time(300)), 0x12);
    assert_ne!(pit.read(0, time(300)), 0x34);
}

#[test]
fn read_back_latches_status_and_counts() {
    let mut pit = pit(0, 2, 100);
    // Output high, both bytes, mode 2.
    assert_eq!(status(&mut pit, 0, 11), 0b1011_0100);
    // The count is not yet in the counter.
    assert_eq!(status(&mut self::pit(0, 2, 100), 0, 0), 0b1111_0100);

    // Status and count of channel 0; the status is read first.
    pit.write(CONTROL, 0xc2, time(11));
    assert_eq!(pit.read(0, time(50)), 0b1011_0100);
    assert_eq!(pit.read(0, time(50)), 90);
    assert_eq!(pit.read(0, time(50)), 0);
}

#[test]
fn single_bytes_are_accessed() {
    let mut pit = Pit::new();
    pit.write(CONTROL, 0x14, 0);
    pit.write(0, 200, 0);
    assert_eq!(pit.read(0, time(11)), 190);
    assert_eq!(pit.read(0, time(12)), 189);

    pit.write(CONTROL, 0x24, 0);
    pit.write(0, 2, 0);
    assert_eq!(pit.read(0, time(1)), 2);
    assert_eq!(pit.read(0, time(2)), 1);
}

#[test]
fn bcd_counts_decimal_digits() {
    let mut pit = Pit::new();
    pit.write(CONTROL, 0x31, 0);
    pit.write(0, 0x00, 0);
    pit.write(0, 0x10, 0);
    assert_eq!(counter(&mut pit, 0, 2), 0x0999);
    assert!(!output(&mut pit, 0, 1000));
    assert!(output(&mut pit, 0, 1001));
}

#[test]
fn firmware_leaves_18_2_interrupts_a_second() {
    let mut pit = Pit::new();
    assert!(!pit.interrupt(0).0);
    assert_eq!(pit.next_event(0), Some(time(65_537)));
    assert!(pit.interrupt(time(65_537)).0);
}
