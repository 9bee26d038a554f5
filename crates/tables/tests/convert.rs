//! Tables of real files, converted to every format and compared with their source at every address.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use unwind_sim_tables::convert::in_file::{ConvertedFile, InFileError, convert_in_file};
use unwind_sim_tables::convert::{ConvertError, Options, Target};
use unwind_sim_tables::file::File;
use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::sframe::{self, FreType, Profile, Version};

fn options(to: Target) -> Options {
    Options {
        to,
        from: None,
        from_orc: None,
        share: false,
        address: 0,
    }
}

fn sharing(to: Target) -> Options {
    Options {
        share: true,
        ..options(to)
    }
}

fn convert(file: &File, data: &[u8], to: Target) -> Result<ConvertedFile, InFileError> {
    convert_in_file(file, data, &options(to), false)
}

fn read(path: &Path) -> Option<(File, Arc<Vec<u8>>)> {
    let data = Arc::new(std::fs::read(path).ok()?);
    let file = File::read(&path.display().to_string(), data.clone()).ok()?;
    Some((file, data))
}

/// Files that every Debian machine has, as far as this one has them.
fn handful() -> Vec<PathBuf> {
    let names = [
        "/bin/sh",
        "/usr/bin/perl",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    ];
    let mut all: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
    all.retain(|path| path.exists());
    all.extend(std::env::current_exe());
    all
}

/// The targets that a file without `.sframe` and ORC can be converted to.
fn targets() -> impl Iterator<Item = Target> {
    Target::ALL.into_iter().filter(|to| *to != Target::EhFrame)
}

/// What strict readers have against the V3 table of a file, and how many bytes more it would have if
/// its rows' starts were as wide as GNU as makes them, by the size of the function.
fn strictly_read(file: &File) -> (Vec<String>, u64) {
    let section = file.image().section(SectionKind::Sframe).expect("a table");
    let table = sframe::Table::parse(&section.data, section.address).expect("a header");
    let text = file.image().text();
    let mut faults = Vec::new();
    for profile in [Profile::KernelV3Validate, Profile::Libsframe] {
        let checks = [profile.check_table(&table), profile.validate(&table, text)];
        let errors = checks.into_iter().filter_map(Result::err);
        faults.extend(errors.map(|e| format!("{}: {profile:?}: {e}", file.name())));
    }
    let fdes = table.fdes().flatten();
    let wider = |fde: sframe::Fde| {
        let theirs = FreType::for_size(fde.size).byte_len() - fde.fre_type.byte_len();
        theirs * u64::from(fde.num_fres)
    };
    (faults, fdes.map(wider).sum())
}

fn reopened(written: &ConvertedFile) -> File {
    File::read("converted", Arc::new(written.bytes.clone())).expect("an ELF file")
}

#[test]
fn converted_tables_say_what_their_source_says() {
    for path in handful() {
        let Some((file, data)) = read(&path) else {
            continue;
        };
        for to in targets() {
            let name = path.display();
            let written = convert(&file, &data, to).unwrap_or_else(|e| panic!("{name}: {e}"));
            let report = &written.converted.report;
            println!("{name} {}: {} rows", to.as_str(), report.rows_written);
            assert!(written.comparison.equal > 0, "{name} {}", to.as_str());
            assert_eq!(written.comparison.differences, 0, "{name} {}", to.as_str());
            if to == Target::Sframe(Version::V3) {
                assert_eq!(strictly_read(&reopened(&written)).0, [""; 0], "{name}");
            }
        }
    }
}

#[test]
fn what_was_converted_can_be_converted_back() {
    let Some((file, data)) = read(Path::new("/bin/sh")) else {
        return crate::skip::skip(
            "what_was_converted_can_be_converted_back",
            "there is no /bin/sh",
        );
    };

    for to in targets() {
        let written = convert(&file, &data, to).expect("converted");
        let data = Arc::new(written.bytes);
        let file = File::read("converted", data.clone()).expect("readable");
        let encoding = match to {
            Target::Orc(encoding) => Some(encoding),
            _ => None,
        };

        for back in [Target::EhFrame, Target::Sframe(Version::V3)] {
            let options = Options {
                from: Some(to.kind()),
                from_orc: encoding,
                ..options(back)
            };
            let again = convert_in_file(&file, &data, &options, true);
            let again = again.unwrap_or_else(|e| panic!("{} back: {e}", to.as_str()));

            let costly = again.converted.report.losses.iter();
            let costly: Vec<_> = costly.filter(|loss| loss.lost.costs_rows()).collect();
            assert!(
                costly.is_empty(),
                "{} to {}: {costly:?}",
                to.as_str(),
                back.as_str()
            );
        }
    }
}

