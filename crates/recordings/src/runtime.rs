//! What kind of memory holds generated code, and which runtime generated it: facts from mappings.
//!
//! The names are those of Linux (`/proc/PID/maps`, `PERF_RECORD_MMAP2`) and of the files that
//! runtimes are shipped as. Nothing is opened. What to do about it is not said here.

use crate::jitdump;
use unwind_sim_unwind::image::{AddressSpace, Mapping};

/// The kind of memory that holds generated code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Generated {
    /// Private anonymous memory: no name, or perf's `//anon`.
    Anonymous,
    /// Anonymous memory that its program named (`PR_SET_VMA_ANON_NAME`): `[anon:NAME]`.
    Named,
    /// `memfd_create`: `/memfd:NAME`, mapped twice, once writable and once executable.
    Memfd,
    /// Shared anonymous memory: `/dev/zero (deleted)`.
    SharedAnonymous,
    /// A System V segment: `/SYSV00000000`.
    SystemV,
    /// A file in `/dev/shm`, or one made and removed for a double mapping.
    SharedFile,
    /// A mapped descriptor without a file, other than a memfd: `anon_inode:NAME`.
    AnonInode,
    /// `[heap]`, made executable.
    Heap,
    /// A stack, made executable.
    Stack,
    /// A jitdump file describes it (`jit-PID.dump`).
    Jitdump,
    /// The program registered it, for gdb or by `__register_frame`.
    Registered,
}

impl Generated {
    /// A stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Generated::Anonymous => "anonymous",
            Generated::Named => "named",
            Generated::Memfd => "memfd",
            Generated::SharedAnonymous => "shared-anonymous",
            Generated::SystemV => "sysv",
            Generated::SharedFile => "shared-file",
            Generated::AnonInode => "anon-inode",
            Generated::Heap => "heap",
            Generated::Stack => "stack",
            Generated::Jitdump => "jitdump",
            Generated::Registered => "registered",
        }
    }

    /// The meaning.
    pub const fn description(self) -> &'static str {
        match self {
            Generated::Anonymous => "anonymous memory",
            Generated::Named => "anonymous memory that the program named",
            Generated::Memfd => "a memfd, which programs map twice",
            Generated::SharedAnonymous => "shared anonymous memory",
            Generated::SystemV => "a System V shared memory segment",
            Generated::SharedFile => "a file for shared memory",
            Generated::AnonInode => "a mapped descriptor without a file",
            Generated::Heap => "the heap",
            Generated::Stack => "a stack",
            Generated::Jitdump => "code that a jitdump file describes",
            Generated::Registered => "code that the program registered",
        }
    }
}

/// What kind of generated code the executable mapping holds; `None` if it is a file's or the
/// kernel's code.
pub fn generated(mapping: &Mapping) -> Option<Generated> {
    generated_name(&mapping.name)
}

/// Like [`generated`], from the name of an executable mapping.
pub fn generated_name(name: &str) -> Option<Generated> {
    let plain = name.strip_suffix(" (deleted)");
    let is_deleted = plain.is_some();
    let plain = plain.unwrap_or(name);
    Some(match plain {
        "" | "//anon" => Generated::Anonymous,
        "[heap]" => Generated::Heap,
        "[jit]" => Generated::Registered,
        "/dev/zero" => Generated::SharedAnonymous,
        _ if plain == "[stack]" || plain.starts_with("[stack:") => Generated::Stack,
        _ if plain.starts_with("[anon:") => Generated::Named,
        _ if plain.starts_with("[anon_shmem:") => Generated::SharedAnonymous,
        _ if plain.starts_with("/memfd:") => Generated::Memfd,
        _ if plain.starts_with("/SYSV") => Generated::SystemV,
        _ if plain.starts_with("/dev/shm/") => Generated::SharedFile,
        _ if plain.starts_with("/anon_hugepage") => Generated::Anonymous,
        _ if plain.starts_with("anon_inode:") => Generated::AnonInode,
        _ if jitdump::is_name(plain) => Generated::Jitdump,
        // .NET's and GraalVM's double mappings, where there is no memfd.
        _ if is_deleted && plain.contains("doublemapper") => Generated::SharedFile,
        _ => return None,
    })
}

/// Does a `perf-PID.map` name functions of the mapping?
pub fn has_perf_map(mapping: &Mapping) -> bool {
    let name = mapping.image.as_ref().map_or("", |image| image.name());
    let pid = name
        .strip_prefix("perf-")
        .and_then(|n| n.strip_suffix(".map"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()))
}

/// Has the process a jitdump file mapped?
pub fn has_jitdump<'m>(names: impl IntoIterator<Item = &'m str>) -> bool {
    names.into_iter().any(jitdump::is_name)
}

