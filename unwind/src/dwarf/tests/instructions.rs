//! Every call frame instruction, one by one.

use super::*;

/// Checks the rows that `program` makes after the usual CIE.
#[track_caller]
fn check(program: &[u8], expected: &[&str]) {
    let compiled = compile_eh_frame(&Cie::default(), program).expect("a readable FDE");
    assert_eq!(compiled.rows, expected, "{program:x?}");
    assert_eq!(compiled.error, None, "{program:x?}");
}

/// Checks that `program` makes `rows` rows and is malformed from `address` on, at its byte `at`.
#[track_caller]
fn check_error(program: &[u8], rows: usize, address: u64, at: u64, what: &str) {
    let cie = Cie::default();
    let compiled = compile_eh_frame(&cie, program).expect("a readable FDE");
    let Some((
        from,
        Reason::MalformedRow {
            section,
            offset,
            what: said,
        },
    )) = compiled.error
    else {
        panic!("no error in {program:x?}: {compiled:?}");
    };
    let place = (from, section, offset, said);
    assert_eq!(
        place,
        (address, ".eh_frame", cie.program_offset() + at, what)
    );
    assert_eq!(compiled.rows.len(), rows);
}

#[test]
fn no_instruction_at_all() {
    check(&[], &["1000: call cfa=rsp+8 ra=*(cfa-8)"]);
}

#[test]
fn a_function_with_a_frame_pointer() {
    // push rbp; mov rbp, rsp; ...; leave; ret
    let program = [
        0x41, 0x0e, 16, 0x86, 2, // +1: def_cfa_offset 16, rbp at cfa-16
        0x43, 0x0d, 6, // +3: def_cfa_register rbp
        0x02, 0x80, 0x0c, 7, 8, // +0x80: def_cfa rsp+8
    ];
    check(
        &program,
        &[
            "1000: call cfa=rsp+8 ra=*(cfa-8)",
            "1001: call cfa=rsp+16 ra=*(cfa-8) rbp=*(cfa-16)",
            "1004: call cfa=rbp+16 ra=*(cfa-8) rbp=*(cfa-16)",
            "1084: call cfa=rsp+8 ra=*(cfa-8) rbp=*(cfa-16)",
        ],
    );
    let cie = Cie::default();
    let compiled = compile_eh_frame(&cie, &program).expect("a readable FDE");
    let fde = cie.bytes(0).len() as u64;
    let at = cie.program_offset();
    assert_eq!(compiled.offsets, [fde, at, at + 5, at + 8]);
}

#[test]
fn advances_of_every_width() {
    let row = "call cfa=rsp+8 ra=*(cfa-8)";
    let cases: &[(&[u8], u64)] = &[
        (&[0x45], 5),
        (&[0x02, 0x20], 0x20),
        (&[0x03, 0xff, 0x00], 0xff),
        (&[0x04, 0x10, 0, 0, 0], 0x10),
        (&[0x1d, 0x11, 0, 0, 0, 0, 0, 0, 0], 0x11),
        (&[0x01, 0x40, 0x10, 0, 0, 0, 0, 0, 0], 0x40),
    ];
    for (program, delta) in cases {
        let next = alloc::format!("{:x}: {row}", 0x1000 + delta);
        check(program, &["1000: call cfa=rsp+8 ra=*(cfa-8)", &next]);
    }
    // No advance: one row, made by the later instruction.
    check(&[0x40, 0x0e, 24], &["1000: call cfa=rsp+24 ra=*(cfa-8)"]);
    // Past the end of the function: there is no row, and reading stops.
    check(
        &[0x03, 0x00, 0x01, 0xff],
        &["1000: call cfa=rsp+8 ra=*(cfa-8)"],
    );
}

#[test]
fn a_code_alignment_multiplies_advances() {
    let cie = Cie {
        code_align: 4,
        ..Cie::default()
    };
    let compiled = compile_eh_frame(&cie, &[0x42, 0x0e, 16]).expect("a readable FDE");
    assert_eq!(compiled.rows[1], "1008: call cfa=rsp+16 ra=*(cfa-8)");
}

#[test]
fn instructions_of_the_cfa() {
    let cases: &[(&[u8], &str)] = &[
        (&[0x0c, 3, 32], "rbx+32"),
        (&[0x12, 6, 0x7e], "rbp+16"),
        (&[0x12, 7, 2], "rsp-16"),
        (&[0x0d, 10], "r10+8"),
        (&[0x0e, 0x90, 1], "rsp+144"),
        (&[0x13, 0x7d], "rsp+24"),
        (&[0x0f, 2, 0x77, 8], "expr@0x2e+2"),
        (&[0x0c, 16, 0], "rip"),
    ];
    for (program, cfa) in cases {
        check(
            program,
            &[&alloc::format!("1000: call cfa={cfa} ra=*(cfa-8)")],
        );
    }
}

