//! How many disagreements are kept, what is the walk's own, and where memory ends.

use super::*;
use unwind_sim_unwind::memory::{Copy, Regions};

#[test]
fn a_hundred_disagreements_are_kept() {
    let mut walks = Walks::new(Setting::default());
    for number in 0..150 {
        let site = Site {
            address: 0x1000 + number,
            place: 3,
            number,
            activation: None,
        };
        walks.disagree(2, &site, "the quick check");
    }
    assert_eq!(walks.tally(2), (0, 0), "no walk was taken");
    let kept = walks.finish();
    assert_eq!(kept.len(), 100);
    let last = Disagreement {
        unwinder: 2,
        address: 0x1000 + 99,
        place: 3,
        number: 99,
        what: "the quick check".into(),
    };
    assert_eq!(kept.last(), Some(&last));
}

#[test]
fn a_walks_own_ends_are_no_rows() {
    for code in [Code::BeyondCopy, Code::Cycle, Code::FrameLimit] {
        assert!(is_the_walks(code), "{code}");
    }
    for code in [Code::WrongCfa, Code::NoRow, Code::NoRowForExecuted] {
        assert!(!is_the_walks(code), "{code}");
    }
}

#[test]
fn a_window_shows_its_part_of_the_memory_to_the_last_byte() {
    let bytes: Vec<u8> = (0..64).collect();
    let memory = Regions::new(vec![Copy::new(0x1000, &bytes)]);
    let window = Window {
        memory: &memory,
        range: 0x1008..0x1020,
    };
    let word = |at: usize| Ok(u64::from_le_bytes(std::array::from_fn(|i| (at + i) as u8)));
    assert_eq!(window.read_u64(0x1008), word(8));
    assert_eq!(window.read_u64(0x1018), word(24));
    let below = |address| MemoryError::BelowCopy {
        address,
        start: 0x1008,
    };
    let beyond = |address| MemoryError::BeyondCopy {
        address,
        end: 0x1020,
    };
    assert_eq!(window.read_u64(0x1007), Err(below(0x1007)));
    assert_eq!(window.read_u64(0x1019), Err(beyond(0x1019)));
    assert_eq!(window.read_u64(u64::MAX), Err(beyond(u64::MAX)));
    let mut buffer = [0; 3];
    assert_eq!(window.read(0x101d, &mut buffer), Ok(()));
    assert_eq!(buffer, [29, 30, 31]);
    assert_eq!(window.read(0x101e, &mut buffer), Err(beyond(0x101e)));
    assert_eq!(window.read(0x1007, &mut buffer), Err(below(0x1007)));
}
