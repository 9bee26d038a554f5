//! Manual pages: one for the program and one for each subcommand, which refer to each other.

use super::statuses;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// The section of commands.
const SECTION: &str = "1";
/// The package, for the foot of a page.
const SOURCE: &str = concat!("unwind-sim ", env!("CARGO_PKG_VERSION"));
/// What separates the examples from the rest of a help text.
const EXAMPLES: &str = "Examples:\n";

/// A manual page.
pub(super) struct Page {
    /// The name of its file.
    pub(super) file: String,
    /// Its text.
    pub(super) roff: Vec<u8>,
}

/// A command, its place among the others, and the name of its page.
struct Place<'a> {
    command: &'a Command,
    /// The words behind the program's name.
    path: String,
    /// The page of the command that it is a subcommand of.
    parent: Option<String>,
}

/// The pages of a command line, that of the program first.
pub(super) fn pages(mut program: Command) -> Vec<Page> {
    program.build();
    let mut places = Vec::new();
    collect(&program, "", None, &mut places);
    places.iter().map(page).collect()
}

fn collect<'a>(command: &'a Command, path: &str, parent: Option<String>, out: &mut Vec<Place<'a>>) {
    out.push(Place {
        command,
        path: path.to_owned(),
        parent,
    });
    for below in subcommands(command) {
        let path = format!("{path} {}", below.get_name());
        collect(below, path.trim_start(), Some(name(command)), out);
    }
}

/// The subcommands with a page: all but `help`.
fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|c| c.get_name() != "help")
}

/// The name of the page, such as `unwind-sim-tables-check`.
fn name(command: &Command) -> String {
    let name = command.get_display_name().unwrap_or(command.get_name());
    name.to_owned()
}

fn page(place: &Place<'_>) -> Page {
    let name = name(place.command);
    // Notes and examples are one text in the help, but sections of their own in a page.
    let about = place.command.get_after_help().map(ToString::to_string);
    let (notes, examples) = parts(about.unwrap_or_default());
    // `help` has no page, so it is not among the subcommands.
    let command = place.command.clone().disable_help_subcommand(true);
    let command = command.mut_subcommands(|sub| match sub.get_name() {
        "help" => sub.hide(true),
        _ => sub,
    });

    let man = Man::new(command)
        .title(&name)
        .section(SECTION)
        .source(SOURCE);

    let mut out = Vec::new();
    // Not `Man::render`, which would write notes and examples as one section.
    let whole = [
        Man::render_title,
        Man::render_name_section,
        Man::render_synopsis_section,
        Man::render_description_section,
        Man::render_options_section,
    ];
    for render in whole {
        render(&man, &mut out).expect("a vector takes all");
    }

    if subcommands(place.command).next().is_some() {
        man.render_subcommands_section(&mut out)
            .expect("a vector takes all");
    }

    // What clap does not know: it is added in the form of its own sections.
    let mut rest = Roff::new();
    section(&mut rest, "NOTES", &notes, true);
    section(&mut rest, "EXAMPLES", &examples, false);
    exit_status(&mut rest, &place.path);
    see_also(&mut rest, place);
    rest.to_writer(&mut out).expect("a vector takes all");

    Page {
        file: format!("{name}.{SECTION}"),
        roff: out,
    }
}

/// Divides what follows the options in a help text into the examples and the rest.
fn parts(text: String) -> (String, String) {
    let Some((before, after)) = text.split_once(EXAMPLES) else {
        return (text, String::new());
    };
    let (examples, behind) = after.split_once("\n\n").unwrap_or((after, ""));
    let notes = format!("{}\n\n{behind}", before.trim_end());
    (notes.trim().to_owned(), examples.to_owned())
}

/// A section of text, filled or as it is. A line that starts with a blank is a line of its own, too,
/// where text is filled.
fn section(out: &mut Roff, heading: &str, text: &str, is_filled: bool) {
    if text.is_empty() {
        return;
    }
    out.control("SH", [heading]);
    if !is_filled {
        out.control("nf", []);
    }
    for line in text.lines() {
        out.text([roman(line)]);
    }
    if !is_filled {
        out.control("fi", []);
    }
}

fn exit_status(out: &mut Roff, path: &str) {
    out.control("SH", ["EXIT STATUS"]);
    for (status, meaning) in statuses::of(path) {
        out.control("TP", []);
        out.text([bold(status)]);
        out.text([roman(meaning)]);
    }
}

/// The page above this one, and those below.
fn see_also(out: &mut Roff, place: &Place<'_>) {
    let below = subcommands(place.command).map(name);
    let pages: Vec<String> = place.parent.iter().cloned().chain(below).collect();
    out.control("SH", ["SEE ALSO"]);
    for (number, page) in pages.iter().enumerate() {
        let comma = if number + 1 < pages.len() { "," } else { "" };
        out.text([bold(page), roman(format!("({SECTION}){comma}"))]);
    }
}
