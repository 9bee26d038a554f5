//! Writes samples and their mappings to a trace.

use unwind_sim_recordings::model::{Event, Sample};
use unwind_sim_recordings::trace::{TraceWriter, WriteError};
use unwind_sim_unwind::image::Mapping;

/// Writes each sample after the mappings of its world.
///
/// # Errors
/// If the trace cannot be written.
pub fn write_samples<W: std::io::Write>(
    writer: &mut TraceWriter<W>,
    samples: &[(Sample<'_>, Vec<Mapping>)],
) -> Result<(), WriteError> {
    let mut last: Option<(u32, &[Mapping])> = None;
    for (sample, mappings) in samples {
        let pid = sample.pid;

        // The events of a trace hold for all samples after them, until others replace them.
        let same = last.is_some_and(|(p, m)| p == pid && same_mappings(m, mappings));

        if !same {
            // An exec empties the space, so that no mapping of the sample before is left.
            writer.event(&Event::Exec { pid })?;
            for mapping in mappings {
                let image = mapping
                    .image
                    .as_ref()
                    .map(|i| writer.add_image(i))
                    .transpose()?;
                let (range, bias) = (mapping.range.clone(), mapping.bias);
                let name = mapping.name.clone();
                writer.event(&Event::Map {
                    pid,
                    range,
                    bias,
                    image,
                    name,
                })?;
            }
            last = Some((pid, mappings));
        }

        writer.sample(sample)?;
    }
    Ok(())
}

pub(super) fn same_mappings(a: &[Mapping], b: &[Mapping]) -> bool {
    let key = |m: &Mapping| (m.range.clone(), m.bias, m.image.as_ref().map(|i| i.id()));
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| key(a) == key(b))
}
