//! What the SDM says about the local APIC.

use super::LocalApic;

const REGISTER_COUNT: u32 = 256;
const ID: u32 = 0x02;
const VERSION: u32 = 0x03;
const TPR: u32 = 0x08;
const PPR: u32 = 0x0a;
const EOI: u32 = 0x0b;
const LDR: u32 = 0x0d;
const DFR: u32 = 0x0e;
const SVR: u32 = 0x0f;
const ESR: u32 = 0x28;
const ICR: u32 = 0x30;
const ICR_HIGH: u32 = 0x31;
const LVT_TIMER: u32 = 0x32;
const LVT_PERFORMANCE: u32 = 0x34;
const LVT_LINT0: u32 = 0x35;
const LVT_ERROR: u32 = 0x37;
const INITIAL: u32 = 0x38;
const CURRENT: u32 = 0x39;
const DIVIDE: u32 = 0x3e;
const SELF_IPI: u32 = 0x3f;

const PERIODIC: u32 = 1 << 17;
const TSC_DEADLINE: u32 = 2 << 17;
const X2APIC_BASE: u64 = 0xfee0_0d00;

/// An APIC that software has enabled.
fn enabled() -> LocalApic {
    let mut apic = LocalApic::new();
    apic.write(SVR, 0x1ff, 0);
    apic
}

fn in_x2apic_mode() -> LocalApic {
    let mut apic = enabled();
    apic.set_base(X2APIC_BASE).expect("allowed");
    apic
}

/// Sends a fixed interrupt to this processor.
fn send(apic: &mut LocalApic, vector: u8) {
    apic.write(ICR, 0x4_0000 | u32::from(vector), 0);
}

fn read(apic: &mut LocalApic, register: u32) -> u32 {
    apic.read(register, 0).expect("a register")
}

#[test]
fn registers_after_reset() {
    let mut apic = LocalApic::new();
    assert_eq!(apic.base(), 0xfee0_0900);
    for (register, value) in [
        (ID, 0),
        (VERSION, 0x0005_0014),
        (TPR, 0),
        (LDR, 0),
        (DFR, u32::MAX),
        (SVR, 0xff),
        (LVT_TIMER, 0x1_0000),
        (LVT_LINT0, 0x1_0000),
        (LVT_ERROR, 0x1_0000),
        (INITIAL, 0),
        (CURRENT, 0),
    ] {
        assert_eq!(read(&mut apic, register), value, "{register:#x}");
    }
}

#[test]
fn vectors_are_taken_by_priority_and_end() {
    let mut apic = enabled();
    for vector in [0x35, 0xfd, 0x41] {
        send(&mut apic, vector);
    }
    assert_eq!(read(&mut apic, 0x21), 1 << 0x15);
    assert_eq!(read(&mut apic, 0x27), 1 << 0x1d);

    assert_eq!(apic.acknowledge(), Some(0xfd));
    assert_eq!(read(&mut apic, 0x17), 1 << 0x1d);
    assert_eq!(read(&mut apic, 0x27), 0);
    assert_eq!(read(&mut apic, PPR), 0xf0);
    assert_eq!(apic.acknowledge(), None, "lower ones wait");

    apic.write(EOI, 0, 0);
    assert_eq!(apic.acknowledge(), Some(0x41));
    apic.write(EOI, 0, 0);
    assert_eq!(apic.acknowledge(), Some(0x35));
    // One of the same class waits as well, a higher class does not.
    send(&mut apic, 0x3f);
    assert!(!apic.interrupt());
    send(&mut apic, 0x40);
    assert_eq!(apic.acknowledge(), Some(0x40));
}

#[test]
fn the_task_priority_holds_interrupts_back() {
    let mut apic = enabled();
    send(&mut apic, 0x41);
    apic.set_task_priority(4);
    assert_eq!(read(&mut apic, TPR), 0x40);
    assert_eq!(read(&mut apic, PPR), 0x40);
    assert!(!apic.interrupt());
    apic.write(TPR, 0x3f, 0);
    assert_eq!(apic.task_priority(), 3);
    assert!(apic.interrupt());
}

