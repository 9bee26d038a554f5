//! Mapping, protecting and accessing memory, compared with a model that is one byte array.

use super::*;
use crate::test_random::Random;

mod model;

const BASE: u64 = 0x40_0000;
const P: u64 = PAGE_SIZE;

fn space() -> AddressSpace {
    let mut space = AddressSpace::default();
    let (start, end) = (BASE, BASE + 4 * P);
    space
        .map(start..end, Permissions::READ_WRITE)
        .expect("four pages");
    space
}

fn fault(address: u64, access: Access, kind: FaultKind) -> Result<(), Fault> {
    Err(Fault {
        address,
        access,
        kind,
    })
}

#[test]
fn what_is_written_is_read_across_pages_and_areas() {
    let mut space = space();
    let bytes: Vec<u8> = (0..=255).cycle().take(9000).collect();
    space.write(BASE + 100, &bytes).expect("mapped");
    space
        .protect(BASE + P..BASE + 2 * P, Permissions::READ)
        .expect("mapped");
    assert_eq!(space.areas().count(), 3);
    let mut out = vec![0; 9000];
    space.read(BASE + 100, &mut out).expect("readable");
    assert!(out == bytes);
    assert_eq!(space.read_u64(BASE + 100).ok(), Some(0x0706_0504_0302_0100));
}

#[test]
fn a_write_that_faults_writes_nothing_and_names_the_byte() {
    let mut space = space();
    space
        .protect(BASE + 2 * P..BASE + 3 * P, Permissions::READ)
        .expect("mapped");
    let at = BASE + 2 * P - 4;
    let failed = space.write(at, &[7; 8]);
    assert_eq!(
        failed,
        fault(BASE + 2 * P, Access::Write, FaultKind::Protected)
    );
    let mut out = [1; 4];
    space.read(at, &mut out).expect("readable");
    assert_eq!(out, [0; 4]);
    // A debugger may write there.
    space.poke(at, &[7; 8]).expect("mapped");
    assert_eq!(space.read_u64(at).ok(), Some(0x0707_0707_0707_0707));
}

#[test]
fn permissions_are_those_of_x86() {
    let mut space = space();
    let page = BASE..BASE + P;
    let mut byte = [0];

    // x86 has no pages that can be written or executed, but not read.
    for (permissions, shown, read, write, execute) in [
        (Permissions::NONE, "---", false, false, false),
        (Permissions::READ, "r--", true, false, false),
        (Permissions::READ_WRITE, "rw-", true, true, false),
        (Permissions::READ_EXECUTE, "r-x", true, false, true),
        (
            Permissions::new(false, true, false),
            "rw-",
            true,
            true,
            false,
        ),
        // PF_X.
        (Permissions::from_elf(1), "r-x", true, false, true),
        (Permissions::ALL, "rwx", true, true, true),
    ] {
        space.protect(page.clone(), permissions).expect("mapped");

        assert_eq!(format!("{permissions:?}"), shown);
        assert_eq!(space.read(BASE, &mut byte).is_ok(), read, "{shown}");
        assert_eq!(space.write(BASE, &byte).is_ok(), write, "{shown}");
        assert_eq!(space.fetch(BASE, &mut byte).is_ok(), execute, "{shown}");
    }
}

#[test]
fn addresses_that_are_none_fault_by_their_kind() {
    let mut space = space();
    let mut byte = [0];
    let unmapped = |at| fault(at, Access::Read, FaultKind::Unmapped);
    assert_eq!(space.read(0, &mut byte), unmapped(0));
    assert_eq!(space.read(BASE + 4 * P, &mut byte), unmapped(BASE + 4 * P));
    assert_eq!(space.read(u64::MAX, &mut byte), unmapped(u64::MAX));
    let wild = 0x0000_8000_0000_0000;
    let failed = fault(wild, Access::Execute, FaultKind::NonCanonical);
    assert_eq!(space.fetch(wild, &mut byte), failed);
    assert_eq!(
        space.read(BASE - 1, &mut []),
        Ok(()),
        "an empty read needs no mapping"
    );
    assert_eq!(
        space.write(u64::MAX - 3, &[0; 8]).unwrap_err().kind,
        FaultKind::Unmapped
    );
}

