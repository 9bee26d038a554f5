//! A drawing with its neighbours: the first is plain, the others are packed behind it.
//!
//! The packed text has a line for each: the noun of a state, the number of walkers, their names, and
//! for each state its number and, for each walker, a class, a title and the markup of the drawing,
//! between tabs. `embed.js` reads it.

use super::model::Model;
use super::svg::{self, Columns};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use std::fmt::Write as _;
use std::io::Write as _;
use unwind_sim_view::timeline::{SourceKind, Walker};

/// Shows the packed drawings.
const SCRIPT: &str = include_str!("embed.js");
/// The height of the slider and its buttons, in units of the image.
const CONTROLS: usize = 76;
/// The width that these need.
const CONTROLS_WIDTH: usize = 560;

/// The colour of the controls is that of texts; `--accent` and `--raised` are those of the report's page.
const STYLE: &str = "\
svg{--accent:#0b57b0;--raised:#f3f4f6}\
.controls{font:13px system-ui,sans-serif;display:flex;flex-wrap:wrap;gap:6px;align-items:center}\
.controls>*{font:inherit;color:inherit}\
.controls input{flex:1 0 100%;margin:0;accent-color:var(--accent)}\
.controls button,.controls select{background:var(--raised);border:1px solid #7a828b;\
border-radius:4px;min-height:26px;padding:2px 8px}\
.controls :focus-visible{outline:3px solid var(--accent);outline-offset:1px}\
#ticks{stroke-width:4;stroke-dasharray:none}\
@media(prefers-color-scheme:dark){svg{--accent:#8ab8ff;--raised:#1f242c}}";

/// The image of `states`, each with a model for each walker. `chosen` are the places of the state and
/// of the walker that are shown first.
pub(super) fn image(
    kind: SourceKind,
    walkers: &[Walker],
    states: &[(u64, Vec<Model>)],
    chosen: (usize, usize),
) -> String {
    let models = states.iter().flat_map(|(_, models)| models);
    let columns = models.fold(Columns::default(), Columns::and);
    let (width, drawn) = columns.size();
    let (width, height) = (width.max(CONTROLS_WIDTH), drawn + CONTROLS);

    // The whole is a group of things to use, and only the drawing in it an image.
    let attributes = format!("data-state=\"{}\" data-walker=\"{}\"", chosen.0, chosen.1);
    let model = &states[chosen.0].1[chosen.1];
    let mut out = svg::opening((width, height), &attributes);
    out.push_str(&svg::alternatives(model));
    let _ = writeln!(out, "<style>{}{STYLE}</style>", svg::style());
    out.push_str(&svg::ground(width, height));
    let body = svg::body(model, columns);
    let _ = write!(
        out,
        "<g id=\"drawing\" role=\"img\" aria-labelledby=\"title\" aria-describedby=\"desc\">\n\
         {body}</g>\n"
    );

    // Empty without a script.
    let _ = writeln!(
        out,
        "<path id=\"ticks\" class=\"wrong\" transform=\"translate(14 {drawn})\"/>\n\
         <foreignObject id=\"controls\" x=\"14\" y=\"{}\" width=\"{}\" height=\"{}\">\
         </foreignObject>",
        drawn + 6,
        width - 28,
        CONTROLS - 12
    );
    let _ = writeln!(
        out,
        "<metadata id=\"states\">{}</metadata>\n<script><![CDATA[\n{}]]></script>\n</svg>",
        packed(kind, walkers, states, columns),
        stripped(SCRIPT)
    );
    out
}

/// A script without comments and indentation, which are a third of it. Each line of it is one of the source, so
/// that nothing changes its meaning.
fn stripped(script: &str) -> String {
    let lines = script.lines().map(str::trim_start);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The packed text, compressed (RFC 1951) and in base64.
fn packed(
    kind: SourceKind,
    walkers: &[Walker],
    states: &[(u64, Vec<Model>)],
    columns: Columns,
) -> String {
    let noun = match kind {
        SourceKind::Program => "instruction",
        SourceKind::Recording => "sample",
    };
    let mut text = format!("{noun}\n{}\n", walkers.len());
    for walker in walkers {
        let _ = writeln!(text, "{}", super::super::words::clean(&walker.name()));
    }
    for (number, models) in states {
        let _ = writeln!(text, "{number}");
        for model in models {
            let drawn = model.verdicts.iter().find(|verdict| verdict.is_drawn);
            let class = drawn.map_or("open", |verdict| verdict.class);
            let body = svg::body(model, columns).replace('\n', "");
            let title = svg::escaped(&model.title);
            let _ = writeln!(text, "{class}\t{title}\t{body}");
        }
    }

    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    // Writing to memory cannot fail.
    let _ = encoder.write_all(text.as_bytes());
    STANDARD.encode(encoder.finish().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What would end the element that holds it.
    #[test]
    fn style_and_script_do_not_end_early() {
        assert!(!SCRIPT.contains("]]>"));
        assert!(!STYLE.contains(['<', '&']) && !svg::style().contains(['<', '&']));
    }

    #[test]
    fn a_script_loses_only_comments_and_indentation() {
        let script = "\"use strict\";\n// What it does.\n{\n  a();\n\n  b(\"//\"); // why\n}\n";
        let stripped = stripped(script);
        assert_eq!(stripped, "\"use strict\";\n{\na();\nb(\"//\"); // why\n}\n");
        // A text over several lines would lose its indentation.
        assert!(
            SCRIPT
                .lines()
                .all(|line| line.matches('`').count() % 2 == 0)
        );
    }
}
