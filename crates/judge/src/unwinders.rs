//! The table of unwinders, from which names, profiles, default sets, help and errors are made.
//!
//! A new unwinder needs one row here and its own folder. The grammar of the command line is in
//! `spec.rs`.

use crate::engine::Engine;
use unwind_sim_unwind::derived::Tables;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::fp::FramePointer;
use unwind_sim_unwind::kernel::{KernelUnwinder, UnwinderKind, Version};
use unwind_sim_unwind::lbr;
use unwind_sim_unwind::orc::{Encoding, Orc};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::sframe::{Profile, Sframe};
use unwind_sim_unwind::unwinder::{Guess, Lbr};

/// A row of the table.
pub(crate) struct Entry {
    /// The name on the command line. One that ends in `:kernel` is Linux's own unwinder.
    pub(crate) name: &'static str,
    about: &'static str,
    /// The sections it reads; empty if it needs no table.
    tables: &'static str,
    /// A bit set of the sets that it belongs to, such as [`DEFAULT`].
    sets: u8,
    /// The profiles as listed. `N` stands for a number.
    profiles: fn() -> Vec<String>,
    /// The unwinder with a profile; `None` if there is no such profile.
    make: fn(Option<&str>) -> Option<Engine>,
    /// A text with the profiles, for errors.
    known: fn() -> String,
}

const IN_ALL: u8 = 1;
const IN_DEFAULT: u8 = 1 << 1;
const IN_KERNEL: u8 = 1 << 2;
/// Reads a table of the image.
const READS_TABLE: u8 = 1 << 3;
/// Finds rules, which the walk applies.
const FINDS_RULES: u8 = 1 << 4;
/// Cannot be right everywhere: its errors do not affect the exit status.
const MAY_ERR: u8 = 1 << 5;
/// Takes any word that looks like a return address: what it reads proves nothing.
const SCANS: u8 = 1 << 6;

const TABLE: u8 = IN_ALL | IN_DEFAULT | READS_TABLE | FINDS_RULES;

const UNWINDERS: [Entry; 9] = [
    Entry {
        name: "dwarf",
        about: "DWARF call frame information",
        tables: ".eh_frame, .debug_frame",
        sets: TABLE,
        profiles: Vec::new,
        make: |profile| plain(profile, || table(Dwarf::new())),
        known: || "none".to_owned(),
    },
    Entry {
        name: "sframe",
        about: "SFrame, versions 1 to 3",
        tables: ".sframe, else derived from .eh_frame",
        sets: TABLE,
        profiles: || owned(&Profile::ALL.map(Profile::as_str)),
        make: |profile| {
            let profile = profile.map_or(Some(Profile::default()), Profile::from_name)?;
            Some(table(Sframe::new(profile, Tables::default())))
        },
        known: || Profile::ALL.map(Profile::as_str).join(", "),
    },
    Entry {
        name: "orc",
        about: "ORC, as kernels use it",
        tables: ".orc_unwind and .orc_unwind_ip, else derived from .eh_frame",
        sets: TABLE,
        profiles: || owned(&Encoding::ALL.map(Encoding::as_str)),
        make: |profile| {
            let encoding = match profile {
                Some(version) => Some(Encoding::from_kernel_version(version)?),
                None => None,
            };
            Some(table(Orc::new(encoding, Tables::default())))
        },
        known: || "the kernel versions with a new layout: 4.14, 5.12, 6.3, 6.4, 7.1".to_owned(),
    },
    Entry {
        name: "fp",
        about: "frame pointers",
        tables: "",
        sets: IN_ALL | IN_DEFAULT | FINDS_RULES | MAY_ERR,
        profiles: Vec::new,
        make: |profile| plain(profile, || table(FramePointer)),
        known: || "kernel and kernel-VERSION".to_owned(),
    },
    Entry {
        name: "guess",
        about: "every word of the stack that is a code address",
        tables: "",
        sets: IN_ALL | IN_DEFAULT | MAY_ERR | SCANS,
        profiles: Vec::new,
        make: |profile| plain(profile, || Engine::Other(Box::new(Guess))),
        known: || "kernel and kernel-VERSION".to_owned(),
    },
    Entry {
        name: "lbr",
        about: "the processor's branch records in call-stack mode",
        tables: "",
        sets: IN_ALL | MAY_ERR,
        profiles: || owned(&["N", "stitch", "N-stitch"]),
        make: |profile| Some(Engine::Other(Box::new(Lbr::new(lbr_options(profile)?)))),
        known: || "a depth such as 8, stitch, and both, such as 8-stitch".to_owned(),
    },
    Entry {
        name: "orc:kernel",
        about: "Linux's own ORC unwinder, for a kernel's stacks",
        tables: ".orc_unwind and .orc_unwind_ip of the kernel",
        sets: IN_KERNEL,
        profiles: kernel_profiles,
        make: |version| kernel(UnwinderKind::Orc, version),
        known: kernel_known,
    },
    Entry {
        name: "fp:kernel",
        about: "Linux's own frame-pointer unwinder, for a kernel's stacks",
        tables: "",
        sets: IN_KERNEL,
        profiles: kernel_profiles,
        make: |version| kernel(UnwinderKind::Fp, version),
        known: kernel_known,
    },
    Entry {
        name: "guess:kernel",
        about: "Linux's own scan, for a kernel's stacks",
        tables: "",
        sets: IN_KERNEL,
        profiles: kernel_profiles,
        make: |version| kernel(UnwinderKind::Guess, version),
        known: kernel_known,
    },
];

