//! The case that this project began with, in the form of `perf script`.

use super::DemoNote;
use std::fmt::Write as _;
use std::sync::Arc;
use unwind_sim_judge::engine::Setting;
use unwind_sim_judge::input::Input;
use unwind_sim_judge::kernel::perf_chain;
use unwind_sim_judge::run::RunError;
use unwind_sim_judge::spec;
use unwind_sim_recordings::model::{Event, ImageIndex, KernelSample, Region, RegionRole};
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::Filter;
use unwind_sim_recordings::view::View;
use unwind_sim_recordings::world::World;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::{Chain, How};
use unwind_sim_unwind::image::{Image, ImageParts, Symbol};
use unwind_sim_unwind::kernel::{CallchainOptions, UserSpace};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::{FakeVariant, Variant};
use unwind_sim_view::kernel::callchain_lines;

/// The options of `step` that show it.
pub(super) const OPTIONS: [&str; 4] = ["--unwinder", "orc", "--regs", "hw,fake:v5.1,fake:v5.2"];

const HEAD: &str = "\
A tracepoint in __alloc_pages_nodemask asks perf for the callchain. There was no interrupt, so
there are no hardware registers: perf_arch_fetch_caller_regs makes fake ones, with flags = 0.
The kernel has ORC tables and no frame pointers.

Up to Linux 5.1 the fake registers held the tracing function's own frame pointer and live sp, and
were taken as real. The unwinder looks for the caller's frame in the wrong place:
";

const MIDDLE: &str = "
Since 5.2 (d15d356887e7) the unwinder starts from its own registers, and sp is only the mark up to
which frames are skipped: those of the tracing machinery itself.
";

const USER: &str = "
The user part is built from the mail's addresses. It is walked by frame pointers, from the registers
with which user space was left. The last word is not an address: when main was called, rbp still
held the address of __libc_csu_init, so the code there is taken for a frame. The next frame would
lie outside user space, and the walk ends.
";

const TAIL: &str = "
The recording as a file, the walk step by step, and all starts:
  unwind-sim demo seed-004 -o seed-004.bin
  unwind-sim explain seed-004.bin --sample 2 --unwinder orc --regs fake:v5.2
  unwind-sim compare seed-004.bin --sample 2 --regs fake:v5.1,fake:v3-2019,fake:v5.2,fake:always-ip
";

/// The text of the demo.
pub(super) fn text(input: &Input) -> Result<String, RunError> {
    let mut out = HEAD.to_owned();
    input.for_each::<RunError>(&Filter::default(), &mut |view| {
        if view.sample.regs.is_fake() {
            for (variant, event) in EVENTS {
                if variant == FakeVariant::V5_2 {
                    out.push_str(MIDDLE);
                }
                out.push_str(&perf_script(view, Variant::Fake(variant), &event));
            }
        }
        Ok(())
    })?;
    out.push_str(USER);
    out.push_str(TAIL);
    Ok(out)
}

/// The sample with fake registers.
const FAKE: u64 = 2;

/// The note for the sample with fake registers, without the part about user space, which the stepper does
/// not show.
pub(super) fn note() -> DemoNote {
    DemoNote {
        sample: FAKE,
        text: [HEAD, MIDDLE, TAIL].concat(),
    }
}

/// What differs in the mail's records of the tracepoint `kmem:mm_page_alloc`.
struct MmPageAlloc {
    tid: u32,
    microseconds: u64,
    pfn: u64,
    loaded: user::Loaded,
}

/// The event of each listing.
const EVENTS: [(FakeVariant, MmPageAlloc); 2] = [
    (
        FakeVariant::V5_1,
        MmPageAlloc {
            tid: 6429,
            microseconds: 22_498_450,
            pfn: 1_534_487,
            loaded: user::Loaded {
                libc: 0x7efd_f7e8_d000,
                perf: 0x5651_4676_5000,
            },
        },
    ),
    (
        FakeVariant::V5_2,
        MmPageAlloc {
            tid: 6503,
            microseconds: 1_567_570_191,
            pfn: 1_493_252,
            loaded: user::Loaded {
                libc: 0x7f71_e91e_0000,
                perf: 0x55a2_2950_0000,
            },
        },
    ),
];