#[test]
fn unmapping_forgets_and_mapping_again_gives_zeros() {
    let mut space = space();
    space.write(BASE, &[1; 4 * P as usize]).expect("mapped");
    space.unmap(BASE + P..BASE + 2 * P).expect("in range");
    let mut byte = [9];
    assert!(space.read(BASE + P, &mut byte).is_err());
    assert!(space.read(BASE + P - 1, &mut byte).is_ok());
    let hole = space.protect(BASE..BASE + 4 * P, Permissions::READ);
    assert_eq!(hole, Err(MapError::Hole { address: BASE + P }));
    assert!(
        space.write(BASE, &byte).is_err(),
        "the page before the hole was protected"
    );
    space
        .map(BASE..BASE + 3 * P, Permissions::READ)
        .expect("in range");
    space.read(BASE, &mut byte).expect("mapped");
    assert_eq!(byte, [0]);
    space.read(BASE + 3 * P, &mut byte).expect("still mapped");
    assert_eq!(byte, [1]);
    space.unmap(MMAP_MIN_ADDR..TASK_SIZE).expect("all");
    assert_eq!((space.areas().count(), space.pages_in_use()), (0, 0));
}

#[test]
fn a_file_is_read_in_place_and_its_copy_written() {
    let mut space = AddressSpace::default();
    let file: Vec<u8> = (0..6000u32).map(|n| n as u8).collect();
    let content = Content::from(file.clone());
    let (start, end) = (BASE, BASE + 3 * P);
    space
        .map_file(start..end, Permissions::READ_WRITE, content.clone(), 0)
        .expect("free");
    let mut out = vec![9; 3 * P as usize];
    space.read(BASE, &mut out).expect("mapped");
    assert!(out[..6000] == file && out[6000..].iter().all(|&b| b == 0));
    assert_eq!(space.pages_in_use(), 0, "reading makes no pages");
    space.write(BASE + P + 8, &[0xee]).expect("mapped");
    space.read(BASE + P, &mut out[..16]).expect("mapped");
    assert_eq!(out[..8], file[P as usize..P as usize + 8]);
    assert_eq!(out[8], 0xee);
    let kept = content.part(0..file.len() as u64);
    assert!(kept.as_ref() == Some(&file), "the file stays as it is");
    // The remaining piece keeps its file offset.
    space.unmap(BASE..BASE + P).expect("in range");
    space.read(BASE + P + 9, &mut out[..1]).expect("mapped");
    assert_eq!(out[0], file[P as usize + 9]);
}

#[test]
fn ranges_that_cannot_be_are_refused() {
    let mut space = AddressSpace::default();
    for (start, end) in [
        (BASE + 1, BASE + P),
        (BASE, BASE + 1),
        (BASE, BASE),
        (BASE + P, BASE),
        (0, P),
        (TASK_SIZE - P, TASK_SIZE + P),
        (u64::MAX - P + 1, 0),
    ] {
        let refused = Err(MapError::Range { start, end });
        assert_eq!(space.map(start..end, Permissions::READ), refused);
        assert_eq!(space.unmap(start..end), refused);
        assert_eq!(space.protect(start..end, Permissions::READ), refused);
    }
}

#[test]
fn pages_and_areas_are_bounded() {
    let mut space = AddressSpace::new(2);
    space
        .map(BASE..BASE + 8 * P, Permissions::READ_WRITE)
        .expect("free");
    space.write(BASE, &[1]).expect("the first page");
    let out = space.write(BASE + P, &[1; 2 * P as usize]);
    assert_eq!(
        out,
        fault(BASE + 2 * P, Access::Write, FaultKind::OutOfPages)
    );
    space.write(BASE + P, &[1]).expect("the second page");
    let mut space = AddressSpace::default();
    let page = |n: u64| BASE + 2 * n * P..BASE + (2 * n + 1) * P;
    let mapped = (0..).take_while(|&n| space.map(page(n), Permissions::READ).is_ok());
    assert_eq!(mapped.count(), AREAS_MAX - 1);
    assert_eq!(space.map(page(0), Permissions::READ), Err(MapError::Areas));
}

#[test]
fn free_room_is_found_from_the_top_down() {
    let mut space = AddressSpace::default();
    let top = BASE + 8 * P;
    assert_eq!(space.find_free(2 * P, top), Some(BASE + 6 * P));
    space
        .map(BASE + 6 * P..BASE + 7 * P, Permissions::NONE)
        .expect("free");
    space
        .map(BASE + 3 * P..BASE + 5 * P, Permissions::NONE)
        .expect("free");
    assert_eq!(space.find_free(P, top), Some(BASE + 7 * P));
    assert_eq!(space.find_free(2 * P, top), Some(BASE + P));
    assert_eq!(space.find_free(P, top - 3 * P / 2), Some(BASE + 5 * P));
    assert_eq!(space.find_free(P + 1, top), None);
    assert_eq!(space.find_free(TASK_SIZE, u64::MAX), None);
    assert_eq!(
        space.find_free(TASK_SIZE - MMAP_MIN_ADDR, u64::MAX),
        None,
        "a part is in use"
    );
}

