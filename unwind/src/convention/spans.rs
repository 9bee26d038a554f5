//! Which parts of an image have which convention.

use super::{Convention, Evidence};
use alloc::vec::Vec;
use core::ops::Range;

/// The maximum number of spans.
pub const SPANS_MAX: usize = 1 << 20;
/// The size of an encoded span, bytes: start, length, convention, evidence.
const ENCODED: usize = 18;

/// Code of one convention.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// Its addresses (svma).
    pub range: Range<u64>,
    /// Its convention.
    pub convention: Convention,
    /// What says so.
    pub evidence: Evidence,
}

/// The conventions of an image's code: System V, but where evidence says otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Conventions {
    /// By address, apart from each other.
    spans: Vec<Span>,
}

impl Conventions {
    /// The convention of the code at `address` (svma), and what says so.
    pub fn at(&self, address: u64) -> (Convention, Evidence) {
        let after = self.spans.partition_point(|s| s.range.start <= address);
        let span = after.checked_sub(1).and_then(|at| self.spans.get(at));
        match span.filter(|span| span.range.contains(&address)) {
            Some(span) => (span.convention, span.evidence),
            None => Default::default(),
        }
    }

    /// The spans about which something is known, by address.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Whether all code is System V's, as far as is known.
    pub fn is_system_v(&self) -> bool {
        let mut spans = self.spans.iter();
        spans.all(|span| span.convention == Convention::SystemV)
    }

    /// Adds `layer`, which overrules what was known there. Where two spans of it overlap, the one
    /// that starts first holds.
    pub fn overlay(&mut self, layer: Vec<Span>) {
        let layer = apart(layer);
        let mut all = Vec::new();

        // What is left of the spans below.
        let mut next = 0;
        for under in core::mem::take(&mut self.spans) {
            // Both lists are sorted and free of overlaps, so one pass over the two is enough.
            let mut start = under.range.start;
            while layer.get(next).is_some_and(|l| l.range.end <= start) {
                next += 1;
            }
            for over in &layer[next..] {
                if over.range.start >= under.range.end {
                    break;
                }
                push(&mut all, &under, start..over.range.start);
                start = over.range.end;
            }
            push(&mut all, &under, start..under.range.end);
        }

        all.extend(layer);
        all.sort_by_key(|span| span.range.start);

        // Neighbours that say the same become one span, so that the limit counts real changes.
        all.dedup_by(|next, last| {
            let joins = last.range.end == next.range.start
                && (last.convention, last.evidence) == (next.convention, next.evidence);
            if joins {
                last.range.end = next.range.end;
            }
            joins
        });
        all.truncate(SPANS_MAX);
        self.spans = all;
    }

    /// The spans as bytes, for an image's section of them.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.spans.len() * ENCODED);
        for span in &self.spans {
            out.extend(span.range.start.to_le_bytes());
            out.extend((span.range.end - span.range.start).to_le_bytes());
            out.extend([span.convention as u8, span.evidence as u8]);
        }
        out
    }

    /// The counterpart of [`Conventions::encode`]. A span that cannot be is left out: its code is
    /// System V's.
    pub fn decode(bytes: &[u8]) -> Conventions {
        let (spans, _) = bytes.as_chunks::<ENCODED>();
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        let span = |bytes: &[u8; ENCODED]| {
            let start = word(&bytes[..8]);
            let end = start.checked_add(word(&bytes[8..16]))?;
            let convention = *Convention::ALL.get(usize::from(bytes[16]))?;
            let evidence = *Evidence::ALL.get(usize::from(bytes[17]))?;
            Some(Span {
                range: start..end,
                convention,
                evidence,
            })
        };
        let mut out = Conventions::default();
        out.overlay(spans.iter().take(SPANS_MAX).filter_map(span).collect());
        out
    }
}

/// The spans by address, without what earlier ones cover.
fn apart(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| (span.range.start, span.range.end));
    let mut end = 0;
    spans.retain_mut(|span| {
        span.range.start = span.range.start.max(end);
        let is_left = !span.range.is_empty();
        if is_left {
            end = span.range.end;
        }
        is_left
    });
    spans
}

/// Adds the part `range` of `span`, if there is any.
fn push(out: &mut Vec<Span>, span: &Span, range: Range<u64>) {
    if !range.is_empty() {
        out.push(Span {
            range,
            ..span.clone()
        });
    }
}
