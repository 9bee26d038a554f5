//! main < top < mid < leaf, which spins.
use std::hint::black_box;

#[inline(never)]
fn leaf(n: u64) -> u64 {
    let mut sum = 0;
    for i in 0..n {
        sum = black_box(sum ^ i);
    }
    sum
}

#[inline(never)]
fn mid(n: u64) -> u64 {
    let room = black_box([n; 5]);
    leaf(n) + room[1]
}

#[inline(never)]
fn top(n: u64) -> u64 {
    (0..60).map(|i| mid(n) ^ i).fold(0, u64::wrapping_add)
}

fn main() {
    black_box(top(3_000_000));
}
