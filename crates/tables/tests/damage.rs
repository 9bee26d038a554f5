//! Damaged files: conversions and merges fail with an error or succeed, but never panic, and what
//! they write can be read again.

use crate::random::Random;
use std::path::Path;
use std::sync::Arc;
use unwind_sim_tables::check::{self, check};
use unwind_sim_tables::convert::in_file::{InFileError, convert_in_file};
use unwind_sim_tables::convert::{Options, Target};
use unwind_sim_tables::file::File;
use unwind_sim_tables::merge::merge_in_file;
use unwind_sim_unwind::row::TableKind;

/// Damaged copies of each file; `UNWIND_SIM_SLOW=1` tries more.
const COPIES: u64 = 300;
const COPIES_SLOW: u64 = 20_000;
/// Changes of a copy.
const CHANGES_MAX: u64 = 12;

fn damaged(data: &[u8], random: &mut Random) -> Vec<u8> {
    let mut copy = data.to_vec();
    if random.below(8) == 0 {
        copy.truncate(random.below(copy.len()));
    }
    for _ in 0..=random.below_u64(CHANGES_MAX) {
        // Half of the changes in the headers.
        let end = random.pick(&[copy.len(), 1200]);
        let at = random.below(end.min(copy.len()));
        let value = [0, 0xff, 0x7f, 0x80, random.below(256) as u8];
        let value = random.pick(&value);
        copy.get_mut(at).into_iter().for_each(|byte| *byte = value);
    }
    copy
}

/// Tries every conversion of `data`; returns how many succeeded.
fn try_all(data: &[u8], seed: u64) -> u64 {
    let Ok(file) = File::read("damaged", Arc::new(data.to_vec())) else {
        return 0;
    };
    let mut done = 0;

    for to in Target::ALL {
        for from in [None, Some(TableKind::Sframe), Some(TableKind::DebugFrame)] {
            let options = Options {
                to,
                from,
                from_orc: None,
                share: seed.is_multiple_of(2),
                address: 0,
            };
            match convert_in_file(&file, data, &options, true) {
                Ok(_) => done += 1,
                Err(error @ InFileError::Differs { .. }) => {
                    panic!("seed {seed}, {from:?} to {}: {error}", to.as_str())
                }
                Err(_) => {}
            }
        }
    }

    if let Ok((bytes, _)) = merge_in_file(&file, data) {
        File::read("merged", Arc::new(bytes)).expect("a merged file can be read");
        done += 1;
    }
    done
}

#[test]
fn damage_never_panics_and_never_changes_what_a_table_says() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/sframe");
    let slow = std::env::var_os("UNWIND_SIM_SLOW").is_some();
    let copies = if slow { COPIES_SLOW } else { COPIES };
    for name in ["t_2.40", "t_2.46", "v3flex"] {
        let data = std::fs::read(corpus.join(name)).expect("a file of the corpus");
        let mut done = 0;
        for seed in 0..copies {
            done += try_all(&damaged(&data, &mut Random::new(seed)), seed);
        }
        println!("{name}: {copies} damaged copies, {done} conversions succeeded");
        assert!(done > copies, "{name}: nearly nothing was converted");
    }
}

#[test]
fn damage_never_stops_the_proof() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/sframe");
    let slow = std::env::var_os("UNWIND_SIM_SLOW").is_some();
    let copies = if slow { COPIES_SLOW } else { COPIES };
    for name in ["t_2.40", "t_2.46", "v3flex"] {
        let data = std::fs::read(corpus.join(name)).expect("a file of the corpus");
        let mut functions = 0;
        for seed in 0..copies {
            let copy = damaged(&data, &mut Random::new(seed));
            let Ok(file) = File::read("damaged", Arc::new(copy)) else {
                continue;
            };
            functions += check(&file, &check::Options::default()).functions.len() as u64;
        }
        println!("{name}: {copies} damaged copies, {functions} functions checked");
        assert!(functions > copies, "{name}: nearly nothing was checked");
    }
}
