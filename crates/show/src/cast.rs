//! A terminal session as an animated SVG image: a command is typed, and its output appears line by
//! line.
//!
//! The image is self-contained and follows the reader's colour scheme. Where animations are not
//! wanted or not supported, all lines are there from the start.

use std::fmt::Write as _;
use unwind_sim_unwind::printable::printable;

/// Width of a character, in units of the image.
const CHAR_WIDTH: f64 = 7.8;
/// Height of a line.
const LINE_HEIGHT: usize = 18;
/// The space around the text.
const MARGIN: usize = 16;
/// Seconds until the first line of output appears.
const FIRST_SECONDS: f64 = 1.2;
/// Seconds from one line to the next.
const LINE_SECONDS: f64 = 0.12;
/// Seconds after a blank line, at which a reader pauses.
const PAUSE_SECONDS: f64 = 0.9;

const STYLE: &str = "\
.back{fill:#f6f8fa}.frame{fill:none;stroke:#d0d7de}\
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre;fill:#1f2328}\
.command{font-weight:bold;fill:#0550ae}.right{fill:#116329}.wrong{fill:#a40e26}.plain{fill:#57606a}\
@media(prefers-color-scheme:dark){.back{fill:#161b22}.frame{stroke:#30363d}text{fill:#e6edf3}\
.command{fill:#79c0ff}.right{fill:#7ee787}.wrong{fill:#ff9492}.plain{fill:#9ea7b3}}\
@media(prefers-reduced-motion:no-preference){.line{animation:show .01s both}}\
@keyframes show{from{opacity:0}to{opacity:1}}";

/// The image of `command` and what it prints.
pub fn svg(command: &str, output: &str) -> String {
    let lines: Vec<&str> = output.trim_end().lines().collect();

    let columns = lines.iter().map(|line| line.chars().count()).max();
    // The command is shown with a prompt of two characters.
    let columns = columns.unwrap_or(0).max(command.len() + 2);
    let width = (columns as f64 * CHAR_WIDTH).ceil() as usize + 2 * MARGIN;
    let height = (lines.len() + 2) * LINE_HEIGHT + 2 * MARGIN;

    // The title and the label are attributes and text of XML, so the command is escaped once for
    // both.
    let title = escaped(command);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"back\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\n\
         <rect class=\"frame\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n",
        width - 1,
        height - 1
    );

    // Each line has its own delay, and the delays only grow: without animations all lines are there
    // at once.
    let mut at = 0.0;
    text(&mut out, 0, "command", at, &format!("$ {command}"));
    at = FIRST_SECONDS;
    for (number, line) in lines.iter().enumerate() {
        // An empty line is drawn as nothing; it only makes the reader wait before the next
        // paragraph.
        if line.is_empty() {
            at += PAUSE_SECONDS;
            continue;
        }
        text(&mut out, number + 2, class(line), at, line);
        at += LINE_SECONDS;
    }

    out.push_str("</svg>\n");
    out
}

/// Adds line `number`, which appears `at` so many seconds.
fn text(out: &mut String, number: usize, class: &str, at: f64, line: &str) {
    let y = MARGIN + number * LINE_HEIGHT + LINE_HEIGHT - 5;
    let _ = writeln!(
        out,
        "<text class=\"line {class}\" x=\"{MARGIN}\" y=\"{y}\" style=\"animation-delay:{at:.2}s\" \
         xml:space=\"preserve\">{}</text>",
        escaped(line)
    );
}

/// How a line of output is coloured: by what its verdict says. Prose starts in the first column.
fn class(line: &str) -> &'static str {
    let verdict = line.split_whitespace().nth(1).unwrap_or_default();
    let is_wrong = |verdict: &str| {
        let mut chars = verdict.chars();
        let letter = chars.next().is_some_and(|c| "mxwtrl".contains(c));
        letter && verdict.contains('@') || ["r", "l"].contains(&verdict)
    };
    match line.strip_prefix("  ") {
        None => "plain",
        Some(rest) if rest.starts_with("truth ") || verdict == "." => "right",
        Some(_) if is_wrong(verdict) => "wrong",
        Some(_) => "words",
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in printable(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_escaped_coloured_and_in_order() {
        let image = svg(
            "a \"b\"",
            "Prose & more\n\n  truth  x < y\n  fp  t@1  x < ?\n  dwarf  .  x\n  rsp+8  y\n",
        );

        // Besides the class that animates it, each line has one that is its colour.
        let lines: Vec<&str> = image.lines().filter(|l| l.starts_with("<text")).collect();
        let classes: Vec<&str> = lines
            .iter()
            .map(|l| {
                l.split(['"'])
                    .nth(1)
                    .unwrap_or_default()
                    .trim_start_matches("line ")
            })
            .collect();

        assert_eq!(
            classes,
            ["command", "plain", "right", "wrong", "right", "words"]
        );

        assert!(
            lines[0].ends_with("$ a &quot;b&quot;</text>"),
            "{}",
            lines[0]
        );
        assert!(lines[1].contains("Prose &amp; more") && lines[2].contains("x &lt; y"));

        let at = |line: &str| -> f64 {
            let rest = line.split("animation-delay:").nth(1).unwrap_or_default();
            rest.split('s')
                .next()
                .unwrap_or_default()
                .parse()
                .expect("seconds")
        };

        // No two lines may appear together, or the order of the output would be lost.
        assert!(lines.windows(2).all(|pair| at(pair[0]) < at(pair[1])));

        // The image loads nothing: the one address in it is the name of its format.
        assert!(!image.contains("http://www.w3.org/1999") && image.matches("http").count() == 1);
    }
}
