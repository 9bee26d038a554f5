//! What to do about generated code, by the runtime that generates it.
//!
//! Each sentence names its source. Where a runtime has no way, it says so; nothing is asked of one
//! runtime that is another's.

use super::advice::{Situation, Standing};
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::runtime::{self, Runtime};
use unwind_sim_recordings::trace::Engine;
use unwind_sim_recordings::view::View;

/// What a recording says of the process that ran generated code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Generator {
    /// The runtime, if its files are mapped.
    pub(super) runtime: Option<Runtime>,
    /// A `jit-PID.dump` is mapped.
    pub(super) has_jitdump: bool,
    /// The code lies on the stack.
    pub(super) is_on_stack: bool,
}

impl Generator {
    /// That of a sample's process.
    pub(super) fn of(view: &View<'_>) -> Generator {
        let names = || view.space.mappings().iter().map(|m| m.name.as_str());
        Generator {
            runtime: Runtime::of_names(names()),
            has_jitdump: runtime::has_jitdump(names()),
            is_on_stack: false,
        }
    }
}

/// How code that keeps frame pointers is walked.
fn by_frame_pointers(s: &Situation<'_>) -> &'static str {
    if s.is_profile() && !s.has_fp_chains() {
        "record with `--call-graph fp`, or walk with `--unwinder dwarf+fp`"
    } else {
        "walk with `--unwinder dwarf+fp`"
    }
}

/// What the names of mappings of a memfd begin with.
pub(super) const MEMFD: &str = "/memfd:";

/// What to do about code of a runtime that is not known, or of which nothing is known.
pub(super) fn of_unknown(s: &Situation<'_>) -> String {
    if s.image.starts_with(MEMFD) && s.made.engine == Engine::Import(FileKind::Core) {
        return "if it is a program that was run from a memfd, give its file with `--exe FILE`; if its code \
                was generated, nothing is known of it"
            .into();
    }
    let what = match s.generator.runtime {
        Some(runtime) => format!(
            "the process runs {}, for whose generated code no remedy was tried",
            runtime.title()
        ),
        None => "its runtime is not known here".to_owned(),
    };
    if s.standing("dwarf+fp") == Standing::NotBetter {
        return format!(
            "none is known: {what}; by `dwarf+fp`, too, no more stacks are known to be whole"
        );
    }
    let how = by_frame_pointers(s);
    format!("{what}; if its code keeps frame pointers, {how}")
}

/// What to do. `None` if the runtime is not known, or nothing is known of it.
pub(super) fn advice(s: &Situation<'_>) -> Option<String> {
    if s.generator.has_jitdump && s.is_profile() {
        return Some(
            "the program wrote a jit-PID.dump, which has the names and the unwind tables: record with \
             `perf record -k 1`, keep that file, and run `perf inject --jit`"
                .into(),
        );
    }

    let none = |what: &str| format!("none: {what}");
    // GCC's manual: "Trampolines for nested functions", -Wtrampolines.
    if s.generator.is_on_stack {
        return Some(none(
            "the code is on the stack: what GCC writes there where the address of a nested function is \
             taken (-Wtrampolines names the places) has no rows",
        ));
    }

    // Python's trampolines are in anonymous memory; what is in a memfd is somebody else's.
    if s.generator.runtime == Some(Runtime::CPython) && s.image.starts_with(MEMFD) {
        return None;
    }

    Some(match s.generator.runtime? {
        // JDK: the documentation of PreserveFramePointer.
        Runtime::HotSpot if s.is_given("+PreserveFramePointer") => {
            none("java ran with -XX:+PreserveFramePointer, but the bytes of its code are in no profile")
        }
        Runtime::HotSpot => {
            format!("run java with -XX:+PreserveFramePointer, and {}", by_frame_pointers(s))
        }
        Runtime::V8 if s.has_fp_chains() => {
            "run node with --interpreted-frames-native-stack, which gives each interpreted function a \
             frame of its own"
                .into()
        }
        runtime @ (Runtime::V8 | Runtime::JavaScriptCore | Runtime::Wasmtime | Runtime::Sbcl) => {
            format!("{} keeps frame pointers: {}", runtime.title(), by_frame_pointers(s))
        }
        // CPython: "Python support for the Linux perf profiler".
        Runtime::CPython => "Python's trampolines (-X perf) need a Python that was built with frame \
                             pointers (CFLAGS=-fno-omit-frame-pointer -mno-omit-leaf-frame-pointer); \
                             Python 3.13 with -X perf_jit writes unwind tables"
            .into(),
        // numba: kernels are compiled as nounwind, so LLVM writes no rows for them.
        Runtime::Numba => none(
            "the kernels that numba compiles with LLVM have neither rows nor frame pointers, and no \
             option gives them any",
        ),
        // erl: the flag +JPperf.
        Runtime::Beam => format!(
            "run erl with `+JPperf true`, which gives its code frame pointers and a perf map, and {}",
            by_frame_pointers(s)
        ),
        Runtime::LuaJit => {
            none("LuaJIT has no option for frame pointers, and its FDE for traces has no CFA")
        }
        Runtime::Php => none("the code of PHP's opcache keeps no frame pointers and has no rows"),
        Runtime::Mono => {
            none("mono's code uses rbp for other things, and mono has no option to keep it")
        }
        Runtime::Ruby => none("YJIT's code keeps no frame pointers and has no rows"),
        Runtime::Qemu => none("the blocks that qemu translates have no frames of the guest's functions"),
        Runtime::Valgrind => none("the code that valgrind runs has no frames of the program's functions"),
        _ => return None,
    })
}
