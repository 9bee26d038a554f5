//! Where what a [`Model`] says is drawn: three columns, with arrows between them.
//!
//! The image is self-contained and follows the reader's colour scheme. Its colours are those of the
//! report's page.

use super::super::words::clean;
use super::lines::Line;
use super::model::{Arrow, DrawnFrame, Model};
use maud::Escaper;
use std::fmt::Write as _;

/// The space around everything, in units of the image.
const MARGIN: usize = 14;
/// The width of a character of a line, and of a frame's second line, in tenths of a unit.
const LETTER: usize = 78;
const SMALL_LETTER: usize = 66;
/// The height of a word, of a frame and of a line of the heading.
const ROW: usize = 22;
const FRAME: usize = 40;
const HEADING: usize = 20;
/// The distance from the top of a word or frame to the base of its text, and to where arrows meet it.
const BASE: usize = 16;
const MIDDLE: usize = 11;
/// The distance from the top of a frame to the base of its second line.
const SECOND: usize = 31;
/// The width of the arrows.
const ARROWS: usize = 64;
/// The characters of a column, at most.
const NAME_MAX: usize = 32;
const DETAIL_MAX: usize = 42;
const VALUE_MAX: usize = 30;
const NOTE_MAX: usize = 34;
const HEADING_MAX: usize = 120;

const STYLE: &str = "\
.ground{fill:#fff}.edge{fill:none;stroke:#767d86}.stripe{fill:#f3f4f6}.line{stroke:#767d86}\
.lit{fill:#fff0a8}text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#1a1d21}\
.place{font-size:15px;font-weight:700}.head{font-weight:700}.drawn{font-weight:700}\
.small{font-size:11px}.soft,.note{fill:#50565e}.right,.luck,.same,.ret{fill:#1d6b36}\
.wrong,.missing{fill:#a8200d}.extra{fill:#7a3d9c}.mark{font-weight:700}\
path[class]{fill:none}path{stroke:#50565e;stroke-width:2}path.same,path.held{stroke:#1d6b36}\
path.wrong,path.missing{stroke:#a8200d;stroke-dasharray:7 3}\
path.extra{stroke:#7a3d9c;stroke-dasharray:2 3}path.thin{stroke-width:1.2;stroke-dasharray:3 3}\
@media(prefers-color-scheme:dark){.ground{fill:#14171c}.edge,.line{stroke:#7f8893}\
.stripe{fill:#1f242c}.lit{fill:#4d4310}text{fill:#e6e8eb}.soft,.note{fill:#a9b1bb}\
.right,.luck,.same,.ret{fill:#6fd08c}.wrong,.missing{fill:#ff9a8a}.extra{fill:#d9a6f5}\
path{stroke:#a9b1bb}path.same,path.held{stroke:#6fd08c}path.wrong,path.missing{stroke:#ff9a8a}\
path.extra{stroke:#d9a6f5}}";

/// Where columns begin, and the size of the image. Those of several models are the same, so that
/// nothing moves but what changes.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Columns {
    /// The widths: frames found, the registers of a word, its place, its value, its note, true frames.
    widths: [usize; 6],
    /// The width of the text above the columns.
    heading: usize,
    /// The number of lines above the columns.
    headings: usize,
    /// The height of what is below.
    body: usize,
}

impl Columns {
    /// Columns that fit a model, too.
    pub(super) fn and(mut self, model: &Model) -> Columns {
        let frames = |frames: &[DrawnFrame]| frames.iter().map(frame_width).max().unwrap_or(0);
        let heading = |text: &str| units(text.chars().count() + 2, LETTER);
        let mut widths = [0; 6];
        widths[0] = frames(&model.found).max(heading(&found_heading(model)));
        widths[5] = frames(&model.truth).max(heading("True frames"));
        for line in &model.lines {
            let Line::Word(word) = line else { continue };
            let parts = [
                (&word.register, NAME_MAX),
                (&word.place, NAME_MAX),
                (&word.value, VALUE_MAX),
                (&word.note, NOTE_MAX),
            ];
            for (width, (text, most)) in widths[1..5].iter_mut().zip(parts) {
                // A gap behind each part that is there at all.
                let letters = text.chars().count().min(most);
                let gap = usize::from(letters > 0) * 2;
                *width = (*width).max(units(letters + gap, LETTER));
            }
        }

        for (mine, other) in self.widths.iter_mut().zip(widths) {
            *mine = (*mine).max(other);
        }
        let texts = model.verdicts.iter().map(|verdict| verdict.text.as_str());
        let texts = texts.chain([model.place.as_str()]);
        let letters = texts
            .map(|text| text.chars().count().min(HEADING_MAX))
            .max();
        self.heading = self.heading.max(units(letters.unwrap_or(0) + 2, LETTER));
        self.headings = self.headings.max(model.verdicts.len());
        let frames = model.found.len().max(model.truth.len());
        self.body = self.body.max(model.lines.len() * ROW).max(frames * FRAME);
        self
    }

