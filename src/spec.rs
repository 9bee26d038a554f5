//! Unwinders by name: `NAME[:PROFILE][+FALLBACK]`, `cmd:PROGRAM`.

use crate::engine::Engine;
use crate::own::{CommandUnwinder, StartError};
use unwind_sim_unwind::derived::Tables;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::fp::FramePointer;
use unwind_sim_unwind::kernel::{KernelUnwinder, Kind, Version};
use unwind_sim_unwind::lbr;
use unwind_sim_unwind::orc::{Encoding, Orc};
use unwind_sim_unwind::sframe::{Profile, Sframe};
use unwind_sim_unwind::unwinder::{Guess, Lbr, WithFallback};
use unwind_sim_unwind::walk::Finder;

/// What `--unwinder all` means.
pub const ALL: [&str; 6] = ["dwarf", "sframe", "orc", "fp", "guess", "lbr"];
/// What a command uses that is not told.
pub const DEFAULT: [&str; 5] = ["dwarf", "sframe", "orc", "fp", "guess"];
/// The kernel's own, which are what is meant in front of a kernel's stacks.
pub const KERNEL: [&str; 3] = ["orc:kernel", "fp:kernel", "guess:kernel"];
/// Behind a profile of this name stands a kernel's version, or nothing.
const KERNEL_PROFILE: &str = "kernel";

/// An unwinder's name that means nothing.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// No such unwinder.
    #[error(
        "no unwinder `{name}`; there are dwarf, sframe, orc, fp, guess, lbr, and cmd:PROGRAM for your own"
    )]
    Unknown {
        /// The name given.
        name: String,
    },
    /// It has no such profile.
    #[error("unwinder `{name}` has no profile `{profile}`; it has {known}")]
    Profile {
        /// The unwinder.
        name: String,
        /// The profile given.
        profile: String,
        /// Those that it has.
        known: String,
    },
    /// It cannot be, or have, a fallback.
    #[error("`{name}` reads no table: it can neither be nor have a fallback")]
    NoFallback {
        /// The unwinder.
        name: String,
    },
    /// The program cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// The unwinder that `spec` names. A kernel's unwinder without a version is that of the
/// recording.
///
/// # Errors
/// If there is none of that name, or it cannot be started.
pub fn engine(spec: &str) -> Result<Engine, SpecError> {
    if let Some(command) = spec.strip_prefix("cmd:") {
        return Ok(Engine::Other(Box::new(CommandUnwinder::start(command)?)));
    }
    let Some((first, second)) = spec.split_once('+') else {
        return single(spec);
    };
    let finder = |name: &str| match single(name)? {
        Engine::Table(finder) => Ok(finder),
        Engine::Other(_) | Engine::Kernel(_) => Err(SpecError::NoFallback {
            name: name.to_owned(),
        }),
    };
    Ok(Engine::Table(Box::new(WithFallback::new(
        finder(first)?,
        finder(second)?,
    ))))
}

/// The unwinders that a list names, in order; `all` stands for [`ALL`].
///
/// # Errors
/// The first that [`engine`] gives.
pub fn engines(specs: &[String]) -> Result<Vec<Engine>, SpecError> {
    let names = specs.iter().flat_map(|s| match s.as_str() {
        "all" => ALL.to_vec(),
        other => vec![other],
    });
    names.map(engine).collect()
}

fn single(spec: &str) -> Result<Engine, SpecError> {
    let (name, profile) = match spec.split_once(':') {
        Some((name, profile)) => (name, Some(profile)),
        None => (spec, None),
    };
    let unknown_profile = |known: &str| SpecError::Profile {
        name: name.to_owned(),
        profile: profile.unwrap_or_default().to_owned(),
        known: known.to_owned(),
    };
    let table = |finder: Box<dyn Finder>| Ok(Engine::Table(finder));
    let kind = Kind::ALL.into_iter().find(|k| k.as_str() == name);
    let kernel = profile.and_then(|p| p.strip_prefix(KERNEL_PROFILE));
    if let (Some(kind), Some(version)) = (kind, kernel) {
        let known = format!(
            "kernel, and kernel-VERSION, such as {}",
            Version::NAMES.join(", ")
        );
        let version = match version.strip_prefix('-') {
            Some(version) => {
                Some(Version::from_name(version).ok_or_else(|| unknown_profile(&known))?)
            }
            None if version.is_empty() => None,
            None => return Err(unknown_profile(&known)),
        };
        return Ok(Engine::Kernel(KernelUnwinder::new(kind, version, None)));
    }
    match (name, profile) {
        ("dwarf", None) => table(Box::new(Dwarf::new())),
        ("fp", None) => table(Box::new(FramePointer)),
        ("guess", None) => Ok(Engine::Other(Box::new(Guess))),
        ("lbr", profile) => {
            let known = "a depth such as 8, stitch, and both, such as 8-stitch";
            let options = lbr_options(profile).ok_or_else(|| unknown_profile(known))?;
            Ok(Engine::Other(Box::new(Lbr::new(options))))
        }
        ("sframe", profile) => {
            let chosen = profile.map_or(Some(Profile::default()), Profile::from_name);
            let known = Profile::ALL.map(Profile::as_str).join(", ");
            let profile = chosen.ok_or_else(|| unknown_profile(&known))?;
            table(Box::new(Sframe::new(profile, Tables::default())))
        }
        ("orc", None) => table(Box::new(Orc::new(None, Tables::default()))),
        ("orc", Some(version)) => {
            let known = "the kernel versions whose layout there is: 4.14, 5.12, 6.3, 6.4, 7.1";
            let encoding =
                Encoding::from_kernel_version(version).ok_or_else(|| unknown_profile(known))?;
            table(Box::new(Orc::new(Some(encoding), Tables::default())))
        }
        ("fp" | "guess", Some(_)) => Err(unknown_profile("kernel and kernel-VERSION")),
        ("dwarf", Some(_)) => Err(unknown_profile("none")),
        _ => Err(SpecError::Unknown {
            name: name.to_owned(),
        }),
    }
}

/// `DEPTH`, `stitch`, `DEPTH-stitch`, or nothing.
fn lbr_options(profile: Option<&str>) -> Option<lbr::Options> {
    let mut options = lbr::Options::default();
    let Some(profile) = profile else {
        return Some(options);
    };
    let depth = match profile.strip_suffix("stitch") {
        Some("") => {
            return Some(lbr::Options {
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
