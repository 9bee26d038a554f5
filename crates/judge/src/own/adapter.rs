//! Adapters for existing unwinders: the program that a bare name such as `gdb` stands for.

use std::path::PathBuf;

/// An adapter that comes with this project.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adapter {
    /// The name of the unwinder, as in `cmd:NAME`.
    pub name: &'static str,
    /// A short description.
    pub about: &'static str,
    /// What building or running it needs; on Debian, packages.
    pub needs: &'static str,
}

impl Adapter {
    /// All adapters.
    pub const ALL: [Adapter; 4] = [
        Adapter {
            name: "framehop",
            about: "framehop, of samply and the Firefox Profiler",
            needs: "Cargo",
        },
        Adapter {
            name: "libunwind",
            about: "libunwind, for another process",
            needs: "libunwind-dev libjson-c-dev",
        },
        Adapter {
            name: "libdw",
            about: "elfutils' libdw, which perf and systemd-coredump use",
            needs: "libdw-dev libjson-c-dev",
        },
        Adapter {
            name: "gdb",
            about: "gdb, on a core made of the stack",
            needs: "gdb",
        },
    ];

    /// The adapter with this name.
    pub(super) fn of(name: &str) -> Option<&'static Adapter> {
        const ALL: &[Adapter] = &Adapter::ALL;
        ALL.iter().find(|adapter| adapter.name == name)
    }

    /// Where it is, if it was built: in the folder of this executable or in `PATH`.
    pub fn path(&self) -> Option<PathBuf> {
        path(self.name)
    }

    /// The command that builds it.
    pub fn build(&self) -> String {
        format!("examples/own-unwinders/peers/build.sh FOLDER {}", self.name)
    }
}

/// The program `unwind-sim-unwinder-NAME`, in the folder of this executable or in `PATH`.
pub(super) fn path(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return None;
    }
    let file = format!("unwind-sim-unwinder-{name}");
    let ours = std::env::current_exe().ok();
    let beside = ours.and_then(|path| Some(path.parent()?.to_path_buf()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = beside.into_iter().chain(std::env::split_paths(&path));
    folders.find_map(|folder| Some(folder.join(&file)).filter(|path| path.is_file()))
}