/// The unwinders that `--unwinder all` stands for.
pub const ALL: [&str; count(IN_ALL)] = names(IN_ALL);
/// The default where one unwinder is needed, and the reference of a comparison.
pub const REFERENCE: &str = ALL[0];
/// The unwinders used by default.
pub const DEFAULT: [&str; count(IN_DEFAULT)] = names(IN_DEFAULT);
/// Linux's own unwinders, which `all` stands for on kernel stacks.
pub const KERNEL: [&str; count(IN_KERNEL)] = names(IN_KERNEL);
/// The unwinders that read a table of the image.
pub const TABLES: [&str; count(READS_TABLE)] = names(READS_TABLE);
/// The unwinders that find rules. Their results depend on no words other than those of true frames.
pub const FINDERS: [&str; count(FINDS_RULES)] = names(FINDS_RULES);

/// The unwinders whose errors are expected.
const EXPECTED_TO_ERR: [&str; count(MAY_ERR)] = names(MAY_ERR);

/// Whether the errors of the unwinder of this name, with or without a profile and a fallback, are
/// expected.
pub(crate) fn may_err(name: &str) -> bool {
    let plain = name.split([':', '+']).next().unwrap_or(name);
    EXPECTED_TO_ERR.contains(&plain)
}

/// Whether the unwinder of this name, with or without a profile, scans the stack.
pub(crate) fn is_scan(name: &str) -> bool {
    let plain = name.split(':').next().unwrap_or(name);
    entry(plain).is_some_and(|entry| entry.sets & SCANS != 0)
}

const fn count(set: u8) -> usize {
    let (mut number, mut row) = (0, 0);
    while row < UNWINDERS.len() {
        number += (UNWINDERS[row].sets & set != 0) as usize;
        row += 1;
    }
    number
}

const fn names<const N: usize>(set: u8) -> [&'static str; N] {
    let mut names = [""; N];
    let (mut number, mut row) = (0, 0);
    while row < UNWINDERS.len() {
        if UNWINDERS[row].sets & set != 0 {
            names[number] = UNWINDERS[row].name;
            number += 1;
        }
        row += 1;
    }
    names
}

/// The row with this name.
pub(crate) fn entry(name: &str) -> Option<&'static Entry> {
    const ROWS: &[Entry] = &UNWINDERS;
    ROWS.iter().find(|entry| entry.name == name)
}

impl Entry {
    /// The profiles as listed.
    pub(crate) fn profiles(&self) -> Vec<String> {
        (self.profiles)()
    }

    /// Makes the unwinder with a profile.
    ///
    /// # Errors
    /// A text with the profiles that it has.
    pub(crate) fn engine(&self, profile: Option<&str>) -> Result<Engine, String> {
        (self.make)(profile).ok_or_else(self.known)
    }
}

fn plain(profile: Option<&str>, make: impl FnOnce() -> Engine) -> Option<Engine> {
    profile.is_none().then(make)
}

fn table(finder: impl Finder + 'static) -> Engine {
    Engine::Table(Box::new(finder))
}

/// Linux's own unwinder, for the recording's version or for `-VERSION`.
fn kernel(kind: UnwinderKind, version: Option<&str>) -> Option<Engine> {
    let version = match version.unwrap_or_default() {
        "" => None,
        version => Some(Version::from_name(version.strip_prefix('-')?)?),
    };
    Some(Engine::Kernel(KernelUnwinder::new(kind, version, None)))
}

