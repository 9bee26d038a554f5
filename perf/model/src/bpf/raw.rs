//! Objects made from instructions alone, for tests and for tools that assemble programs.

use super::insn::{INSN_SIZE, Insn};
use super::object::{Function, MapDef, Object, ProgramDef};

impl Object {
    /// An object with one program under the GPL. Functions start at the targets of calls.
    pub fn from_insns(section: &str, insns: &[Insn], maps: &[MapDef]) -> Self {
        let mut starts = vec![0];
        for (at, insn) in insns.iter().enumerate() {
            if insn.is_subprogram_call() {
                // The displacement of a call counts from the next instruction.
                let target = at as i64 + 1 + i64::from(insn.imm);
                starts.extend(usize::try_from(target).ok().filter(|at| *at < insns.len()));
            }
        }

        // In the order of the code, and once each: several calls may have one target.
        starts.sort_unstable();
        starts.dedup();
        let functions = starts.into_iter().map(|start| Function {
            name: format!("function_{start}"),
            start,
        });

        Self {
            programs: vec![ProgramDef {
                name: "program".to_owned(),
                section: section.to_owned(),
                offset: 0,
                insns: insns.to_vec(),
                functions: functions.collect(),
            }],
            maps: maps.to_vec(),
            license: "GPL".to_owned(),
        }
    }
}

/// Decodes instructions. Bytes after the last whole instruction are ignored.
pub fn decode_all(bytes: &[u8]) -> Vec<Insn> {
    let (insns, _) = bytes.as_chunks::<INSN_SIZE>();
    insns.iter().map(|bytes| Insn::decode(*bytes)).collect()
}
