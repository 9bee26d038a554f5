//! Findings, each stored once: the same one of several outcomes, and those of one cause of unwinders
//! that are expected to err.

use super::findings::{Check, Finding};
use super::places::{PlaceId, Places};
use crate::check::Class;
use hashbrown::HashMap;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::regs::Reg;

/// Merges findings so that each is stored once.
pub(super) struct Merged<'a> {
    places: &'a Places,
    all: Vec<Finding>,
    by_key: HashMap<Key, u32>,
    /// The findings that are kept by cause.
    by_cause: HashMap<Cause, u32>,
    /// By place, the number of its image's name.
    images: HashMap<PlaceId, usize>,
    names: Vec<String>,
}

/// The identity of a finding.
type Key = (usize, Check, PlaceId, u64, Code, Reg);
/// What findings that are expected are counted by. The last one is the number of an image's name.
type Cause = (usize, Check, Class, Code, Reg, usize);

impl<'a> Merged<'a> {
    /// None yet, with room for `count`.
    pub(super) fn with_room_for(count: usize, places: &'a Places) -> Merged<'a> {
        Merged {
            places,
            all: Vec::with_capacity(count),
            by_key: HashMap::with_capacity(count),
            by_cause: HashMap::new(),
            images: HashMap::new(),
            names: Vec::new(),
        }
    }

    /// Adds a finding, or counts it if it is known.
    pub(super) fn add(&mut self, finding: Finding) {
        let next = self.all.len() as u32;
        let id = *self.by_key.entry(finding.key()).or_insert(next);
        match self.all.get_mut(id as usize) {
            Some(known) => known.count += finding.count,
            None => self.all.push(finding),
        }
    }

    /// Adds a finding that is expected, or counts it with those of the same cause.
    pub(super) fn add_by_cause(&mut self, finding: Finding) {
        let cause = (
            finding.unwinder,
            finding.check,
            finding.contradiction.class(),
            finding.code,
            finding.reg,
            self.image(finding.place),
        );
        let next = self.all.len() as u32;
        // Which one it is counted with, by its own identity too: it may be met in several outcomes.
        let id = *self.by_cause.entry(cause).or_insert(next);
        let is_new = self.by_key.insert(finding.key(), id).is_none();
        let Some(known) = self.all.get_mut(id as usize) else {
            return self.all.push(finding);
        };
        let (count, stands_for) = (known.count, known.stands_for);
        if (finding.first, finding.address) < (known.first, known.address) {
            *known = finding.clone();
        }
        known.count = count + finding.count;
        known.stands_for = stands_for + u64::from(is_new);
    }

    /// The number of the image's name at a place.
    fn image(&mut self, place: PlaceId) -> usize {
        if let Some(&known) = self.images.get(&place) {
            return known;
        }
        let image = self.places.mapping(place);
        let name = image.and_then(|mapping| mapping.image.as_ref());
        let name = name.map_or("", |image| image.name());
        let known = self.names.iter().position(|known| known == name);
        let number = known.unwrap_or(self.names.len());
        if known.is_none() {
            self.names.push(name.to_owned());
        }
        self.images.insert(place, number);
        number
    }

    /// All findings, by unwinder, check and address.
    pub(super) fn finish(mut self) -> Vec<Finding> {
        self.all.shrink_to_fit();
        self.all.sort_by_cached_key(|f| {
            let place = (f.unwinder, f.check, f.address, f.place);
            (place, f.code.as_str(), f.reg as u8)
        });
        self.all
    }
}

impl Finding {
    fn key(&self) -> Key {
        let Finding {
            unwinder,
            check,
            place,
            address,
            code,
            reg,
            ..
        } = *self;
        (unwinder, check, place, address, code, reg)
    }
}
