//! Which code of a jitdump file was where, and from when on.

use super::{Dump, Function, Problem, frames};
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind, Symbol};

/// Maximum number of functions in an image: what an image has is searched one by one.
const IMAGE_FUNCTIONS_MAX: usize = 256;
/// Size of a page, bytes.
const PAGE: u64 = 4096;

/// Code that was at an address from a certain time on.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The time, in the clock of the file.
    pub time: u64,
    /// The addresses (AVMA).
    pub range: Range<u64>,
    /// AVMA - SVMA, modulo 2^64: 0 unless the code was moved.
    pub bias: u64,
    /// The code, its symbols and rows.
    pub image: Arc<Image>,
}

/// The code of a jitdump file as images.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// The entries, in the order of time. A later one replaces what it overlaps.
    pub entries: Vec<Entry>,
    /// What could not be used.
    pub problems: Vec<Problem>,
}

impl Layout {
    /// The images of `dump`, named `name`. Neighbouring functions that nothing replaces share one,
    /// from the time of the first of them on. If times cannot be compared with those of the samples
    /// (`has_times` is false), all entries have the time 0, and functions that were replaced are
    /// left out.
    pub fn new(dump: &Dump, name: &str, has_times: bool) -> Layout {
        let mut layout = Layout {
            problems: dump.problem.into_iter().collect(),
            ..Layout::default()
        };
        let mut maker = Maker {
            name,
            refused: 0,
            first_refused: 0,
        };
        let functions = dump.functions.iter().filter(|f| f.size > 0);
        let mut order: Vec<&Function> = functions.collect();
        // Neighbours, and what was at one address in turn, stand next to each other.
        order.sort_by_key(|f| (f.address, f.time));
        let shared = overlapping(&order);

        let mut replaced = 0;
        let mut group: Vec<&Function> = Vec::new();
        for (function, is_shared) in order.into_iter().zip(shared) {
            // Moved code has another bias, and shared memory has another image at another time.
            let is_alone = is_shared || function.address != function.written_at;
            let ends = group.last().is_some_and(|last| is_apart(last, function));
            if is_alone || ends || group.len() == IMAGE_FUNCTIONS_MAX {
                layout.entries.extend(maker.entry(&group));
                group.clear();
            }
            match (is_alone, is_shared && !has_times) {
                // Without times it is not known which of them was there when.
                (_, true) => replaced += 1,
                (true, _) => layout.entries.extend(maker.entry(&[function])),
                (false, _) => group.push(function),
            }
        }
        layout.entries.extend(maker.entry(&group));

        // All of them are there from the start.
        if !has_times {
            layout.entries.iter_mut().for_each(|entry| entry.time = 0);
        }
        layout.entries.sort_by_key(|entry| entry.time);
        if maker.refused > 0 {
            layout.problems.push(Problem::Unwinding {
                count: maker.refused,
                address: maker.first_refused,
            });
        }
        if replaced > 0 {
            layout.problems.push(Problem::Clock { count: replaced });
        }
        layout
    }
}

impl Function {
    /// The function as an image of its own, named `name`, with its rows if they can be used; `None`
    /// if it has no code.
    pub fn entry(&self, name: &str) -> Option<Entry> {
        let mut maker = Maker {
            name,
            refused: 0,
            first_refused: 0,
        };
        maker.entry(&[self]).filter(|_| self.size > 0)
    }

    /// The symbol of the function, at the address that it has.
    pub fn symbol(&self) -> Symbol {
        Symbol {
            address: self.address,
            size: self.size,
            name: self.name.clone(),
        }
    }
}

/// For each function, in the order of addresses: does it overlap another one?
fn overlapping(order: &[&Function]) -> Vec<bool> {
    let mut out = vec![false; order.len()];
    // The function that reaches furthest so far.
    let mut furthest: Option<usize> = None;
    for (i, function) in order.iter().enumerate() {
        let end = |i: usize| order[i].address + order[i].size;
        if let Some(last) = furthest
            && function.address < end(last)
        {
            out[last] = true;
            out[i] = true;
        }
        if furthest.is_none_or(|last| end(last) <= end(i)) {
            furthest = Some(i);
        }
    }
    out
}

/// Is a whole page between two functions? Then other memory may be there.
fn is_apart(last: &Function, next: &Function) -> bool {
    let end = last.address + last.size;
    let after = end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
    after.saturating_add(PAGE) <= next.address
}

struct Maker<'d> {
    name: &'d str,
    /// The number of functions whose unwind entries cannot be used.
    refused: u64,
    first_refused: u64,
}

impl Maker<'_> {
    /// One image of these functions, which do not overlap; `None` if there are none.
    fn entry(&mut self, functions: &[&Function]) -> Option<Entry> {
        // In the order of their addresses: the image reaches from the first to the last.
        let (first, last) = (functions.first()?, functions.last()?);
        let bias = first.address.wrapping_sub(first.written_at);
        let range = first.address..last.address + last.size;
        // Where the code was written: its symbols and rows are for that place.
        let stated = range.start.wrapping_sub(bias)..range.end.wrapping_sub(bias);

        let mut sections = Vec::new();
        let mut table = Vec::new();
        // The joined table is made here, so its place is free: behind the code.
        let table_address = stated.end.checked_next_multiple_of(8);

        for function in functions {
            let code = function.code.clone();
            if !code.is_empty() {
                sections.push(Section {
                    kind: SectionKind::Text,
                    address: function.written_at,
                    data: code,
                });
            }
            if function.unwinding.is_some() {
                let done = table_address.and_then(|at| frames::append(function, at, &mut table));
                if done.is_none() {
                    // One problem is reported for all of them.
                    if self.refused == 0 {
                        self.first_refused = function.address;
                    }
                    self.refused += 1;
                }
            }
        }

        if let Some(address) = table_address.filter(|_| !table.is_empty()) {
            sections.push(Section {
                kind: SectionKind::EhFrame,
                address,
                data: Bytes::from_vec(table),
            });
        }

        let symbols = functions.iter().map(|f| Symbol {
            address: f.written_at,
            size: f.size,
            name: f.name.clone(),
        });
        // The image is there as soon as its first function is.
        let time = functions.iter().map(|f| f.time).min()?;

        let image = Image::new(ImageParts {
            name: self.name.to_owned(),
            text: vec![stated],
            sections,
            symbols: symbols.collect(),
            ..ImageParts::default()
        });

        Some(Entry {
            time,
            range,
            bias,
            image: Arc::new(image),
        })
    }
}
