//! What the MC146818's datasheet says.

use super::calendar::Date;
use super::{Cmos, TICKS_PER_SECOND};

/// 2024-02-29 12:34:56 UTC, a Thursday.
const DATE: u64 = 1_709_210_096;

fn read(cmos: &mut Cmos, register: u8, now: u64) -> u8 {
    cmos.select(register);
    cmos.read(now)
}

fn write(cmos: &mut Cmos, register: u8, value: u8, now: u64) {
    cmos.select(register);
    cmos.write(value, now);
}

/// Second, minute, hour, day of the week, day, month, year, century.
fn date(cmos: &mut Cmos, now: u64) -> [u8; 8] {
    [0, 2, 4, 6, 7, 8, 9, 0x32].map(|register| read(cmos, register, now))
}

#[test]
fn the_date_is_bcd_and_follows_the_time() {
    let mut cmos = Cmos::new(DATE);
    assert_eq!(
        date(&mut cmos, 0),
        [0x56, 0x34, 0x12, 5, 0x29, 0x02, 0x24, 0x20]
    );
    assert_eq!(
        date(&mut cmos, 4 * TICKS_PER_SECOND - 1),
        [0x59, 0x34, 0x12, 5, 0x29, 0x02, 0x24, 0x20]
    );
    assert_eq!(
        date(&mut cmos, 86_400 * TICKS_PER_SECOND),
        [0x56, 0x34, 0x12, 6, 0x01, 0x03, 0x24, 0x20]
    );
    assert_eq!(read(&mut cmos, 0x0d, 0), 0x80);
    assert_eq!(read(&mut cmos, 0x0b, 0), 0x02);
}

#[test]
fn dates_and_seconds_agree() {
    let date = |year, month, day| Date {
        year,
        month,
        day,
        hour: 0,
        minute: 0,
        second: 0,
    };
    for (seconds, expected) in [
        (0, date(1970, 1, 1)),
        (951_782_400, date(2000, 2, 29)),
        (4_107_542_400, date(2100, 3, 1)),
        (1_735_603_200, date(2024, 12, 31)),
        (13_574_563_200, date(2400, 2, 29)),
    ] {
        assert_eq!(Date::of_seconds(seconds), expected);
        assert_eq!(expected.seconds(), seconds);
    }
    for day in 0..200_000 {
        let seconds = day * 86_400 + 86_399;
        assert_eq!(Date::of_seconds(seconds).seconds(), seconds);
    }
}

#[test]
fn binary_and_12_hours() {
    let mut cmos = Cmos::new(DATE);
    write(&mut cmos, 0x0b, 0x04, 0);
    assert_eq!(date(&mut cmos, 0), [56, 34, 12 | 0x80, 5, 29, 2, 24, 20]);
    assert_eq!(
        read(&mut cmos, 4, 12 * 3600 * TICKS_PER_SECOND),
        12,
        "half past midnight"
    );
    assert_eq!(read(&mut cmos, 4, 13 * 3600 * TICKS_PER_SECOND), 1);
}

#[test]
fn an_update_is_announced_and_ends() {
    let mut cmos = Cmos::new(DATE);
    assert_eq!(read(&mut cmos, 0x0a, 0), 0x26);
    assert_eq!(read(&mut cmos, 0x0a, TICKS_PER_SECOND - 244_001), 0x26);
    assert_eq!(read(&mut cmos, 0x0a, TICKS_PER_SECOND - 244_000), 0xa6);
    assert_eq!(read(&mut cmos, 0x0a, TICKS_PER_SECOND - 1), 0xa6);
    assert_eq!(read(&mut cmos, 0x0a, TICKS_PER_SECOND), 0x26);
}

#[test]
fn the_clock_can_be_set() {
    let mut cmos = Cmos::new(DATE);
    write(&mut cmos, 0x0b, 0x82, 0);
    for (register, value) in [
        (0, 0x58),
        (2, 0x59),
        (4, 0x23),
        (7, 0x31),
        (8, 0x12),
        (9, 0x99),
        (0x32, 0x19),
    ] {
        write(&mut cmos, register, value, 0);
    }
    // While it is being set it stands.
    assert_eq!(read(&mut cmos, 0, 5 * TICKS_PER_SECOND), 0x58);

    let start = 10 * TICKS_PER_SECOND;
    write(&mut cmos, 0x0b, 0x02, start);
    assert_eq!(
        date(&mut cmos, start + TICKS_PER_SECOND),
        [0x59, 0x59, 0x23, 6, 0x31, 0x12, 0x99, 0x19]
    );
    assert_eq!(
        date(&mut cmos, start + 2 * TICKS_PER_SECOND),
        [0x00, 0x00, 0x00, 7, 0x01, 0x01, 0x00, 0x20]
    );

    // Impossible values are survived.
    for register in [0, 2, 4, 6, 7, 8, 9, 0x32] {
        write(&mut cmos, register, 0xff, start);
    }
    date(&mut cmos, start);
}

#[test]
fn updates_interrupt_once_a_second() {
    let mut cmos = Cmos::new(DATE);
    assert_eq!(cmos.next_event(0), None);
    write(&mut cmos, 0x0b, 0x12, 1000);
    assert_eq!(cmos.next_event(1000), Some(TICKS_PER_SECOND));
    cmos.update(TICKS_PER_SECOND - 1);
    assert!(!cmos.interrupt());
    cmos.update(TICKS_PER_SECOND);
    assert!(cmos.interrupt());

    assert_eq!(read(&mut cmos, 0x0c, TICKS_PER_SECOND) & 0x90, 0x90);
    assert!(!cmos.interrupt());
    assert_eq!(read(&mut cmos, 0x0c, TICKS_PER_SECOND) & 0x90, 0);
}

#[test]
fn the_alarm_interrupts_at_its_time() {
    let mut cmos = Cmos::new(DATE);
    // At second 5 of minute 35, in any hour: in 9 seconds.
    for (register, value) in [(1, 0x05), (3, 0x35), (5, 0xff), (0x0b, 0x22)] {
        write(&mut cmos, register, value, 0);
    }
    cmos.update(9 * TICKS_PER_SECOND - 1);
    assert!(!cmos.interrupt());
    cmos.update(9 * TICKS_PER_SECOND);
    assert!(cmos.interrupt());
    assert_eq!(read(&mut cmos, 0x0c, 9 * TICKS_PER_SECOND) & 0xa0, 0xa0);

    // An alarm that lies inside a longer step is not missed.
    cmos.update(7200 * TICKS_PER_SECOND);
    assert!(cmos.interrupt());
}

#[test]
fn the_periodic_interrupt_has_the_rate_of_register_a() {
    let mut cmos = Cmos::new(DATE);
    // 1024 Hz.
    write(&mut cmos, 0x0b, 0x42, 0);
    let mut now = 0;
    for _ in 0..1024 {
        now = cmos.next_event(now).expect("enabled");
        cmos.update(now);
        assert!(cmos.interrupt());
        read(&mut cmos, 0x0c, now);
    }
    assert_eq!(now, TICKS_PER_SECOND);

    write(&mut cmos, 0x0a, 0x20, now);
    assert_eq!(cmos.next_event(now), None);
}

#[test]
fn memory_keeps_what_is_written() {
    let mut cmos = Cmos::new(DATE);
    // Bit 7 of the index masks NMIs.
    write(&mut cmos, 0x8f, 0x0a, 0);
    assert_eq!(read(&mut cmos, 0x0f, 0), 0x0a);
}
