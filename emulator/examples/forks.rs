//! Measures forks of a large memory: the fork, the first stores after it, switches between the two,
//! and the end of the child.
//!
//! `cargo run --release -p unwind-sim-emulator --example forks -- 262144`

use std::hint::black_box;
use std::time::Instant;
use unwind_sim_emulator::address_space::PAGE_SIZE;
use unwind_sim_emulator::{AddressSpace, Permissions};

const BASE: u64 = 0x1000_0000;
/// How often each thing is done.
const ROUNDS: u32 = 50;

/// Runs `f`; prints the mean time of one of `count`.
fn measured<T>(what: &str, count: u32, f: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let done = black_box(f());
    println!("{what:<44}{:>10.2?}", begin.elapsed() / count);
    done
}

fn main() {
    let pages = std::env::args().nth(1).map_or(Ok(1 << 16), |n| n.parse());
    let Ok(pages) = pages else {
        eprintln!("usage: forks [PAGES]");
        std::process::exit(2);
    };

    let mut memory = AddressSpace::new(usize::MAX);
    let end = BASE + pages * PAGE_SIZE;
    memory
        .map(BASE..end, Permissions::READ_WRITE)
        .expect("at most 128 TiB");

    // A store to each page: only what was written has a page of its own.
    let touch = |memory: &mut AddressSpace| {
        for at in (BASE..end).step_by(PAGE_SIZE as usize) {
            memory.store_bytes(at, [1]).expect("room");
        }
    };
    measured("a page's first store", pages as u32, || touch(&mut memory));

    let children = measured("a fork", ROUNDS, || {
        (0..ROUNDS).map(|_| memory.fork()).collect::<Vec<_>>()
    });

    // Forks share all pages until one of them is written.
    assert_eq!(memory.pages_in_use() as u64, pages);

    let parent = memory.id();
    measured("a switch", 2 * ROUNDS, || {
        for &child in &children {
            memory.switch_to(child);
            memory.switch_to(parent);
        }
    });
    measured("the end of a child that wrote nothing", ROUNDS, || {
        for &child in &children {
            memory.remove_space(child);
        }
    });

    let child = memory.fork();
    measured("a page's first store after a fork", pages as u32, || {
        touch(&mut memory);
    });
    measured("the end of a child with all pages of its own", 1, || {
        memory.remove_space(child)
    });
    assert_eq!(memory.pages_in_use() as u64, pages);
}
