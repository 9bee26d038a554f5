//! The lines of `compare`.

use super::{Line, RowLine, UnjudgedLine, source_line, why_line};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::baseline::Origin;
use unwind_sim_judge::compare::{Comparison, Group, GroupKey};
use unwind_sim_unwind::verdict::Verdict;

/// One column of a comparison.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ColumnLine {
    schema: &'static str,
    column: String,
    /// Verdict words with their counts.
    verdicts: std::collections::BTreeMap<&'static str, u64>,
    judged: u64,
    /// Judged chains whose frames are known up to the root. Only these can be right.
    proven: u64,
    /// The share of right chains among those, in hundredths of a percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    right_permyriad: Option<u64>,
    /// The mean share of the known frames that were found, in hundredths of a percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    frames_found_permyriad: Option<u64>,
    /// For a kernel whose own unwinder was recorded: its chains.
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_said: Option<KernelSaidLine>,
    /// Chains with exactly the true frames whose format cannot mark a root.
    ends_not_claimed: u64,
    /// Chains with a step from the fallback.
    fell_back: u64,
    /// Why walks ended: codes with their counts.
    ended: std::collections::BTreeMap<&'static str, u64>,
    /// Why chains were not judged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unjudged: Vec<UnjudgedLine>,
}

/// The chains that a kernel's own unwinder gave.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct KernelSaidLine {
    chains: u64,
    /// Those that the column has, too.
    same: u64,
    /// Those whose true chain is complete.
    known: u64,
    /// Of these, those that are the true chain.
    right: u64,
}

/// One group of divergences.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct DivergenceLine {
    schema: &'static str,
    column: String,
    verdict: String,
    /// `wrong`, `loss` (a derived table cannot represent the row) or `target` (the row describes
    /// the frame that is jumped to). Absent for the verdict `unsupported`.
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
    code: &'static str,
    count: u64,
    /// The first sample of the group.
    sample: u64,
    frame: usize,
    place: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    row: Option<RowLine>,
}

/// The last line.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct SummaryLine {
    schema: &'static str,
    samples: u64,
    truth_complete: u64,
    truth_known: u64,
    truth_unknown: u64,
    /// The command that reproduces this output.
    command: String,
    /// For a comparison: the recorded program.
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
    /// For a comparison: the options that determine its content.
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Vec<String>>,
}

fn divergence(column: &str, key: &GroupKey, group: &Group) -> Line {
    Line::Divergence(Box::new(DivergenceLine {
        schema: SCHEMA,
        column: column.to_owned(),
        verdict: group.verdict.to_string(),
        class: (group.verdict != Verdict::Unsupported).then(|| key.class.as_str()),
        code: key.code.as_str(),
        count: group.count,
        sample: group.sample,
        frame: group.frame,
        place: group.location.exact(),
        group: key.place.clone(),
        values: group.values.clone(),
        row: group
            .row
            .as_ref()
            .map(|source| source_line(String::new(), source)),
    }))
}

/// All lines of a comparison.
pub fn comparison(
    comparison: &Comparison,
    columns: &[String],
    origin: Origin,
    command: &str,
) -> Vec<Line> {
    let mut lines = Vec::new();
    for ((name, tally), said) in columns
        .iter()
        .zip(&comparison.tallies)
        .zip(&comparison.said)
    {
        let verdicts = Verdict::WORDS
            .iter()
            .map(|(letter, word)| (*word, tally.count(*letter)))
            .filter(|(_, n)| *n > 0);

        lines.push(Line::Column(ColumnLine {
            schema: SCHEMA,
            column: name.clone(),
            verdicts: verdicts.collect(),
            kernel_said: (said.chains > 0).then_some(KernelSaidLine {
                chains: said.chains,
                same: said.same,
                known: said.known,
                right: said.right,
            }),
            judged: tally.judged(),
            proven: tally.proven,
            right_permyriad: tally.right_permyriad(),
            frames_found_permyriad: tally.found_permyriad(),
            ends_not_claimed: tally.ends_not_claimed,
            fell_back: tally.fell_back,
            ended: tally.ended.iter().map(|(c, &n)| (c.as_str(), n)).collect(),
            unjudged: tally
                .unjudged
                .iter()
                .map(|(&why, &count)| UnjudgedLine {
                    why: why_line(why),
                    count,
                })
                .collect(),
        }));
    }

    // Groups come after all columns, so that a reader has the totals before the details.
    for (column, name) in columns.iter().enumerate() {
        let groups = comparison.column_groups(column);
        lines.extend(
            groups
                .into_iter()
                .map(|(key, group)| divergence(name, key, group)),
        );
    }

    // The summary is the last line, so that a reader notices output that was cut short.
    lines.push(summary(comparison, Some(origin), command));
    lines
}

/// The last line. `origin` is for a comparison.
pub fn summary(comparison: &Comparison, origin: Option<Origin>, command: &str) -> Line {
    let (program, options) = origin.map(|o| (o.program, o.options)).unzip();
    let [truth_complete, truth_known, truth_unknown] = comparison.truths;
    Line::Summary(SummaryLine {
        schema: SCHEMA,
        samples: comparison.samples,
        truth_complete,
        truth_known,
        truth_unknown,
        command: command.to_owned(),
        program,
        options,
    })
}
