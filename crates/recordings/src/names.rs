//! Names of code addresses: symbol, offset and image, demangled.

use std::fmt;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::image::{AddressSpace, Mapping};
use unwind_sim_unwind::insn::{INSN_BYTES_MAX, is_sigreturn};
use unwind_sim_unwind::kernel::Generated;
use unwind_sim_unwind::printable::Printable;

/// Bytes of a demangled C++ name; a longer one is shown as it is in the file. Each part of a name may be
/// twice the part before it, so that 300 bytes can stand for gigabytes. rustc_demangle has such a limit,
/// and stops there.
const DEMANGLED_MAX: usize = 256 << 10;

/// A readable function name: Rust and C++ names are demangled, versions and hashes removed. The name of
/// an entry of a procedure linkage table keeps its `@plt`.
pub fn demangle(name: &str) -> String {
    if let Some(function) = name.strip_suffix("@plt") {
        return format!("{}@plt", demangle(function));
    }
    demangle_or_keep(name.split_once('@').map_or(name, |(base, _)| base))
}

/// Like [`demangle`], but keeps a name that is not mangled unchanged, including its version.
pub fn demangle_or_keep(plain: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(plain) {
        return format!("{rust:#}");
    }
    if plain.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(plain)
        && let Some(text) = demangled(&symbol)
    {
        return as_others_do(&text);
    }
    plain.to_owned()
}

/// The text of a C++ name; `None` if it is too long, or contradicts itself.
fn demangled(symbol: &cpp_demangle::Symbol<&str>) -> Option<String> {
    let mut text = Bounded(String::new());
    let options = cpp_demangle::DemangleOptions::new();
    symbol.structured_demangle(&mut text, &options).ok()?;
    Some(text.0)
}

/// Text that fails to grow beyond [`DEMANGLED_MAX`].
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > DEMANGLED_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

/// Writes a demangled C++ name as binutils and LLVM do: no comma before an empty parameter pack,
/// the number after a clone suffix is part of the suffix, and casts are literal suffixes.
fn as_others_do(text: &str) -> String {
    let text = text.replace(", >", ">").replace(", )", ")");
    let mut text = without_context_type(&text).to_owned();
    let mut from = 0;
    while let Some(at) = text[from..].find("] [clone .").map(|at| from + at) {
        let behind = at + "] [clone .".len();
        if text[behind..].starts_with(|c: char| c.is_ascii_digit()) {
            text.replace_range(at..behind, ".");
            from = at;
        } else {
            from = behind;
        }
    }
    for (cast, suffix) in [
        ("(unsigned int)", "u"),
        ("(unsigned long)", "ul"),
        ("(long)", "l"),
    ] {
        literals(&mut text, cast, suffix);
    }
    text
}

/// Removes the return type of the function that encloses a local name, such as a lambda of a
/// function template: GNU's demangler prints only the return type of the name itself.
fn without_context_type(text: &str) -> &str {
    const ANONYMOUS: &str = "(anonymous namespace)";
    let (mut depth, mut space) = (0usize, None);
    let mut at = 0;

    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            // Its parentheses and its space are part of a name.
            _ if text[at..].starts_with(ANONYMOUS) => at += ANONYMOUS.len() - 1,
            // Operator names contain brackets, those of conversions also types.
            _ if text[at..].starts_with("operator") || text[at..].starts_with("decltype") => {
                return text;
            }
            b'(' if depth == 0 => break,
            b'<' | b'(' | b'{' | b'[' => depth += 1,
            b'>' | b')' | b'}' | b']' => depth = depth.saturating_sub(1),
            b' ' if depth == 0 => space = Some(at + 1),
            _ => {}
        }
        at += 1;
    }

    let (Some(name), Some(parameters)) = (space, text.get(at..)) else {
        return text;
    };

    // An inner function template has its own return type, which comes first.
    let last = last_parameters(text);
    if last > at && text.as_bytes().get(last.wrapping_sub(1)) == Some(&b'>') {
        return text;
    }

    let mut depth = 0usize;
    let end = parameters.bytes().position(|byte| {
        depth += usize::from(byte == b'(');
        depth -= usize::from(byte == b')' && depth > 0);
        byte == b')' && depth == 0
    });

    // A member function has its qualifiers between its parameters and the local name.
    let behind = end.map_or("", |end| &parameters[end + 1..]);
    let behind = behind
        .trim_start_matches(" const")
        .trim_start_matches([' ', '&']);

    if behind.starts_with("::") {
        &text[name..]
    } else {
        text
    }
}

