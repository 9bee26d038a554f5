//! Injected defects: the diagnosis must name the wrong row, unless the defect is stated to be
//! equivalent.

use super::built::{Built, Engine};
use super::failure::CaseFailure;
use super::sample::Recorded;
use crate::check::{Contradiction, Subject};
use unwind_sim_recordings::view::MemoryView;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf::Dwarf;

/// The first contradiction at each point, with the wrong tables.
fn contradictions(recorded: &Recorded) -> Vec<Contradiction> {
    let finder = Dwarf::default();
    let mut cache = Cache::new();
    let mut out = Vec::new();
    for index in 0..recorded.points.len() {
        recorded.with_view(index, |view| {
            let memory = view.memory(MemoryView::Cpu);
            let (truth, live) = (&view.sample.truth, view.live());
            let subject = Subject::of(view, &memory, &live);
            let mut frames = 0..truth.frames().len();
            out.extend(frames.find_map(|i| {
                subject
                    .check_frame(&finder, i, &mut cache)
                    .into_iter()
                    .next()
            }));
        });
    }
    out
}

/// The differences from the header's `inject`, one per line.
pub(super) fn differences(built: &Built, engine: Engine) -> Result<Vec<String>, CaseFailure> {
    let Some(inject) = &built.case.header.inject else {
        return Ok(Vec::new());
    };

    let recorded = Recorded::new(built, engine, true)?;

    // The address in the image, as rows have it: it is the same at every point.
    let label = recorded.points.first().and_then(|point| {
        let space = point.world.space(point.sample.pid);
        let images = space.mappings().iter().filter_map(|m| m.image.as_ref());
        let mut symbols = images.flat_map(|i| i.symbols());
        symbols.find(|s| s.name == inject.label).map(|s| s.address)
    });

    let Some(label) = label else {
        return Ok(vec![format!(
            "  inject: the program has no label {}",
            inject.label
        )]);
    };

    // The defect must be blamed at its own place: in the row that holds the label, or right there
    // if there is no row.
    let found = contradictions(&recorded);
    let pinned = found.iter().any(|c| {
        c.row
            .as_ref()
            .is_none_or(|row| (row.source.start..row.source.end).contains(&label))
            && (c.row.is_some() || c.pc.symbol_address() == label || c.pc.value() == label)
    });

    // An equivalent defect must not be found anywhere, or it is not equivalent.
    let kind = inject.kind.as_str();
    Ok(match (&inject.equivalent, pinned, found.is_empty()) {
        (None, true, _) | (Some(_), _, true) => Vec::new(),
        (None, false, true) => vec![format!("  inject: the {kind} defect was not found")],
        (None, false, false) => {
            let rows = found.iter().map(|c| match &c.row {
                Some(row) => format!("{:#x}..{:#x}: {c}", row.source.start, row.source.end),
                None => format!("no row at {:#x}: {c}", c.pc.value()),
            });
            let rows: Vec<String> = rows.collect();
            vec![format!(
                "  inject: {} ({label:#x}) is not in {}",
                inject.label,
                rows.join(", ")
            )]
        }
        (Some(why), _, false) => {
            vec![format!(
                "  inject: stated to be equivalent ({why}), but {}",
                found[0]
            )]
        }
    })
}
