//! Where what a [`Model`] says is drawn: three columns, with arrows between them.
//!
//! The image is self-contained and follows the reader's colour scheme. Its colours are those of the
//! report's page.

use super::super::words::clean;
use super::lines::Line;
use super::model::{Arrow, DrawnFrame, Model};
use maud::Escaper;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The space around everything, in units of the image.
const MARGIN: usize = 14;
/// The width of a character of a line, and of a frame's second line, in tenths of a unit.
const LETTER: usize = 78;
const SMALL_LETTER: usize = 66;
/// The height of a word, of a frame without and with a third line, and of a line of the heading.
const ROW: usize = 22;
const FRAME: usize = 40;
const FRAME_WITH_BYTES: usize = 56;
const HEADING: usize = 20;
/// The distance from the top of a word or frame to the base of its text, and to where arrows meet it.
const BASE: usize = 16;
const MIDDLE: usize = 11;
/// The distances from the top of a frame to the bases of its second and third line.
const SECOND: usize = 31;
const THIRD: usize = 45;
/// The width of the arrows.
const ARROWS: usize = 64;
/// The characters of a column, at most.
const NAME_MAX: usize = 32;
const DETAIL_MAX: usize = 42;
const VALUE_MAX: usize = 30;
const NOTE_MAX: usize = 34;
const HEADING_MAX: usize = 120;

/// Colours are said once for each scheme, as `color`; texts and lines take them from there.
const STYLE: &str = "\
svg{color:#1a1d21;font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}\
text{fill:currentColor}path{fill:none;stroke:currentColor;stroke-width:2}\
.place{font-size:15px}.place,.head,.drawn,.mark{font-weight:700}.small{font-size:11px}\
path.wrong,path.missing{stroke-dasharray:7 3}path.extra{stroke-dasharray:2 3}\
path.thin{stroke-width:1.2;stroke-dasharray:3 3}path.stripe,path.lit{stroke-width:20}\
.ground{fill:#fff}.edge{fill:none;stroke:#767d86}path,.soft,.note{color:#50565e}\
.stripe{color:#f3f4f6}.lit{color:#fff0a8}.right,.luck,.same,.ret,.held{color:#1d6b36}\
.wrong,.missing{color:#a8200d}.extra{color:#7a3d9c}\
@media(prefers-color-scheme:dark){svg{color:#e6e8eb}.ground{fill:#14171c}.edge{stroke:#7f8893}\
path,.soft,.note{color:#a9b1bb}.stripe{color:#1f242c}.lit{color:#4d4310}\
.right,.luck,.same,.ret,.held{color:#6fd08c}.wrong,.missing{color:#ff9a8a}.extra{color:#d9a6f5}}";

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
    /// The largest number of words and of frames of a list.
    lines: usize,
    frames: usize,
    /// Whether frames have a third line.
    has_bytes: bool,
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
        self.lines = self.lines.max(model.lines.len());
        self.frames = self.frames.max(model.found.len()).max(model.truth.len());
        self.has_bytes |= model.found.iter().any(|frame| !frame.bytes.is_empty());
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

    /// The height of a frame.
    fn frame(self) -> usize {
        if self.has_bytes {
            FRAME_WITH_BYTES
        } else {
            FRAME
        }
    }

    /// Where the lists begin.
    fn top(self) -> usize {
        MARGIN + HEADING * (self.headings + 1) + HEADING + 14
    }

    /// The width and the height of the image.
    pub(super) fn size(self) -> (usize, usize) {
        let columns = self.truth() + self.widths[5];
        let width = columns.max(MARGIN + self.heading) + MARGIN;
        let body = (self.lines * ROW).max(self.frames * self.frame());
        (width, self.top() + body + MARGIN)
    }
}

/// The width of so many characters, each of a width in tenths of a unit.
fn units(letters: usize, letter: usize) -> usize {
    (letters * letter).div_ceil(10)
}

fn frame_width(frame: &DrawnFrame) -> usize {
    let name = frame.name.chars().count().min(NAME_MAX) + 3;
    let detail = [&frame.detail, &frame.bytes].map(|text| text.chars().count());
    let detail = detail[0].max(detail[1]).min(DETAIL_MAX) + 1;
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
    for (list, ends) in [(&model.read, left), (&model.held, right)] {
        arrows(&mut out, list, ends, columns);
    }

    words(&mut out, model, columns);
    frames(&mut out, &model.found, MARGIN, columns);
    frames(&mut out, &model.truth, columns.truth(), columns);
    out
}

