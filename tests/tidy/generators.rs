//! One generator of random numbers for all tests: `tests/common/random.rs`.

use crate::none;
use crate::random::Random;
use crate::repository::{File, files};

/// Where the numbers of a generator stand.
const GENERATORS: [(&str, &str); 5] = [
    (
        "tests/common/random.rs",
        "tests, and commands that test with random inputs",
    ),
    (
        "emulator/src/random.rs",
        "what programs get in the emulated machine, which uses no test's file",
    ),
    (
        "emulator/compare/src/differential/values.rs",
        "the draws that `snapshots/abstraction-known.snap` counts, which are compared over time",
    ),
    (
        "src/perf/bpf/sample.rs",
        "`bpf_get_prandom_u32` of handlers on recorded samples, whose results are shown",
    ),
    (
        "tests/counting.rs",
        "functions whose instructions are counted, and compared with counts of earlier days",
    ),
];

/// The multipliers of SplitMix64, xorshift64*, Knuth's MMIX generator, PCG and wyrand, and what xorshift
/// does. Split, because this file is checked, too.
const SIGNS: [&str; 7] = [
    concat!("bf58476d", "1ce4e5b9"),
    concat!("2545f491", "4f6cdd1d"),
    concat!("6364136223", "846793005"),
    concat!("5851f42d", "4c957f2d"),
    concat!("a0761d64", "78bd642f"),
    concat!("^= state", " << "),
    concat!("^= seed", " << "),
];

/// Whether `text` has a generator of its own.
fn has_generator(text: &str) -> bool {
    let plain = text.replace('_', "").replace("self.0", "state");
    SIGNS.iter().any(|sign| plain.contains(sign))
}

#[test]
fn tests_have_one_generator() {
    let mut faults = Vec::new();
    for File { path, text } in files(".rs") {
        let is_known = GENERATORS.iter().any(|(known, _)| *known == path);
        match (has_generator(&text), is_known) {
            (true, false) => faults.push(format!("{path}: use tests/common/random.rs")),
            (false, true) => faults.push(format!("{path}: no generator is left")),
            _ => {}
        }
    }
    none(&faults);
}

#[test]
fn generators_are_found() {
    assert!(has_generator(concat!(
        "self.0 ^= ",
        "self.0",
        " << 13; // xorshift"
    )));
    assert!(has_generator(concat!(
        "z.wrapping_mul(0xbf58_",
        "476d_1ce4_e5b9)"
    )));
    assert!(!has_generator(
        "let hash = 0x9e37_79b9_7f4a_7c15 * x; flags ^= 1 << 13;"
    ));
}

/// The first numbers of seed 1234567, as the reference implementation gives them
/// (<https://prng.di.unimi.it/splitmix64.c>; they stand in Rosetta Code,
/// "Pseudo-random numbers/Splitmix64"). Seeds that are documented depend on them.
#[test]
fn the_numbers_are_those_of_the_reference() {
    let mut random = Random::new(1_234_567);
    let numbers = [(); 3].map(|()| random.bits());
    assert_eq!(
        numbers,
        [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423
        ]
    );
}

/// Every number is drawn, no other one, and 0 where there is none.
#[test]
fn numbers_are_below_their_end() {
    let mut random = Random::new(1);
    let mut drawn = [0_u32; 5];
    (0..1000).for_each(|_| drawn[random.below(5)] += 1);
    // 200 of each, give or take four standard deviations of 12.6.
    assert!(
        drawn.iter().all(|&count| (150..250).contains(&count)),
        "{drawn:?}"
    );
    assert_eq!([random.below(1), random.below(0)], [0, 0]);

    let certain = [random.chance(1, 1), random.chance(0, 1)];
    assert_eq!(certain, [true, false]);
    assert_eq!(random.pick(&[7]), 7);

    let mut all: Vec<u32> = (0..100).collect();
    random.shuffle(&mut all);
    assert!(!all.is_sorted());
    all.sort_unstable();
    assert!(all.into_iter().eq(0..100), "elements were lost");

    // The last bytes are those of a number of which the rest is not used.
    let mut bytes = [0; 11];
    let mut same = random.clone();
    random.fill(&mut bytes);
    let numbers = [same.bits(), same.bits()].map(u64::to_le_bytes).concat();
    assert_eq!(bytes[..], numbers[..11]);
}
