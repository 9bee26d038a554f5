//! `demo`: built-in recordings, which need no file.

use super::status::Status;
use super::{output, suggest};
use anyhow::{Result, bail};
use std::io::Write;
use std::path::PathBuf;
use unwind_sim_show::cast;
use unwind_sim_show::demo::{ALL, Demo};

/// Play a built-in recording: what you see, why, and what to try next.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim demo
  unwind-sim demo seed-004
  unwind-sim demo seed-004 --step
  unwind-sim demo seed-004 -o seed-004.bin")]
pub(crate) struct Args {
    /// The demo to play. Without it all are listed, and the first is played.
    #[arg(value_name = "NAME", hide_possible_values = true, value_parser = suggest::demos())]
    name: Option<String>,
    /// Write the recording to this file instead.
    #[arg(long, short, value_name = "FILE", requires = "name")]
    output: Option<PathBuf>,
    /// Write the demo as an animated SVG image instead.
    #[arg(long, requires = "name", conflicts_with = "output")]
    svg: bool,
    /// Step through the recording in the terminal, with the walks that the demo tells of.
    #[cfg(feature = "terminal")]
    #[arg(long, requires = "name", conflicts_with_all = ["output", "svg"])]
    step: bool,
    #[cfg(feature = "terminal")]
    #[command(flatten)]
    play: super::step::PlayArgs,
}

/// `tool` is the whole command line, of which `--step` is a part.
pub(crate) fn run(args: Args, tool: &clap::Command) -> Result<Status> {
    let mut out = output::stdout();
    // Without a name, the first demo follows the list.
    let demo = match &args.name {
        None => {
            list(&mut out)?;
            &ALL[0]
        }
        Some(name) => named(name)?,
    };

    #[cfg(feature = "terminal")]
    if args.step {
        return super::step::demo(demo, args.play, tool);
    }
    #[cfg(not(feature = "terminal"))]
    let _ = tool;
    // Refused, not ignored: the demo would be shown as if the script had no effect.
    #[cfg(feature = "terminal")]
    if args.play.is_given() {
        bail!("--script plays keys of the stepper: unwind-sim demo NAME --step --script FILE");
    }

    if args.svg {
        // SVG is for other programs, so it is not escaped for a person.
        let mut out = output::raw_stdout();
        let command = format!("unwind-sim demo {}", demo.name);
        write!(out, "{}", cast::svg(&command, &demo.show()?))?;
        out.flush()?;
        return Ok(Status::AsExpected);
    }

    // With --output the recording is written, not shown.
    match &args.output {
        None => write!(out, "{}", demo.show()?)?,
        path => {
            let write = |out: &mut dyn Write| Ok(out.write_all(demo.recording)?);
            output::to_file_or(path.as_deref(), std::io::sink(), write)?;
        }
    }

    out.flush()?;
    Ok(Status::AsExpected)
}

/// Lists the demos, before the first one is played.
fn list(out: &mut dyn Write) -> Result<()> {
    for demo in &ALL {
        writeln!(out, "{:<10} {}", demo.name, demo.about)?;
    }
    writeln!(
        out,
        "\nunwind-sim demo NAME plays one, and with --step you walk through it. This is the first, {}:\n",
        ALL[0].name
    )?;
    Ok(())
}

fn named(name: &str) -> Result<&'static Demo> {
    if let Some(demo) = ALL.iter().find(|demo| demo.name == name) {
        return Ok(demo);
    }
    let names: Vec<&str> = ALL.iter().map(|demo| demo.name).collect();
    bail!(
        "unknown demo `{name}`: {}",
        suggest::not_one_of(name, &names)
    )
}