fn kernel_profiles() -> Vec<String> {
    let versions = Version::NAMES.iter();
    versions.map(|v| format!("kernel-{v}")).collect()
}

fn kernel_known() -> String {
    let versions = Version::NAMES.join(", ");
    format!("kernel, and kernel-VERSION, such as {versions}")
}

/// Parses `DEPTH`, `stitch`, `DEPTH-stitch`, or nothing.
fn lbr_options(profile: Option<&str>) -> Option<lbr::LbrOptions> {
    let mut options = lbr::LbrOptions::default();
    let Some(profile) = profile else {
        return Some(options);
    };
    let depth = match profile.strip_suffix("stitch") {
        Some("") => {
            return Some(lbr::LbrOptions {
                stitch: true,
                ..options
            });
        }
        Some(depth) => {
            options.stitch = true;
            depth.strip_suffix('-')?
        }
        None => profile,
    };
    options.depth = Some(depth.parse().ok().filter(|&depth| depth > 0)?);
    Some(options)
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

/// An unwinder, as `unwind-sim unwinders` lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Described {
    /// Its name on the command line.
    pub name: &'static str,
    /// A short description.
    pub about: &'static str,
    /// The names that may follow `name:`; `N` stands for a number.
    pub profiles: Vec<String>,
    /// The registers that it carries from frame to frame.
    pub registers: Vec<&'static str>,
    /// The sections it reads; empty if it needs no table.
    pub tables: &'static str,
    /// Whether it reads the stack.
    pub needs_stack: bool,
    /// Whether it needs branch records.
    pub needs_branches: bool,
    /// Whether it can have and be a fallback (`NAME+FALLBACK`).
    pub may_fall_back: bool,
}

/// Every unwinder except `cmd:PROGRAM`.
pub fn all() -> Vec<Described> {
    let described = UNWINDERS.into_iter().filter_map(|entry| {
        let engine = entry.engine(None).ok()?;
        Some(Described {
            name: entry.name,
            about: entry.about,
            profiles: (entry.profiles)(),
            registers: registers(&engine),
            tables: entry.tables,
            needs_stack: engine.needs_stack(),
            // What does not read the stack reads branch records.
            needs_branches: !engine.needs_stack(),
            may_fall_back: engine.finder().is_some(),
        })
    });
    described.collect()
}

/// The registers that a walk carries, or, for an unwinder that finds no rules, those that it starts
/// with.
fn registers(engine: &Engine) -> Vec<&'static str> {
    let first = [Reg::Rip, Reg::Rsp];
    let carried = match (engine, engine.finder()) {
        (_, Some(finder)) => {
            let carries = finder.carries();
            let all = Reg::CALLEE_SAVED.into_iter();
            all.filter(|reg| carries.contains(*reg)).collect()
        }
        (Engine::Kernel(_), None) => vec![Reg::Rbp],
        _ => Vec::new(),
    };
    let needed = first
        .into_iter()
        .filter(|r| engine.needs_stack() || *r == Reg::Rip);
    needed.chain(carried).map(Reg::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec;

    /// Every listed name is valid, and the names of `all` and the defaults are listed.
    #[test]
    fn every_name_and_profile_is_one() {
        let all = all();
        for unwinder in &all {
            for profile in &unwinder.profiles {
                // The profiles of `orc:kernel` begin with `kernel` themselves; `N` is the depth of
                // `lbr`.
                let plain = unwinder.name.trim_end_matches(":kernel");
                let name = format!("{plain}:{}", profile.replace('N', "8"));
                assert!(spec::engine(&name).is_ok(), "{name}");
            }

            // What is said in the list must be what the command line accepts.
            let with_fallback = spec::engine(&format!("{}+fp", unwinder.name));
            assert_eq!(
                with_fallback.is_ok(),
                unwinder.may_fall_back,
                "{unwinder:?}"
            );
        }

        let names: Vec<&str> = all.iter().map(|u| u.name).collect();

        // The order counts: the list is what `all` stands for, and then the kernel's unwinders.
        let known = ALL.iter().chain(&KERNEL).copied();
        assert_eq!(names, known.collect::<Vec<_>>());

        let dwarf = &all[0];
        assert_eq!(
            dwarf.registers,
            ["rip", "rsp", "rbx", "rbp", "r12", "r13", "r14", "r15"]
        );

        let lbr = all.iter().find(|u| u.name == "lbr").expect("lbr");
        assert!(!lbr.needs_stack && lbr.needs_branches);
        assert_eq!(lbr.registers, ["rip"]);
    }
}
