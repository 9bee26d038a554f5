//! speedscope's own format: the stacks of each thread in the order of time, as JSON.
//!
//! Its schema is <https://www.speedscope.app/file-format-schema.json>. There is one sampled profile
//! for each thread and event or unwinder. Consecutive equal stacks are merged into one, whose
//! weight is their number.

use crate::profile::gathered::{Profile, Sample};
use serde::Serialize;
use std::collections::HashMap;
use std::io::{self, Write};

/// The URL of the schema.
const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<Frame<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// Indices into the shared frames, outermost first.
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    shared: Shared<'a>,
    profiles: Vec<Sampled>,
    name: &'a str,
    active_profile_index: u32,
    exporter: &'static str,
}

/// Writes a profile of kind [`GatherKind::Times`](crate::profile::gathered::GatherKind::Times).
pub(super) fn write(profile: &Profile, name: &str, out: &mut dyn Write) -> io::Result<()> {
    let table = &profile.table;
    // Functions are distinguished by name and image, not by address.
    let mut shared = Vec::new();
    let mut known = HashMap::new();
    let mut numbers = vec![0; table.frames().len()];

    // Frames are listed by what they are called, in an order that does not depend on when they were
    // met.
    for at in table.ordered() {
        let frame = table.frames()[at as usize];
        let number = *known.entry((frame.name, frame.image)).or_insert_with(|| {
            let image = frame.image.and_then(|at| table.images().get(at as usize));
            shared.push(Frame {
                name: table.name(frame.name),
                file: image.map(|image| image.path.as_str()),
            });
            (shared.len() - 1) as u32
        });
        numbers[at as usize] = number;
    }

    // Samples of all threads are in one list, but a profile of this format has one thread.
    let mut of_thread: Vec<Vec<Sample>> = vec![Vec::new(); profile.threads.len()];
    for &sample in &profile.samples {
        of_thread[sample.thread as usize].push(sample);
    }

    let mut profiles = Vec::new();
    let shown = profile.shown();
    for at in profile.ordered_threads() {
        let thread = &profile.threads[at as usize];
        let (mut samples, mut weights): (Vec<Vec<u32>>, Vec<u64>) = (Vec::new(), Vec::new());
        for sample in &of_thread[at as usize] {
            // From the root to the leaf, as speedscope wants it; equal neighbours are one sample.
            let frames = profile.stack(sample.node);
            let mut stack: Vec<u32> = frames.map(|frame| numbers[frame as usize]).collect();
            stack.reverse();
            match weights.last_mut() {
                Some(weight) if samples.last() == Some(&stack) => *weight += 1,
                _ => {
                    samples.push(stack);
                    weights.push(1);
                }
            }
        }

        profiles.push(Sampled {
            kind: "sampled",
            name: format!("{} {}/{}", shown[at as usize], thread.pid, thread.tid),
            // Without a unit, a weight is a number of samples.
            unit: "none",
            start_value: 0,
            end_value: weights.iter().sum(),
            samples,
            weights,
        });
    }

    // The first profile is the one that the viewer opens.
    let file = File {
        schema: SCHEMA,
        shared: Shared { frames: shared },
        profiles,
        name,
        active_profile_index: 0,
        exporter: concat!("unwind-sim ", env!("CARGO_PKG_VERSION")),
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}
