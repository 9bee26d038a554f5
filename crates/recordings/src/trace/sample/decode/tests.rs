//! Samples encoded by hand, byte by byte: every field is decoded, every limit is exact, and every
//! invalid value is rejected with its own message.

mod limits;
mod truth;

use super::*;
use crate::trace::varint::{put, put_bytes, put_difference};

const PID: u32 = 0x100;
const TID: u32 = 0x101;
/// Presence bits of a known and of a complete truth.
const KNOWN: u8 = 1 << presence::TRUTH_SHIFT;
const COMPLETE: u8 = 2 << presence::TRUTH_SHIFT;

/// Records and literals of samples.
#[derive(Clone, Default)]
struct Script {
    records: Vec<u8>,
    literals: Vec<u8>,
}

impl Script {
    /// The first sample of a thread, without registers.
    fn new(presence: u8) -> Script {
        let mut script = Script::default();
        script.new_thread(PID, TID, 10, presence).no_regs();
        script
    }

    fn byte(&mut self, byte: u8) -> &mut Self {
        self.records.push(byte);
        self
    }

    fn numbers(&mut self, numbers: &[u64]) -> &mut Self {
        numbers.iter().for_each(|n| put(&mut self.records, *n));
        self
    }

    fn differences(&mut self, differences: &[i64]) -> &mut Self {
        for d in differences {
            put_difference(&mut self.records, *d as u64, 0);
        }
        self
    }

    fn literal(&mut self, words: &[u64]) -> &mut Self {
        let bytes = words.iter().flat_map(|w| w.to_le_bytes());
        self.literals.extend(bytes);
        self
    }

    fn new_thread(&mut self, pid: u32, tid: u32, time: i64, presence: u8) -> &mut Self {
        let numbers = [0, u64::from(pid), u64::from(tid)];
        self.numbers(&numbers).differences(&[time]).byte(presence)
    }

    /// A sample of thread `number`, counted from 1.
    fn thread(&mut self, number: u64, time: i64, presence: u8) -> &mut Self {
        self.numbers(&[number]).differences(&[time]).byte(presence)
    }

    fn no_regs(&mut self) -> &mut Self {
        self.numbers(&[0, 0])
    }

    /// Registers: the mask of registers that become known or unknown, and the new values.
    fn regs(&mut self, toggled: RegMask, changed: &[(Reg, u64)]) -> &mut Self {
        let mask = changed.iter().fold(RegMask::NONE, |m, (r, _)| m.with(*r));
        let words: Vec<u64> = changed.iter().map(|(_, value)| *value).collect();
        self.numbers(&[toggled.0.into(), mask.0.into()]);
        self.literal(&words)
    }

    /// A new region whose words at `address` are all literal.
    fn region(&mut self, slot: u64, address: u64, words: &[u64]) -> &mut Self {
        self.byte(0).numbers(&[slot]);
        let end = address + 8 * words.len() as u64;
        self.differences(&[address as i64, end as i64]);
        self.literal(words)
    }

    fn decode(&self, count: usize) -> Result<Decoder, Bad> {
        let mut decoder = Decoder::default();
        let mut records = Cursor::new(&self.records, 0);
        let mut literals = Cursor::new(&self.literals, 0);
        for _ in 0..count {
            decoder.step(&mut records, &mut literals)?;
        }
        assert_eq!((records.left(), literals.left()), (0, 0), "all is read");
        Ok(decoder)
    }

    #[track_caller]
    fn refused(&self, count: usize, what: &str) {
        let found = self.decode(count).map(|_| ()).map_err(|bad| bad.what);
        assert_eq!(found, Err(what));
    }
}

const TOO_MUCH: &str = "the samples of a block come to more than 64 MiB";

#[test]
fn an_empty_sample_has_its_thread_and_time() {
    let mut script = Script::new(0);
    script.numbers(&[0]);
    let expected = Sample {
        pid: PID,
        tid: TID,
        time: 10,
        regs: SampleRegs {
            sampled: Regs::UNKNOWN,
            fetch: None,
            own: None,
        },
        regions: Vec::new(),
        truth: Truth::Unknown,
        recorded: Vec::new(),
        branches: Vec::new(),
        kernel: None,
        process_memory: None,
    };
    assert_eq!(script.decode(1).unwrap().sample(), expected);
}