/// A program that generates code, or runs code that is in no ELF file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Runtime {
    /// CPython: trampolines (`-X perf`, `-X perf_jit`) and extensions such as numba's.
    CPython,
    /// numba or llvmlite in a Python program.
    Numba,
    /// PyPy.
    PyPy,
    /// HotSpot, OpenJDK's virtual machine.
    HotSpot,
    /// OpenJ9.
    OpenJ9,
    /// V8: node, Chromium, Electron, deno.
    V8,
    /// JavaScriptCore: bun, WebKit.
    JavaScriptCore,
    /// SpiderMonkey: Firefox.
    SpiderMonkey,
    /// .NET's CoreCLR.
    CoreClr,
    /// mono.
    Mono,
    /// LuaJIT, also in OpenResty.
    LuaJit,
    /// PHP with opcache.
    Php,
    /// Ruby, whose YJIT generates code.
    Ruby,
    /// Erlang's BEAM.
    Beam,
    /// SBCL, whose heap image holds machine code.
    Sbcl,
    /// wasmtime.
    Wasmtime,
    /// wasmer.
    Wasmer,
    /// QEMU's code generator.
    Qemu,
    /// Guile.
    Guile,
    /// Chez Scheme, also below Racket.
    Chez,
    /// valgrind.
    Valgrind,
    /// Julia.
    Julia,
    /// PostgreSQL's or another program's LLVM.
    Llvm,
    /// PCRE2's compiled patterns.
    Pcre,
}

/// How the file of a runtime is recognised.
enum File {
    /// By its whole name.
    Is(&'static str),
    /// By the start of its name; what follows is not a letter, so `node` does not match `nodejs-ui`.
    Starts(&'static str),
    /// By a part of its path.
    Within(&'static str),
}

use File::{Is, Starts, Within};

/// The runtimes by their files. The first that matches counts, so a library that another runtime loads
/// stands behind that runtime.
const FILES: &[(Runtime, &[File])] = &[
    (Runtime::HotSpot, &[Is("libjvm.so"), Starts("classes.jsa")]),
    (Runtime::OpenJ9, &[Starts("libj9vm"), Starts("libj9jit")]),
    (
        Runtime::CoreClr,
        &[
            Is("libcoreclr.so"),
            Is("libclrjit.so"),
            Is("System.Private.CoreLib.dll"),
        ],
    ),
    (
        Runtime::Mono,
        &[
            Is("mono"),
            Starts("mono-sgen"),
            Starts("libmono"),
            Is("mscorlib.dll"),
        ],
    ),
    (
        Runtime::JavaScriptCore,
        &[
            Is("bun"),
            Starts("libjavascriptcoregtk"),
            Starts("libJavaScriptCore"),
        ],
    ),
    (
        Runtime::V8,
        &[
            Is("node"),
            Is("nodejs"),
            Starts("libnode"),
            Starts("libv8"),
            Is("deno"),
            Is("d8"),
            Is("electron"),
            Is("chrome"),
            Is("chromium"),
        ],
    ),
    (
        Runtime::SpiderMonkey,
        &[Is("libxul.so"), Starts("libmozjs")],
    ),
    (Runtime::Sbcl, &[Is("sbcl"), Is("sbcl.core")]),
    (Runtime::Beam, &[Starts("beam")]),
    (Runtime::Guile, &[Starts("libguile"), Is("guile")]),
    (
        Runtime::Chez,
        &[
            Is("racket"),
            Is("scheme"),
            Is("chezscheme"),
            Starts("petite"),
        ],
    ),
    (Runtime::LuaJit, &[Starts("luajit"), Starts("libluajit")]),
    (Runtime::Ruby, &[Starts("ruby"), Starts("libruby")]),
    (Runtime::Julia, &[Is("julia"), Starts("libjulia")]),
    (Runtime::Qemu, &[Starts("qemu")]),
    (
        Runtime::Valgrind,
        &[Within("/valgrind/memcheck-"), Starts("vgpreload_core")],
    ),
    (Runtime::PyPy, &[Starts("pypy"), Starts("libpypy")]),
    (Runtime::Numba, &[Is("libllvmlite.so"), Within("/numba/")]),
    (
        Runtime::Wasmtime,
        &[Is("wasmtime"), Starts("libwasmtime"), Is("_libwasmtime.so")],
    ),
    (Runtime::Wasmer, &[Is("wasmer"), Starts("libwasmer")]),
    (
        Runtime::Php,
        &[Is("opcache.so"), Starts("php"), Starts("libphp")],
    ),
    (Runtime::CPython, &[Starts("python"), Starts("libpython")]),
    (
        Runtime::Llvm,
        &[Starts("libLLVM"), Is("llvmjit.so"), Starts("lli")],
    ),
    (Runtime::Pcre, &[Starts("libpcre2"), Starts("libpcre")]),
];

impl Runtime {
    /// A stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Runtime::CPython => "cpython",
            Runtime::Numba => "numba",
            Runtime::PyPy => "pypy",
            Runtime::HotSpot => "hotspot",
            Runtime::OpenJ9 => "openj9",
            Runtime::V8 => "v8",
            Runtime::JavaScriptCore => "javascriptcore",
            Runtime::SpiderMonkey => "spidermonkey",
            Runtime::CoreClr => "coreclr",
            Runtime::Mono => "mono",
            Runtime::LuaJit => "luajit",
            Runtime::Php => "php",
            Runtime::Ruby => "ruby",
            Runtime::Beam => "beam",
            Runtime::Sbcl => "sbcl",
            Runtime::Wasmtime => "wasmtime",
            Runtime::Wasmer => "wasmer",
            Runtime::Qemu => "qemu",
            Runtime::Guile => "guile",
            Runtime::Chez => "chez",
            Runtime::Valgrind => "valgrind",
            Runtime::Julia => "julia",
            Runtime::Llvm => "llvm",
            Runtime::Pcre => "pcre",
        }
    }

    /// Its name, for people.
    pub const fn title(self) -> &'static str {
        match self {
            Runtime::CPython => "Python",
            Runtime::Numba => "numba",
            Runtime::PyPy => "PyPy",
            Runtime::HotSpot => "Java's HotSpot",
            Runtime::OpenJ9 => "OpenJ9",
            Runtime::V8 => "V8 (node)",
            Runtime::JavaScriptCore => "JavaScriptCore (bun)",
            Runtime::SpiderMonkey => "SpiderMonkey",
            Runtime::CoreClr => ".NET",
            Runtime::Mono => "mono",
            Runtime::LuaJit => "LuaJIT",
            Runtime::Php => "PHP",
            Runtime::Ruby => "Ruby",
            Runtime::Beam => "Erlang",
            Runtime::Sbcl => "SBCL",
            Runtime::Wasmtime => "wasmtime",
            Runtime::Wasmer => "wasmer",
            Runtime::Qemu => "qemu",
            Runtime::Guile => "Guile",
            Runtime::Chez => "Chez Scheme (Racket)",
            Runtime::Valgrind => "valgrind",
            Runtime::Julia => "Julia",
            Runtime::Llvm => "LLVM",
            Runtime::Pcre => "PCRE",
        }
    }

