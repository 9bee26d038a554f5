//! `unwinders`: lists the unwinders, their profiles, and what each needs.

use super::output;
use super::status::Status;
use anyhow::Result;
use std::io::Write;
use std::path::Path;
use unwind_sim_judge::own::Adapter;
use unwind_sim_judge::unwinders::{self, Described};
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_view::json::Line;

/// List the unwinders: names, profiles, which are ready, and what each needs.
///
/// Ours are always ready; what they need must be in the recording. Those of others need a program
/// that is built from a checkout: FOLDER is the folder of this program, or one in PATH.
///
/// On the command line an unwinder is written NAME[:PROFILE][+FALLBACK], and your own cmd:PROGRAM.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim unwinders
  unwind-sim unwinders --json")]
pub(crate) struct Args {
    /// JSON Lines instead of text.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let mut out = output::stdout();
    for unwinder in unwinders::all() {
        if args.json {
            Line::unwinder(&unwinder).write(&mut out)?;
        } else {
            text(&unwinder, &mut out)?;
        }
    }

    for adapter in Adapter::ALL {
        let path = adapter.path();
        if args.json {
            Line::adapter(&adapter, path.as_deref()).write(&mut out)?;
        } else {
            adapter_text(&adapter, path.as_deref(), &mut out)?;
        }
    }

    // JSON lists what there is; this is only advice.
    if !args.json {
        writeln!(
            out,
            "cmd:PROGRAM   your own, in any language: docs/own-unwinders.md"
        )?;
    }

    out.flush()?;
    Ok(Status::AsExpected)
}

/// An adapter: where it is, or how it is built.
fn adapter_text(
    adapter: &Adapter,
    path: Option<&Path>,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let name = format!("cmd:{}", adapter.name);
    writeln!(out, "{name:<13} {}", adapter.about)?;
    match path {
        Some(path) => writeln!(out, "{:13} ready: {}", "", path.printable()),
        None => writeln!(
            out,
            "{:13} not ready: {}; needs {}",
            "",
            adapter.build(),
            adapter.needs
        ),
    }
}

fn text(unwinder: &Described, out: &mut dyn Write) -> std::io::Result<()> {
    // Taken apart without `..`, so that a new field cannot be forgotten here.
    let Described {
        name,
        about,
        profiles,
        registers,
        tables,
        needs_stack,
        needs_branches,
        may_fall_back,
    } = unwinder;
    writeln!(out, "{name:<13} {about}")?;

    let mut needs = vec![registers.join(" ")];
    if *needs_stack {
        needs.push("the stack".to_owned());
    }
    if !tables.is_empty() {
        needs.push((*tables).to_owned());
    }
    if *needs_branches {
        needs.push("branch records".to_owned());
    }

    writeln!(out, "{:13} ready; needs {}", "", needs.join("; "))?;
    if !profiles.is_empty() {
        writeln!(out, "{:13} profiles: {}", "", profiles.join(", "))?;
    }
    if *may_fall_back {
        writeln!(
            out,
            "{:13} takes a fallback, such as {name}+fp, and can be one",
            ""
        )?;
    }
    Ok(())
}
