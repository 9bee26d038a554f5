//! Whole walks with SFrame and ORC tables: effects of the lookup address and of profiles.

use std::sync::Arc;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::{Addresses, Chain};
use unwind_sim_unwind::derived::Tables;
use unwind_sim_unwind::fp::FramePointer;
use unwind_sim_unwind::image::{
    AddressSpace, Bytes, Image, ImageParts, Mapping, Section, SectionKind,
};
use unwind_sim_unwind::memory::MemoryCopy;
use unwind_sim_unwind::orc::{Encoding, Entry, EntryType, Layout, Orc, OrcReg};
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::sframe::{Profile, Sframe};
use unwind_sim_unwind::start::Start;
use unwind_sim_unwind::unwinder::{Stack, Unwinder, WithFallback};

const STACK: u64 = 0x7000;

fn space(text: std::ops::Range<u64>, sections: Vec<Section>) -> AddressSpace {
    let image = Image::new(ImageParts {
        text: vec![text.clone()],
        sections,
        ..ImageParts::default()
    });
    let mut space = AddressSpace::new();
    space.map(Mapping {
        range: text,
        bias: 0,
        image: Some(Arc::new(image)),
        name: "test".into(),
    });
    space
}

fn section(kind: SectionKind, address: u64, data: Vec<u8>) -> Section {
    Section {
        kind,
        address,
        data: Bytes::from_vec(data),
    }
}

/// The pcs of a walk of these words at [`STACK`], and why it ended. Both sinks must agree.
fn walk(
    unwinder: &dyn Unwinder,
    space: &AddressSpace,
    regs: Regs,
    words: &[u64],
) -> (Vec<u64>, Reason) {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let memory = MemoryCopy::new(STACK, &bytes);
    let start = Start::from_regs(regs);
    let stack = Stack::new(&start, space, &memory);
    let mut cache = Cache::new();
    let chain: Chain = unwinder.walk(&stack, &mut cache);
    let pcs: Vec<u64> = chain.frames.iter().map(|f| f.pc.value()).collect();
    let mut addresses = Addresses::default();
    let end = unwinder.addresses(&stack, &mut cache, &mut addresses);
    assert_eq!((&addresses.0, end), (&pcs, chain.end), "the two sinks");
    (pcs, chain.end.reason)
}

/// `flex.s`: a function with a realigned frame (0x401000..0x40101c), and a root function.
fn flex() -> AddressSpace {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../corpus/sframe/v3flex.sframe.bin"
    );
    let bytes = std::fs::read(file).unwrap();
    let sframe = section(SectionKind::Sframe, 0x403000, bytes);
    space(0x401000..0x40101f, vec![sframe])
}

fn sframe(profile: Profile) -> Sframe {
    Sframe::new(profile, Tables::Real)
}

const fn at(word: u64) -> u64 {
    STACK + 8 * word
}

/// Two realigned frames, the lower one at 0x401014 with rbp at word 1; it returns to `ra`.
/// Words: r10 (the CFA), saved rbp; then the return address at CFA - 8, and so on.
fn realigned(ra: u64) -> (Regs, Vec<u64>) {
    let words = vec![at(5), at(7), 0, 0, ra, 0, at(10), 0, 0, 0x40101d];
    (Regs::frame(0x401014, STACK, at(1)), words)
}

#[test]
fn a_cfa_loaded_by_way_of_rbp_is_followed_to_the_root() {
    let (regs, words) = realigned(0x401015);
    for profile in [Profile::Spec, Profile::CallSite, Profile::Libsframe] {
        let (pcs, end) = walk(&sframe(profile), &flex(), regs, &words);
        assert_eq!(pcs, [0x401014, 0x401015, 0x40101d], "{profile:?}");
        assert_eq!(end, Reason::RootReached);
    }
}

#[test]
fn linux_ends_below_the_top_where_rbp_is_found_by_way_of_rbp() {
    let (regs, words) = realigned(0x401015);
    let (pcs, end) = walk(&sframe(Profile::KernelV3), &flex(), regs, &words);
    assert_eq!(pcs, [0x401014, 0x401015]);
    assert_eq!(end, Reason::RegisterNotCarried { reg: Reg::Rbp });
}

#[test]
fn a_return_address_on_a_row_s_edge_is_looked_up_as_the_profile_says() {
    // At 0x401016 the CFA is r10, which is unknown below the topmost frame; at 0x401015 it is
    // *(rbp-8).
    let (regs, words) = realigned(0x401016);
    let (pcs, end) = walk(&sframe(Profile::Spec), &flex(), regs, &words);
    assert_eq!(pcs, [0x401014, 0x401016]);
    assert_eq!(end, Reason::RegisterNotCarried { reg: Reg::R10 });
    let (pcs, end) = walk(&sframe(Profile::CallSite), &flex(), regs, &words);
    assert_eq!(pcs, [0x401014, 0x401016, 0x40101d]);
    assert_eq!(end, Reason::RootReached);
}