/// The start of the last parameter list outside other brackets; 0 if there is none.
fn last_parameters(text: &str) -> usize {
    let (mut depth, mut last) = (0usize, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'<' | b'{' | b'[' => {
                if byte == b'(' && depth == 0 {
                    last = at;
                }
                depth += 1;
            }
            b'>' | b')' | b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    last
}

/// Turns numbers with a cast, `(unsigned int)1`, into literals with a suffix, `1u`.
fn literals(text: &mut String, cast: &str, suffix: &str) {
    let mut from = 0;
    while let Some(at) = text[from..].find(cast).map(|at| from + at) {
        let number = &text[at + cast.len()..];
        let digits = number.bytes().take_while(u8::is_ascii_digit).count();
        if digits != 0 {
            text.insert_str(at + cast.len() + digits, suffix);
            text.replace_range(at..at + cast.len(), "");
        }
        from = at + 1;
    }
}

/// The symbol, offset and image of a code address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Location {
    /// The demangled function; `None` without a symbol.
    pub function: Option<String>,
    /// Bytes from the start of the function; without one, the address in the image (SVMA).
    pub offset: u64,
    /// The image's file name without folders; without an image, the mapping's name.
    pub image: Option<String>,
}

impl Location {
    /// The location of `pc` in `space`. For a return address, the function is that of the call; a
    /// signal trampoline, which nothing called, is looked up as it is.
    pub fn of(space: &AddressSpace, pc: CodeAddress) -> Location {
        let lookup = if is_trampoline(space, pc.value()) {
            pc.value()
        } else {
            pc.symbol_address()
        };
        Self::in_space(space, lookup, pc.value())
    }

    /// The location of `address` itself.
    pub fn at(space: &AddressSpace, address: u64) -> Location {
        Self::in_space(space, address, address)
    }

    fn in_space(space: &AddressSpace, lookup: u64, address: u64) -> Location {
        Self::in_mapping(space.find(lookup), lookup, address)
    }

    /// The location of `address` in a mapping that also holds `lookup`, whose function is used.
    pub fn in_mapping(mapping: Option<&Mapping>, lookup: u64, address: u64) -> Location {
        let is_named = |m: &&Mapping| m.image.is_some() || !m.name.is_empty();
        let Some(mapping) = mapping.filter(is_named) else {
            return Location {
                function: None,
                offset: address,
                image: None,
            };
        };

        // Such code has no image, but its mapping says what it is.
        if let Some((name, start)) = kernel_generated(mapping) {
            return Location {
                function: Some(name.to_owned()),
                offset: address.wrapping_sub(start),
                image: Some(name.to_owned()),
            };
        }

        let svma = mapping.svma(address);
        // `lookup` is inside the call; the return address may belong to the next function.
        let symbol = mapping
            .image
            .as_ref()
            .and_then(|i| i.symbol(mapping.svma(lookup)));
        let image = mapping
            .image
            .as_ref()
            .map_or(mapping.name.as_str(), |i| i.name());

        Location {
            function: symbol.map(|s| demangle(&s.name)),
            offset: symbol.map_or(svma, |s| svma.wrapping_sub(s.address)),
            image: Some(file_name(image).to_owned()),
        }
    }
}

/// The name and the start of code that a kernel generated, as kallsyms has them: a BPF program or
/// trampoline, an ftrace trampoline, a page of kprobes. It has no image. The kernel and perf count
/// offsets from the start.
pub fn kernel_generated(mapping: &Mapping) -> Option<(&str, u64)> {
    let is_generated = mapping.image.is_none() && Generated::from_name(&mapping.name).is_some();
    let name = mapping.name.split(':').next().filter(|_| is_generated)?;
    Some((name, mapping.range.start))
}

/// Whether `address` is the start of a signal trampoline, to which a handler returns.
pub fn is_trampoline(space: &AddressSpace, address: u64) -> bool {
    let code = space.find(address).and_then(|mapping| {
        let image = mapping.image.as_ref()?;
        Some(image.text_bytes(mapping.svma(address), INSN_BYTES_MAX))
    });
    code.is_some_and(is_sigreturn)
}

/// The last component of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl std::fmt::Display for Location {
    /// Writes `function+0x12`, `libc.so.6+0x2345`, or the bare address, for a person.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", Printable::new(&self.exact()))
    }
}