impl MmPageAlloc {
    /// The line that `perf script` puts before the callchain.
    fn header(&self) -> String {
        let Self {
            tid,
            microseconds,
            pfn,
            ..
        } = self;
        let (seconds, rest) = (microseconds / 1_000_000, microseconds % 1_000_000);
        // perf does not know where the array of `struct page` starts, and prints a page's number as
        // its address.
        format!(
            "perf {tid:>5} [000] {seconds:>5}.{rest:06}: {:>30}: page={pfn:#x} pfn={pfn} order=0 \
             migratetype=0 gfp_flags=GFP_KERNEL",
            "kmem:mm_page_alloc"
        )
    }
}

/// The callchain's user part and the memory there, as offsets in the two files: the mail's listings
/// are of two processes, so their files were loaded at other addresses. The frames are found by
/// their frame pointers.
mod user {
    /// Where the files of a process were loaded.
    #[derive(Clone, Copy)]
    pub(super) struct Loaded {
        pub(super) libc: u64,
        pub(super) perf: u64,
    }

    impl Loaded {
        pub(super) fn poll(self) -> u64 {
            self.libc + 0xf_03e8
        }

        /// The return addresses in perf, in `main`, and in `__libc_start_main`.
        pub(super) fn callers(self) -> [u64; 3] {
            [
                self.perf + 0x10_d9c1,
                self.perf + 0x8_982a,
                self.libc + 0x2_2413,
            ]
        }

        /// The addresses of the frames. Nothing sets rbp before main: it still holds what the
        /// dynamic linker left in it, the address of `__libc_csu_init`.
        pub(super) fn frames(self) -> [u64; 4] {
            let [first, second, third] = STACK;
            [first, second, third, self.perf + 0x50_0ae0]
        }

