//! Compares the output of `exceptions.c` case by case: only what the table of differences lists may
//! differ between processors.

use unwind_sim_emulator::Processor;
use unwind_sim_emulator::differences::{Bits, Difference, Instructions, TABLE};

/// A case: its code, and the fields that the handler printed.
#[derive(Debug)]
struct Block<'a> {
    code: &'a str,
    fields: Vec<(&'a str, &'a str)>,
}

const FIELDS: [&str; 8] = [
    "signal", "code", "address", "trap", "error", "rip", "rsp", "rbp",
];

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut all: Vec<Block<'_>> = Vec::new();
    for line in text.lines() {
        let field = line.trim().split_once(' ');
        match (all.last_mut(), field) {
            (Some(block), Some((name, value)))
                if line.starts_with(' ') && FIELDS.contains(&name) =>
            {
                block.fields.push((name, value));
            }
            // The second line of the code of a case.
            (Some(block), _) if line.starts_with(' ') => block.code = line.trim(),
            _ => all.push(Block {
                code: line,
                fields: Vec::new(),
            }),
        }
    }
    all
}

/// The fields of a case that an entry allows to differ.
fn open(entry: &Difference, block: &Block<'_>) -> Vec<&'static str> {
    let word = block.code.split_whitespace().next().unwrap_or_default();
    let is_about = match entry.instructions {
        Instructions::Named(names) => names
            .iter()
            .any(|name| format!("{name:?}").eq_ignore_ascii_case(word)),
        Instructions::Memory | Instructions::X87 => false,
    };
    if !is_about {
        return Vec::new();
    }
    let fields = entry.bits.iter().flat_map(|bits| match bits {
        // A trap reports the address of the next instruction.
        Bits::Rip if word == "int1" => vec!["rip", "address"],
        Bits::Rip => vec!["rip"],
        Bits::Ended(_) => vec!["signal", "code", "address", "trap", "error"],
        _ => Vec::new(),
    });
    fields.collect()
}

/// The differences that are not allowed on this processor.
pub(crate) fn differences(ours: &str, theirs: &str, cpu: &Processor) -> Vec<String> {
    let (ours, theirs) = (blocks(ours), blocks(theirs));
    let mut all = Vec::new();
    if ours.len() != theirs.len() {
        all.push(format!("{} cases and {}", ours.len(), theirs.len()));
    }
    for (a, b) in ours.iter().zip(&theirs) {
        let listed = TABLE.iter().filter(|entry| entry.on.has(cpu));
        let open: Vec<_> = listed.flat_map(|entry| open(entry, a)).collect();
        let fields = a.fields.len() == b.fields.len() && a.code == b.code;
        let values = a.fields.iter().zip(&b.fields);
        let mut differ = values.filter(|(a, b)| a != b && !(a.0 == b.0 && open.contains(&a.0)));
        if let Some((ours, theirs)) = differ.next() {
            all.push(format!("{}: {ours:?}, the processor {theirs:?}", a.code));
        } else if !fields {
            all.push(format!("{a:?}, the processor {b:?}"));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use unwind_sim_emulator::Vendor;

    fn text(code: &str, address: u64, rip: u64, trap: u64) -> String {
        format!(
            "{code}\n signal 5\n  code 1\n  address {address}\n  trap {trap}\n  error 0\n  rip {rip}\n  \
             rsp 0\n  rbp 0\n"
        )
    }

    /// Seen on an AMD EPYC, family 25, model 17: the address of INT1 is that of the instruction.
    #[test]
    fn an_address_that_is_listed_may_differ_on_its_vendors_processors_alone() {
        let ours = text("int1", 4_199_354, 1, 1);
        let theirs = text("int1", 4_199_353, 0, 1);
        let [intel, amd] = [Vendor::Intel, Vendor::Amd].map(Processor::new);
        assert!(differences(&ours, &theirs, &amd).is_empty());
        assert_eq!(differences(&ours, &theirs, &intel).len(), 1);
        // Another instruction, and another field.
        let ours = text("int3", 4_199_354, 1, 3);
        let theirs = text("int3", 4_199_353, 0, 3);
        for cpu in [&intel, &amd] {
            assert_eq!(differences(&ours, &theirs, cpu).len(), 1);
        }
        let (one, three) = (text("int1", 0, 0, 1), text("int1", 0, 0, 3));
        assert_eq!(differences(&one, &three, &amd).len(), 1);
    }
}
