//! Secrets, and where they are found again.

use crate::common::random::Random;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::Path;
use unwind_sim_judge::input::Input;
use unwind_sim_judge::run::RunError;
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::model::Sample;
use unwind_sim_recordings::view::Filter;
use unwind_sim_unwind::regs::{Reg, Regs};

/// The number of secrets, and their length.
const SECRETS: usize = 1000;
const LENGTH: usize = 24;
/// The number of bytes in a row that count.
const FRAGMENT: usize = 8;
/// How many of them are in arguments, and then in the environment. The others are in a file.
const ARGUMENTS: usize = 200;
const VARIABLES: usize = 200;

/// Random texts.
pub(super) struct Secrets {
    texts: Vec<String>,
    fragments: HashMap<[u8; FRAGMENT], usize>,
}

impl Secrets {
    /// The secrets of a seed.
    pub(super) fn new(seed: u64) -> Secrets {
        const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
        let mut random = Random::new(seed);
        let mut letter = || random.pick(LETTERS) as char;
        let texts: Vec<String> = (0..SECRETS)
            .map(|_| (0..LENGTH).map(|_| letter()).collect())
            .collect();
        let mut fragments = HashMap::new();
        for (number, text) in texts.iter().enumerate() {
            for fragment in text.as_bytes().windows(FRAGMENT) {
                fragments.insert(fragment.try_into().expect("its size"), number);
            }
        }
        Secrets { texts, fragments }
    }

    pub(super) fn arguments(&self) -> &[String] {
        &self.texts[..ARGUMENTS]
    }

    /// The variables, as names and values.
    pub(super) fn variables(&self) -> impl Iterator<Item = (String, &String)> {
        let texts = self.texts.iter().skip(ARGUMENTS).take(VARIABLES);
        texts
            .enumerate()
            .map(|(i, text)| (format!("KEY_{i}"), text))
    }

    /// The lines of the file that the program reads.
    pub(super) fn file(&self) -> String {
        let texts = self.texts.iter().skip(ARGUMENTS + VARIABLES);
        texts.fold(String::new(), |mut all, text| {
            let _ = writeln!(all, "{text}");
            all
        })
    }

    /// The secrets of which a fragment is in `bytes`.
    pub(super) fn found(&self, bytes: &[u8]) -> BTreeSet<usize> {
        let fragments = bytes.windows(FRAGMENT);
        let all = fragments.filter_map(|f| self.fragments.get(f)).copied();
        all.collect()
    }

    /// How many of these secrets are arguments, variables, and lines of the file.
    pub(super) fn by_place(&self, found: &[usize]) -> [usize; 3] {
        let count = |from, to| found.iter().filter(|&&n| n >= from && n < to).count();
        let file = ARGUMENTS + VARIABLES;
        [
            count(0, ARGUMENTS),
            count(ARGUMENTS, file),
            count(file, SECRETS),
        ]
    }
}

/// The contents of all zstd frames in a file.
pub(super) fn frames(bytes: &[u8]) -> Vec<Vec<u8>> {
    const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    const ROOM: usize = 64 << 20;
    let starts = memchr::memmem::find_iter(bytes, &MAGIC);
    let frame = |start: usize| {
        let size = zstd::zstd_safe::find_frame_compressed_size(&bytes[start..]).ok()?;
        zstd::bulk::decompress(&bytes[start..start + size], ROOM).ok()
    };
    starts.filter_map(frame).collect()
}

/// Every word and byte that a reader gets: registers, memory, the truth, chains, names.
pub(super) fn decoded(file: &Path) -> Vec<u8> {
    let options = OpenOptions {
        chains: true,
        ..OpenOptions::default()
    };
    let input = Input::open(file, &options).expect("a recording");
    let mut all = format!("{:?}", input.meta()).into_bytes();
    let each = input.for_each::<RunError>(&Filter::default(), &mut |view| {
        words(view.sample, &mut all);
        for mapping in view.space.mappings() {
            all.extend(mapping.name.as_bytes());
        }
        all.extend(view.task_name().unwrap_or_default().as_bytes());
        Ok(())
    });
    each.expect("its samples");
    all
}

fn words(sample: &Sample<'_>, all: &mut Vec<u8>) {
    let mut of_regs = |regs: &Regs| {
        let values = Reg::ALL.into_iter().filter_map(|reg| regs.get(reg));
        values.for_each(|value| all.extend(value.to_le_bytes()));
    };
    of_regs(&sample.regs.sampled);
    sample.regs.own.iter().for_each(&mut of_regs);
    sample.regs.fetch.iter().for_each(&mut of_regs);
    for region in &sample.regions {
        all.extend(&*region.bytes);
    }
    for frame in sample.truth.frames() {
        all.extend(frame.pc.to_le_bytes());
        let saved = frame.saved.into_iter().flatten();
        saved.for_each(|value| all.extend(value.to_le_bytes()));
    }
    for ip in sample.recorded.iter().flat_map(|chain| &chain.ips) {
        all.extend(ip.to_le_bytes());
    }
}
