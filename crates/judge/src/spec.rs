//! Unwinders by name: `NAME[:PROFILE][+FALLBACK]`, `cmd:PROGRAM`.

use crate::engine::Engine;
use crate::own::{AnswersLimit, CommandUnwinder, StartError};
use crate::unwinders::{self, ALL, Entry};
use unwind_sim_recordings::similar::hint;
use unwind_sim_unwind::start::Variant;
use unwind_sim_unwind::unwinder::WithFallback;

/// Why the name of an unwinder is invalid.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// There is no such unwinder.
    #[error(
        "unknown unwinder `{name}`{hint}; expected one of {}, or cmd:PROGRAM for your own",
        ALL.join(", ")
    )]
    Unknown {
        /// The name given.
        name: String,
        /// The name that was meant, or nothing.
        hint: String,
    },
    /// The unwinder has no such profile.
    #[error("unwinder `{name}` has no profile `{profile}`{hint}; it has {known}")]
    Profile {
        /// The unwinder.
        name: String,
        /// The profile given.
        profile: String,
        /// The profiles that it has.
        known: String,
        /// The profile that was meant, or nothing.
        hint: String,
    },
    /// The unwinder cannot be or have a fallback.
    #[error("`{name}` reads no table, so it cannot be or have a fallback")]
    NoFallback {
        /// The unwinder.
        name: String,
    },
    /// The program cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl SpecError {
    /// Nothing is called `name`, neither an unwinder nor what is allowed in its place.
    pub(crate) fn unknown(name: &str, allowed: &[&'static str]) -> SpecError {
        let unwinders = unwinders::all().into_iter().map(|unwinder| unwinder.name);
        SpecError::Unknown {
            name: name.to_owned(),
            hint: hint(name, unwinders.chain(allowed.iter().copied())),
        }
    }
}

/// The unwinder with the name `spec`. A kernel's unwinder without a version takes that of the
/// recording.
///
/// # Errors
/// If there is no such unwinder, or it cannot be started.
pub fn engine(spec: &str) -> Result<Engine, SpecError> {
    engine_within(spec, AnswersLimit::default())
}

/// [`engine`], where a `cmd:` unwinder has the limit `answers`.
fn engine_within(spec: &str, answers: AnswersLimit) -> Result<Engine, SpecError> {
    if let Some(command) = spec.strip_prefix("cmd:") {
        let own = CommandUnwinder::start(command)?.with_answers_limit(answers);
        return Ok(Engine::Other(Box::new(own)));
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

/// The unwinders in a list of names, in order; `all` stands for [`ALL`].
///
/// # Errors
/// The first error of [`engine`].
pub fn engines(specs: &[String]) -> Result<Vec<Engine>, SpecError> {
    engines_within(specs, AnswersLimit::default())
}

/// [`engines`], where each `cmd:` unwinder has the limit `answers`.
///
/// # Errors
/// The first error of [`engine`].
pub fn engines_within(specs: &[String], answers: AnswersLimit) -> Result<Vec<Engine>, SpecError> {
    let names = specs.iter().flat_map(|s| match s.as_str() {
        "all" => ALL.to_vec(),
        other => vec![other],
    });
    names.map(|name| engine_within(name, answers)).collect()
}

fn single(spec: &str) -> Result<Engine, SpecError> {
    let (name, profile) = match spec.split_once(':') {
        Some((name, profile)) => (name, Some(profile)),
        None => (spec, None),
    };

    // `orc:kernel-6.4` is `orc:kernel` with the profile `-6.4`.
    let version = profile.and_then(|profile| profile.strip_prefix("kernel"));
    let kernel = version.and_then(|version| {
        let entry = unwinders::entry(&format!("{name}:kernel"))?;
        Some((entry, Some(version)))
    });

    // `NAME:PROFILE` may mean a profile of the plain unwinder if there is no kernel's by this name.
    let found = kernel.or_else(|| Some((unwinders::entry(name)?, profile)));
    let (entry, wanted) = found.ok_or_else(|| SpecError::unknown(name, &["all"]))?;

    entry.engine(wanted).map_err(|known| {
        let profile = profile.unwrap_or_default();
        let kernels = unwinders::entry(&format!("{name}:kernel"));
        let entries = std::iter::once(entry).chain(kernels);
        let profiles: Vec<String> = entries.flat_map(Entry::profiles).collect();
        SpecError::Profile {
            name: name.to_owned(),
            profile: profile.to_owned(),
            known,
            hint: hint(profile, profiles.iter().map(String::as_str)),
        }
    })
}

/// The name of a column with a start variant: `dwarf@hw`.
pub fn column_name(unwinder: &str, variant: Variant) -> String {
    format!("{unwinder}@{}", variant.as_str())
}