#[test]
fn instructions_of_a_register() {
    // Column 3 is rbx, 6 rbp, 7 rsp, 12 to 15 r12 to r15 (psABI 3.6.2).
    let cases: &[(&[u8], &str)] = &[
        (&[0x83, 3], " rbx=*(cfa-24)"),
        (&[0x05, 12, 4], " r12=*(cfa-32)"),
        (&[0x11, 13, 0x7f], " r13=*(cfa+8)"),
        (&[0x2f, 14, 2], " r14=*(cfa+16)"),
        (&[0x07, 15], " r15=undefined"),
        (&[0x08, 3], " rbx=same"),
        (&[0x09, 6, 9], " rbp=r9"),
        (&[0x09, 6, 20], " rbp=undefined"),
        (&[0x14, 3, 2], " rbx=cfa-16"),
        (&[0x15, 3, 0x7e], " rbx=cfa+16"),
        (&[0x10, 6, 2, 0x76, 0], " rbp=*expr@0x2f+2"),
        (&[0x16, 6, 1, 0x30], " rbp=expr@0x2f+1"),
        (&[0x14, 7, 0], " sp=cfa"),
        (&[0x2e, 0x20], ""),
        (&[0x00], ""),
    ];

    // After the CIE's rules for the CFA and the return address, each program adds one column.
    for (program, column) in cases {
        check(
            program,
            &[&alloc::format!("1000: call cfa=rsp+8 ra=*(cfa-8){column}")],
        );
    }
}

#[test]
fn registers_that_no_walk_needs_are_passed_over() {
    // rax, rdi, xmm0 and an unknown column.
    let program = [
        0x80, 2, 0x05, 5, 3, 0x07, 17, 0x08, 0xff, 0x7f, 0x06, 17, 0xc0,
    ];
    check(&program, &["1000: call cfa=rsp+8 ra=*(cfa-8)"]);
}

#[test]
fn restore_goes_back_to_what_the_cie_said() {
    let cie = Cie {
        program: &[0x0c, 7, 8, 0x90, 1, 0x83, 2],
        ..Cie::default()
    };
    let program = [0x83, 5, 0x86, 6, 0x41, 0xc3, 0x41, 0x06, 6];
    let compiled = compile_eh_frame(&cie, &program).expect("a readable FDE");
    assert_eq!(
        compiled.rows,
        [
            "1000: call cfa=rsp+8 ra=*(cfa-8) rbx=*(cfa-40) rbp=*(cfa-48)",
            "1001: call cfa=rsp+8 ra=*(cfa-8) rbx=*(cfa-16) rbp=*(cfa-48)",
            "1002: call cfa=rsp+8 ra=*(cfa-8) rbx=*(cfa-16)",
        ]
    );
}

#[test]
fn states_are_remembered_in_order_with_their_cfa() {
    let program = [
        0x0a, 0x41, 0x0e, 16, 0x86, 2, 0x0a, 0x41, 0x0f, 1, 0x30, 0x41, 0x0b, 0x41, 0x0b,
    ];
    check(
        &program,
        &[
            "1000: call cfa=rsp+8 ra=*(cfa-8)",
            "1001: call cfa=rsp+16 ra=*(cfa-8) rbp=*(cfa-16)",
            "1002: call cfa=expr@0x36+1 ra=*(cfa-8) rbp=*(cfa-16)",
            "1003: call cfa=rsp+16 ra=*(cfa-8) rbp=*(cfa-16)",
            "1004: call cfa=rsp+8 ra=*(cfa-8)",
        ],
    );
}

#[test]
fn return_addresses() {
    // Column 16 is the return address.
    check(&[0x07, 16], &["1000: outermost"]);
    check(&[0x09, 16, 1], &["1000: call cfa=rsp+8 ra=rdx"]);
    check(&[0x08, 16], &["1000: call cfa=rsp+8 ra=same"]);

    // A separate column: without a rule the address is in that register, with a rule it is both.
    let rows = |program: &[u8]| {
        let cie = Cie {
            ra: 3,
            program: &[0x0c, 7, 8],
            ..Cie::default()
        };
        compile_eh_frame(&cie, program)
            .expect("a readable FDE")
            .rows
    };

    assert_eq!(rows(&[]), ["1000: call cfa=rsp+8 ra=rbx"]);
    assert_eq!(
        rows(&[0x83, 2]),
        ["1000: call cfa=rsp+8 ra=*(cfa-16) rbx=*(cfa-16)"]
    );

    // Two such columns in one table: the same instructions mean different things.
    let mut bytes = Vec::new();
    for ra in [3, 6] {
        let cie = Cie {
            ra,
            program: &[0x0c, 7, 8],
            ..Cie::default()
        };
        bytes.extend(cie.eh_frame(&[0x80 | ra, 2]));
    }

    let image = image(SectionKind::EhFrame, ADDRESS, bytes);
    let mut cache = Cache::new();
    let saved = units(&image, TableKind::EhFrame).map(|unit| {
        let unit = compile_unit(&image, TableKind::EhFrame, unit?.offset, &mut cache)?;
        let row = cache.unit_rows(unit).next().expect("a row");
        Ok(cache.rule(row).to_string())
    });

    let expected = ["rbx", "rbp"].map(|r| {
        let rule = alloc::format!("call cfa=rsp+8 ra=*(cfa-16) {r}=*(cfa-16)");
        Ok::<_, Reason>(rule)
    });
    assert_eq!(saved.collect::<Vec<_>>(), expected);
}