#[test]
fn the_processor_priority_is_the_task_priority_in_the_same_class() {
    let mut apic = enabled();
    send(&mut apic, 0x45);
    assert_eq!(apic.acknowledge(), Some(0x45));
    apic.write(TPR, 0x4a, 0);
    assert_eq!(read(&mut apic, PPR), 0x4a);
    apic.write(TPR, 0x3a, 0);
    assert_eq!(read(&mut apic, PPR), 0x40);
}

#[test]
fn software_disabled_it_accepts_nothing_and_masks_its_entries() {
    let mut apic = enabled();
    apic.write(LVT_TIMER, 0x40, 0);
    send(&mut apic, 0x50);
    apic.write(SVR, 0xff, 0);
    assert_eq!(read(&mut apic, LVT_TIMER), 0x1_0040);
    apic.write(LVT_TIMER, 0x41, 0);
    assert_eq!(read(&mut apic, LVT_TIMER), 0x1_0041);

    send(&mut apic, 0x60);
    assert_eq!(apic.acknowledge(), Some(0x50), "pending before");
    apic.write(EOI, 0, 0);
    assert!(!apic.interrupt());
}

#[test]
fn one_shot_timer() {
    let mut apic = enabled();
    // Divide by 16.
    apic.write(DIVIDE, 0x3, 0);
    apic.write(LVT_TIMER, 0xec, 0);
    apic.write(INITIAL, 1000, 500);
    // A tick of the crystal is 40 of the TSC: 25 MHz and 1 GHz.
    assert_eq!(apic.next_event(500), Some(640_500));
    assert_eq!(apic.read(CURRENT, 500 + 40 * 16 * 400), Some(600));

    apic.update(640_499);
    assert!(!apic.interrupt());
    apic.update(640_500);
    assert_eq!(apic.acknowledge(), Some(0xec));
    assert_eq!(apic.read(CURRENT, 700_000), Some(0));
    assert_eq!(apic.next_event(700_000), None);
}

#[test]
fn divide_values() {
    let expected = [2, 4, 8, 16, 32, 64, 128, 1];
    for (code, divisor) in [0, 1, 2, 3, 8, 9, 10, 11].into_iter().zip(expected) {
        let mut apic = enabled();
        apic.write(DIVIDE, code, 0);
        apic.write(LVT_TIMER, 0xec, 0);
        apic.write(INITIAL, 10, 0);
        assert_eq!(apic.next_event(0), Some(10 * 40 * divisor), "{code:#x}");
    }
}

#[test]
fn a_running_count_continues_with_another_divisor() {
    let mut apic = enabled();
    apic.write(DIVIDE, 0xb, 0);
    apic.write(LVT_TIMER, 0xec, 0);
    apic.write(INITIAL, 1000, 0);
    apic.write(DIVIDE, 0x3, 16_000);
    assert_eq!(apic.read(CURRENT, 16_000), Some(600));
    assert_eq!(apic.next_event(16_000), Some(16_000 + 600 * 16 * 40));
}

#[test]
fn periodic_timer() {
    let mut apic = enabled();
    apic.write(DIVIDE, 0xb, 0);
    apic.write(LVT_TIMER, PERIODIC | 0xec, 0);
    apic.write(INITIAL, 1000, 0);
    for period in 1..5 {
        let time = period * 40_000;
        assert_eq!(apic.next_event(time - 1), Some(time));
        apic.update(time);
        assert_eq!(apic.acknowledge(), Some(0xec));
        apic.write(EOI, 0, time);
    }

    // Missed periods are one interrupt; the phase stays.
    apic.update(412_000);
    assert_eq!(apic.acknowledge(), Some(0xec));
    assert_eq!(apic.read(CURRENT, 412_000), Some(700));
    apic.write(INITIAL, 0, 412_000);
    assert_eq!(apic.next_event(412_000), None);
}

