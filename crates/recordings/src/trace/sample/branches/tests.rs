//! Rings round-trip, share older records with the previous sample, and have limits.

use super::*;

fn branch(from: u64) -> Branch {
    Branch { from, to: from * 2 }
}

fn ring(depth: u32, hw_index: Option<u64>, froms: &[u64]) -> BranchStack {
    BranchStack {
        depth,
        hw_index,
        entries: froms.iter().map(|from| branch(*from)).collect(),
    }
}

/// Encodes the samples in sequence and decodes them; returns the encoded length of each.
fn trip(samples: &[Vec<BranchStack>]) -> Vec<usize> {
    let (mut writer, mut reader) = (Vec::new(), Vec::new());
    let mut lengths = Vec::new();
    for sample in samples {
        let mut bytes = Vec::new();
        put_branches(sample, &mut writer, &mut bytes);
        let mut records = Cursor::new(&bytes, 0);
        assert_eq!(read(&mut reader, &mut records).as_ref(), Ok(sample));
        assert_eq!(records.left(), 0);
        lengths.push(bytes.len());
    }
    lengths
}

#[test]
fn the_older_part_of_each_ring_is_written_once() {
    let first = vec![ring(32, None, &[30, 20, 10]), ring(8, Some(5), &[7])];
    let second = vec![ring(32, None, &[40, 20, 10]), ring(8, Some(6), &[7])];
    let swapped = vec![second[1].clone(), second[0].clone()];
    // A count; for each ring the depth, whether there is an index, the index, two counts, and two
    // bytes per record.
    let lengths = trip(&[first, second.clone(), second, swapped]);
    assert_eq!(lengths, [18, 12, 10, 18]);
}

fn rings(lengths: &[usize]) -> Vec<BranchStack> {
    let ring_of = |n: &usize| ring(32, None, &(0..*n as u64).collect::<Vec<_>>());
    lengths.iter().map(ring_of).collect()
}

#[test]
fn limits_hold_and_are_not_one_too_low() {
    for most in [&[1024][..], &[512, 512], &[1; 8], &[1023, 1]] {
        let rings = rings(most);
        assert!(check(&rings).is_ok());
        trip(&[rings.clone(), rings]);
    }
    for (more, what) in [
        (&[1025][..], "more branch records than allowed"),
        (&[1024, 1], "more branch records than allowed"),
        (&[0; 9], "more rings of branch records than allowed"),
    ] {
        let rings = rings(more);
        assert!(check(&rings).is_err());
        let mut bytes = Vec::new();
        put_branches(&rings, &mut Vec::new(), &mut bytes);
        let read = read(&mut Vec::new(), &mut Cursor::new(&bytes, 0));
        assert_eq!(read.map_err(|bad| bad.what), Err(what));
    }
}

#[test]
fn shared_records_are_those_there_are_and_count_too() {
    let what = "more branch records shared with the previous sample than it has";
    let before = vec![vec![branch(1); 3]];
    let shared = |bytes: &[u8], before: &[Vec<Branch>]| {
        let read = read(&mut before.to_vec(), &mut Cursor::new(bytes, 0));
        read.map(|rings| rings[0].entries.len()).map_err(|b| b.what)
    };
    assert_eq!(shared(&[1, 32, 0, 0, 3], &before), Ok(3));
    assert_eq!(shared(&[1, 32, 0, 0, 4], &before), Err(what));
    // One new and 1023 shared records fit; one new and 1024 do not.
    let full = vec![vec![branch(1); 1024]];
    assert_eq!(shared(&[1, 32, 0, 1, 0xff, 7, 2, 2], &full), Ok(1024));
    assert_eq!(shared(&[1, 32, 0, 1, 0x80, 8, 2, 2], &full), Err(what));
    for bits in [2, 0x7f] {
        let unknown = Err("branch records with unknown bits");
        assert_eq!(shared(&[1, 32, bits, 0, 0], &before), unknown);
    }
}

#[test]
fn the_size_of_branch_records_is_counted() {
    assert_eq!(weight(&[]), 0);
    assert_eq!(weight(&rings(&[3, 4])), 7 * 16);
}
