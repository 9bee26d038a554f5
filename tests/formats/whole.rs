//! Every format holds the whole chain of the chosen unwinder, frame by frame, for every recording of
//! the corpus.

use super::{corpus, file, printed, same, utf8};
use crate::common::decode::{self, Stacks};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Most samples that are compared of a recording.
const SAMPLES_MAX: &str = "300";

/// These recordings are written in all profile formats, of the others each in the next one; with
/// `UNWIND_SIM_SLOW=1`, all in all of them.
const IN_ALL: [&str; 4] = [
    "throws.bin",
    "kernel-frames.data",
    "LBR-stitch-grow.data",
    "6.12-entry_SYSCALL_64.bin",
];
const PROFILES: [&str; 4] = ["folded", "speedscope", "firefox", "pprof"];

/// The recordings of the corpus, and a core that is unpacked into `folder`.
fn all_recordings(folder: &tempfile::TempDir) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for (name, ending) in [
        ("perfdata", "data"),
        ("perfdata/stitch", "data"),
        ("traces", "bin"),
        ("kernel", "bin"),
    ] {
        let files = std::fs::read_dir(corpus(name)).expect("a folder of the corpus");
        let files = files.map(|file| file.expect("a file").path());
        all.extend(files.filter(|file| file.extension().is_some_and(|known| known == ending)));
    }
    let core = std::fs::File::open(corpus("cores/threads.core.zst")).expect("the core");
    let core = zstd::stream::decode_all(core).expect("zstd");
    all.push(file(folder, "threads.core", &core));
    all.sort();
    all
}

/// One walk: its unwinder and the addresses of its frames, the kernel's part first.
type Chain = (String, Vec<u64>);

/// The chains in the text of `replay`, unwinder by unwinder. The kernel's part of a recorded chain
/// belongs to each chain of its sample, unless the stack is the kernel's: then it is another walk.
fn chains_of_text(text: &str, unwinders: &[&str], of_kernel: bool) -> Vec<Chain> {
    let mut all: Vec<Vec<Chain>> = vec![Vec::new(); unwinders.len()];
    let (mut kernel, mut current) = (Vec::new(), None);

    for line in text.lines() {
        if line.starts_with("sample ") {
            (kernel, current) = (Vec::new(), None);
        } else if line.contains(" (recorded): ") {
            current = None;
        } else if !line.starts_with(' ') {
            // A line at the margin begins the chain of an unwinder; its frames are indented.
            let name = line.split(':').next().expect("a name");
            let at = unwinders.iter().position(|unwinder| {
                line.strip_prefix(unwinder)
                    .is_some_and(|rest| rest.starts_with(": "))
            });
            let at = at.unwrap_or_else(|| panic!("{name}: {line}"));
            all[at].push((unwinders[at].to_owned(), kernel.clone()));
            current = Some(at);
        } else {
            let mut words = line.split_whitespace().peekable();
            // A mark, where there is one, stands before the frame's number.
            let mark = words.next_if(|word| word.parse::<u64>().is_err());
            let number = words.next().and_then(|word| word.parse::<u64>().ok());
            let Some(address) = number.and(words.next()) else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else {
                continue;
            };

            match (mark, current) {
                (Some("k"), None) if of_kernel => {}
                (Some("k"), None) => kernel.push(address),
                // A true frame that the chain lacks.
                (Some("-"), _) | (_, None) => {}
                (_, Some(at)) => all[at].last_mut().expect("a chain").1.push(address),
            }
        }
    }

    all.into_iter().flatten().collect()
}

/// The same of a text in the format of `perf script`. Its blocks come unwinder by unwinder.
fn chains_of_blocks(text: &str) -> Vec<Vec<u64>> {
    let blocks = text.split("\n\n").filter(|block| !block.trim().is_empty());
    let address = |line: &str| {
        let word = line.split_whitespace().next().expect("an address");
        u64::from_str_radix(word, 16).expect("an address")
    };
    blocks
        .map(|block| block.lines().skip(1).map(address).collect())
        .collect()
}

/// What `replay` writes of a recording; empty if it holds no stack that can be walked.
fn replayed(recording: &Path, unwinders: &str, format: &str) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    command.args([
        "--color",
        "never",
        "replay",
        "--all",
        "--unwinder",
        unwinders,
        "--format",
        format,
    ]);
    command.args(["--limit", SAMPLES_MAX]);
    let output = command.arg(recording).output().expect("our own program");
    let told = String::from_utf8_lossy(&output.stderr);
    let status = output.status.code();
    assert!(matches!(status, Some(0 | 1 | 3)), "{recording:?}: {told}");
    output.stdout
}

/// The stacks of a profile, without the frames that say why a walk stopped.
fn stacks_of(format: &str, profile: &[u8]) -> Stacks {
    let stacks = match format {
        // Its reader is also that of the expected stacks, which have no such frames.
        "folded" => return decode::folded(&utf8(profile.to_vec())),
        "speedscope" => decode::speedscope(profile),
        "firefox" => decode::firefox(&decode::unzipped(profile)),
        "pprof" => decode::pprof(&decode::unzipped(profile)).0,
        other => panic!("no reader of {other}"),
    };
    decode::without_reasons(stacks).0
}