#[test]
fn a_masked_timer_counts_without_interrupting() {
    let mut apic = enabled();
    apic.write(DIVIDE, 0xb, 0);
    apic.write(LVT_TIMER, 0x1_00ec, 0);
    apic.write(INITIAL, u32::MAX, 0);
    assert_eq!(apic.next_event(0), None);
    assert_eq!(apic.read(CURRENT, 40_000), Some(u32::MAX - 1000));

    // Expired while masked: nothing is kept.
    apic.write(INITIAL, 10, 40_000);
    apic.write(LVT_TIMER, 0xec, 50_000);
    apic.update(60_000);
    assert!(!apic.interrupt());
}

#[test]
fn tsc_deadline_timer() {
    let mut apic = enabled();
    apic.set_deadline(5000, 0);
    assert_eq!(apic.deadline(0), 0, "the timer is in another mode");

    apic.write(LVT_TIMER, TSC_DEADLINE | 0xec, 0);
    apic.set_deadline(5000, 0);
    assert_eq!(apic.deadline(0), 5000);
    apic.write(INITIAL, 10, 0);
    assert_eq!(read(&mut apic, INITIAL), 0);
    assert_eq!(apic.next_event(0), Some(5000));
    apic.update(4999);
    assert!(!apic.interrupt());
    apic.update(5000);
    assert_eq!(apic.acknowledge(), Some(0xec));
    assert_eq!(apic.deadline(5000), 0);

    // One in the past expires at once.
    apic.write(EOI, 0, 6000);
    apic.set_deadline(1, 6000);
    assert!(apic.interrupt());

    apic.set_deadline(9000, 6000);
    apic.set_deadline(0, 6000);
    assert_eq!(apic.next_event(6000), None);
    apic.set_deadline(9000, 6000);
    apic.write(LVT_TIMER, 0xec, 6000);
    assert_eq!(apic.next_event(6000), None, "another mode disarms it");
}

#[test]
fn interprocessor_interrupts_reach_only_this_processor() {
    let fixed = 0x55;
    // The upper and the lower half of the command, and whether it is for this processor.
    for (high, low, arrives) in [
        (0, 0x4_0000, true),
        (0, 0x8_0000, true),
        (0, 0xc_0000, false),
        (0, 0, true),
        (0xff00_0000, 0, true),
        (0x0100_0000, 0, false),
        // Logical, flat: this processor is 0x02.
        (0x0300_0000, 0x800, true),
        (0x0100_0000, 0x800, false),
        (0xff00_0000, 0x800, true),
    ] {
        let mut apic = enabled();
        apic.write(LDR, 0x0200_0000, 0);
        apic.write(ICR_HIGH, high, 0);
        apic.write(ICR, low | fixed, 0);
        assert_eq!(apic.acknowledge().is_some(), arrives, "{high:#x} {low:#x}");
        assert_eq!(
            read(&mut apic, ICR),
            low | fixed,
            "the delivery status is idle"
        );
    }

    // Logical, cluster 1, member 2; cluster 15 is all clusters.
    for (destination, arrives) in [
        (0x12, true),
        (0x13, true),
        (0x11, false),
        (0x22, false),
        (0xf2, true),
    ] {
        let mut apic = enabled();
        apic.write(DFR, 0, 0);
        apic.write(LDR, 0x1200_0000, 0);
        apic.write(ICR_HIGH, destination << 24, 0);
        apic.write(ICR, 0x800 | fixed, 0);
        assert_eq!(apic.acknowledge().is_some(), arrives, "{destination:#x}");
    }
}

#[test]
fn nmis_are_taken_once() {
    let mut apic = LocalApic::new();
    apic.write(ICR, 0x4_0400, 0);
    assert!(
        apic.take_nmi(),
        "even though software has not enabled the APIC"
    );
    assert!(!apic.take_nmi());

    // To others, and an INIT and a start-up to others.
    for command in [0xc_0400, 0xc_0500, 0xc_0610] {
        apic.write(ICR, command, 0);
        assert!(!apic.take_nmi());
    }
}

