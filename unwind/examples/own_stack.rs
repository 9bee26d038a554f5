//! Unwinds this program's own stack with its `.eh_frame` and prints the frames. Run it with
//! `cargo run --example own_stack` on x86-64 Linux.

use std::error::Error;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn main() -> Result<(), Box<dyn Error>> {
    outer()
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[inline(never)]
fn outer() -> Result<(), Box<dyn Error>> {
    own::print_stack()?;
    // Work after the call; otherwise the call would be a jump and leave no frame.
    println!("that was called by outer, called by main");
    Ok(())
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod own {
    use std::error::Error;
    use std::sync::Arc;
    use unwind_sim_unwind::cache::Cache;
    use unwind_sim_unwind::chain::Chain;
    use unwind_sim_unwind::dwarf::Dwarf;
    use unwind_sim_unwind::elf;
    use unwind_sim_unwind::image::{AddressSpace, Mapping};
    use unwind_sim_unwind::memory::MemoryCopy;
    use unwind_sim_unwind::regs::{Reg, Regs};
    use unwind_sim_unwind::start::Start;
    use unwind_sim_unwind::unwinder::{Stack, Unwinder as _};

    /// Collects what the walk needs: registers, a copy of the stack, and the mappings.
    #[inline(never)]
    pub(super) fn print_stack() -> Result<(), Box<dyn Error>> {
        let regs = registers();
        let (space, stack_end) = mappings(regs.rsp())?;
        let bytes = stack_bytes(regs.rsp(), stack_end);
        let memory = MemoryCopy::new(regs.rsp(), &bytes);
        let start = Start::from_regs(regs);
        let stack = Stack::new(&start, &space, &memory);
        let chain: Chain = Dwarf::new().walk(&stack, &mut Cache::new());
        for frame in &chain.frames {
            let address = frame.pc.symbol_address();
            let mapping = space.find(address);
            let image = mapping.and_then(|m| Some((m.image.as_ref()?, m)));
            let symbol = image.and_then(|(image, m)| image.symbol(m.svma(address)));
            let name = symbol.map_or("?", |symbol| &symbol.name);
            println!("{:#018x} {name}", frame.pc.value());
        }
        println!("ended: {}", chain.end.reason);
        Ok(())
    }

    /// The current callee-saved registers, rsp, and an address in this function.
    #[inline(always)]
    fn registers() -> Regs {
        let mut values = [0u64; 8];
        // SAFETY: the only memory written is `values`, and no register is changed but rax.
        unsafe {
            std::arch::asm!(
                "lea rax, [rip]", "mov [{0}], rax",
                "mov [{0} + 8], rsp", "mov [{0} + 16], rbp", "mov [{0} + 24], rbx",
                "mov [{0} + 32], r12", "mov [{0} + 40], r13", "mov [{0} + 48], r14",
                "mov [{0} + 56], r15",
                in(reg) values.as_mut_ptr(), out("rax") _,
            );
        }
        let [rip, rsp, rbp, rbx, r12, r13, r14, r15] = values;
        let mut regs = Regs::frame(rip, rsp, rbp);
        let others = [Reg::Rbx, Reg::R12, Reg::R13, Reg::R14, Reg::R15];
        for (reg, value) in others.into_iter().zip([rbx, r12, r13, r14, r15]) {
            regs.set(reg, value);
        }
        regs
    }

    /// The executable mappings of this process with their images, and the end of the mapping that
    /// contains `rsp`.
    fn mappings(rsp: u64) -> Result<(AddressSpace, u64), Box<dyn Error>> {
        let mut space = AddressSpace::new();
        let mut stack_end = rsp;

        for line in std::fs::read_to_string("/proc/self/maps")?.lines() {
            let mut fields = line.split_ascii_whitespace();
            let mut field = || fields.next().unwrap_or_default();
            // address perms offset dev inode pathname (`proc_pid_maps(5)`).
            let (range, permissions, offset) = (field(), field(), field());
            let (_device, _inode, path) = (field(), field(), field());

            let (from, to) = range.split_once('-').ok_or("a line of /proc/self/maps")?;
            let range = u64::from_str_radix(from, 16)?..u64::from_str_radix(to, 16)?;
            if range.contains(&rsp) {
                stack_end = range.end;
            }

            // Names such as `[vdso]` are not files.
            if !permissions.contains('x') || !path.starts_with('/') {
                continue;
            }

            let offset = u64::from_str_radix(offset, 16)?;
            let file = elf::read(
                path,
                Arc::new(std::fs::read(path)?),
                &elf::ReadOptions::default(),
            )?;

            let length = range.end - range.start;
            let bias = file.bias(range.start, length, offset, true);
            space.map(Mapping {
                bias: bias.ok_or("a mapping that matches no segment of its file")?,
                range,
                image: Some(Arc::new(file.into_image())),
                name: path.to_owned(),
            });
        }

        Ok((space, stack_end))
    }

    /// A copy of the stack from `rsp` to its end.
    fn stack_bytes(rsp: u64, end: u64) -> Vec<u8> {
        let length = (end - rsp) as usize;
        // SAFETY: the kernel says that this range is mapped; this thread alone writes to it.
        unsafe { std::slice::from_raw_parts(rsp as *const u8, length) }.to_vec()
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn main() -> Result<(), Box<dyn Error>> {
    Err("this example reads the registers of an x86-64 processor".into())
}