fn words(out: &mut String, model: &Model, columns: Columns) {
    let (x, end) = (columns.words(), columns.words_end());
    let lines = model.lines.iter().enumerate();
    let y = |row: usize| columns.top() + row * ROW;

    // The ground of each word is a thick line.
    for (class, is_read) in [("stripe", false), ("lit", true)] {
        let mut path = String::new();
        for (row, line) in lines.clone() {
            if matches!(line, Line::Word(word) if word.is_read == is_read) {
                let _ = write!(path, "M{x} {}H{end}", y(row) + MIDDLE - 1);
            }
        }
        strokes(out, class, &path);
    }

    let mut parts: [Vec<Cell<'_>>; 4] = Default::default();
    for (row, line) in lines {
        let y = y(row) + BASE;
        let word = match line {
            Line::Gap(gap) => {
                parts[0].push(("soft", y, gap.clone()));
                continue;
            }
            Line::Word(word) => word,
        };
        let (name, soft) = if word.is_return {
            ("ret", "ret")
        } else {
            ("", "soft")
        };
        parts[0].push(("head", y, cut(&word.register, NAME_MAX)));
        parts[1].push(("soft", y, cut(&word.place, NAME_MAX)));
        parts[2].push((name, y, cut(&word.value, VALUE_MAX)));
        parts[3].push((soft, y, cut(&word.note, NOTE_MAX)));
    }

    let mut at = x + 4;
    for (cells, width) in parts.iter().zip(&columns.widths[1..5]) {
        column(out, at, cells);
        at += width;
    }
}

fn frames(out: &mut String, frames: &[DrawnFrame], x: usize, columns: Columns) {
    let classes: Vec<String> = frames.iter().map(|f| format!("mark {}", f.class)).collect();
    let (mut marks, mut texts) = (Vec::new(), Vec::new());
    for (row, (frame, mark)) in frames.iter().zip(&classes).enumerate() {
        let top = columns.top() + row * columns.frame();
        let class = match frame.class {
            "note" | "missing" => frame.class,
            _ => "",
        };
        marks.push((mark.as_str(), top + BASE, frame.mark.to_owned()));
        texts.push((class, top + BASE, cut(&frame.name, NAME_MAX)));
        texts.push(("small soft", top + SECOND, cut(&frame.detail, DETAIL_MAX)));
        texts.push(("small soft", top + THIRD, cut(&frame.bytes, DETAIL_MAX)));
    }
    column(out, x, &marks);
    column(out, x + units(2, LETTER), &texts);
}

/// Arrows from lines at one end to frames at the other: one path for all of a class.
fn arrows(out: &mut String, arrows: &[Arrow], (from_x, to_x): (usize, usize), columns: Columns) {
    let (across, bend) = (to_x as isize - from_x as isize, to_x.abs_diff(from_x) / 2);
    let bend = bend as isize * across.signum();
    // The tip points to the frame.
    let tip = -6 * across.signum();

    let mut paths: BTreeMap<(bool, &str), String> = BTreeMap::new();
    for arrow in arrows {
        let from = columns.top() + arrow.line * ROW + MIDDLE - 1;
        let to = columns.top() + arrow.frame * columns.frame() + MIDDLE;
        let down = to as isize - from as isize;
        let path = paths.entry((arrow.is_thin, arrow.class)).or_default();
        let _ = write!(
            path,
            "M{from_x} {from}c{bend} 0 {bend} {down} {across} {down}m{tip}-4l{} 4l{tip} 4",
            -tip
        );
    }
    for ((is_thin, class), path) in paths {
        let thin = if is_thin { " thin" } else { "" };
        strokes(out, &format!("{class}{thin}"), &path);
    }
}

fn strokes(out: &mut String, class: &str, path: &str) {
    if !path.is_empty() {
        let _ = writeln!(out, "<path class=\"{class}\" d=\"{path}\"/>");
    }
}

/// A text of a column: its class, the base of the line, and the text.
type Cell<'a> = (&'a str, usize, String);

/// Texts that begin at the same `x`.
fn column(out: &mut String, x: usize, cells: &[Cell<'_>]) {
    let mut texts = String::new();
    for (class, y, cell) in cells {
        text(&mut texts, class, (0, *y), cell);
    }
    if !texts.is_empty() {
        let _ = writeln!(out, "<g transform=\"translate({x})\">\n{texts}</g>");
    }
}

fn text(out: &mut String, class: &str, (x, y): (usize, usize), text: &str) {
    if text.is_empty() {
        return;
    }
    out.push_str("<text");
    if !class.is_empty() {
        let _ = write!(out, " class=\"{class}\"");
    }
    if x > 0 {
        let _ = write!(out, " x=\"{x}\"");
    }
    let _ = writeln!(out, " y=\"{y}\">{}</text>", escaped(text));
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
