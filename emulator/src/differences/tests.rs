//! Which differences are forgiven, and which are not.
#![allow(
    clippy::single_range_in_vec_init,
    reason = "one range of bytes is a list of ranges as well"
)]

use super::*;
use iced_x86::{Decoder, DecoderOptions};

fn with(code: &[u8], cpu: &str, test: impl FnOnce(Case<'_>)) {
    let insn = Decoder::new(64, code, DecoderOptions::NONE).decode();
    test(Case {
        insn: &insn,
        cpu: cpu.parse().expect("a processor"),
        gpr: &[0; 16],
        in_parts: false,
        processor: End::Done,
        machine: End::Done,
    });
}

/// Forgives differences; returns the machine's state afterwards and the names of the entries.
fn forgiven(
    code: &[u8],
    cpu: &str,
    ours: impl FnOnce(&mut [u64; 16], &mut u64, &mut [u8; 512]),
    theirs: impl FnOnce(&mut [u64; 16], &mut u64, &mut [u8; 512]),
) -> ([u64; 16], u64, [u8; 512], Vec<&'static str>) {
    // Both sides start equal.
    let mut machine = ([0; 16], 0, 0x202, [0; 512]);
    let mut processor = machine;

    ours(&mut machine.0, &mut machine.2, &mut machine.3);
    theirs(&mut processor.0, &mut processor.2, &mut processor.3);

    let mut names = Vec::new();
    with(code, cpu, |case| {
        let mut view = View {
            gpr: &mut machine.0,
            rip: &mut machine.1,
            rflags: &mut machine.2,
            fx: Some(&mut machine.3),
            upper: None,
        };

        let theirs = View {
            gpr: &mut processor.0,
            rip: &mut processor.1,
            rflags: &mut processor.2,
            fx: Some(&mut processor.3),
            upper: None,
        };

        let used = case.forgive(&theirs, &mut view);
        names.extend(used.numbers().map(|number| TABLE[number].name));
    });

    (machine.0, machine.2, machine.3, names)
}

#[test]
fn entries_are_named_and_have_a_source() {
    assert!(TABLE.len() <= 64, "a bit for each");
    let mut names: Vec<_> = TABLE.iter().map(|entry| entry.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), TABLE.len());
    for entry in TABLE {
        assert!(entry.count() > 0, "{}", entry.name);
        match entry.source {
            Source::Open { sdm, apm } => {
                assert!(sdm.starts_with("volume ") && apm.starts_with("volume "));
            }
            Source::Expected { why, manuals } => {
                assert!(!why.is_empty() && manuals.contains("APM"), "{}", entry.name);
            }
            Source::Measured { on, manuals } => {
                assert!(on.contains("family") && on.contains("model"));
                assert!(manuals.contains("APM"), "{}", entry.name);
            }
        }
    }
}

#[test]
fn only_listed_flags_are_forgiven() {
    // and %ecx,%eax: AF, and nothing else.
    let (_, flags, _, names) = forgiven(
        &[0x21, 0xc8],
        "v2,intel",
        |_, _, _| (),
        |_, flags, _| *flags |= STATUS,
    );
    assert_eq!((flags, names), (0x202 | AF, vec!["logic-af"]));

    // add %ecx,%eax: nothing.
    for vendor in ["v2,intel", "v2,amd"] {
        let (_, flags, _, names) = forgiven(
            &[0x01, 0xc8],
            vendor,
            |_, _, _| (),
            |_, flags, _| *flags |= STATUS,
        );
        assert_eq!((flags, names.len()), (0x202, 0));
    }

    // shl $1,%eax: OF is defined; shl $2,%eax: not.
    for (count, open) in [(1, AF), (2, AF | OF)] {
        let (_, flags, ..) = forgiven(
            &[0xc1, 0xe0, count],
            "v2,intel",
            |_, _, _| (),
            |_, flags, _| *flags |= STATUS,
        );
        assert_eq!(flags, 0x202 | open);
    }
}