#[test]
fn samples_belong_to_the_thread_that_their_number_says() {
    let mut script = Script::new(0);
    script.numbers(&[0]);
    script.new_thread(7, 8, 5, 0).no_regs().numbers(&[0]);
    script.thread(1, -3, 0).no_regs().numbers(&[0]);
    script.thread(2, 1, 0).no_regs().numbers(&[0]);
    let expected = [(PID, TID, 10), (7, 8, 15), (PID, TID, 12), (7, 8, 13)];
    let mut decoder = Decoder::default();
    let mut records = Cursor::new(&script.records, 0);
    for (pid, tid, time) in expected {
        decoder
            .step(&mut records, &mut Cursor::new(&[], 0))
            .unwrap();
        let sample = decoder.sample();
        assert_eq!((sample.pid, sample.tid, sample.time), (pid, tid, time));
    }
    let mut third = Script::new(0);
    third.numbers(&[0]).thread(2, 0, 0);
    third.refused(2, "a thread that was not named before");
}

#[test]
fn unknown_presence_bits_are_refused() {
    for bits in [0x80, 0xff, 3 << presence::TRUTH_SHIFT] {
        Script::new(bits).refused(1, "a sample has unknown presence bits");
    }
}

#[test]
fn registers_change_by_the_mask_and_each_kind_by_itself() {
    let rip_rsp = RegMask::of(&[Reg::Rip, Reg::Rsp]);
    let mut script = Script::default();
    script.new_thread(PID, TID, 10, presence::FETCH | presence::OWN);
    script.regs(rip_rsp, &[(Reg::Rsp, 2), (Reg::Rip, 1)]);
    script.regs(RegMask::of(&[Reg::Rax]), &[(Reg::Rax, 3)]);
    script.regs(RegMask::of(&[Reg::R15]), &[(Reg::R15, 4)]);
    script.numbers(&[0]);

    // rsp becomes unknown, cs becomes known and is 0, rip is unchanged; then only `fetch` or only
    // `own` is present.
    script.thread(1, 0, presence::FETCH);
    script.regs(RegMask::of(&[Reg::Rsp, Reg::Cs]), &[]);
    script.regs(RegMask::NONE, &[(Reg::Rax, 9)]).numbers(&[0]);
    // `own` was absent in between, and still has its last values.
    script.thread(1, 0, presence::OWN);
    script.regs(RegMask::NONE, &[]).regs(RegMask::NONE, &[]);
    script.numbers(&[0]);

    let regs = |pairs: &[(Reg, u64)]| {
        let mut regs = Regs::UNKNOWN;
        pairs.iter().for_each(|(reg, value)| regs.set(*reg, *value));
        regs
    };

    let later = regs(&[(Reg::Rip, 1), (Reg::Cs, 0)]);
    let expected = [
        SampleRegs {
            sampled: regs(&[(Reg::Rip, 1), (Reg::Rsp, 2)]),
            fetch: Some(regs(&[(Reg::Rax, 3)])),
            own: Some(regs(&[(Reg::R15, 4)])),
        },
        SampleRegs {
            sampled: later,
            fetch: Some(regs(&[(Reg::Rax, 9)])),
            own: None,
        },
        SampleRegs {
            sampled: later,
            fetch: None,
            own: Some(regs(&[(Reg::R15, 4)])),
        },
    ];

    let mut decoder = Decoder::default();
    let mut records = Cursor::new(&script.records, 0);
    let mut literals = Cursor::new(&script.literals, 0);
    for (i, expected) in expected.into_iter().enumerate() {
        decoder.step(&mut records, &mut literals).unwrap();
        assert_eq!(decoder.sample().regs, expected, "sample {i}");
    }
}

#[test]
fn registers_that_do_not_exist_are_refused() {
    let what = "registers that do not exist";
    // (known, changed)
    for masks in [[1 << 19, 0], [1, 2], [0, 1], [1 << 19, 1 << 19]] {
        let mut script = Script::default();
        script.new_thread(PID, TID, 10, 0).numbers(&masks);
        script.literal(&[0, 0]).refused(1, what);
    }
    let mut last = Script::default();
    let all = u64::from(RegMask::ALL.0);
    last.new_thread(PID, TID, 10, 0).numbers(&[all, all, 0]);
    last.literal(&[5; 19]);
    let regs = last.decode(1).unwrap().sample().regs.sampled;
    assert_eq!(regs.get(Reg::Cs), Some(5));
    last.literals.pop();
    last.refused(1, "the literals end too early");
}