    /// Where the frames found, the words, their parts and the true frames begin.
    fn words(self) -> usize {
        MARGIN + self.widths[0] + ARROWS
    }

    fn words_end(self) -> usize {
        self.words() + self.widths[1..5].iter().sum::<usize>() + 8
    }

    fn truth(self) -> usize {
        self.words_end() + ARROWS
    }

    /// Where the lists begin.
    fn top(self) -> usize {
        MARGIN + HEADING * (self.headings + 1) + HEADING + 14
    }

    /// The width and the height of the image.
    pub(super) fn size(self) -> (usize, usize) {
        let columns = self.truth() + self.widths[5];
        let width = columns.max(MARGIN + self.heading) + MARGIN;
        (width, self.top() + self.body + MARGIN)
    }
}

/// The width of so many characters, each of a width in tenths of a unit.
fn units(letters: usize, letter: usize) -> usize {
    (letters * letter).div_ceil(10)
}

fn frame_width(frame: &DrawnFrame) -> usize {
    let name = frame.name.chars().count().min(NAME_MAX) + 3;
    let detail = frame.detail.chars().count().min(DETAIL_MAX) + 1;
    let detail = units(detail, SMALL_LETTER) + units(2, LETTER);
    units(name, LETTER).max(detail)
}

fn found_heading(model: &Model) -> String {
    format!("Found by {}", model.walker)
}

/// The image of one model.
pub(super) fn image(model: &Model) -> String {
    let columns = Columns::default().and(model);
    let (width, height) = columns.size();
    let mut out = opening(
        (width, height),
        "role=\"img\" aria-labelledby=\"title desc\"",
    );
    out.push_str(&alternatives(model));
    let _ = writeln!(out, "<style>{STYLE}</style>");
    out.push_str(&ground(width, height));
    out.push_str(&body(model, columns));
    out.push_str("</svg>\n");
    out
}

/// The first line of an image.
pub(super) fn opening((width, height): (usize, usize), attributes: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" {attributes}>\n"
    )
}

/// What those hear who cannot see the image.
pub(super) fn alternatives(model: &Model) -> String {
    let (title, description) = (escaped(&model.title), escaped(&model.description));
    format!("<title id=\"title\">{title}</title>\n<desc id=\"desc\">{description}</desc>\n")
}

/// The colours of an image.
pub(super) fn style() -> &'static str {
    STYLE
}

/// What is behind everything.
pub(super) fn ground(width: usize, height: usize) -> String {
    format!(
        "<rect class=\"ground\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\n\
         <rect class=\"edge\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n",
        width - 1,
        height - 1
    )
}

