//! Sums and sorts on several threads.
use rayon::prelude::*;
fn main() {
    let sum: u64 = (0..10_000u64).into_par_iter().map(|n| n * n % 1009).sum();
    let mut words: Vec<String> = (0..500).map(|n| format!("{}", n * 7919 % 1000)).collect();
    words.par_sort();
    println!("{sum} {} {}", words[0], words[499]);
}