/// A few thousand operations, compared with a simple model.
#[test]
fn many_operations_agree_with_a_plain_model() {
    const PAGES: u64 = 16;

    let mut random = Random::new(1);

    let mut space = AddressSpace::default();
    let mut model: Vec<Option<(Permissions, Vec<u8>)>> = vec![None; PAGES as usize];

    for _ in 0..4000 {
        let first = random.below_u64(PAGES);
        let count = 1 + random.below_u64(PAGES - first);
        let range = BASE + first * P..BASE + (first + count) * P;
        let pages = first as usize..(first + count) as usize;

        // Any combination, also pages that nobody may touch.
        let permissions = Permissions::new(
            random.below_u64(2) == 0,
            random.below_u64(2) == 0,
            random.below_u64(2) == 0,
        );
        match random.below_u64(6) {
            0 => {
                space.map(range, permissions).expect("in range");
                model[pages].fill(Some((permissions, vec![0; P as usize])));
            }
            1 => {
                space.unmap(range).expect("in range");
                model[pages].fill(None);
            }
            2 => {
                let done = space.protect(range, permissions);

                // `protect` changes what precedes the first hole, as mprotect(2) does.
                let mapped = model[pages].iter_mut().map_while(Option::as_mut);
                let changed = mapped.map(|page| page.0 = permissions).count() as u64;
                assert_eq!(done.is_ok(), changed == count);
            }
            // Accesses are more frequent than changes.
            _ => {
                let at = random.below_u64(PAGES * P - 16);
                let byte = [random.below_u64(256) as u8; 16];
                let (a, b) = ((at / P) as usize, ((at + 15) / P) as usize);

                // A store over two pages is done on both or on none.
                let writable = |page: usize| {
                    model[page]
                        .as_ref()
                        .is_some_and(|p| p.0.allow(Access::Write))
                };
                let allowed = writable(a) && writable(b);
                assert_eq!(space.write(BASE + at, &byte).is_ok(), allowed);
                for i in (at..at + 16).filter(|_| allowed) {
                    let page = model[(i / P) as usize].as_mut().expect("writable");
                    page.1[(i % P) as usize] = byte[0];
                }
            }
        }
    }

    // `peek` ignores permissions.
    for (number, page) in model.iter().enumerate() {
        let at = BASE + number as u64 * P;
        let mut out = vec![0; P as usize];
        assert_eq!(space.peek(at, &mut out).is_ok(), page.is_some());

        if let Some((permissions, bytes)) = page {
            assert!(out == *bytes);
            assert_eq!(
                space.area(at).map(|(_, area)| area.permissions()),
                Some(*permissions)
            );
        }
    }
}

/// The machine stores to no guarded byte, in whatever way it stores; others still do.
#[test]
fn the_machine_does_not_store_to_what_is_guarded() {
    fn stores<const N: usize>(space: &mut AddressSpace, address: u64) {
        let guarded = |at: u64| (BASE + 100..BASE + 108).contains(&at) || at >= BASE + 200;
        let is_guarded = (address..address + N as u64).any(guarded);
        let case = format!("{N} bytes at {:#x}", address - BASE);
        let zeros = [0; 0x200];
        space
            .write(BASE, &zeros)
            .expect("the guard is the machine's");

        // A page that was written recently is stored to without a look at its area.
        for recent in [false, true] {
            let stored = if recent {
                space.store_recent(address, [7; N])
            } else {
                space.store_bytes(address, [7; N])
            };
            assert_eq!(stored.is_none(), is_guarded, "{case}");
            let refused = space.take_guarded();
            assert_eq!(refused, is_guarded && !recent, "{case}");
        }

        let checked = space.check_store(address, N);
        assert_eq!(checked.is_none(), is_guarded, "{case}");
        assert_eq!(space.take_guarded(), is_guarded, "{case}");

        let mut found = [0; 0x200];
        space.read(BASE, &mut found).expect("mapped");
        let at = (address - BASE) as usize;
        let mut expected = zeros;
        if !is_guarded {
            expected[at..at + N].fill(7);
        }
        assert!(found == expected, "{case}");
    }

    let mut space = space();
    space.set_guard(Guard::new(BASE + 200, BASE + 100..BASE + 108));
    for address in (BASE + 60..BASE + 120).chain(BASE + 160..BASE + 210) {
        stores::<1>(&mut space, address);
        stores::<2>(&mut space, address);
        stores::<8>(&mut space, address);
        stores::<32>(&mut space, address);
    }

    // What writes to the end of a page has to be asked byte by byte.
    assert!(space.writable(BASE + 10).is_none() && !space.take_guarded());
    assert_eq!(space.copy_in_pages(BASE + 90, BASE, 16), None);
    assert_eq!(space.copy_in_pages(BASE + 90, BASE, 10), Some(10));
    space.set_guard(Guard::NONE);
    assert!(space.writable(BASE + 150).is_some());
    assert_eq!(space.store_bytes(BASE + 100, [7; 8]), Some(()));
}