#[test]
fn without_a_row_the_fallback_continues() {
    let mut space = flex();
    space.map(Mapping {
        range: 0x500000..0x501000,
        bias: 0,
        image: None,
        name: "generated".into(),
    });
    // The lower frame, in generated code, keeps a frame pointer: rbp at word 0.
    let regs = Regs::frame(0x500010, STACK, at(0));
    let words = [at(3), 0x40101d, 0];
    let alone = walk(&sframe(Profile::KernelV3), &space, regs, &words);
    assert_eq!(alone, (vec![0x500010], Reason::NoImage { pc: 0x500010 }));
    let first = Box::new(sframe(Profile::KernelV3));
    let both = WithFallback::new(first, Box::new(FramePointer));
    assert_eq!(Unwinder::name(&both), "sframe:kernel-v3+fp");
    let (pcs, end) = walk(&both, &space, regs, &words);
    assert_eq!((pcs, end), (vec![0x500010, 0x40101d], Reason::RootReached));
}

/// A small kernel: `leaf`, called by an interrupt's entry code, which interrupted `body`.
fn kernel(layout: Layout) -> AddressSpace {
    let entry = |sp_reg, sp_offset, kind, signal| Entry {
        sp_reg,
        sp_offset,
        kind,
        signal,
        ..Entry::UNDEFINED
    };

    let entries = [
        // leaf
        (0x1000, entry(OrcReg::Sp, 16, EntryType::Call, false)),
        // entry code
        (0x1010, entry(OrcReg::Sp, 0, EntryType::Regs, true)),
        // body, before and after its `sub rsp, 8`
        (0x1020, entry(OrcReg::Sp, 8, EntryType::Call, false)),
        (0x1024, entry(OrcReg::Sp, 16, EntryType::Call, false)),
        // start of the thread
        (
            0x1030,
            entry(OrcReg::Undefined, 0, EntryType::EndOfStack, false),
        ),
        (0x1040, Entry::UNDEFINED),
    ];

    const IPS: u64 = 0x2000;
    let ips = entries.iter().zip((IPS..).step_by(4));
    // Each word is the distance from itself to the code.
    let ips = ips.flat_map(|((ip, _), slot)| (ip - slot as i32).to_le_bytes());
    let unwind = entries.iter().flat_map(|(_, e)| e.encode(layout));
    let unwind = section(SectionKind::OrcUnwind, 0x3000, unwind.collect());
    let ips = section(SectionKind::OrcUnwindIp, IPS, ips.collect());

    space(0x1000..0x1050, vec![unwind, ips])
}

/// A `struct pt_regs` that says that body was interrupted at `ip`, with sp `sp`.
fn pt_regs(ip: u64, sp: u64, rbp: u64) -> Vec<u64> {
    let mut words = vec![0; 21];
    words[4] = rbp;
    words[16] = ip;
    words[17] = 0x10;
    words[18] = 2;
    words[19] = sp;
    words
}

#[test]
fn orc_looks_up_an_interrupted_ip_as_it_stands() {
    for layout in Layout::ALL {
        let space = kernel(layout);
        let told = Orc::new(Some(Encoding::since_5_12(layout)), Tables::Real);
        let detected = Orc::new(None, Tables::Real);
        // leaf's frame is words 0 and 1, then pt_regs, then body's two words.
        for (ip, body) in [(0x1024, vec![0, 0x1034]), (0x1023, vec![0x1034])] {
            let mut words = vec![0, 0x1014];
            words.extend(pt_regs(ip, at(23), 0x1234));
            words.extend(body);
            let regs = Regs::frame(0x1004, STACK, 0);
            for orc in [&told, &detected] {
                let (pcs, end) = walk(orc, &space, regs, &words);
                assert_eq!(pcs, [0x1004, 0x1014, ip, 0x1034], "{layout:?}");
                assert_eq!(end, Reason::RootReached);
            }
        }
    }
}

#[test]
fn orc_says_undefined_where_the_table_does() {
    let orc = Orc::new(None, Tables::Real);
    let regs = Regs::frame(0x1044, STACK, 0);
    let (pcs, end) = walk(&orc, &kernel(Layout::V6_4), regs, &[0; 4]);
    assert_eq!(pcs, [0x1044]);
    assert_eq!(end, Reason::UndefinedByTable { reg: Reg::Rsp });
}

#[test]
fn random_stacks_end_with_a_reason() {
    fn property(words: Vec<u64>, pick: u8, rbp: u64) -> bool {
        // Three of four words are made to look like addresses of code or stack.
        let words: Vec<u64> = (0..)
            .zip(words)
            .map(|(i, w): (u64, u64)| match i.wrapping_add(w) % 4 {
                0 => 0x401000 + w % 0x20,
                1 => 0x1000 + w % 0x50,
                2 => STACK + w % 0x100,
                _ => w,
            })
            .collect();

        // In half of the cases rbp points into the stack.
        let rbp = if pick.is_multiple_of(2) {
            STACK + rbp % 0x80
        } else {
            rbp
        };

        for profile in Profile::ALL {
            let regs = Regs::frame(0x401000 + u64::from(pick) % 0x1f, STACK, rbp);
            walk(&sframe(profile), &flex(), regs, &words);
        }

        // The same stack with the kernel's table.
        let regs = Regs::frame(0x1000 + u64::from(pick) % 0x50, STACK, rbp);
        let orc = Orc::new(None, Tables::Real);
        walk(&orc, &kernel(Layout::V7_1), regs, &words);

        true
    }

    quickcheck::QuickCheck::new()
        .tests(400)
        .quickcheck(property as fn(Vec<u64>, u8, u64) -> bool);
}
