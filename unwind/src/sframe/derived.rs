//! Derives SFrame V3 rows from `.eh_frame`, flexible rows where necessary.
//!
//! SFrame can express: a CFA based on any register or loaded from `*(register + offset)`; a return
//! address at any offset from the CFA or a register, or in a register; rbp likewise; the root; the
//! signal bit, so that x86-64's `rt_sigreturn` frame is possible (CFA `*(rsp + 160)`, return
//! address `*(rsp + 168)`), which GNU as does not write; PLTs with `PCMASK`. See [`Loss`] for what
//! it cannot.

use super::fde::{Fde, FreType};
use super::fre::Fre;
use super::header::{Header, Version};
use super::row::SframeRow;
use crate::derived::{Format, Loss};
use crate::row::TableKind;
use crate::rule::{Rule, RuleKind};

/// SFrame V3 with flexible FDEs, for [`crate::derived::find`].
#[derive(Clone, Copy, Debug)]
pub struct SframeV3;

const HEADER: Header = Header {
    version: Version::V3,
    flags: super::header::FLAG_FDE_SORTED | super::header::FLAG_FUNC_START_PCREL,
    cfa_fixed_fp_offset: 0,
    cfa_fixed_ra_offset: -8,
    auxhdr_len: 0,
    num_fdes: 1,
    num_fres: 1,
    fre_len: 0,
    fdes: super::header::HEADER_LEN,
    fres: super::header::HEADER_LEN,
};

impl Format for SframeV3 {
    const TABLE: TableKind = TableKind::SframeDerived;

    const ROWS_MAX: usize = u16::MAX as usize;

    const HOLDS_FRAMES: bool = true;

    fn transcribe(rule: &Rule) -> Result<Rule, Loss> {
        let row = SframeRow::from_rule(rule)?;
        let flex = !row.is_default();
        let fde = Fde {
            index: 0,
            offset: 0,
            start: 0,
            size: 1,
            fres: 0,
            num_fres: 1,
            fre_type: FreType::Addr1,
            rep_size: None,
            flex,
            signal: rule.kind == RuleKind::Signal,
        };
        let (info, words) = row.encode(flex);
        let fre = Fre::new(0, 0, info, &words).ok_or(Loss::CfaOffset)?;
        let back = SframeRow::decode(&HEADER, &fde, &fre).map_err(|_| Loss::CfaOffset)?;
        Ok(back.rule(&HEADER, fde.signal))
    }
}
