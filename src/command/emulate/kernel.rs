//! `emulate --kernel`: boots a kernel in the emulated machine.

use super::{Args, StatusOf};
use crate::command::boot::BootFiles;
use crate::command::output::{self, tell};
use crate::command::status::Status;
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::io::{self, Write};
use unwind_sim_emulator::system::devices::Unknown;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::hex::hex;
use unwind_sim_record::boot::{self, BootRun, BootRunError};
use unwind_sim_record::emulate::Bounds;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_view::json::{BootLine, ConsoleLine, Line, UnknownLine};

/// How many of the registers, ports and addresses that do not exist are named.
const UNKNOWN_MAX: usize = 8;
/// Maximum length of a line of the console in JSON, bytes; a longer one becomes several.
const LINE_BYTES_MAX: usize = 4096;

pub(super) fn run(args: &Args) -> Result<Status> {
    refuse(args)?;
    let files = args.boot.open()?;
    let machine = &args.machine;
    let clock = u64::try_from(machine.clock()).context("--clock")?;
    let boot = files.boot(machine.cpu().processor(), machine.seed(), clock);
    let bounds = Bounds {
        instructions_max: machine.max_instructions,
        timeout: machine.timeout(),
    };

    let mut out = output::raw_stdout();
    let mut lines = Lines::default();
    let mut console = |bytes: &[u8]| -> io::Result<()> {
        if args.json {
            lines.write(bytes, &mut out)?;
        } else {
            out.write_all(bytes)?;
        }
        // A reader may wait for the line before it goes on.
        out.flush()
    };

    let run = boot::run(&boot, bounds, &mut console);
    let run = match run {
        // Not with a context: a reader that went away is not an error.
        Err(BootRunError::Console(error)) => return Err(error.into()),
        run => run.with_context(|| files.path().printable().to_string())?,
    };
    let place = run.end.rip().and_then(|rip| files.place(rip));
    if args.json {
        lines.finish(&mut out)?;
        summary(&run, place.clone()).write(&mut out)?;
        out.flush()?;
    }
    drop(out);

    tell_end(args, &files, &run, place.as_deref());
    Ok(if run.end.is_end_of_kernel() {
        // How a kernel ends is its own affair: nothing is judged here.
        Status::AsExpected
    } else {
        Status::NothingJudged
    })
}

/// Refuses what only says something of a program.
fn refuse(args: &Args) -> Result<()> {
    if let Some(word) = args.machine.words().first() {
        let word = word.printable();
        bail!(
            "--kernel boots a kernel, which starts the program of --init: unwind-sim emulate --kernel \
             FILE --init {word}"
        );
    }

    let of_program = args.machine.given_for_program();
    let status = (args.status != StatusOf::Run).then_some("--status");
    if let Some(option) = of_program.or(status) {
        bail!(
            "{option} is for programs that run without a kernel; with --kernel there are --init, --initrd, \
             --append, --memory, --console-input, --kaslr, --cpu, --seed, --clock, --max-instructions, \
             --timeout, --stats and --json"
        );
    }
    Ok(())
}

/// Says how the run ended, what the kernel wrote last, and what it looked for in vain.
fn tell_end(args: &Args, files: &BootFiles, run: &BootRun, place: Option<&str>) {
    let place = place.map_or_else(String::new, |place| format!(", in {place}"));
    tell!(
        "unwind-sim: {}{place}, after {} and {:.3} s of the kernel's time",
        run.end,
        counted(run.instructions, "instruction"),
        run.now as f64 / 1e9
    );

    if !run.last_lines.is_empty() {
        let lines = run.last_lines.iter();
        let text = lines.fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "  {line}");
            text
        });
        output::tell_text(&format!("the console's last lines:\n{text}"));
    }

    let unknown = unknown(run);
    if !unknown.is_empty() {
        let named = unknown.iter().take(UNKNOWN_MAX);
        let named: Vec<String> = named.map(unknown_text).collect();
        let more = match unknown.len().saturating_sub(UNKNOWN_MAX) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        tell!("not in the machine: {}{more}", named.join(", "));
    }

    if args.stats {
        tell!(
            "{} in {:.3} s, {:.1} million a second",
            counted(run.instructions, "instruction"),
            run.time.as_secs_f64(),
            run.mips()
        );
        tell!("{} MiB of memory", files.memory() >> 20);
    }
}

fn unknown_text(of: &UnknownLine) -> String {
    let kind = match of.kind {
        "register" => "register",
        "port-read" => "read of port",
        "port-write" => "write to port",
        "memory-read" => "read of address",
        _ => "write to address",
    };
    format!("{kind} {} ({})", of.address, of.count)
}

/// What the kernel asked for and is not there.
fn unknown(run: &BootRun) -> Vec<UnknownLine> {
    let registers = run.unknown_registers.iter();
    let registers = registers.map(|&(register, count)| ("register", u64::from(register), count));
    let accesses = run.unknown_accesses.iter().map(|&(access, count)| {
        let (kind, address) = match access {
            Unknown::PortRead(port) => ("port-read", port.into()),
            Unknown::PortWrite(port) => ("port-write", port.into()),
            Unknown::MmioRead(address) => ("memory-read", address),
            Unknown::MmioWrite(address) => ("memory-write", address),
        };
        (kind, address, count)
    });
    let all = registers.chain(accesses);
    all.map(|(kind, address, count)| UnknownLine {
        kind,
        address: hex(address),
        count,
    })
    .collect()
}

fn summary(run: &BootRun, place: Option<String>) -> Line {
    Line::Boot(Box::new(BootLine {
        schema: SCHEMA,
        end: run.end.as_str(),
        text: run.end.to_string(),
        rip: run.end.rip().map(hex),
        place,
        instructions: run.instructions,
        time: run.now,
        console: run.last_lines.clone(),
        unknown: unknown(run),
    }))
}

/// Writes the lines of a console as JSON.
#[derive(Default)]
struct Lines {
    /// The line that has not ended yet.
    line: Vec<u8>,
}

impl Lines {
    fn write(&mut self, bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
        for &byte in bytes {
            match byte {
                b'\n' => self.end(out)?,
                _ => self.line.push(byte),
            }
            if self.line.len() == LINE_BYTES_MAX {
                self.end(out)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        match self.line.is_empty() {
            true => Ok(()),
            false => self.end(out),
        }
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        // A serial line ends lines with both.
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        let line = Line::Console(ConsoleLine {
            schema: SCHEMA,
            text: String::from_utf8_lossy(line).into_owned(),
        });
        line.write(out)
    }
}
