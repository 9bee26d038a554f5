//! `--children`: which processes of the emulated machine are checked or recorded.

use unwind_sim_emulator::linux::ObservedProcesses;

/// The option for the processes that are observed.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ChildrenArgs {
    /// Which processes are checked or recorded: all, none but the first, or those that run a program
    /// with one of these file names, the first one too. Others run unchecked, at full speed.
    #[arg(
        long,
        value_name = "all|none|NAME[,..]",
        default_value = "all",
        hide_default_value = true
    )]
    children: Children,
}

/// The processes that are observed.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Children(ObservedProcesses);

impl std::str::FromStr for Children {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names: Vec<&str> = text.split(',').collect();
        if names
            .iter()
            .any(|name| name.is_empty() || name.contains('/'))
        {
            return Err("expected all, none, or file names without a folder");
        }
        Ok(Children(match names[..] {
            ["all"] => ObservedProcesses::All,
            ["none"] => ObservedProcesses::First,
            _ if names.contains(&"all") || names.contains(&"none") => {
                return Err("all and none stand alone");
            }
            _ => ObservedProcesses::Programs(
                names.iter().map(|name| name.as_bytes().to_vec()).collect(),
            ),
        }))
    }
}

impl ChildrenArgs {
    /// The processes that are observed.
    pub(crate) fn observed(&self) -> ObservedProcesses {
        self.children.0.clone()
    }

    /// Whether the option was given with another value than the default.
    pub(crate) fn is_given(&self) -> bool {
        self.children.0 != ObservedProcesses::All
    }

    /// The option as on the command line, if it was given.
    pub(crate) fn text(&self) -> Option<String> {
        let value = match &self.children.0 {
            ObservedProcesses::All => return None,
            ObservedProcesses::First => "none".to_owned(),
            ObservedProcesses::Programs(names) => {
                let names = names.iter().map(|name| String::from_utf8_lossy(name));
                names.collect::<Vec<_>>().join(",")
            }
        };
        let value = unwind_sim_judge::shell::quoted(value);
        Some(format!("--children {value}"))
    }
}
