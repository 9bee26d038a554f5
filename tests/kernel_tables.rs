//! Compares the ORC rows of a kernel with the `.debug_frame` of the same image, which other tools
//! wrote.
//!
//! Needs `UNWIND_SIM_SLOW=1`. Reads every `vmlinux*` with both tables in the folder
//! `UNWIND_SIM_KERNELS`, such as those of Debian's `linux-image-*-dbg` packages.

use crate::common::skip::skip;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use unwind_sim_recordings::mapped::map_file;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::elf;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::{Image, Mapping, SectionKind};
use unwind_sim_unwind::orc::{EntryType, Index};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Base, Rule, RuleKind, Value};

/// How a row differs from its counterpart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Difference {
    /// The other table has no row.
    NoRow,
    /// Both CFAs are based on rsp, with different offsets.
    SpOffset,
    /// Both CFAs are based on rbp, with different offsets.
    BpOffset,
    /// One CFA is based on rsp, the other on rbp.
    SpAgainstBp,
    /// ORC's CFA is based on a register that realigned the stack, or is loaded.
    Realigned,
    /// `.debug_frame` has an expression or another base register.
    Expression,
}

fn difference(orc: &Rule, dwarf: &Rule) -> Option<Difference> {
    if orc.cfa == dwarf.cfa {
        return None;
    }
    let base = |rule: &Rule| match rule.cfa {
        Value::Offset {
            base: Base::Reg(reg),
            ..
        } => Some(reg),
        _ => None,
    };
    Some(match (base(orc), base(dwarf)) {
        (Some(Reg::Rsp), Some(Reg::Rsp)) => Difference::SpOffset,
        (Some(Reg::Rbp), Some(Reg::Rbp)) => Difference::BpOffset,
        (Some(Reg::Rsp | Reg::Rbp), Some(Reg::Rsp | Reg::Rbp)) => Difference::SpAgainstBp,
        (Some(Reg::Rsp | Reg::Rbp), _) => Difference::Expression,
        _ => Difference::Realigned,
    })
}

fn images(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("UNWIND_SIM_KERNELS is a folder");
    let paths = entries.map(|e| e.expect("an entry").path());
    let named = |p: &PathBuf| {
        let name = p.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("vmlinux")
    };
    paths.filter(named).collect()
}

fn compare(image: &Arc<Image>) -> (usize, BTreeMap<Difference, Vec<u64>>) {
    let index = Index::new(image, None).expect("a table").expect("a table");
    let table = index.table().expect("a table");

    // The layout follows from the image, as in a kernel of that version.
    let encoding = index.encoding().expect("a layout");
    let range = index.text().clone();
    let mapping = Mapping {
        range,
        bias: 0,
        image: Some(image.clone()),
        name: "vmlinux".into(),
    };

    let mut cache = Cache::new();
    let (mut same, mut different) = (0, BTreeMap::<_, Vec<u64>>::new());
    for position in 0..table.len() {
        let (ip, stored) = (table.ip(position), table.stored(position));
        let (Some(ip), Some(stored)) = (ip, stored) else {
            continue;
        };
        // Of several rows at one address the last one counts.
        if table.ip(position + 1) == Some(ip) {
            continue;
        }

        let entry = table
            .table()
            .entry(stored, encoding.layout)
            .expect("an entry");
        let entry = entry.expect("it is valid");

        // Only rows of called functions are compared.
        if entry.kind != EntryType::Call {
            continue;
        }

        let orc = entry.rule(encoding.sp_indirect).expect("objtool wrote it");
        let found = Dwarf::new().find(&mapping, ip, &mut cache);

        // Both tables describe the same address; only the CFA is compared.
        let difference = match found {
            Ok(row) if cache.rule(row).kind == RuleKind::Call => difference(&orc, cache.rule(row)),
            _ => Some(Difference::NoRow),
        };

        match difference {
            None => same += 1,
            Some(kind) => different.entry(kind).or_default().push(ip),
        }

        // Otherwise the rows of the whole kernel would be kept.
        if position % 4096 == 0 {
            cache.forget_units();
        }
    }

    (same, different)
}

#[test]
fn orc_and_debug_frame_agree_on_nearly_every_cfa() {
    let name = "orc_and_debug_frame_agree_on_nearly_every_cfa";
    if std::env::var_os("UNWIND_SIM_SLOW").is_none() {
        return skip(name, "slow; set UNWIND_SIM_SLOW=1");
    }
    let Some(folder) = std::env::var_os("UNWIND_SIM_KERNELS") else {
        return skip(name, "UNWIND_SIM_KERNELS names no folder with kernels");
    };

    let mut count = 0;
    for path in images(Path::new(&folder)) {
        // A kernel with debug information is large, so it is mapped, not read.
        let owner = map_file(&path).expect("it can be read");
        let read = elf::image_from_elf("vmlinux", owner, &elf::ReadOptions::default());
        let image = Arc::new(read.expect("an ELF file"));
        let has = |kind| image.section(kind).is_some();

        // A kernel without debug information has only one of the two.
        if !has(SectionKind::DebugFrame) || !has(SectionKind::OrcUnwind) {
            continue;
        }

        count += 1;
        let (same, different) = compare(&image);
        let without_row = different.get(&Difference::NoRow).map_or(0, Vec::len);

        // Where one table has no row there is nothing to compare.
        let both: usize = same + different.values().map(Vec::len).sum::<usize>() - without_row;
        let share = 100.0 * same as f64 / both as f64;

        println!(
            "{}: {share:.2} % of {both} rows have the same CFA",
            path.display()
        );

        for (kind, ips) in &different {
            // A few places of each kind, for a reader to look at.
            let first = ips.iter().take(3).map(|&ip| {
                let symbol = image.symbol(ip);
                symbol.map_or(format!("{ip:#x}"), |s| {
                    format!("{}+{:#x}", s.name, ip - s.address)
                })
            });
            let first: Vec<String> = first.collect();
            println!("  {kind:?}: {}, such as {}", ips.len(), first.join(", "));
        }

        assert!(share > 99.0, "{share}");
    }

    assert!(
        count > 0,
        "no vmlinux with both tables in {}",
        Path::new(&folder).display()
    );
}