/// A row stores its distance from the function's start in 32 bits.
#[test]
fn a_row_may_start_4_gib_into_its_function_but_no_further() {
    for (distance, fits) in [(u32::MAX.into(), true), (u64::from(u32::MAX) + 1, false)] {
        let cie = Cie::default();
        let mut bytes = cie.bytes(0);
        let mut body = (bytes.len() as u32 + 4).to_le_bytes().to_vec();
        body.extend(FUNCTION.start.to_le_bytes());
        body.extend((1u64 << 40).to_le_bytes());
        // DW_CFA_MIPS_advance_loc8, DW_CFA_def_cfa_offset.
        body.push(0x1d);
        body.extend(distance.to_le_bytes());
        body.extend([0x0e, 16]);
        bytes.extend(entry(&body));
        let image = image(SectionKind::EhFrame, ADDRESS, bytes);
        let compiled = compile(&image, TableKind::EhFrame).expect("a readable FDE");
        assert_eq!(compiled.error.is_none(), fits, "{distance:#x}");
        assert_eq!(compiled.rows.len(), usize::from(fits) * 2);
    }
}

#[test]
fn a_malformed_row_ends_the_rows() {
    check_error(&[0x41, 0x3e], 1, 0x1001, 1, "unknown instruction");
    check_error(
        &[0x41, 0x0b],
        1,
        0x1001,
        1,
        "no remembered state to restore",
    );
    check_error(&[0x41, 0x2d], 1, 0x1001, 1, "unknown instruction");

    // Column 17 is a vector register.
    check_error(
        &[0x41, 0x42, 0x0c, 17, 8],
        2,
        0x1003,
        2,
        "the CFA's base is not a general register",
    );
    check_error(
        &[0x0f, 1, 0x30, 0x0e, 8],
        0,
        0x1000,
        3,
        "the CFA is not a register plus offset, so it cannot be changed",
    );

    // The CFA's offset, then that of a saved register.
    let far: &[u8] = &[0x41, 0x0e, 0xff, 0xff, 0xff, 0xff, 0x0f];
    check_error(far, 1, 0x1001, 1, "offset does not fit in 32 bits");
    let far: &[u8] = &[0x83, 0x80, 0x80, 0x80, 0x80, 0x08];
    check_error(far, 0, 0x1000, 0, "offset does not fit in 32 bits");

    // `DW_CFA_set_loc`
    let back: &[u8] = &[0x44, 0x01, 2, 0x10, 0, 0, 0, 0, 0, 0];
    check_error(back, 1, 0x1004, 1, "the address goes backwards");
    // `DW_CFA_MIPS_advance_loc8`
    let wraps: &[u8] = &[0x1d, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    check_error(wraps, 0, 0x1000, 0, "the address wraps around");
    let distant: &[u8] = &[0x1d, 0, 0, 0, 0, 2, 0, 0, 0];
    check_error(
        distant,
        0,
        0x1000,
        0,
        "row starts more than 4 GiB into its function",
    );

    // `DW_CFA_expression` with a block of 127 bytes.
    let long: &[u8] = &[0x41, 0x10, 6, 0x7f];
    check_error(long, 1, 0x1001, 1, "the entry ends too early");
    // A ULEB128 of more than 64 bits.
    let huge: &[u8] = &[
        0x0e, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
    ];
    check_error(huge, 0, 0x1000, 0, "number too large");
}

#[test]
fn an_expression_has_a_greatest_length() {
    for (len, fits) in [(0xffffu32, true), (0x1_0000, false)] {
        let leb = [len as u8 | 0x80, (len >> 7) as u8 | 0x80, (len >> 14) as u8];
        let mut program = [&[0x0f], &leb[..]].concat();
        program.resize(program.len() + len as usize, 0x96);
        let compiled = compile_eh_frame(&Cie::default(), &program).expect("a readable FDE");
        assert_eq!(compiled.error.is_none(), fits, "{len:#x}");
    }
}

#[test]
fn remembered_states_have_a_limit() {
    let mut program = alloc::vec![0x0a; crate::dwarf::STATES_MAX];
    let compiled = compile_eh_frame(&Cie::default(), &program).expect("a readable FDE");
    assert_eq!(compiled.error, None);
    program.push(0x0a);
    let at = crate::dwarf::STATES_MAX as u64;
    check_error(&program, 0, 0x1000, at, "too many remembered states");
}