/// FPTAN and FSINCOS may differ by one unit in the last place, DPPS in its NaN, RCPPS within its
/// error.
#[test]
fn results_are_forgiven_as_far_as_the_manuals_do() {
    let st =
        |value: u128| move |fx: &mut [u8; 512]| fx[32..48].copy_from_slice(&value.to_le_bytes());

    // The exponent is biased by 16383.
    let one = 0x3fff_8000_0000_0000_0000;
    for (code, other, same) in [
        ([0xd9, 0xfb], one + 1, true),                         // fsincos
        ([0xd9, 0xf2], one - 1 - (1 << 64) + (1 << 63), true), // fptan, below a power of two
        ([0xd9, 0xfb], one + 2, false),
        ([0xd9, 0xfb], one + (1 << 79), false), // of opposite sign
        ([0xd8, 0xc1], one + 1, false),         // fadd
    ] {
        let (_, _, fx, _) = forgiven(
            &code,
            "v2,intel",
            |_, _, fx| st(one)(fx),
            |_, _, fx| st(other)(fx),
        );
        let mut expected = [0; 512];
        st(if same { other } else { one })(&mut expected);
        assert_eq!(fx[32..48], expected[32..48], "{code:x?} {other:x}");
    }

    // The largest denormal number and the smallest normal one; only the first underflows.
    let (denormal, normal) = ((1 << 63) - 1, (1 << 64) + (1 << 63));
    let (_, _, fx, _) = forgiven(
        &[0xd9, 0xfe], // fsin
        "v2,amd",
        |_, _, fx| st(normal)(fx),
        |_, _, fx| {
            st(denormal)(fx);
            fx[2] = 0x30;
        },
    );
    assert_eq!((fx[2], &fx[32..42]), (0x10, &denormal.to_le_bytes()[..10]));

    // Unmasked: the exponent of the result is larger by 24576.
    let scaled = u128::from(u64::MAX) | 0x6000 << 64;
    let (_, _, fx, _) = forgiven(
        &[0xd9, 0xfe],
        "v2,amd",
        |_, _, fx| st(normal)(fx),
        |_, _, fx| {
            st(scaled)(fx);
            (fx[2], fx[8]) = (0xb0, 7);
        },
    );
    assert_eq!(
        (fx[2], fx[8], &fx[32..42]),
        (0xb0, 7, &scaled.to_le_bytes()[..10])
    );

    // xmm0 in the area of `fxsave`.
    let lanes = |values: [u32; 4]| {
        move |fx: &mut [u8; 512]| {
            for (at, value) in values.into_iter().enumerate() {
                fx[160 + 4 * at..164 + 4 * at].copy_from_slice(&value.to_le_bytes());
            }
        }
    };

    let dpps = [0x66, 0x0f, 0x3a, 0x40, 0xc1, 0xff];
    let rcpps = [0x0f, 0x53, 0xc1];
    for (code, ours, theirs, expected) in [
        // Another NaN is forgiven; a number instead of a NaN is not.
        (
            &dpps[..],
            [0x7fc0_0001, 0x7fc0_0001, 0x3f80_0000, 0x3f80_0000],
            [0x7fc0_0002, 0x3f80_0000, 0x7fc0_0001, 0x3f80_0001],
            [0x7fc0_0002, 0x7fc0_0001, 0x3f80_0000, 0x3f80_0000],
        ),
        // 3 and 4 parts in 2^12; the opposite sign; infinity.
        (
            &rcpps[..],
            [0x3f80_0000, 0x3f80_0000, 0x3f80_0000, 0x7f80_0000],
            [0x3f80_1800, 0x3f80_2000, 0xbf80_0000, 0x7f7f_ffff],
            [0x3f80_1800, 0x3f80_0000, 0x3f80_0000, 0x7f80_0000],
        ),
        // A result that is too small is 0 on one side.
        (
            &rcpps[..],
            [0x0080_0000, 0x0081_0000, 0, 0x8000_0000],
            [0, 0, 0x0000_0001, 0],
            [0, 0x0081_0000, 0x0000_0001, 0x8000_0000],
        ),
    ] {
        let (_, _, fx, _) = forgiven(
            code,
            "v2,amd",
            |_, _, fx| lanes(ours)(fx),
            |_, _, fx| lanes(theirs)(fx),
        );
        let mut wanted = [0; 512];
        lanes(expected)(&mut wanted);
        assert_eq!(fx[160..176], wanted[160..176], "{ours:x?}");
    }
}

/// A difference observed only on AMD's processors is not forgiven on Intel's.
#[test]
fn a_vendors_differences_are_its_own() {
    // fld1: FIP, on a processor that does not load it without an exception
    for (cpu, names) in [
        ("v2,intel", vec![]),
        ("v2,amd", vec![]),
        ("v2,amd:zen3", vec![]),
        ("v2,amd:zen", vec!["x87-instruction"]),
    ] {
        let (.., used) = forgiven(&[0xd9, 0xe8], cpu, |_, _, fx| fx[8] = 1, |_, _, _| ());
        assert_eq!(used, names);
    }

    // movbe %eax, (%rax) that faults; ud2
    let cases: [(&[u8], End, End, bool); 2] = [
        (
            &[0x0f, 0x38, 0xf1, 0x00],
            End::PageFault,
            End::GeneralProtection,
            true,
        ),
        (&[0x0f, 0x0b], End::Done, End::InvalidOpcode, false),
    ];

    for (code, processor, machine, allowed) in cases {
        for cpu in ["v2,intel", "v2,amd"] {
            with(code, cpu, |case| {
                let case = Case {
                    processor,
                    machine,
                    ..case
                };
                let may = case.may_end_differently().is_some();
                assert_eq!(may, allowed && cpu == "v2,intel", "{code:x?}");
            });
        }
    }
}

