//! Functions of libraries that never return, by name.
//!
//! Sources: the declarations with `noreturn` in glibc's, libstdc++'s, libgcc's and GLib's headers;
//! the psABI's and the Itanium ABI's runtime; the panics of Rust's `core`, `alloc` and `std`, and of Go's
//! `runtime`; OCaml's `caml/fail.h` and `amd64.S`.
//! Functions of the file itself need no name: that they never return is found in their code.

/// Names in C, without a version.
const NAMES: &[&str] = &[
    "_Exit",
    "_Unwind_Resume",
    "_ZSt10unexpectedv",
    "_ZSt9terminatev",
    "__assert",
    "__assert_fail",
    "__assert_perror_fail",
    "__chk_fail",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_call_terminate",
    "__cxa_call_unexpected",
    "__cxa_deleted_virtual",
    "__cxa_pure_virtual",
    "__cxa_rethrow",
    "__cxa_throw",
    "__cxa_throw_bad_array_length",
    "__cxa_throw_bad_array_new_length",
    "__fortify_fail",
    "__libc_fatal",
    "__libc_start_main",
    "__longjmp_chk",
    "__stack_chk_fail",
    "_exit",
    "_longjmp",
    "abort",
    "caml_array_align_error",
    "caml_array_bound_error",
    "caml_array_bound_error_asm",
    "caml_failwith",
    "caml_failwith_value",
    "caml_invalid_argument",
    "caml_invalid_argument_value",
    "caml_ml_array_align_error",
    "caml_ml_array_bound_error",
    "caml_raise",
    "caml_raise_constant",
    "caml_raise_end_of_file",
    "caml_raise_exception",
    "caml_raise_exn",
    "caml_raise_not_found",
    "caml_raise_out_of_memory",
    "caml_raise_stack_overflow",
    "caml_raise_sys_blocked_io",
    "caml_raise_sys_error",
    "caml_raise_with_arg",
    "caml_raise_with_args",
    "caml_raise_with_string",
    "caml_raise_zero_divide",
    "caml_reraise_exn",
    "err",
    "errx",
    "exit",
    "g_abort",
    "g_assertion_message",
    "g_assertion_message_cmpint",
    "g_assertion_message_cmpnum",
    "g_assertion_message_cmpstr",
    "g_assertion_message_cmpstrv",
    "g_assertion_message_error",
    "g_assertion_message_expr",
    "g_thread_exit",
    "longjmp",
    "pthread_exit",
    "quick_exit",
    "runtime.fatalpanic",
    "runtime.fatalthrow",
    "runtime.gopanic",
    "runtime.throw",
    "rust_begin_unwind",
    "rust_panic",
    "siglongjmp",
    "thrd_exit",
    "verr",
    "verrx",
    "xalloc_die",
];

/// Beginnings of names, mangled ones and Go's: panics.
const PREFIXES: &[&str] = &[
    "_ZN4core9panicking",
    "_ZN4core6option13expect_failed",
    "_ZN4core6option13unwrap_failed",
    "_ZN4core6result13unwrap_failed",
    "_ZN4core5slice5index2",
    "_ZN4core3str16slice_error_fail",
    "_ZN4core4cell22panic_already",
    "_ZN5alloc5alloc18handle_alloc_error",
    "_ZN5alloc7raw_vec17capacity_overflow",
    "_ZN5alloc7raw_vec12handle_error",
    "_ZN3std9panicking11begin_panic",
    "_ZN3std9panicking20rust_panic",
    "_ZN3std7process4exit",
    "_ZN3std7process5abort",
    "runtime.goPanic",
    "runtime.panicIndex",
    "runtime.panicSlice",
    "runtime.panicdivide",
    "runtime.panicdottype",
    "runtime.panicnildottype",
    "runtime.panicoverflow",
    "runtime.panicshift",
    "runtime.panicwrap",
];

/// Whether a function of this name never returns.
pub fn is_known(name: &str) -> bool {
    let name = name.strip_suffix("@plt").unwrap_or(name);
    let name = name.split('@').next().unwrap_or(name);
    NAMES.binary_search(&name).is_ok()
        || name.starts_with("_ZSt") && is_throw(&name["_ZSt".len()..])
        || PREFIXES.iter().any(|p| name.starts_with(p))
}

/// Whether `name`, a source name with its length before it, begins with `__throw_`.
fn is_throw(name: &str) -> bool {
    name.trim_start_matches(|c: char| c.is_ascii_digit())
        .starts_with("__throw_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_for_the_search() {
        let mut sorted = NAMES.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, NAMES);
    }

    #[test]
    fn versions_and_stubs_do_not_hide_a_name() {
        for name in [
            "abort",
            "abort@plt",
            "exit@GLIBC_2.2.5",
            "_ZSt20__throw_length_errorPKc@plt",
        ] {
            assert!(is_known(name), "{name}");
        }
        for name in ["aborted", "printf", "_ZSt4cout", "exit_all"] {
            assert!(!is_known(name), "{name}");
        }
    }
}
