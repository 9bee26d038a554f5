//! Lists in memory, whole and damaged.

use super::*;
use std::path::Path;

/// Memory in pieces.
#[derive(Default)]
struct Pieces(Vec<(u64, Vec<u8>)>);

impl Pieces {
    fn words(mut self, address: u64, words: &[u64]) -> Pieces {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        self.0.push((address, bytes.collect()));
        self
    }

    fn registered(&self) -> (Vec<SymbolFile>, Vec<Problem>) {
        registered(DESCRIPTOR, |address, size| {
            let found = self.0.iter().find_map(|(start, bytes)| {
                let at = usize::try_from(address.checked_sub(*start)?).ok()?;
                bytes.get(at..)
            });
            let found = found.unwrap_or_default();
            found[..found.len().min(size as usize)].to_vec()
        })
    }
}

const DESCRIPTOR: u64 = 0x1000;
/// Version 1, no action; no relevant entry.
const HEAD: [u64; 2] = [1, 0];
const FILE: u64 = 0x10_0000;
/// A symbol of the program that is no function, with a name that is long enough.
const DATA_SYMBOL: &[u8] = b"__do_global_dtors_aux_fini_array_entry";

/// A program of the corpus, as a file that was registered.
fn program() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = path.join("corpus/perfdata/script/symfs/root/tchain_fp");
    std::fs::read(path).expect("the corpus is readable")
}

#[test]
fn a_list_is_read_to_its_end() {
    let file = program();
    let size = file.len() as u64;
    // Two entries (next, previous, address, size) for the same file.
    let mut pieces = Pieces::default()
        .words(DESCRIPTOR, &[HEAD[0], HEAD[1], 0x2000])
        .words(0x2000, &[0x3000, 0, FILE, size])
        .words(0x3000, &[0, 0x2000, FILE, size]);
    pieces.0.push((FILE, file));
    let (files, problems) = pieces.registered();
    assert_eq!((files.len(), problems), (2, Vec::new()));
    let main = files[0]
        .symbols
        .iter()
        .find(|s| s.name == "main")
        .expect("main");
    let code = files[0].code();
    assert!(
        code.iter().any(|range| range.contains(&main.address)),
        "{code:x?}"
    );
    assert_eq!(
        files[0].table.as_ref().map(|t| t.kind),
        Some(SectionKind::EhFrame)
    );

    // Without rows, the symbols say where the code is.
    let bare = SymbolFile {
        table: None,
        ..files[0].clone()
    };
    let code = bare.code();
    assert!(
        code.iter().any(|range| range.contains(&main.address)),
        "{code:x?}"
    );
}

#[test]
fn a_damaged_list_is_used_as_far_as_it_goes() {
    let missing = |what, address, read| {
        vec![Problem::Missing {
            what,
            address,
            read,
        }]
    };
    let none = Pieces::default().registered().1;
    assert_eq!(none, missing("the descriptor", DESCRIPTOR, 0));

    let head = || Pieces::default().words(DESCRIPTOR, &[HEAD[0], HEAD[1], 0x2000]);
    assert_eq!(head().registered().1, missing("an entry", 0x2000, 0));

    // An entry that is its own successor, and no ELF file.
    let looped = head().words(0x2000, &[0x2000, 0, 0x2000, 32]).registered();
    let files = Problem::Files {
        count: 1,
        address: 0x2000,
    };
    assert_eq!(looped.1, [Problem::Limit { read: 1 }, files]);

    // A size that must not be allocated.
    let huge = head().words(0x2000, &[0, 0, FILE, u64::MAX]).registered();
    let files = Problem::Files {
        count: 1,
        address: FILE,
    };
    assert_eq!(huge.1, [files]);
    assert_eq!(
        head().words(0x2000, &[0; 4]).registered().1.len(),
        1,
        "a file of no bytes"
    );
}

#[test]
fn changed_files_never_panic() {
    let file = program();
    for at in (0..file.len()).step_by(61).chain(0..64) {
        let mut changed = file.clone();
        changed[at] ^= 0xff;
        if let Some(file) = symbol_file(&changed) {
            file.code();
        }
    }
}

/// The descriptor is data, which images have no symbols for: it is looked up in the file.
#[test]
fn the_descriptor_of_a_program_is_found_by_its_name() {
    let descriptor_of = |bytes: Vec<u8>| {
        let options = unwind_sim_unwind::elf::ReadOptions::default();
        let elf = unwind_sim_unwind::elf::read("program", std::sync::Arc::new(bytes), &options);
        descriptor(&Image::new(elf.expect("ELF").parts))
    };
    let mut bytes = program();
    assert_eq!(descriptor_of(bytes.clone()), None);
    let at = bytes
        .windows(DATA_SYMBOL.len())
        .position(|b| b == DATA_SYMBOL);
    let at = at.expect("a symbol of data");
    let address = File::parse(&*bytes)
        .expect("ELF")
        .symbols()
        .find_map(|symbol| (symbol.name_bytes() == Ok(DATA_SYMBOL)).then(|| symbol.address()));
    let name = b"__jit_debug_descriptor\0";
    bytes[at..at + name.len()].copy_from_slice(name);
    assert!(address.is_some_and(|address| address != 0));
    assert_eq!(descriptor_of(bytes), address);
}
