//! Images, results and findings for tests of reports.

use super::checker::Results;
use super::findings::{Check, Finding};
use super::marks::Marks;
use super::memory::MemoryUse;
use super::places::{PlaceId, Places};
use super::shown::Shown;
use super::stores::SlotStores;
use super::work::Work;
use crate::check::Contradiction;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::image::{
    AddressSpace, Bytes, Image, ImageParts, Mapping, Section, SectionKind, Symbol,
};
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::{Row, RowSource, TableKind};
use unwind_sim_unwind::rule::Rule;

/// The start of an image's code, as an address in the image.
pub const START: u64 = 0x1000;
/// The load address of the first image of a run.
pub const BIAS: u64 = 0x10_0000;
/// `push rbp; mov rbp, rsp; call; call rax; pop rbp; ret`
pub const CODE: [u8; 13] = [
    0x55, 0x48, 0x89, 0xe5, 0xe8, 0, 0, 0, 0, 0xff, 0xd0, 0x5d, 0xc3,
];
/// Two functions: the instructions of [`CODE`] up to the first call, and those after it.
pub const FUNCTIONS: [(&str, Range<u64>); 2] =
    [("first", 0x1000..0x1009), ("second", 0x1009..0x100d)];

/// The image `name` with this code and these functions, mapped at `bias`.
pub fn image(name: &str, bias: u64, text: &[u8], functions: &[(&str, Range<u64>)]) -> Mapping {
    let symbols = functions.iter().map(|(name, range)| Symbol {
        address: range.start,
        size: range.end - range.start,
        name: (*name).into(),
    });

    let range = START..START + text.len() as u64;
    let image = Image::new(ImageParts {
        name: name.into(),
        text: vec![range.clone()],
        sections: vec![Section {
            kind: SectionKind::Text,
            address: START,
            data: Bytes::from_vec(text.to_vec()),
        }],
        symbols: symbols.collect(),
        ..ImageParts::default()
    });

    Mapping {
        range: bias + range.start..bias + range.end,
        bias,
        image: Some(Arc::new(image)),
        name: name.into(),
    }
}

/// Results of a run with these mappings as places 0 and up, which executed the instructions at
/// these addresses of the image at [`BIAS`].
pub fn results(mappings: &[Mapping], executed: &[u64]) -> Results {
    let (mut places, mut space) = (Places::default(), AddressSpace::new());
    for (place, mapping) in (0..).zip(mappings) {
        space.map(mapping.clone());
        places.mapped(mapping);
        // Tests name places by these numbers.
        assert_eq!(places.at(&space, mapping.range.start), place);
    }

    let mut marks = Marks::new();
    for svma in executed {
        marks.insert(0, svma + BIAS);
    }

    Results {
        tallies: Vec::new(),
        findings: Vec::new(),
        disagreements: Vec::new(),
        instructions: 0,
        truth: Default::default(),
        addresses: 0,
        executed: marks,
        places,
        stores: SlotStores::default(),
        memory: MemoryUse::default(),
        generated: Vec::new(),
        not_kept: 0,
        shown: Shown::default(),
        work: Work::default(),
    }
}

/// A wrong CFA at place 0, met once, at the first instruction of the run.
pub fn finding(pc: CodeAddress) -> Finding {
    finding_at(0, pc)
}

/// Like [`finding`], at another place.
pub fn finding_at(place: PlaceId, pc: CodeAddress) -> Finding {
    let contradiction = Contradiction {
        frame: 0,
        pc,
        code: Code::WrongCfa,
        reg: Reg::Rsp,
        // The two must differ: equal values would be no contradiction.
        given: Some(1),
        truth: 2,
        misread: false,
        reason: None,
        row: None,
    };

    Finding {
        unwinder: 0,
        check: Check::Instruction,
        place,
        address: pc.value(),
        code: Code::WrongCfa,
        reg: Reg::Rsp,
        first: 0,
        count: 1,
        stands_for: 1,
        contradiction,
    }
}

/// A frame-pointer row of `.eh_frame` or of a table derived from it, at these offsets.
pub fn row(table: TableKind, unit_offset: u64, row_offset: u64) -> Arc<Row> {
    Arc::new(Row {
        rule: Rule::FRAME_POINTER,
        source: RowSource {
            table,
            image: None,
            unit_offset,
            row_offset,
            start: START,
            end: START + 4,
            fallback: None,
        },
    })
}

/// An ELF file with this code, whose start is the entry point.
pub fn program(code: &[u8]) -> Vec<u8> {
    const AT: u64 = 0x40_0000;
    const HEADERS: u64 = 0x78;
    let size = HEADERS + code.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // ET_EXEC, EM_X86_64, version.
    elf.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    for word in [AT + HEADERS, 64, 0] {
        elf.extend(u64::to_le_bytes(word));
    }
    elf.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    // PT_LOAD, readable and executable.
    elf.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for word in [0, AT, AT, size, size, 0x1000] {
        elf.extend(u64::to_le_bytes(word));
    }
    elf.extend(code);
    elf
}
