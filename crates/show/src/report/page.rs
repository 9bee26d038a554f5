//! The frame of a page: head, policy, style, legend, script.

use super::assets::{SCRIPT, STYLE, policy};
use super::words::clean;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use unwind_sim_unwind::verdict::Verdict;

/// What a page is made of.
pub(super) struct Page {
    /// What it is of.
    pub(super) source: String,
    /// One line of what it shows.
    pub(super) summary: Markup,
    /// The command that makes it again.
    pub(super) command: String,
    /// The content, below the heading.
    pub(super) main: Markup,
    /// The packed entries, if there are any.
    pub(super) packed: Option<[String; 2]>,
}

impl Page {
    /// The page as HTML.
    pub(super) fn html(self) -> String {
        let title = format!("{} · unwind-sim", self.source);

        // The policy comes before everything that it governs. It allows only what is in the page:
        // no address is loaded, so the page can be opened anywhere.
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(policy());
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="referrer" content="no-referrer";
                    title { (title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    a .skip href="#main" { "To the content" }
                    header {
                        h1 { (self.source) }
                        p { (self.summary) }
                        p .note { "Made by " code { (self.command) } }
                        p #theme hidden {
                            label { "Colours " select {
                                option value="" { "as the system" }
                                option value="light" { "light" }
                                option value="dark" { "dark" }
                            } }
                        }
                    }
                    main #main tabindex="-1" { (self.main) }
                    (patterns())
                    @if let Some([texts, lines]) = &self.packed {
                        script type="text/plain" #pieces { (PreEscaped(texts)) }
                        script type="text/plain" #entries { (PreEscaped(lines)) }
                    }
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        };
        lines(&page.into_string())
    }
}

/// Cleans the parts of a page between its lines; only style and script have several.
fn lines(page: &str) -> String {
    let mut out: Vec<String> = page.split('\n').map(clean).collect();
    out.push(String::new());
    out.join("\n")
}

/// The patterns of the flame graphs, so that they do not depend on colour.
fn patterns() -> Markup {
    html! {
        svg .patterns width="0" height="0" aria-hidden="true" focusable="false" { defs {
            pattern #lost width="6" height="6" patternUnits="userSpaceOnUse" {
                rect .lost-ground width="6" height="6" {}
                path .lost-line d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5" {}
            }
            pattern #invented width="6" height="6" patternUnits="userSpaceOnUse" {
                rect .invented-ground width="6" height="6" {}
                circle .invented-dot cx="3" cy="3" r="1.4" {}
            }
        } }
    }
}

/// What the letters and patterns mean.
pub(super) fn legend() -> Markup {
    html! {
        details .legend { summary { "Letters and colours" }
            ul {
                @for (letter, word) in Verdict::WORDS {
                    li { b .(super::words::class(letter)) { (letter) } " " (word) }
                }
            }
            p { "Frames: " b { "=" } " true, " b { "w" } " not the true one, " b { "+" }
                " invented, " b { "-" } " lost, " b { "?" } " not judged." }
        }
    }
}