impl Location {
    /// The location as [`Display`](std::fmt::Display) writes it, with the exact names.
    pub fn exact(&self) -> String {
        match (&self.function, &self.image) {
            (Some(name), _) | (None, Some(name)) => format!("{name}+{:#x}", self.offset),
            (None, None) => format!("{:#x}", self.offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Location, demangle};
    use std::sync::Arc;
    use unwind_sim_unwind::address::CodeAddress;
    use unwind_sim_unwind::image::{
        AddressSpace, Bytes, Image, ImageParts, Mapping, Section, SectionKind, Symbol,
    };

    /// Nothing called it: the byte before it belongs to whatever is there.
    #[test]
    fn a_signal_trampoline_is_looked_up_as_it_is() {
        let named = |code: &[u8]| {
            let symbol = |address, name: &str| Symbol {
                address,
                size: 16,
                name: name.into(),
            };
            let image = Image::new(ImageParts {
                text: std::iter::once(0x1000..0x2000).collect(),
                sections: vec![Section {
                    kind: SectionKind::Text,
                    address: 0x1010,
                    data: Bytes::from_vec(code.to_vec()),
                }],
                symbols: vec![symbol(0x1000, "before"), symbol(0x1010, "restore")],
                ..ImageParts::default()
            });
            let mut space = AddressSpace::new();
            space.map(Mapping {
                range: 0x1000..0x2000,
                bias: 0,
                image: Some(Arc::new(image)),
                name: "a".into(),
            });
            Location::of(&space, CodeAddress::Return(0x1010)).to_string()
        };
        // mov $15, %rax (`rt_sigreturn`); syscall.
        let glibc = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
        assert_eq!(named(&glibc), "restore+0x0");
        assert_eq!(named(&[0xb8, 15, 0, 0, 0, 0x0f, 0x05]), "restore+0x0");
        // exit, and less than the whole trampoline.
        assert_eq!(named(&[0xb8, 60, 0, 0, 0, 0x0f, 0x05]), "before+0x10");
        assert_eq!(named(&glibc[..8]), "before+0x10");
    }

    /// The kernel and perf print `bpf_trampoline_6442536467+0x51`, not an address or what the
    /// mapping's name says of the frame pointer.
    #[test]
    fn generated_code_of_the_kernel_has_offsets_from_its_start() {
        const START: u64 = 0xffff_ffff_c020_1000;
        let named = |name: &str, address: u64| {
            let mut space = AddressSpace::new();
            space.map(Mapping {
                range: START..START + 0x1000,
                bias: 0,
                image: None,
                name: name.into(),
            });
            Location::of(&space, CodeAddress::Return(address))
        };
        for (mapping, name) in [
            ("bpf_trampoline_6442536467", "bpf_trampoline_6442536467"),
            (
                // Where it has a frame pointer, for the unwinder.
                "bpf_trampoline_6442536467:8-f3",
                "bpf_trampoline_6442536467",
            ),
            ("ftrace_trampoline:regs", "ftrace_trampoline"),
            ("kprobe_insn_page", "kprobe_insn_page"),
        ] {
            let location = named(mapping, START + 0x51);
            assert_eq!(location.to_string(), format!("{name}+0x51"));
            assert_eq!(location.function.as_deref(), Some(name));
        }
        // Nobody knows where this starts.
        let other = named("/memfd:bpf_x", START + 0x51);
        assert_eq!(other.to_string(), "memfd:bpf_x+0xffffffffc0201051");
    }

    #[test]
    fn names_are_demangled() {
        assert_eq!(
            demangle("_ZNSt6vectorIiE9push_backEi"),
            "std::vector<int>::push_back(int)"
        );
        assert_eq!(demangle("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
        assert_eq!(demangle("memcpy@@GLIBC_2.14"), "memcpy");
        assert_eq!(demangle("main"), "main");
    }

    /// Each parameter is twice as long as the one before it.
    fn doubling(levels: usize) -> String {
        let number = |n: usize| match n {
            0..10 => n.to_string(),
            _ => char::from(b'A' + (n - 10) as u8).to_string(),
        };
        let mut name = "_Z1f1aIiE".to_owned();
        for level in 0..levels {
            let n = number(2 * level);
            name += &format!("1bIS{n}_S{n}_E");
        }
        name
    }

    #[test]
    fn a_name_that_becomes_too_long_is_kept() {
        assert_eq!(demangle(&doubling(1)), "f(a<int>, b<a<int>, a<int> >)");
        assert!(demangle(&doubling(10)).len() > 10_000);
        assert_eq!(demangle(&doubling(18)), doubling(18));
    }

    /// The expected names are those of GNU's c++filt.
    #[test]
    fn the_function_around_a_local_name_has_no_return_type() {
        for (mangled, wanted) in [
            (
                "_ZZZ3runIZ4mainEUliE_EDaT_ENKUlS1_E_clIiEEDaS1_EN1L1gEi",
                "run<main::{lambda(int)#1}>(main::{lambda(int)#1})::{lambda(auto:1)#1}\
                 ::operator()<int>(int) const::L::g(int)",
            ),
            (
                "_ZZ1fIiEvT_ENKUlvE_clEv",
                "f<int>(int)::{lambda()#1}::operator()() const",
            ),
            // Not a local name: the return type is its own, and stays.
            ("_Z1fIiEvT_", "void f<int>(int)"),
            // A variable, whose own type is not in the name.
            ("_ZZ1fIiEvT_E1x", "f<int>(int)::x"),
            (
                "_ZZ1fvENKUlT_E_clIiEEDaS_",
                "auto f()::{lambda(auto:1)#1}::operator()<int>(int) const",
            ),
            (
                "_ZZ1fvENKUlvE_clEv",
                "f()::{lambda()#1}::operator()() const",
            ),
        ] {
            assert_eq!(demangle(mangled), wanted);
        }
    }
}