/// All ELF files with code below the folders, each once.
fn every_file() -> Vec<PathBuf> {
    let folders = std::env::var("UNWIND_SIM_FOLDERS");
    let folders = folders.unwrap_or("/usr/bin:/usr/lib/x86_64-linux-gnu".to_owned());
    let mut open: Vec<PathBuf> = folders.split(':').map(PathBuf::from).collect();
    let mut found = std::collections::BTreeSet::new();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match std::fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_dir() => open.push(path),
                Ok(_) => found.extend(std::fs::canonicalize(&path).ok()),
                Err(_) => {}
            }
        }
    }
    found.retain(|path| path.is_file());
    found.into_iter().collect()
}

#[derive(Default)]
struct Sums {
    files: u64,
    functions: u64,
    rows: u64,
    written: u64,
    equal: u64,
    inexpressible: u64,
    size: u64,
    source_size: u64,
    lost: BTreeMap<&'static str, (u64, u64)>,
    seconds: f64,
    /// Bytes more with starts as wide as GNU as makes them.
    wider: u64,
    /// Bytes with shared rows.
    shared: u64,
}

#[test]
fn every_file_of_the_machine_is_converted_without_a_difference() {
    const NAME: &str = "every_file_of_the_machine_is_converted_without_a_difference";
    if std::env::var_os("UNWIND_SIM_SLOW").is_none() {
        return crate::skip::skip(NAME, "slow; set UNWIND_SIM_SLOW=1");
    }

    let mut sums: BTreeMap<&str, Sums> = BTreeMap::new();
    let mut faults = Vec::new();
    let mut refused_by_readers = Vec::new();
    let mut refused: BTreeMap<String, u64> = BTreeMap::new();

    for path in every_file() {
        let Some((file, data)) = read(&path) else {
            continue;
        };

        let size = |kind| {
            file.image()
                .section(kind)
                .map_or(0, |s| s.data.len() as u64)
        };
        let source = size(SectionKind::EhFrame) + size(SectionKind::EhFrameHdr);
        if size(SectionKind::EhFrame) == 0 {
            continue;
        }

        for to in targets() {
            let start = Instant::now();
            let written = match convert(&file, &data, to) {
                Ok(written) => written,
                Err(error @ InFileError::Differs { .. }) => {
                    faults.push(format!("{}: {error}", to.as_str()));
                    continue;
                }
                Err(error) => {
                    if !matches!(error, InFileError::Convert(ConvertError::Nothing { .. })) {
                        println!("{}: {error}", to.as_str());
                    }
                    let kind = format!("{error:?}");
                    let kind = kind.split('{').next().unwrap_or_default().trim();
                    *refused.entry(kind.to_owned()).or_default() += 1;
                    continue;
                }
            };

            let sum = sums.entry(to.as_str()).or_default();
            let report = &written.converted.report;
            sum.files += 1;
            sum.functions += report.functions_read;
            sum.rows += report.rows_read;
            sum.written += report.rows_written;
            sum.equal += written.comparison.equal;
            sum.inexpressible += written.comparison.inexpressible;
            let sections = written.converted.sections.iter();
            sum.size += sections.map(|s| s.bytes.len() as u64).sum::<u64>();
            sum.source_size += source;
            sum.seconds += start.elapsed().as_secs_f64();

            // Only SFrame has readers that are stricter than this one, and rows that functions may
            // share.
            if to == Target::Sframe(Version::V3) {
                let (strict, wider) = strictly_read(&reopened(&written));
                sum.wider += wider;
                refused_by_readers.extend(strict);
                let shared = convert_in_file(&file, &data, &sharing(to), false);
                let shared = shared.expect("as without sharing").converted.sections;
                sum.shared += shared.iter().map(|s| s.bytes.len() as u64).sum::<u64>();
            }

            for (lost, (_, rows, bytes)) in report.by_reason() {
                let count = sum.lost.entry(lost.as_str()).or_default();
                count.0 += rows;
                count.1 += bytes;
            }
        }
    }

    for (name, sum) in &sums {
        println!(
            "{name}: {} files, {} functions, {} rows read, {} written, {} addresses equal, {} \
             inexpressible, {} bytes, {:.4} of .eh_frame + .eh_frame_hdr, {:.1} s",
            sum.files,
            sum.functions,
            sum.rows,
            sum.written,
            sum.equal,
            sum.inexpressible,
            sum.size,
            sum.size as f64 / sum.source_size as f64,
            sum.seconds,
        );
        if sum.shared != 0 {
            let share = |bytes: u64| bytes as f64 / sum.source_size as f64;
            println!(
                "  with starts as wide as GNU as makes them: {:.4}; with shared rows: {:.4}",
                share(sum.size + sum.wider),
                share(sum.shared),
            );
        }
        for (lost, (rows, bytes)) in &sum.lost {
            println!("  {lost}: {rows} rows, {bytes} addresses");
        }
    }

    println!("refused: {refused:?}");
    println!("strict readers refuse {} tables", refused_by_readers.len());
    for fault in &refused_by_readers {
        println!("  {fault}");
    }

    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
    assert!(!sums.is_empty(), "nothing was converted");
}