#[test]
fn a_performance_interrupt_masks_its_entry() {
    let mut apic = enabled();
    apic.write(LVT_PERFORMANCE, 0x400, 0);
    apic.performance_interrupt();
    assert!(apic.take_nmi());
    assert_eq!(read(&mut apic, LVT_PERFORMANCE), 0x1_0400);
    apic.performance_interrupt();
    assert!(!apic.take_nmi());
}

#[test]
fn lint0_can_be_fixed_and_level_triggered() {
    let mut apic = enabled();
    apic.write(LVT_LINT0, 0x8045, 0);
    apic.set_lint0(true);
    assert!(!apic.external_interrupt());
    assert_eq!(apic.acknowledge(), Some(0x45));
    assert_eq!(read(&mut apic, LVT_LINT0), 0xc045, "remote IRR");
    assert_eq!(read(&mut apic, 0x1a), 1 << 5, "TMR");
    assert!(!apic.interrupt());

    // Still asserted at the end of the interrupt: again.
    apic.write(EOI, 0, 0);
    assert_eq!(apic.acknowledge(), Some(0x45));
    apic.set_lint0(false);
    apic.write(EOI, 0, 0);
    assert!(!apic.interrupt());
    assert_eq!(read(&mut apic, LVT_LINT0), 0x8045);
}

#[test]
fn lint0_as_nmi_is_an_edge() {
    let mut apic = enabled();
    apic.write(LVT_LINT0, 0x400, 0);
    apic.set_lint0(true);
    apic.set_lint0(true);
    assert!(apic.take_nmi());
    assert!(!apic.take_nmi());
}

#[test]
fn errors_are_latched_by_a_write_and_interrupt() {
    let mut apic = enabled();
    apic.write(LVT_ERROR, 0xfe, 0);
    send(&mut apic, 0x0f);
    assert_eq!(apic.acknowledge(), Some(0xfe));
    assert_eq!(read(&mut apic, ESR), 0);
    apic.write(ESR, 0, 0);
    assert_eq!(read(&mut apic, ESR), 0x20);
    apic.write(ESR, 0, 0);
    assert_eq!(read(&mut apic, ESR), 0);

    assert_eq!(apic.read(0x2f, 0), None);
    assert_eq!(apic.write(0x05, 1, 0), None);
    apic.write(ESR, 0, 0);
    assert_eq!(read(&mut apic, ESR), 0x80);
    // The timer's vector is illegal, and so is the one that would report it.
    apic.write(LVT_ERROR, 0x01, 0);
    apic.write(LVT_TIMER, 0x02, 0);
    apic.write(INITIAL, 1, 0);
    apic.update(1000);
    apic.write(ESR, 0, 1000);
    assert_eq!(read(&mut apic, ESR), 0x40);
}

#[test]
fn transitions_of_the_base_register() {
    const DISABLED: u64 = 0xfee0_0100;
    const XAPIC: u64 = 0xfee0_0900;
    const INVALID: u64 = 0xfee0_0500;
    const X2APIC: u64 = X2APIC_BASE;

    for (from, to, allowed) in [
        (XAPIC, DISABLED, true),
        (XAPIC, X2APIC, true),
        (XAPIC, INVALID, false),
        (X2APIC, XAPIC, false),
        (X2APIC, DISABLED, true),
        (X2APIC, INVALID, false),
        (DISABLED, XAPIC, true),
        (DISABLED, X2APIC, false),
        (DISABLED, INVALID, false),
        (XAPIC, XAPIC | 1, false),
        (XAPIC, XAPIC | 1 << 52, false),
    ] {
        let mut apic = LocalApic::new();
        apic.set_base(from).expect("allowed from reset");
        assert_eq!(apic.set_base(to).is_some(), allowed, "{from:#x} {to:#x}");
        assert_eq!(apic.base(), if allowed { to } else { from });
    }

    let mut apic = enabled();
    apic.set_base(0x1_2345_6900).expect("allowed");
    assert_eq!(apic.page(), Some(0x1_2345_6000));
    apic.set_base(DISABLED).expect("allowed");
    assert_eq!(apic.page(), None);
    apic.set_base(XAPIC).expect("allowed");
    assert_eq!(read(&mut apic, SVR), 0xff, "as after a reset");
}

