//! `tables check`: proves the rows of files from their code.

use super::super::args::threads;
use super::super::error_text::message;
use super::super::output::{self, tell};
use super::super::status::Status;
use super::super::stdin;
use super::super::suggest::not_one_of;
use super::{open, sweep};
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use unwind_sim_recordings::open;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_tables::check::{Options, Report, check};
use unwind_sim_tables::proof::claims::{Claims, UserChoice};
use unwind_sim_tables::proof::verdict::{Assumption, Assumptions};
use unwind_sim_tables::selftest;
use unwind_sim_unwind::convention::Convention;
use unwind_sim_unwind::regs::{Reg, RegMask};
use unwind_sim_view::sweep::list::Shard;
use unwind_sim_view::tables::{
    KnownRows, ProofDetail, Sarif, write_proof, write_proof_json, write_score,
};

/// Maximum size of a file for `--baseline`, bytes.
const BASELINE_BYTES_MAX: u64 = 4 << 30;

/// Prove every row of a file's unwind tables from the code, without running it.
///
/// Each function's code is followed along all of its ways, with what is known of registers and of
/// the stack; at each instruction, what the rows say must be what the code has done. A function is
/// proven, contradicted (a row is wrong, on a way that is shown) or unproven (with the reason).
///
/// Functions with wrong rows are shown by cause and author: one of them with its code, and the names of
/// others. A group also says whether docs/findings.md knows such rows.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Proofs rest on named assumptions; docs/static-proof.md says what breaks each of them.

