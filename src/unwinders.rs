//! What unwinders there are: names, profiles, and what each needs.

use crate::engine::Engine;
use crate::spec;
use unwind_sim_unwind::kernel::Version;
use unwind_sim_unwind::orc::Encoding;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::sframe::Profile;

/// An unwinder, as `unwind-sim unwinders` lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Described {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Names that may follow `name:`; `N` stands for a number.
    pub profiles: Vec<String>,
    /// Registers that it carries from frame to frame.
    pub registers: Vec<&'static str>,
    /// The sections it reads; empty if it needs no table.
    pub tables: &'static str,
    /// Does it read the stack?
    pub needs_stack: bool,
    /// Does it need branch records?
    pub needs_branches: bool,
    /// Can it have, and be, a fallback (`NAME+FALLBACK`)?
    pub may_fall_back: bool,
}

/// Name, tables, what it is.
const UNWINDERS: [(&str, &str, &str); 9] = [
    (
        "dwarf",
        ".eh_frame, .debug_frame",
        "DWARF call frame information",
    ),
    (
        "sframe",
        ".sframe, else derived from .eh_frame",
        "SFrame, versions 1 to 3",
    ),
    (
        "orc",
        ".orc_unwind and .orc_unwind_ip, else derived from .eh_frame",
        "ORC, as kernels use it",
    ),
    ("fp", "", "frame pointers"),
    (
        "guess",
        "",
        "every word of the stack that is a code address",
    ),
    (
        "lbr",
        "",
        "the processor's branch records in call-stack mode",
    ),
    (
        "orc:kernel",
        ".orc_unwind and .orc_unwind_ip of the kernel",
        "Linux's own ORC unwinder, for a kernel's stacks",
    ),
    (
        "fp:kernel",
        "",
        "Linux's own frame-pointer unwinder, for a kernel's stacks",
    ),
    (
        "guess:kernel",
        "",
        "Linux's own scan, for a kernel's stacks",
    ),
];

/// Every unwinder but `cmd:PROGRAM`.
pub fn all() -> Vec<Described> {
    let described = UNWINDERS.into_iter().filter_map(|(name, tables, about)| {
        let engine = spec::engine(name).ok()?;
        Some(Described {
            name,
            about,
            profiles: profiles(name),
            registers: registers(&engine),
            tables,
            needs_stack: engine.needs_stack(),
            needs_branches: name == "lbr",
            may_fall_back: engine.finder().is_some(),
        })
    });
    described.collect()
}

fn profiles(name: &str) -> Vec<String> {
    let owned = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
    match name {
        "sframe" => owned(&Profile::ALL.map(Profile::as_str)),
        "orc" => owned(&Encoding::ALL.map(Encoding::as_str)),
        "lbr" => owned(&["N", "stitch", "N-stitch"]),
        _ if name.ends_with(":kernel") => {
            let versions = Version::NAMES.iter();
            versions.map(|v| format!("kernel-{v}")).collect()
        }
        _ => Vec::new(),
    }
}

/// The registers that a walk carries; of one that finds no rules, those that it starts with.
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

    /// What is listed can be named, and what `all` and the defaults stand for is listed.
    #[test]
    fn every_name_and_profile_is_one() {
        let all = all();
        for unwinder in &all {
            for profile in &unwinder.profiles {
                let plain = unwinder.name.trim_end_matches(":kernel");
                let name = format!("{plain}:{}", profile.replace('N', "8"));
                assert!(spec::engine(&name).is_ok(), "{name}");
            }
            let with_fallback = spec::engine(&format!("{}+fp", unwinder.name));
            assert_eq!(
                with_fallback.is_ok(),
                unwinder.may_fall_back,
                "{unwinder:?}"
            );
        }
        let names: Vec<&str> = all.iter().map(|u| u.name).collect();
        let known = spec::ALL.iter().chain(&spec::KERNEL).copied();
        assert_eq!(names, known.collect::<Vec<_>>());
        let dwarf = &all[0];
        assert_eq!(
            dwarf.registers,
            ["rip", "rsp", "rbx", "rbp", "r12", "r13", "r14", "r15"]
        );
        let lbr = &all[5];
        assert!(!lbr.needs_stack && lbr.needs_branches);
        assert_eq!(lbr.registers, ["rip"]);
    }
}