/// What is drawn of a model, without the frame of the image.
pub(super) fn body(model: &Model, columns: Columns) -> String {
    let mut out = String::new();
    let top = columns.top();

    // Above the columns: where it is, and what the unwinders make of it.
    let mut y = MARGIN + BASE - 2;
    text(
        &mut out,
        "place",
        (MARGIN, y),
        &cut(&model.place, HEADING_MAX),
    );
    for verdict in &model.verdicts {
        y += HEADING;
        let drawn = if verdict.is_drawn { " drawn" } else { "" };
        let class = format!("{}{drawn}", verdict.class);
        text(
            &mut out,
            &class,
            (MARGIN, y),
            &cut(&verdict.text, HEADING_MAX),
        );
    }

    let y = top - 10;
    let headings = [
        (MARGIN, found_heading(model)),
        (columns.words() + 4, "Stack".to_owned()),
        (columns.truth(), "True frames".to_owned()),
    ];
    for (x, heading) in headings {
        text(&mut out, "head", (x, y), &heading);
    }

    // Arrows are below the words and names that they might touch.
    let left = (columns.words(), MARGIN + columns.widths[0]);
    let right = (columns.words_end(), columns.truth() - 4);
    for (arrows, ends) in [(&model.read, left), (&model.held, right)] {
        for arrow in arrows {
            out.push_str(&path(arrow, ends, top));
        }
    }

    words(&mut out, model, columns);
    frames(&mut out, &model.found, (MARGIN, top));
    frames(&mut out, &model.truth, (columns.truth(), top));
    out
}

fn words(out: &mut String, model: &Model, columns: Columns) {
    let (x, end) = (columns.words(), columns.words_end());
    for (row, line) in model.lines.iter().enumerate() {
        let top = columns.top() + row * ROW;
        let y = top + BASE;
        let word = match line {
            Line::Gap(gap) => {
                text(out, "soft", (x + 4, y), gap);
                continue;
            }
            Line::Word(word) => word,
        };

        let class = if word.is_read { "lit" } else { "stripe" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{top}\" width=\"{}\" height=\"{}\"/>",
            end - x,
            ROW - 2
        );
        let (name, soft) = if word.is_return {
            ("ret", "ret")
        } else {
            ("", "soft")
        };
        let parts = [
            ("head", cut(&word.register, NAME_MAX)),
            ("soft", cut(&word.place, NAME_MAX)),
            (name, cut(&word.value, VALUE_MAX)),
            (soft, cut(&word.note, NOTE_MAX)),
        ];

        // The first and the last of the six columns are those of the frames.
        let mut at = x + 4;
        for ((class, part), width) in parts.iter().zip(&columns.widths[1..5]) {
            text(out, class, (at, y), part);
            at += width;
        }
    }
}

fn frames(out: &mut String, frames: &[DrawnFrame], (x, top): (usize, usize)) {
    let indent = x + units(2, LETTER);
    for (row, frame) in frames.iter().enumerate() {
        let top = top + row * FRAME;
        text(
            out,
            &format!("mark {}", frame.class),
            (x, top + BASE),
            frame.mark,
        );
        let class = match frame.class {
            "note" | "missing" => frame.class,
            _ => "",
        };
        text(
            out,
            class,
            (indent, top + BASE),
            &cut(&frame.name, NAME_MAX),
        );
        let detail = cut(&frame.detail, DETAIL_MAX);
        text(out, "small soft", (indent, top + SECOND), &detail);
    }
}

/// An arrow from a line at one end to a frame at the other.
fn path(arrow: &Arrow, (from_x, to_x): (usize, usize), top: usize) -> String {
    let from = top + arrow.line * ROW + MIDDLE - 1;
    let to = top + arrow.frame * FRAME + MIDDLE;
    let bend = (from_x + to_x) / 2;
    // The tip points to the frame.
    let tip: i32 = if to_x > from_x { -6 } else { 6 };
    let thin = if arrow.is_thin { " thin" } else { "" };
    format!(
        "<path class=\"{}{thin}\" d=\"M{from_x} {from}C{bend} {from} {bend} {to} {to_x} \
         {to}m{tip}-4l{} 4l{tip} 4\"/>\n",
        arrow.class, -tip
    )
}

fn text(out: &mut String, class: &str, (x, y): (usize, usize), text: &str) {
    if text.is_empty() {
        return;
    }
    let class = match class {
        "" => String::new(),
        class => format!(" class=\"{class}\""),
    };
    let _ = writeln!(
        out,
        "<text{class} x=\"{x}\" y=\"{y}\">{}</text>",
        escaped(text)
    );
}

/// The start of a text that is too long.
fn cut(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    text.chars().take(letters - 1).chain(['…']).collect()
}

/// Text that is only text in XML, too.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = Escaper::new(&mut out).write_str(text);
    clean(&out)
}
