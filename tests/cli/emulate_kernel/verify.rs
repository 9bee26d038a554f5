//! What `verify --kernel` refuses.

use super::*;

/// `verify --kernel` needs what it compares, and says which of it a kernel lacks; what is said of a program
/// is refused.
#[test]
fn verify_refuses_a_kernel_that_it_cannot_judge() {
    let files = Files::new();
    let kernel = files.put("vmlinux", &image::vmlinux(&[HALT]));
    let named = image::vmlinux_with_symbols(&[HALT], &[("__switch_to_asm", 0)]);
    let named = files.put("named", &named);
    let tables = "--tables-from is for programs that run without a kernel";
    let view = "--view is for programs that run without a kernel";
    let children = "--children is for programs that run without a kernel";
    for (kernel, options, told) in [
        (&kernel, &[][..], "has no ORC table that can be read"),
        (
            &kernel,
            &["-u", "fp"],
            "no symbols of the code that switches between tasks",
        ),
        (
            &named,
            &["-u", "fp"],
            "no symbols of the code that switches between tasks",
        ),
        (
            &named,
            &["-u", "orc:kernel"],
            "no walk can be taken: the kernel image has no type information (.BTF, CONFIG_DEBUG_INFO_BTF)",
        ),
        (
            &named,
            &["-u", "fp", "--nmi", "sometimes"],
            "--nmi sometimes: expected every:N or at:SYMBOL[..SYMBOL]",
        ),
        (
            &named,
            &["-u", "fp", "--nmi", "every:0"],
            "--nmi every:0: not a number above 0",
        ),
        (
            &named,
            &["-u", "fp", "--nmi", "at:nowhere"],
            "--nmi: the kernel has no symbol nowhere",
        ),
        (
            &named,
            &["-u", "fp", "--nmi", "at:__switch_to_asm..__switch_to_asm"],
            "the second symbol is not behind the first one",
        ),
        (
            &kernel,
            &["-u", "guess"],
            "guess reads no table, so there are no rows to verify",
        ),
        (&kernel, &["--tables-from", &named], tables),
        (&kernel, &["--children", "none"], children),
        (&kernel, &["--view", "copy:64"], view),
        (
            &kernel,
            &["--", "/bin/true"],
            "verify --kernel FILE --init /bin/true",
        ),
    ] {
        let output = run(&[&["verify", "--kernel", kernel], options].concat());
        let said = stderr(&output);
        assert_eq!((stdout(&output), status(&output)), ("", 2), "{said}");
        assert!(said.contains(told), "{options:?}: {said}");
    }
}