#[test]
fn every_format_holds_the_whole_chain_of_every_recording() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut with_kernel, mut of_kernel, mut branches, mut several) = (0, 0, 0, 0);
    let is_slow = std::env::var_os("UNWIND_SIM_SLOW").is_some();
    let mut turn = 0;
    for recording in all_recordings(&folder) {
        let name = recording.display().to_string();
        let is_kernel = name.contains("/kernel/");

        // Unwinders that the recording has something for.
        let unwinders: &[&str] = if is_kernel {
            &["orc:kernel", "fp:kernel", "guess:kernel"]
        } else if name.contains("LBR") {
            &["lbr"]
        } else {
            &["dwarf", "fp", "guess"]
        };

        let of = |format| replayed(&recording, &unwinders.join(","), format);
        let text = chains_of_text(&utf8(of("text")), unwinders, is_kernel);

        // The text says everything; perf's format and profiles must not have lost any of it.
        let script = utf8(of("perf-script"));
        let blocks = chains_of_blocks(&script);
        assert_eq!(blocks.len(), text.len(), "{name}");
        for (number, (block, (unwinder, chain))) in blocks.iter().zip(&text).enumerate() {
            assert_eq!(block, chain, "{name}: chain {number}, by {unwinder}");
        }

        // Addresses of the kernel have bit 63 set.
        let has_kernel = |chain: &&Chain| chain.1.iter().any(|&pc| pc >= 1 << 63);
        let many = |chain: &&Chain| has_kernel(chain) && chain.1.len() > 2;
        if is_kernel {
            of_kernel += text.iter().filter(many).count()
        } else {
            with_kernel += text.iter().filter(has_kernel).count()
        }
        branches += usize::from(unwinders == ["lbr"] && !text.is_empty());

        let (expected, periods) = decode::text(&script);
        several += usize::from(periods.len() > unwinders.len());

        // Otherwise each recording is written in one of the formats, in turn.
        let is_in_all = is_slow || IN_ALL.iter().any(|file| recording.ends_with(file));
        let formats = if is_in_all {
            &PROFILES[..]
        } else {
            turn += 1;
            &PROFILES[turn % PROFILES.len()..][..1]
        };
        for format in formats {
            same(&name, &stacks_of(format, &of(format)), &expected);
        }
    }
    // Without these the comparison would say nothing of what was lost before.
    assert!(with_kernel > 0, "no chain has frames of the kernel");
    assert!(of_kernel > 100, "{of_kernel} chains of kernels");
    assert!(branches > 0, "no chain of branch records");
    assert!(several > 0, "no recording has several events");
}

/// The addresses of each sample, by its heading without the event.
fn by_heading(text: &str) -> BTreeMap<String, Vec<u64>> {
    let blocks = text.split("\n\n").filter(|block| !block.trim().is_empty());
    let heading = |block: &str| {
        let line = block.lines().next().expect("a heading");
        // Some events show the processor.
        let words = line
            .split_whitespace()
            .filter(|word| !word.starts_with('['));
        let words: Vec<&str> = words.collect();
        let time = words.iter().position(|word| word.ends_with(':'));
        // Not the name: for a thread that was not named since it was made, perf shows its maker's.
        let time = time.expect("a time");
        words[time - 1..=time].join(" ")
    };
    blocks.map(heading).zip(chains_of_blocks(text)).collect()
}

#[test]
fn perf_script_prints_the_chains_of_the_chosen_unwinder() {
    let mut compared = 0;
    for name in ["dwarf", "dwarf-zstd", "kernel-frames", "norow", "uretprobe"] {
        let recording = corpus(&format!("perfdata/{name}.data"));
        for unwinder in ["dwarf", "fp", "guess"] {
            let with = |format| {
                let args = ["perf", "script", "--no-inline", "--unwinder", unwinder];
                printed(&[&args[..], &["--format", format]].concat(), &recording)
            };

            let text = utf8(with("perf-script"));
            let printed = by_heading(&text);
            for (sample, chain) in by_heading(&utf8(replayed(&recording, unwinder, "perf-script")))
            {
                // The kernel's part comes first; its addresses have bit 63 set.
                let user = chain
                    .iter()
                    .position(|&pc| pc < 1 << 63)
                    .unwrap_or(chain.len());
                // For a caller perf prints the address before the return address.
                let shown = chain.iter().enumerate();
                // perf unwinds at most 127 frames of user space (`PERF_MAX_STACK_DEPTH`).
                let shown = shown
                    .map(|(at, &pc)| pc - u64::from(at > user))
                    .take(user + 127);
                assert_eq!(
                    printed.get(&sample),
                    Some(&shown.collect()),
                    "{name}: {sample}"
                );
                compared += 1;
            }

            // Every format must hold the stacks that the text has.
            let (expected, _) = decode::text(&text);
            same(name, &decode::folded(&utf8(with("folded"))), &expected);
            same(name, &decode::speedscope(&with("speedscope")), &expected);
            same(
                name,
                &decode::firefox(&decode::unzipped(&with("firefox"))),
                &expected,
            );
            same(
                name,
                &decode::pprof(&decode::unzipped(&with("pprof"))).0,
                &expected,
            );
        }
    }
    assert!(compared > 50, "{compared} samples");
}
