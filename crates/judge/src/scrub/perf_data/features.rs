//! The feature sections of a perf.data that may be sent.
//!
//! Their numbers and forms are those of `tools/perf/util/header.h` (`enum` of `HEADER_*`) and
//! `tools/perf/Documentation/perf.data-file-format.txt`, Linux 7.2.

use crate::scrub::names::{Names, file_name};
use unwind_sim_perf_data::{feature, le};

/// Sections that describe the machine, perf and its events, and nothing else.
const KEPT: [u8; 20] = [
    feature::OSRELEASE,
    feature::VERSION,
    feature::ARCH,
    feature::NRCPUS,
    feature::CPUDESC,
    feature::CPUID,
    feature::TOTAL_MEM,
    feature::EVENT_DESC,
    // CPU_TOPOLOGY to GROUP_DESC.
    13,
    14,
    15,
    16,
    17,
    // CACHE.
    20,
    feature::SAMPLE_TIME,
    // MEM_TOPOLOGY.
    22,
    feature::CLOCKID,
    feature::CPU_PMU_CAPS,
    feature::CLOCK_DATA,
    // PMU_CAPS.
    31,
];
/// Strings are padded to this many bytes (`NAME_ALIGN`).
const NAME_ALIGN: usize = 64;
/// The longest command line that is read, words.
const WORDS_MAX: u32 = 4096;

/// Options of `perf record` whose next word is their value, and says how was recorded.
const WITH_VALUE: [&str; 26] = [
    "-e",
    "--event",
    "-F",
    "--freq",
    "-c",
    "--count",
    "-m",
    "--mmap-pages",
    "--call-graph",
    "-C",
    "--cpu",
    "-p",
    "--pid",
    "-t",
    "--tid",
    "-D",
    "--delay",
    "-k",
    "--clockid",
    "-j",
    "--branch-filter",
    "--user-regs",
    "--intr-regs",
    "--max-stack",
    "--mmap-flush",
    "-r",
];
/// Options whose next word is a name or a path.
const WITH_NAME: [&str; 8] = [
    "-o",
    "--output",
    "--filter",
    "-G",
    "--cgroup",
    "--control",
    "-u",
    "--uid",
];

/// What becomes of section `number`; `None` if it is left out. Counts the words of the command line
/// that are left out.
pub(super) fn section(
    number: u8,
    bytes: &[u8],
    names: Option<&mut Names>,
    words: &mut usize,
) -> Option<Vec<u8>> {
    match (number, names) {
        // It has the names of tasks (`record_saved_cmdline` in
        // `tools/perf/util/trace-event-info.c`).
        (feature::TRACING_DATA, Some(_)) => None,
        (feature::TRACING_DATA | feature::HOSTNAME | feature::BUILD_ID, None) => {
            Some(bytes.to_vec())
        }
        (feature::HOSTNAME, Some(_)) => {
            let mut out = Vec::new();
            string(&mut out, b"host");
            Some(out)
        }
        (feature::BUILD_ID, Some(names)) => Some(build_ids(bytes, names)),
        (feature::CMDLINE, names) => {
            let all = command_line(bytes)?;
            let mut kept = command(&all);
            *words += all.len() - kept.len();
            if let (Some(names), Some(last)) = (names, kept.last_mut())
                && !last.starts_with('-')
            {
                *last = names.file(last);
            }
            let mut out = (kept.len() as u32).to_le_bytes().to_vec();
            kept.iter()
                .for_each(|word| string(&mut out, word.as_bytes()));
            Some(out)
        }
        // What is not known to be harmless is left out, and with it what later versions of perf
        // add.
        (number, _) if KEPT.contains(&number) => Some(bytes.to_vec()),
        _ => None,
    }
}

fn command_line(bytes: &[u8]) -> Option<Vec<String>> {
    let count = le::u32_at(bytes, 0)?.min(WORDS_MAX);
    let mut rest = bytes.get(4..)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let len = le::u32_at(rest, 0)? as usize;
        let word = rest.get(4..)?.get(..len)?;
        words.push(String::from_utf8_lossy(le::until_nul(word)).into_owned());
        rest = &rest[4 + len..];
    }
    Some(words)
}

/// The words that say how was recorded, and the program's name without its folder and arguments.
fn command(all: &[String]) -> Vec<String> {
    // The first two words are perf and its subcommand.
    let mut kept: Vec<String> = all
        .iter()
        .take(2)
        .map(|word| file_name(word).to_owned())
        .collect();

    let mut rest = all.iter().skip(2);
    while let Some(word) = rest.next() {
        let option = word.split('=').next().unwrap_or_default();
        if word == "--" {
            continue;
        }

        // The first word that is not an option is the program; its arguments are left out.
        if !word.starts_with('-') {
            kept.push(file_name(word).to_owned());
            break;
        }

        // A name or path is dropped with its option: what follows would else be taken for the
        // program.
        if WITH_NAME.contains(&option) {
            if option == word {
                rest.next();
            }
            continue;
        }

        let is_known = WITH_VALUE.contains(&option);
        kept.push(if is_known || !word.contains('=') {
            word.clone()
        } else {
            option.to_owned()
        });

        if is_known && option == word {
            kept.extend(rest.next().cloned());
        }
    }

    kept
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    let len = (text.len() + 1).next_multiple_of(NAME_ALIGN);
    out.extend((len as u32).to_le_bytes());
    out.extend(text);
    out.resize(out.len() + len - text.len(), 0);
}

/// The entries of the section of build IDs: a header of 8 bytes, pid, 24 bytes of build ID, path.
fn build_ids(bytes: &[u8], names: &mut Names) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), bytes);
    while let Some(size) = le::u16_at(rest, 6).map(usize::from) {
        let Some(entry) = rest.get(..size).filter(|_| size >= 8) else {
            break;
        };
        out.extend(super::records::named(entry, 8 + BUILD_ID_PATH, 0, |name| {
            names.file(name)
        }));
        rest = &rest[size..];
    }
    out
}

/// Offset of the path in the body of a build ID, bytes.
pub(super) const BUILD_ID_PATH: usize = 28;

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_command_line_keeps_how_was_recorded() {
        let all = words(
            "/usr/bin/perf record -g -F 99 --call-graph dwarf,16384 -o /home/me/x --filter=s3 \
             --strange=s3 -k 1 -- ./dir/prog s3cret -e KEY",
        );
        let kept = words("perf record -g -F 99 --call-graph dwarf,16384 --strange -k 1 ./dir/prog");
        assert_eq!(command(&all), kept);
        let mut bytes = (all.len() as u32).to_le_bytes().to_vec();
        all.iter()
            .for_each(|word| string(&mut bytes, word.as_bytes()));
        assert_eq!(command_line(&bytes).as_ref(), Some(&all));
        let mut left_out = 0;
        let new = section(feature::CMDLINE, &bytes, None, &mut left_out).expect("it is kept");
        assert_eq!(command_line(&new), Some(kept));
        assert_eq!(left_out, 7);
    }

    #[test]
    fn a_section_that_is_not_known_to_be_harmless_is_left_out() {
        const BPF_PROG_INFO: u8 = 25;
        for number in [feature::AUXTRACE, BPF_PROG_INFO, feature::COMPRESSED, 200] {
            assert_eq!(section(number, b"s3cret", None, &mut 0), None);
        }
    }
}