        /// The files with the start and the end of their code, and their functions.
        pub(super) fn images(self) -> [(&'static str, u64, u64, Functions); 2] {
            let named = |base: u64, functions: &[(&'static str, u64)]| {
                let functions = functions.iter();
                functions.map(|(name, at)| (*name, base + at)).collect()
            };
            let libc = [("__libc_start_main", 0x2_2320), ("__poll", 0xf_03d0)];
            let perf = [("main", 0x8_9190)];
            [
                (
                    "/usr/lib64/libc-2.28.so",
                    self.libc,
                    self.libc + 0x14_0000,
                    named(self.libc, &libc),
                ),
                (
                    "/usr/bin/perf",
                    self.perf,
                    self.perf + 0x51_0000,
                    named(self.perf, &perf),
                ),
            ]
        }
    }

    /// Names and start addresses.
    pub(super) type Functions = Vec<(&'static str, u64)>;
    /// The frames that are on the stack.
    const STACK: [u64; 3] = [0x7fff_1000_0100, 0x7fff_1000_0180, 0x7fff_1000_0200];
    /// endbr64; push %r15; mov %rdx,%r15; push %r14; mov %rsi,%r14; push %r13
    pub(super) const CSU_INIT: [u8; 16] = [
        0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x57, 0x49, 0x89, 0xd7, 0x41, 0x56, 0x49, 0x89, 0xf6, 0x41,
        0x55,
    ];
    /// The size given to each function, in bytes.
    pub(super) const FUNCTION_LEN: u64 = 0x800;
}

/// `__KERNEL_CS`
const KERNEL_CS: u64 = 0x10;
/// The process of the user part.
const USER_PID: u32 = 1;

/// The user space of one of the mail's listings: registers, memory, mappings.
fn user_space(loaded: user::Loaded) -> (UserSpace, Vec<Region<'static>>, World) {
    // The listing has only addresses; registers and stack are made so that a walk by rbp finds
    // exactly these. rbp points to the first pair of words, and rsp lies somewhere below it.
    let frames = loaded.frames();
    let mut regs = Regs::frame(loaded.poll(), frames[0] - 0x40, frames[0]);
    // `__USER_CS` (`arch/x86/include/asm/segment.h`).
    regs.set(Reg::Cs, 0x33);

    let space = UserSpace {
        regs: Some(regs),
        pid: USER_PID,
        ..UserSpace::default()
    };

    // Each frame starts with the caller's rbp and the return address.
    let next = frames.iter().skip(1);
    let pairs = frames.iter().zip(next).zip(loaded.callers());
    let words = pairs
        .map(|((at, next), caller)| (*at, [next.to_le_bytes(), caller.to_le_bytes()].concat()));

    // The outermost saved rbp is the address of `__libc_csu_init`. The walk takes the bytes 8
    // behind it for a return address, as in the mail, so they must be readable.
    let code = (frames[3], user::CSU_INIT.to_vec());
    let regions = words.chain([code]).map(|(address, bytes)| Region {
        role: RegionRole::User,
        bounds: 0..0,
        next_sp: 0,
        address,
        bytes: bytes.into(),
    });

    // The images are placed where the mailed addresses say, without bytes: only names are looked up
    // in them.
    let mut world = World::new();
    for (name, start, end, functions) in loaded.images() {
        let symbols = functions.iter().map(|(name, address)| Symbol {
            address: *address,
            size: user::FUNCTION_LEN,
            name: (*name).to_owned(),
        });
        let image = Image::new(ImageParts {
            name: name.to_owned(),
            symbols: symbols.collect(),
            ..ImageParts::default()
        });

        let map = Event::Map {
            pid: USER_PID,
            range: start..end,
            bias: 0,
            image: Some(ImageIndex(0)),
            name: name.to_owned(),
        };
        world.apply(&map, &[Arc::new(image)]);
    }

    (space, regions.collect(), world)
}

/// The callchain of `orc` in the format of `perf script`, with the verdict on its kernel part.
fn perf_script(view: &View<'_>, variant: Variant, event: &MmPageAlloc) -> String {
    let Ok(engine) = spec::engine("orc") else {
        return String::new();
    };
    let (space, regions, world) = user_space(event.loaded);

    // The kernel's stack stays as recorded; user space is added to it.
    let mut sample = view.sample.clone();
    sample.regions.extend(regions);
    // The recording is of a program that plays the kernel's functions.
    if let Some(own) = &mut sample.regs.own {
        own.set(Reg::Cs, KERNEL_CS);
    }

    sample.kernel = Some(Box::new(KernelSample {
        user: Some(space),
        ..KernelSample::default()
    }));

    let view = &View {
        sample: &sample,
        world: Some(&world),
        ..*view
    };

    let (setting, options) = (Setting::default(), CallchainOptions::default());
    let chain = perf_chain(view, &engine, variant, &setting, options, &mut Cache::new());
    let (regs, header) = (variant.as_str(), event.header());

    // The lines have the form of `perf script`, so that they can be compared with those of the
    // mail.
    let mut out = format!("\n  --regs {regs}\n    {header}\n");
    out.push_str(&callchain_lines(view, &chain, "    "));

    let Some(outcome) = &chain.kernel else {
        return out;
    };
    let chain: &Chain = &outcome.chain;

    // The name of the table says whether rows came from the file or were derived from its code.
    let frames = chain.frames.len();
    let derived = chain.steps().any(|step| match step.how {
        How::Rule { row, .. } => row.source().table.as_str().ends_with("(derived)"),
        _ => false,
    });
    let table = if derived { "orc(derived)" } else { "orc" };
    let s = unwind_sim_view::text::plural(frames as u64);

    let _ = writeln!(
        out,
        "  {table}: {frames} frame{s} of the kernel, {} {}",
        outcome.verdict.as_str(),
        outcome.verdict
    );

    // The place to blame is a pc of the recorded program, so it is looked up in its address space,
    // not in the listing's.
    if let Some(d) = &outcome.diagnosis {
        let place = Location::of(view.space, d.pc);
        let _ = writeln!(
            out,
            "  because of {} {} in {place}",
            d.code,
            d.code.description()
        );
    }

    out
}