Examples:
  unwind-sim tables check /usr/bin/git
  unwind-sim tables check --explain --limit 1 ./prog
  unwind-sim tables check --all ./prog
  unwind-sim tables check --unproven /lib64/ld-linux-x86-64.so.2
  unwind-sim tables check --assume callees,stores ./prog.o
  unwind-sim tables check --abi ocaml --claims cfa,ra ./stripped
  unwind-sim tables check --json /usr/lib/x86_64-linux-gnu/*.so
  unwind-sim tables check --baseline known.json ./prog
  unwind-sim tables check --sarif ./prog > prog.sarif
  unwind-sim tables check --self-test 1000 /usr/bin/git
  unwind-sim tables check --files list.txt --shard 1/4 --out part-1.jsonl")]
pub(crate) struct Args {
    /// Executables, shared objects, relocatable objects; - for standard input.
    #[arg(value_name = "ELF", required_unless_present = "files", value_parser = stdin::recording(), value_hint = clap::ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
    /// Check the files of this list (- for standard input), one a line or each ended by a NUL byte,
    /// with the name of its package behind a tab. A file that cannot be read is a row of --out.
    #[arg(
        long,
        value_name = "LIST",
        requires = "out",
        conflicts_with_all = ["paths", "limit", "all", "unproven", "explain", "baseline", "self_test", "json", "sarif"]
    )]
    files: Option<PathBuf>,
    /// For --files: only shard K of N. Files are dealt out in the list's order, there and back, so
    /// list the largest first.
    #[arg(long, value_name = "K/N", default_value = "1/1", requires = "files")]
    shard: Shard,
    /// For --files: write a row for each function, finding and file to FILE (- for standard output).
    /// An interrupted run goes on where it was.
    #[arg(
        long,
        value_name = "FILE",
        requires = "files",
        conflicts_with = "paths"
    )]
    out: Option<PathBuf>,
    /// For --files: the form of the rows.
    #[arg(long, value_enum, default_value = "json", requires = "files")]
    format: sweep::Format,
    /// What proofs may rest on: all, none, or names.
    #[arg(
        long,
        value_name = "NAME[,NAME..]",
        value_delimiter = ',',
        default_value = "all"
    )]
    assume: Vec<String>,
    /// The convention of all functions, instead of what the file says of each.
    #[arg(long, value_name = "NAME")]
    abi: Option<String>,
    /// The claims to judge in all functions, instead of those that the convention makes: cfa, ra, rbp,
    /// callee-saved. cfa must be one of them.
    #[arg(long, value_name = "NAME[,NAME..]", value_delimiter = ',')]
    claims: Vec<String>,
    /// Show at most this many causes of wrong rows (20, unless --all), and this many missed defects.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Show every function with wrong rows, and all of these rows, not one function for each cause.
    #[arg(long)]
    all: bool,
    /// Also list every function that is not proven.
    #[arg(long)]
    unproven: bool,
    /// Show the way from the function's entry to each contradiction.
    #[arg(long)]
    explain: bool,
    /// The number of threads; 0 means one for each processor.
    #[arg(long, value_name = "N", default_value = "0", value_parser = threads)]
    threads: usize,
    /// Exit with 1 only for wrong rows that are not in this earlier --json output. Rows are compared
    /// by function and distance from its start.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Put this many defects into proven rows, one after the other, and count those that are
    /// contradicted there.
    #[arg(long, value_name = "N", conflicts_with_all = ["json", "sarif", "baseline"])]
    self_test: Option<NonZeroUsize>,
    /// For --self-test: chooses the defects.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "self_test")]
    seed: u64,
    /// JSON Lines instead of text.
    #[arg(long)]
    json: bool,
    /// Contradictions as SARIF 2.1.0 instead of text.
    #[arg(long, conflicts_with = "json")]
    sarif: bool,
}

/// How many causes are shown.
const LIMIT: usize = 20;

fn assumptions(names: &[String]) -> Result<Assumptions> {
    let mut set = Assumptions::NONE;
    for name in names {
        match name.as_str() {
            "all" => set = Assumptions::ALL,
            "none" => {}
            name => {
                let known = Assumption::ALL.into_iter().find(|a| a.as_str() == name);
                let known = known.ok_or_else(|| {
                    let names = Assumption::ALL.map(Assumption::as_str);
                    let known = [&["all", "none"][..], &names].concat();
                    anyhow::anyhow!("--assume: `{name}` is {}", not_one_of(name, &known))
                })?;
                set.add(known);
            }
        }
    }
    Ok(set)
}

fn choice(abi: Option<&str>, claims: &[String]) -> Result<UserChoice> {
    let convention = abi.map(|name| {
        Convention::from_name(name).ok_or_else(|| {
            let known = Convention::ALL.map(Convention::as_str);
            anyhow::anyhow!("--abi: `{name}` is {}", not_one_of(name, &known))
        })
    });
    Ok(UserChoice {
        convention: convention.transpose()?,
        claims: match claims {
            [] => None,
            names => Some(chosen(names)?),
        },
    })
}

/// `--claims`.
fn chosen(names: &[String]) -> Result<Claims> {
    const KNOWN: [&str; 4] = ["cfa", "ra", "rbp", "callee-saved"];
    let (mut cfa, mut return_address) = (false, false);
    let mut registers = RegMask::NONE;
    for name in names {
        match name.as_str() {
            "cfa" => cfa = true,
            "ra" => return_address = true,
            "rbp" => registers = registers.with(Reg::Rbp),
            "callee-saved" => {
                registers = Reg::CALLEE_SAVED.into_iter().fold(registers, RegMask::with);
            }
            name => bail!("--claims: `{name}` is {}", not_one_of(name, &KNOWN)),
        }
    }
    if !cfa {
        bail!("--claims: `cfa` is missing; where everything else lies depends on it");
    }
    Ok(Claims::chosen(return_address, registers))
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let available = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let options = Options {
        threads: match args.threads {
            0 => available(),
            threads => threads,
        },
        assume: assumptions(&args.assume)?,
        choice: choice(args.abi.as_deref(), &args.claims)?,
    };

    // A sweep records files that cannot be read as rows, and goes on after an interruption; nothing
    // below does.
    if let (Some(files), Some(out)) = (&args.files, &args.out) {
        return sweep::run(files, args.shard, out, args.format, &options);
    }

    let shown = ProofDetail {
        groups: args
            .limit
            .unwrap_or(if args.all { usize::MAX } else { LIMIT }),
        all: args.all,
        unproven: args.unproven,
        explain: args.explain,
    };

    // Read before any file is checked, so that a wrong baseline is an error at once.
    let known = match &args.baseline {
        None => None,
        Some(path) => {
            let of = || path.printable().to_string();
            let text = open::read_text(path, BASELINE_BYTES_MAX).with_context(of)?;
            Some(KnownRows::read(&text).with_context(of)?)
        }
    };

    let mut sarif = args.sarif.then(Sarif::default);
    let mut out = if args.sarif {
        // SARIF is one document for other programs, whose bytes are not to be escaped.
        output::raw_stdout()
    } else {
        output::stdout()
    };
    let mut status = Status::NothingJudged;

    let mut unread = 0;
    for path in &args.paths {
        let file = match open(path).map_err(anyhow::Error::from) {
            Ok(file) => file,
            Err(error) if args.paths.len() == 1 => return Err(error),
            // Among the files that a pattern matches may be scripts of a linker, and links to nothing.
            Err(error) => {
                unread += 1;
                tell!("unwind-sim: {}", message(&error));
                continue;
            }
        };
        for error in file.unpack_errors() {
            tell!("{}: {error}", file.name());
        }

        // Defects are planted, so what the file itself has is not reported.
        if let Some(defects) = args.self_test {
            let options = selftest::Options {
                seed: args.seed,
                defects: defects.get(),
                choice: options.choice,
            };
            if let Some(score) = selftest::run(&file, &options) {
                write_score(&file, &score, args.limit.unwrap_or(LIMIT), &mut out)?;
                if score.total().all() > 0 {
                    status = Status::AsExpected;
                }
            }
            continue;
        }

        let mut report = check(&file, &options);

        // Known rows are neither shown nor part of the status.
        if let Some(known) = &known {
            known.take_out(&file, &mut report);
        }
        // Noted before the output: a reader that goes away after the first line gets the right
        // status.
        status = worse(status, &report).known();
        match &mut sarif {
            Some(sarif) => sarif.add(&file, &report),
            None if args.json => write_proof_json(&file, &report, &mut out)?,
            None => write_proof(&file, &report, shown, &mut out)?,
        }
    }

    // One log for all files, so it cannot be written before the last one.
    if let Some(sarif) = sarif {
        sarif.write(&mut out)?;
    }

    out.flush()?;
    if unread > 0 {
        bail!(
            "{unread} of {} files could not be checked; why is said above",
            args.paths.len()
        );
    }
    Ok(status)
}

fn worse(status: Status, report: &Report) -> Status {
    let totals = report.totals();
    match status {
        Status::Difference => status,
        _ if totals.contradicted.functions > 0 => Status::Difference,
        _ if !report.index.is_empty() => Status::Difference,
        Status::NothingJudged if totals.all.functions > 0 => Status::AsExpected,
        status => status,
    }
}