    /// The runtime of a process with mappings of these names; the most specific one if there are
    /// several, such as numba in Python.
    pub fn of_names<'m>(names: impl IntoIterator<Item = &'m str>) -> Option<Runtime> {
        let ranks = names.into_iter().filter_map(rank);
        Some(FILES[ranks.min()?].0)
    }
}

impl Runtime {
    /// The runtime of the process with these mappings.
    pub fn of_space(space: &AddressSpace) -> Option<Runtime> {
        Runtime::of_names(space.mappings().iter().map(|m| m.name.as_str()))
    }
}

/// The first runtime that a mapped file belongs to, as an index.
fn rank(path: &str) -> Option<usize> {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let name = path.rsplit('/').next().unwrap_or(path);
    let fits = |file: &File| match *file {
        Is(whole) => name == whole,
        Starts(start) => {
            let rest = name.strip_prefix(start);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphabetic()))
        }
        Within(part) => path.contains(part),
    };
    FILES.iter().position(|(_, files)| files.iter().any(fits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use unwind_sim_unwind::image::{Image, ImageParts};

    #[test]
    fn mappings_say_what_they_hold() {
        for (name, expected) in [
            ("", Some(Generated::Anonymous)),
            // perf's name for memory without a file.
            ("//anon", Some(Generated::Anonymous)),
            ("/anon_hugepage (deleted)", Some(Generated::Anonymous)),
            // Named by `PR_SET_VMA_ANON_NAME` (prctl(2)).
            ("[anon:v8]", Some(Generated::Named)),
            ("/memfd:doublemapper (deleted)", Some(Generated::Memfd)),
            ("/memfd:libffi (deleted)", Some(Generated::Memfd)),
            // Shared anonymous memory (`mm/shmem.c`, `shmem_zero_setup`).
            ("/dev/zero (deleted)", Some(Generated::SharedAnonymous)),
            ("[anon_shmem:opcache]", Some(Generated::SharedAnonymous)),
            // shmget(2) with the key `IPC_PRIVATE`, which is 0.
            ("/SYSV00000000 (deleted)", Some(Generated::SystemV)),
            ("/dev/shm/jsc-1 (deleted)", Some(Generated::SharedFile)),
            (
                "/tmp/doublemapper_a1 (deleted)",
                Some(Generated::SharedFile),
            ),
            ("anon_inode:[perf_event]", Some(Generated::AnonInode)),
            ("[heap]", Some(Generated::Heap)),
            ("[stack]", Some(Generated::Stack)),
            ("/tmp/jit-12.dump", Some(Generated::Jitdump)),
            ("[jit]", Some(Generated::Registered)),
            ("/usr/bin/jit-tool", None),
            ("/usr/lib/libc.so.6", None),
            ("/usr/lib/libold.so (deleted)", None),
            ("[vdso]", None),
            ("[vsyscall]", None),
            ("[uprobes]", None),
        ] {
            assert_eq!(generated_name(name), expected, "{name}");
        }
    }

    #[test]
    fn files_say_which_runtime_it_is() {
        for (names, expected) in [
            (
                &["/usr/bin/java", "/usr/lib/jvm/17/lib/server/libjvm.so"][..],
                Some(Runtime::HotSpot),
            ),
            (&["/usr/bin/node"], Some(Runtime::V8)),
            // node may be a library, as in Debian.
            (&["/usr/lib/libnode.so.108"], Some(Runtime::V8)),
            (&["/opt/bun/bin/bun"], Some(Runtime::JavaScriptCore)),
            (
                &["/usr/bin/mono-sgen", "/usr/lib/mono/4.5/mscorlib.dll"],
                Some(Runtime::Mono),
            ),
            (&["/usr/share/dotnet/libcoreclr.so"], Some(Runtime::CoreClr)),
            // A version may follow the name.
            (&["/usr/bin/luajit-2.1.0-beta3"], Some(Runtime::LuaJit)),
            (
                &["/usr/bin/php8.2", "/usr/lib/php/20220829/opcache.so"],
                Some(Runtime::Php),
            ),
            (
                &["/usr/bin/ruby3.1", "/usr/lib/libruby-3.1.so.3.1.2"],
                Some(Runtime::Ruby),
            ),
            (
                &["/usr/lib/erlang/erts-13.1.5/bin/beam.smp"],
                Some(Runtime::Beam),
            ),
            (&["/usr/bin/qemu-x86_64"], Some(Runtime::Qemu)),
            (
                &["/usr/lib/sbcl/sbcl.core", "/usr/bin/sbcl"],
                Some(Runtime::Sbcl),
            ),
            (
                &["/usr/bin/python3.13", "/lib/libpython3.13.so.1.0"],
                Some(Runtime::CPython),
            ),
            (
                // A compiler that was loaded by an interpreter says more than the interpreter.
                &["/usr/bin/python3.11", "/x/llvmlite/binding/libllvmlite.so"],
                Some(Runtime::Numba),
            ),
            (
                &[
                    "/usr/bin/python3.11",
                    "/x/wasmtime/linux-x86_64/_libwasmtime.so",
                ],
                Some(Runtime::Wasmtime),
            ),
            (
                &[
                    "/usr/bin/valgrind.bin",
                    "/usr/libexec/valgrind/memcheck-amd64-linux",
                ],
                Some(Runtime::Valgrind),
            ),
            (
                &["/usr/lib/x86_64-linux-gnu/libguile-3.0.so.1.5.0"],
                Some(Runtime::Guile),
            ),
            (&["/usr/bin/racket"], Some(Runtime::Chez)),
            (
                // The start of a name is not enough.
                &["/usr/bin/nodeinfo", "/usr/bin/rubyfmt", "/opt/monotone"],
                None,
            ),
            (
                // A library that generates code, in a program that is not a runtime.
                &["/usr/bin/grep", "/lib/libpcre2-8.so.0.11.2"],
                Some(Runtime::Pcre),
            ),
            (&[], None),
        ] {
            assert_eq!(
                Runtime::of_names(names.iter().copied()),
                expected,
                "{names:?}"
            );
        }
    }

    #[test]
    fn what_tells_about_the_code_is_recognised() {
        let mapping = |name: &str| Mapping {
            range: 0x1000..0x2000,
            bias: 0,
            image: Some(Arc::new(Image::new(ImageParts {
                name: name.into(),
                ..ImageParts::default()
            }))),
            name: "//anon".into(),
        };
        assert!(has_perf_map(&mapping("perf-12.map")));
        assert!(!has_perf_map(&mapping("perf-tool.map")));
        assert_eq!(
            generated(&mapping("perf-12.map")),
            Some(Generated::Anonymous)
        );
        assert!(has_jitdump(["/usr/bin/python3.13", "/tmp/jit-3.dump"]));
        assert!(!has_jitdump(["/usr/bin/python3.13"]));
    }

    #[test]
    fn names_are_stable_and_distinct() {
        let names: std::collections::BTreeSet<&str> = FILES.iter().map(|f| f.0.as_str()).collect();
        assert_eq!(names.len(), FILES.len());
    }
}
