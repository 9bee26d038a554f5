//! Conventions by symbols: compilers mark where their code starts and ends.

use super::{Convention, Conventions, Evidence, Span};
use alloc::vec::Vec;
use core::ops::Range;

/// The functions of OCaml's runtime, between the marks of its assembly, that C calls: they have to
/// keep C's registers (OCaml 4.13 and 5.3, `runtime/amd64.S`). All others are called by OCaml's
/// code.
const OCAML_CALLED_BY_C: [&str; 5] = [
    "caml_start_program",
    "caml_callback_asm",
    "caml_callback2_asm",
    "caml_callback3_asm",
    "caml_raise_exception",
];

/// A symbol of code: its address (svma), its size in bytes or 0, and its name.
pub type Named<'a> = (u64, u64, &'a str);

/// What symbols say.
pub fn by_symbols<'a>(symbols: impl Iterator<Item = Named<'a>> + Clone) -> Conventions {
    let mut out = Conventions::default();
    let mut spans = ocaml(symbols.clone());
    spans.extend(go(symbols.clone()));
    if spans.is_empty() {
        return out;
    }
    out.overlay(spans);
    let called_by_c = symbols.clone().filter(|&(address, _, name)| {
        OCAML_CALLED_BY_C.contains(&name) && out.at(address).0 == Convention::Ocaml
    });
    let layer = called_by_c.map(|symbol| Span {
        range: symbol.0..end(symbols.clone(), symbol),
        convention: Convention::SystemV,
        evidence: Evidence::Symbols,
    });
    let layer = layer.collect();
    out.overlay(layer);
    out
}

/// The end of a symbol: assembly does not always say its size.
fn end<'a>(symbols: impl Iterator<Item = Named<'a>>, (start, size, _): Named<'a>) -> u64 {
    if size > 0 {
        return start.saturating_add(size);
    }
    let addresses = symbols.map(|symbol| symbol.0);
    addresses.filter(|&at| at > start).min().unwrap_or(start)
}

/// The code between `camlModule__code_begin` and `camlModule__code_end`. Between the parts of the
/// name is `__`, in OCaml 5.2 `.`, and since OCaml 5.3 `$` where assemblers take it.
fn ocaml<'a>(symbols: impl Iterator<Item = Named<'a>> + Clone) -> Vec<Span> {
    let unit = |name: &'a str, mark: &str| {
        let unit = name.strip_suffix(mark)?;
        let is_separator = |c: char| matches!(c, '.' | '$');
        let unit = unit
            .strip_suffix("__")
            .or_else(|| unit.strip_suffix(is_separator))?;
        unit.starts_with("caml").then_some(unit)
    };
    let starts = symbols.clone();
    let starts = starts.filter_map(|symbol| Some((unit(symbol.2, "code_begin")?, symbol.0)));
    let mut starts: Vec<(&str, u64)> = starts.collect();
    starts.sort_unstable();
    let spans = symbols.filter_map(|(end, _, name)| {
        let unit = unit(name, "code_end")?;
        let at = starts.binary_search_by_key(&unit, |start| start.0).ok()?;
        span(starts[at].1..end, Convention::Ocaml)
    });
    spans.collect()
}

/// The code between `runtime.text` and `runtime.etext`, if Go's runtime is there.
fn go<'a>(symbols: impl Iterator<Item = Named<'a>> + Clone) -> Option<Span> {
    let (mut start, mut end, mut exit) = (None, None, None);
    for (address, _, name) in symbols {
        match name {
            "runtime.text" => start = start.or(Some(address)),
            "runtime.etext" => end = end.or(Some(address)),
            "runtime.goexit" | "runtime.goexit.abi0" => exit = exit.or(Some(address)),
            _ => {}
        }
    }
    let span = span(start?..end?, Convention::Go)?;
    span.range.contains(&exit?).then_some(span)
}

fn span(range: Range<u64>, convention: Convention) -> Option<Span> {
    (!range.is_empty()).then_some(Span {
        range,
        convention,
        evidence: Evidence::Symbols,
    })
}
