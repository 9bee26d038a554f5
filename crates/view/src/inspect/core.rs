//! Shows an ELF core: threads, mappings, bytes of stack.

use super::columns::{Columns, cells, field, list};
use super::trace::tables_of;
use super::{InspectError, map};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::import::{ImportItem, ImportOptions, import_bytes};
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::model::{Event, Item};
use unwind_sim_unwind::image::Image;

/// The text for a core.
pub(super) fn show(file: &InputFile) -> Result<String, InspectError> {
    let owner = map(file)?;
    let file_bytes = (*owner).as_ref().len();

    let mut threads = Columns::new(&["thread", "rip", "rsp", "stack bytes", "name"]);
    let mut mappings = Vec::new();
    let mut images: Vec<Arc<Image>> = Vec::new();
    let mut names = HashMap::new();
    let mut crashed = None;
    let (mut thread_count, mut stack_bytes) = (0_u64, 0_u64);

    // The importer's items come one by one; stacks may be large, so only their sizes are kept.
    let mut take = |item: ImportItem<'_>| {
        match item {
            ImportItem::Image { image, .. } => images.push(image),
            // Names come before the samples of their threads.
            ImportItem::Item(Item::Event(Event::Comm { tid, name, .. })) => {
                names.insert(tid, name);
            }
            ImportItem::Item(Item::Event(Event::Map {
                range, image, name, ..
            })) => {
                let known = if image.is_some() {
                    "found"
                } else {
                    "not found"
                };
                let bytes = range.end.wrapping_sub(range.start);
                let place = format!("{:x}-{:x} {name}", range.start, range.end);
                mappings.push((range.start, place, bytes, known));
            }
            ImportItem::Item(Item::Event(_)) => {}
            ImportItem::Item(Item::Sample(sample)) => {
                let bytes: usize = sample.regions.iter().map(|r| r.bytes.len()).sum();
                thread_count += 1;
                stack_bytes += bytes as u64;
                let regs = &sample.regs.sampled;
                let name = names.get(&sample.tid).cloned().unwrap_or_default();
                let (rip, rsp) = (format!("{:#x}", regs.rip()), format!("{:#x}", regs.rsp()));
                threads.row(cells![sample.tid, rip, rsp, bytes, name]);

                // At most one thread is the one that crashed, if the core says so.
                crashed = crashed.or(sample.crash());
            }
        }
        ControlFlow::Continue(())
    };

    // The importer is the one of `replay`, so what is shown here is what a walk will get.
    let imported = import_bytes(owner, &ImportOptions::default(), &mut take);
    let imported = imported.map_err(|source| InspectError::Core {
        path: file.path().into(),
        source,
    })?;

    let mut out = String::from("an ELF core\n");
    field(&mut out, "file", counted(file_bytes, "byte"));
    if let Some(crash) = crashed {
        field(
            &mut out,
            "crashed",
            format_args!("thread {}: {crash}", crash.tid),
        );
    }

    for (why, count) in &imported.skipped {
        let text = format_args!("{count}: {}", why.description());
        field(&mut out, "left out", text);
    }

    let _ = writeln!(
        out,
        "\n{}, {} of stacks",
        counted(thread_count, "thread"),
        counted(stack_bytes, "byte")
    );
    threads.write(&mut out);
    // A core that leaves out what files have does not say whether it was code.
    let undescribed: HashSet<u64> = imported.without_segment.iter().map(|r| r.start).collect();

    // `partition` keeps the order, so both lists stay sorted by address.
    let (unknown, executable): (Vec<_>, Vec<_>) =
        (mappings.into_iter()).partition(|(start, ..)| undescribed.contains(start));
    for (title, mappings) in [
        ("executable mappings", executable),
        (
            "mappings of files that may have been executable: the core does not say",
            unknown,
        ),
    ] {
        if mappings.is_empty() {
            continue;
        }
        let mut table = Columns::new(&["mapping", "bytes", "image"]);
        for (_, place, bytes, known) in mappings {
            table.row(cells![place, bytes, known]);
        }
        let _ = writeln!(out, "\n{title}");
        table.write(&mut out);
    }
    let mut found = Columns::new(&["image", "symbols", "tables, bytes"]);

    // An image may be a file that was found beside the core, or pieces of the core itself.
    for image in &images {
        found.row(cells![
            image.name(),
            image.symbols().len(),
            tables_of(image)
        ]);
    }
    if !found.is_empty() {
        let _ = writeln!(out, "\n{}", counted(images.len(), "image"));
        found.write(&mut out);
    }

    // Problems with files are not problems of the core, but they decide what can be unwound.
    let problems: Vec<String> = imported
        .problems
        .iter()
        .map(ToString::to_string)
        .chain(imported.file_problems.iter().map(ToString::to_string))
        .collect();
    if !problems.is_empty() {
        out.push_str("\nproblems\n");
        list(&mut out, &problems, 20);
    }
    Ok(out)
}
