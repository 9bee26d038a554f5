//! Functions of libraries that return to their caller, by name.
//!
//! Sources: ISO C17 (clause 7), POSIX.1-2024, glibc's checked variants of both (`__NAME_chk`, Linux Standard
//! Base), and the Itanium C++ ABI's names of `operator new` and `operator delete`. Each has a way on
//! which it returns, whatever it does in an error. None calls a function that its caller gives it, which
//! might end the thread: so `qsort` is not here.

/// Names in C, without a version.
const NAMES: &[&str] = &[
    "_ZdaPv",
    "_ZdlPv",
    "_ZdlPvm",
    "_Znam",
    "_Znwm",
    "__ctype_b_loc",
    "__cxa_allocate_exception",
    "__errno_location",
    "__fprintf_chk",
    "__memcpy_chk",
    "__memmove_chk",
    "__memset_chk",
    "__printf_chk",
    "__snprintf_chk",
    "__sprintf_chk",
    "__strcat_chk",
    "__strcpy_chk",
    "__strncpy_chk",
    "__vfprintf_chk",
    "__vsnprintf_chk",
    "abs",
    "access",
    "atof",
    "atoi",
    "atol",
    "bcmp",
    "bzero",
    "calloc",
    "clock",
    "clock_gettime",
    "close",
    "cos",
    "dup",
    "dup2",
    "exp",
    "fclose",
    "fcntl",
    "feof",
    "ferror",
    "fflush",
    "fgetc",
    "fgets",
    "fileno",
    "floor",
    "fopen",
    "fprintf",
    "fputc",
    "fputs",
    "fread",
    "free",
    "fseek",
    "fstat",
    "fsync",
    "ftell",
    "fwrite",
    "getc",
    "getcwd",
    "getenv",
    "getpid",
    "getrusage",
    "gettimeofday",
    "ioctl",
    "isatty",
    "labs",
    "localtime",
    "log",
    "lseek",
    "lstat",
    "malloc",
    "memchr",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "mkdir",
    "mmap",
    "mprotect",
    "munmap",
    "nanosleep",
    "open",
    "perror",
    "pow",
    "printf",
    "pthread_mutex_init",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pthread_self",
    "putc",
    "putchar",
    "puts",
    "rand",
    "read",
    "realloc",
    "rename",
    "setenv",
    "setlocale",
    "sin",
    "snprintf",
    "sprintf",
    "sqrt",
    "srand",
    "stat",
    "strcasecmp",
    "strcat",
    "strchr",
    "strcmp",
    "strcpy",
    "strcspn",
    "strdup",
    "strerror",
    "strlen",
    "strncasecmp",
    "strncat",
    "strncmp",
    "strncpy",
    "strpbrk",
    "strrchr",
    "strspn",
    "strstr",
    "strtod",
    "strtok",
    "strtol",
    "strtoll",
    "strtoul",
    "strtoull",
    "time",
    "tolower",
    "toupper",
    "ungetc",
    "unlink",
    "vfprintf",
    "vprintf",
    "vsnprintf",
    "vsprintf",
    "write",
];

/// Whether a function of this name returns, at least on one of its ways.
pub fn is_known(name: &str) -> bool {
    let name = name.strip_suffix("@plt").unwrap_or(name);
    let name = name.split('@').next().unwrap_or(name);

    NAMES.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::no_return;

    #[test]
    fn names_are_sorted_and_return() {
        let mut sorted = NAMES.to_vec();
        sorted.sort_unstable();

        assert_eq!(sorted, NAMES);
        assert!(!NAMES.iter().any(|name| no_return::is_known(name)));
    }

    #[test]
    fn versions_and_stubs_do_not_hide_a_name() {
        assert!(is_known("strlen@plt") && is_known("malloc@GLIBC_2.2.5"));
        assert!(!is_known("qsort") && !is_known("strlen_of_mine"));
    }
}
