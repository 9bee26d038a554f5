//! Recursion without an end. Rust's own handler of SIGSEGV, on a stack of its own, aborts.
#[inline(never)]
fn again(n: u64) -> u64 {
    let room = std::hint::black_box([n; 2]);
    again(n + 1) + room[1]
}

fn main() {
    std::hint::black_box(again(0));
}