/// Elements of a masked move are parts of it, on either vendor's processors; a plain move has none.
#[test]
fn a_masked_move_may_fault_on_either_of_its_elements() {
    // vmaskmovps 0x3c(%rbx),%ymm12,%ymm3; maskmovdqu %xmm1,%xmm0; vmovups 0x3c(%rbx),%ymm3
    let cases: [(&[u8], bool); 3] = [
        (&[0xc4, 0xe2, 0x1d, 0x2c, 0x5b, 0x3c], true),
        (&[0x66, 0x0f, 0xf7, 0xc1], true),
        (&[0xc5, 0xfc, 0x10, 0x5b, 0x3c], false),
    ];

    for (code, allowed) in cases {
        for cpu in ["v3,intel", "v3,amd"] {
            with(code, cpu, |case| {
                let case = Case {
                    processor: End::GeneralProtection,
                    machine: End::PageFault,
                    ..case
                };
                assert_eq!(case.may_end_differently().is_some(), allowed, "{code:x?}");
            });
        }
    }
}

/// What a faulting `xrstor` leaves is open on Intel's processors: of these components, and of nothing else.
#[test]
fn a_restore_that_faults_may_have_restored() {
    for (cpu, end, is_open) in [
        ("v3,intel", End::GeneralProtection, true),
        ("v3,intel", End::PageFault, true),
        ("v3,intel", End::Done, false),
        ("v3,amd", End::GeneralProtection, false),
    ] {
        let mut ours = ([0; 16], 0, 0x202, [0; 512], [0; 16]);
        let mut cpu_state = ([7; 16], 7, 0x207, [7; 512], [7; 16]);
        // xrstor (%rax)
        with(&[0x0f, 0xae, 0x28], cpu, |case| {
            let case = Case {
                processor: end,
                machine: end,
                ..case
            };
            let [mut machine, processor] = [&mut ours, &mut cpu_state].map(|state| View {
                gpr: &mut state.0,
                rip: &mut state.1,
                rflags: &mut state.2,
                fx: Some(&mut state.3),
                upper: Some(&mut state.4),
            });
            case.forgive(&processor, &mut machine);
        });
        // Byte 0 of the control word, and of the upper half of ymm15.
        assert_eq!(
            (ours.3[0] == 7, ours.4[15] == 7),
            (is_open, is_open),
            "{cpu}"
        );
        assert_eq!((ours.0, ours.1, ours.2), ([0; 16], 0, 0x202));
    }
}

#[test]
fn stores_are_open_where_pointers_are_stored() {
    // fnstenv (%rax), 32-bit and 16-bit; fxsave (%rax)
    let cases: [(&[u8], &[Range<usize>]); 3] = [
        (&[0xd9, 0x30], &[12..18, 18..20, 20..28]),
        (&[0x66, 0xd9, 0x30], &[6..14]),
        (&[0x0f, 0xae, 0x00], &[6..24]),
    ];
    for (code, ranges) in cases {
        with(code, "v2,amd:zen", |case| {
            assert_eq!(case.open_stores(0).1, ranges);
        });
        for cpu in ["v2,intel", "v2,amd"] {
            with(code, cpu, |case| {
                assert!(case.open_stores(0).1.is_empty());
            });
        }
    }
}

/// VRCPPS may differ within its error in the upper half of its own register, and nowhere else.
#[test]
fn upper_halves_are_forgiven_like_lower_ones() {
    let (one, near, far) = (0x3f80_0000_u128, 0x3f7f_f800_u128, 0x3f70_0000_u128);
    for (theirs, changed) in [(near << 32, true), (far << 32, false)] {
        let mut ours = ([0; 16], 0, 0x202, [0; 512], [one << 32; 16]);
        let mut cpu = ours;
        cpu.4 = [theirs; 16];
        // vrcpps %ymm1,%ymm9
        with(&[0xc5, 0x7c, 0x53, 0xc9], "v3,intel", |case| {
            let [mut machine, processor] = [&mut ours, &mut cpu].map(|state| View {
                gpr: &mut state.0,
                rip: &mut state.1,
                rflags: &mut state.2,
                fx: Some(&mut state.3),
                upper: Some(&mut state.4),
            });
            assert_ne!(case.forgive(&processor, &mut machine).is_empty(), changed);
        });
        let mut expected = [one << 32; 16];
        if changed {
            expected[9] = theirs;
        }
        assert_eq!(ours.4, expected);
    }
}