#[test]
fn a_region_has_its_role_bounds_link_and_bytes() {
    for (number, role) in ROLES.into_iter().enumerate() {
        let mut script = Script::new(0);
        script.numbers(&[1]).byte(number as u8 | region::BOUNDS);
        script.numbers(&[0]).differences(&[0x1000, 0x9000, 0x77]);
        script.differences(&[0x2000, 0x2010]).literal(&[5, 6]);
        let bytes = [5u64, 6].map(u64::to_le_bytes).concat();
        let expected = Region {
            role,
            bounds: 0x1000..0x9000,
            next_sp: 0x77,
            address: 0x2000,
            bytes: Cow::Owned(bytes),
        };
        assert_eq!(script.decode(1).unwrap().sample().regions, [expected]);
    }
}

#[test]
fn a_slot_continues_with_its_contents() {
    let mut script = Script::new(0);
    script.numbers(&[1]).byte(region::BOUNDS).numbers(&[0]);
    script.differences(&[0x1000, 0x9000, 0x77]);
    script.differences(&[0x2000, 0x2010]).literal(&[5, 6]);

    // The second word differs; bounds and `next_sp` are unchanged, differences are to the old
    // values.
    script.thread(1, 0, 0).no_regs().numbers(&[1]).byte(0);
    script.numbers(&[0]).differences(&[0, 0]).numbers(&[1, 1]);
    script.literal(&[7]);

    // Bounds are differences too; the new word above is literal, the old word is not.
    script.thread(1, 0, 0).no_regs().numbers(&[1]);
    script.byte(region::BOUNDS).numbers(&[0]);
    script.differences(&[8, -8, -7]).differences(&[8, 8]);
    script.numbers(&[1, 0]).literal(&[8]);

    // Fresh: the slot's contents are discarded.
    script.thread(1, 0, 0).no_regs().numbers(&[1]);
    script.byte(region::FRESH).numbers(&[0]);
    script.differences(&[0, 0]).literal(&[1, 2]);

    let expected = [
        (0x2000, 0x1000..0x9000, 0x77, [5, 6]),
        (0x2000, 0x1000..0x9000, 0x77, [5, 7]),
        (0x2008, 0x1008..0x8ff8, 0x70, [7, 8]),
        (0x2008, 0x1008..0x8ff8, 0x70, [1, 2]),
    ];

    let mut decoder = Decoder::default();
    let mut records = Cursor::new(&script.records, 0);
    let mut literals = Cursor::new(&script.literals, 0);
    for (i, (address, bounds, next_sp, words)) in expected.into_iter().enumerate() {
        decoder.step(&mut records, &mut literals).unwrap();
        let sample = decoder.sample();
        let r = &sample.regions[0];
        let bytes = words.map(u64::to_le_bytes).concat();
        assert_eq!(
            (r.address, &r.bounds, r.next_sp, &r.bytes[..]),
            (address, &bounds, next_sp, &bytes[..]),
            "sample {i}"
        );
    }
}

#[test]
fn region_heads_and_slots_that_lie_are_refused() {
    for bit in [0x10, 0x80] {
        let mut script = Script::new(0);
        script.numbers(&[1]).byte(bit);
        script.refused(1, "a region has unknown bits");
    }
    let mut script = Script::new(0);
    script.numbers(&[1]).byte(0).numbers(&[1]);
    script.refused(1, "a slot that was not used before");
    let mut script = Script::new(0);
    script.numbers(&[2]).region(0, 0x10, &[1]);
    script.byte(0).numbers(&[0]);
    script.refused(1, "two regions of a sample in one slot");
    let mut script = Script::new(0);
    script.numbers(&[1]).byte(0).numbers(&[0]);
    script.differences(&[0x10, 0xf]);
    script.refused(1, "a region ends before it starts");
}

#[test]
fn a_sample_may_have_255_regions_each_in_its_own_slot() {
    let regions = |count: u64| {
        let mut script = Script::new(0);
        script.numbers(&[count]);
        (0..count).for_each(|slot| {
            script.region(slot, 0x1000 * slot, &[slot]);
        });
        script
    };
    let mut most = regions(255);
    most.thread(1, 0, 0).no_regs();
    let mut last = most.clone();
    last.numbers(&[1]).byte(0).numbers(&[254]);
    last.differences(&[0, 0]).numbers(&[1, 0]);
    let decoder = last.decode(2).unwrap();
    let (expected, sample) = (254u64.to_le_bytes(), decoder.sample());
    assert_eq!(sample.regions[0].bytes[..], expected);
    most.numbers(&[1]).byte(0).numbers(&[255]);
    most.refused(2, "a slot that was not used before");
    let mut many = Script::new(0);
    many.numbers(&[256]);
    many.refused(1, "more regions than a sample may have");
}