#[test]
fn x2apic_mode_starts_with_another_destination() {
    let mut apic = enabled();
    apic.write(ICR_HIGH, 0x0300_0000, 0);
    apic.write(ICR, 0x55, 0);
    apic.set_base(X2APIC_BASE).expect("allowed");
    assert_eq!(apic.read_x2apic(ICR, 0), Some(0x55));
}

#[test]
fn x2apic_registers() {
    let mut apic = enabled();
    assert_eq!(apic.read_x2apic(VERSION, 0), None, "not in x2APIC mode");
    assert_eq!(apic.write_x2apic(TPR, 0, 0), None);

    let mut apic = in_x2apic_mode();
    assert_eq!(apic.page(), None);
    assert_eq!(apic.read_x2apic(ID, 0), Some(0));
    assert_eq!(apic.read_x2apic(LDR, 0), Some(1));
    assert_eq!(apic.read_x2apic(SVR, 0), Some(0x1ff));

    // What does not exist, is write only or read only, reserved bits.
    for register in [DFR, EOI, ICR_HIGH, SELF_IPI, 0x00, 0x2f, 0x09, 0x40, 0xff] {
        assert_eq!(apic.read_x2apic(register, 0), None, "{register:#x}");
    }
    for (register, value) in [
        (ID, 0),
        (VERSION, 0),
        (PPR, 0),
        (LDR, 1),
        (DFR, 0),
        (0x10, 0),
        (CURRENT, 0),
        (EOI, 1),
        (ESR, 1),
        (TPR, 0x100),
        (SVR, 0x1_0000),
        (LVT_TIMER, 0x8_0000),
        (LVT_TIMER, 1 << 32),
        (ICR, 1 << 20),
        (DIVIDE, 4),
        (SELF_IPI, 0x100),
    ] {
        assert_eq!(
            apic.write_x2apic(register, value, 0),
            None,
            "{register:#x} {value:#x}"
        );
    }
}

#[test]
fn x2apic_interrupts() {
    let mut apic = in_x2apic_mode();
    apic.write_x2apic(SELF_IPI, 0x44, 0).expect("allowed");
    assert_eq!(apic.acknowledge(), Some(0x44));
    apic.write_x2apic(EOI, 0, 0).expect("allowed");

    for (command, arrives) in [
        (0x55, true),
        (0xffff_ffff_0000_0055, true),
        (0x0000_00ff_0000_0055, false),
        (0x0000_0001_0000_0055, false),
        (0x0000_0003_0000_0855, true),
        (0x0000_0002_0000_0855, false),
        (0x0001_0001_0000_0855, false),
    ] {
        apic.write_x2apic(ICR, command, 0).expect("allowed");
        assert_eq!(apic.read_x2apic(ICR, 0), Some(command));
        assert_eq!(apic.acknowledge().is_some(), arrives, "{command:#x}");
        apic.write_x2apic(EOI, 0, 0).expect("allowed");
    }
}

#[test]
fn every_register_can_be_accessed() {
    for register in 0..REGISTER_COUNT {
        let mut apic = enabled();
        apic.read(register, 0);
        apic.write(register, u32::MAX, 0);
        apic.read(register, u64::MAX);
        apic.write(register, 0, u64::MAX);
        let mut apic = in_x2apic_mode();
        apic.read_x2apic(register, 0);
        apic.write_x2apic(register, u64::MAX, u64::MAX);
    }
}

/// As firmware leaves it where there are ACPI tables: the 8259 interrupts through it, and LINT1 is the NMI.
#[test]
fn firmware_enables_it() {
    const LVT_LINT1: u32 = 0x36;
    let mut apic = LocalApic::new();
    apic.enable();
    assert_eq!(read(&mut apic, SVR), 0x1ff);
    assert_eq!(read(&mut apic, LVT_LINT0), 0x700);
    assert_eq!(read(&mut apic, LVT_LINT1), 0x400);
    apic.set_lint0(true);
    assert!(apic.external_interrupt());
}
