//! Random operations on several spaces that fork and share, compared with a plain model: each space
//! a map of pages, each object a vector. Snapshots, copies and decoded code are part of it.

use super::super::table::tests::audit;
use super::super::*;
use crate::test_random::Random;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Pages on both sides of the end of a page table's leaf.
const FIRST: u64 = (0x4000_0000 - 8 * PAGE_SIZE) / PAGE_SIZE;
const COUNT: u64 = 20;
const PAGE: usize = PAGE_SIZE as usize;
/// Pages of an object that are compared.
const OBJECT: u64 = 6;
/// Bytes of decoded code that are forgotten together.
const BLOCK: u64 = 32;
const SPACES_MAX: usize = 5;
const SNAPSHOTS_MAX: usize = 4;

#[derive(Clone, PartialEq)]
enum Kind {
    /// What is there before it is written.
    Private(Rc<[u8]>),
    Object {
        object: ObjectId,
        page: u64,
        is_shared: bool,
    },
}

#[derive(Clone)]
struct Page {
    permissions: Permissions,
    kind: Kind,
    /// What was written, unless it is shared.
    own: Option<Vec<u8>>,
}

type Space = BTreeMap<u64, Page>;

#[derive(Clone)]
struct Object {
    pages: Vec<Vec<u8>>,
    is_held: bool,
}

#[derive(Clone)]
struct Model {
    running: SpaceId,
    spaces: BTreeMap<SpaceId, Space>,
    objects: BTreeMap<ObjectId, Object>,
}

impl Model {
    fn own(&mut self) -> &mut Space {
        self.spaces.get_mut(&self.running).expect("it runs")
    }

    fn content(&self, page: &Page) -> Vec<u8> {
        match (&page.own, &page.kind) {
            (Some(own), _) => own.clone(),
            (None, Kind::Private(bytes)) => bytes.to_vec(),
            (None, Kind::Object { object, page, .. }) => {
                self.objects[object].pages[*page as usize].clone()
            }
        }
    }

    /// The space as it is read; `None` where nothing is mapped.
    fn seen(&self, space: SpaceId, number: u64) -> Option<Vec<u8>> {
        Some(self.content(self.spaces[&space].get(&number)?))
    }

    fn store(&mut self, address: u64, bytes: &[u8]) {
        for (address, &byte) in (address..).zip(bytes) {
            let (number, at) = (address / PAGE_SIZE, (address % PAGE_SIZE) as usize);
            let page = self.spaces[&self.running][&number].clone();
            if let Kind::Object {
                object,
                page,
                is_shared: true,
            } = page.kind
            {
                let object = self.objects.get_mut(&object).expect("mapped");
                object.pages[page as usize][at] = byte;
            } else if let Some(own) = &mut self.own().get_mut(&number).expect("mapped").own {
                own[at] = byte;
            } else {
                let mut content = self.content(&page);
                content[at] = byte;
                self.own().get_mut(&number).expect("mapped").own = Some(content);
            }
        }
    }

    fn is_mapped(&self, id: ObjectId) -> bool {
        let mut pages = self.spaces.values().flat_map(BTreeMap::values);
        pages.any(|page| matches!(page.kind, Kind::Object { object, .. } if object == id))
    }

    fn drop_unused(&mut self) {
        let ids: Vec<ObjectId> = self.objects.keys().copied().collect();
        for id in ids {
            if !self.objects[&id].is_held && !self.is_mapped(id) {
                self.objects.remove(&id);
            }
        }
    }
}

/// Decoded code of the spaces: what was read at an address.
type Code = BTreeMap<u64, BTreeMap<u64, Vec<u8>>>;

struct Test {
    random: Random,
    memory: AddressSpace,
    model: Model,
    code: Code,
    held: Vec<(Snapshot, Model)>,
    /// How often something of interest happened.
    seen: BTreeMap<&'static str, usize>,
}

impl Test {
    fn new(seed: u64) -> Test {
        let memory = AddressSpace::default();
        Test {
            random: Random::new(seed),
            model: Model {
                running: memory.id(),
                spaces: BTreeMap::from([(memory.id(), Space::new())]),
                objects: BTreeMap::new(),
            },
            memory,
            code: Code::new(),
            held: Vec::new(),
            seen: BTreeMap::new(),
        }
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count)
            .map(|_| self.random.below_u64(256) as u8)
            .collect()
    }

    /// A range of pages, as numbers.
    fn pages(&mut self) -> Range<u64> {
        let first = self.random.below_u64(COUNT);
        let count = 1 + self.random.below_u64((COUNT - first).min(6));
        FIRST + first..FIRST + first + count
    }

    fn any<T: Copy>(&mut self, all: impl Iterator<Item = T>) -> Option<T> {
        let all: Vec<T> = all.collect();
        let index = self.random.below(all.len().max(1));
        all.get(index).copied()
    }

    fn map(&mut self) {
        let pages = self.pages();
        let range = pages.start * PAGE_SIZE..pages.end * PAGE_SIZE;

        let permissions = match self.random.below_u64(5) {
            0 => Permissions::READ,
            _ => Permissions::ALL,
        };

        let objects = self.model.objects.clone();

        // Of an object, of a file, or anonymous: whatever there is to be mapped.
        let object = self.any(objects.keys());
        let kinds: Vec<Kind> = match (self.random.below_u64(4), object) {
            (0, Some(&object)) | (1, Some(&object)) => {
                let is_shared = self.random.below_u64(3) != 0;
                let count = pages.end - pages.start;
                let first = self.random.below_u64(OBJECT.saturating_sub(count) + 1);

                let offset = first * PAGE_SIZE;
                let memory = &mut self.memory;
                // The range is longer than an object.
                if first + count > OBJECT {
                    return;
                }

                if is_shared {
                    memory.map_shared(range, permissions, object, offset)
                } else {
                    memory.map_private(range, permissions, object, offset)
                }
                .expect("in range");

                let page = |page| Kind::Object {
                    object,
                    page,
                    is_shared,
                };
                (first..first + count).map(page).collect()
            }
            (2, _) => {
                let size = self.random.below_u64(3 * PAGE_SIZE) as usize;
                let mut file = self.bytes(size);
                let bytes = file.clone();
                self.memory
                    .map_file(range, permissions, bytes, 0)
                    .expect("in range");

                // Pages after the file's end are zeros.
                file.resize(10 * PAGE, 0);
                let page = |page: &[u8]| Kind::Private(page.into());
                file.chunks(PAGE).map(page).collect()
            }
            _ => {
                self.memory.map(range, permissions).expect("in range");
                // As many as a range can have.
                vec![Kind::Private([0; PAGE].into()); 10]
            }
        };

        for (number, kind) in pages.zip(kinds) {
            let page = Page {
                permissions,
                kind,
                own: None,
            };
            self.model.own().insert(number, page);
        }

        // What was mapped there before may have been the last mapping of an object.
        self.model.drop_unused();
    }

    fn change_mappings(&mut self) {
        let pages = self.pages();
        let range = pages.start * PAGE_SIZE..pages.end * PAGE_SIZE;

        match self.random.below_u64(4) {
            0 => {
                self.memory.unmap(range).expect("in range");
                self.model.own().retain(|page, _| !pages.contains(page));
                self.model.drop_unused();
            }
            1 => {
                let permissions = match self.random.below_u64(2) {
                    0 => Permissions::READ,
                    _ => Permissions::ALL,
                };

                let done = self.memory.protect(range, permissions);
                let own = self.model.own();

                // `protect` stops at the first hole, as mprotect(2) does.
                let hole = pages.clone().find(|page| !own.contains_key(page));
                for page in pages.start..hole.unwrap_or(pages.end) {
                    own.get_mut(&page).expect("mapped").permissions = permissions;
                }
                assert_eq!(done.is_ok(), hole.is_none());
            }
            2 => {
                // The space's own pages go; those of an object stay.
                self.memory.discard(range).expect("in range");
                for (_, page) in self.model.own().range_mut(pages) {
                    page.own = None;
                }
            }
            _ => {
                let to = FIRST + self.random.below_u64(COUNT - (pages.end - pages.start));
                let done = self.memory.move_range(range, to * PAGE_SIZE);

                // `move_range` refuses ranges that overlap.
                let target = to..to + (pages.end - pages.start);
                let is_apart = pages.end <= target.start || target.end <= pages.start;
                assert_eq!(done.is_ok(), is_apart);
                if is_apart {
                    let own = self.model.own();

                    // What was at the target is gone.
                    own.retain(|page, _| !target.contains(page));
                    let moved = pages.clone();
                    let moved = moved.filter_map(|page| Some((page, own.remove(&page)?)));
                    let moved: Vec<(u64, Page)> = moved.collect();
                    own.extend(
                        moved
                            .into_iter()
                            .map(|(p, page)| (p - pages.start + to, page)),
                    );
                    self.model.drop_unused();
                }
            }
        }
    }

    fn forget(&mut self, ranges: Vec<Range<u64>>) {
        let own = self.code.entry(self.memory.code_stamp()).or_default();
        for range in ranges {
            own.retain(|&block, _| block + BLOCK <= range.start || range.end <= block);
        }
    }

    /// As the machine does it: decoded code that is hit is forgotten first.
    fn store_as_machine(&mut self, address: u64, bytes: [u8; 16]) -> bool {
        if self.memory.store_bytes(address, bytes).is_some() {
            return true;
        }
        let Some(Refusal::Code(range)) = self.memory.take_refusal() else {
            return false;
        };
        *self.seen.entry("code hit").or_default() += 1;
        self.forget(vec![range]);
        self.memory.set_code_writable(true);
        let done = self.memory.store_bytes(address, bytes).is_some();
        self.memory.set_code_writable(false);
        let changes = self.memory.take_code_changes();
        self.forget(changes);
        done
    }

    fn access(&mut self) {
        let at = FIRST * PAGE_SIZE + self.random.below_u64(COUNT * PAGE_SIZE - 16);
        let at = match self.random.below_u64(2) {
            // Often the same words.
            0 => at & !(PAGE_SIZE - 1) | 8,
            _ => at,
        };

        let numbers = at / PAGE_SIZE..(at + 15) / PAGE_SIZE + 1;
        let own = &self.model.spaces[&self.model.running];
        let is_mapped = numbers.clone().all(|number| own.contains_key(&number));

        let may_write = |number| {
            let page: Option<&Page> = own.get(&number);
            page.is_some_and(|page| page.permissions.allow(Access::Write))
        };
        let may_write = numbers.clone().all(may_write);

        let bytes: [u8; 16] = self.bytes(16).try_into().expect("16");
        match self.random.below_u64(8) {
            0 => {
                assert_eq!(self.memory.write(at, &bytes).is_ok(), may_write);
                if may_write {
                    self.model.store(at, &bytes);
                }
            }
            // The host may write pages that the program must not.
            1 => {
                assert_eq!(self.memory.poke(at, &bytes).is_ok(), is_mapped);
                if is_mapped {
                    self.model.store(at, &bytes);
                }
            }
            2 | 3 => {
                let loaded = self.memory.load_bytes::<16>(at);
                let all = numbers.map(|number| self.model.seen(self.model.running, number));
                let all: Option<Vec<Vec<u8>>> = all.collect();
                let expected =
                    all.map(|all| all.concat()[(at % PAGE_SIZE) as usize..][..16].to_vec());
                assert_eq!(loaded.map(Vec::from), expected);
                // A load that fails leaves a refusal for the machine.
                self.memory.take_refusal();
            }
            // A store as the machine does it, through its cache of pages.
            _ => {
                assert_eq!(self.store_as_machine(at, bytes), may_write);
                if may_write {
                    self.model.store(at, &bytes);
                }
            }
        }
    }

    fn decode(&mut self) {
        let at = FIRST * PAGE_SIZE + self.random.below_u64(COUNT * PAGE_SIZE) / BLOCK * BLOCK;
        let at = match self.random.below_u64(4) {
            0 => at,
            // Where words are often written.
            _ => at & !(PAGE_SIZE - 1),
        };
        let mut block = vec![0; BLOCK as usize];
        let changes = self.memory.take_code_changes();
        self.forget(changes);
        if self.memory.fetch(at, &mut block).is_ok() {
            self.memory.watch_code(at..at + BLOCK);
            let own = self.code.entry(self.memory.code_stamp()).or_default();
            own.insert(at, block);
        }
    }

    fn change_object(&mut self) {
        let objects = self.model.objects.clone();
        let some = self.any(objects.keys()).copied();
        match (self.random.below_u64(6), some) {
            (0, _) if objects.len() < 4 => {
                let size = self.random.below_u64(OBJECT * PAGE_SIZE) as usize;
                let mut bytes = self.bytes(size);
                let object = self.memory.create_object(bytes.clone());
                bytes.resize(OBJECT as usize * PAGE, 0);

                let object_model = Object {
                    pages: bytes.chunks(PAGE).map(Vec::from).collect(),
                    is_held: true,
                };
                self.model.objects.insert(object, object_model);
            }
            (1, Some(object)) => {
                // It lives on as long as it is mapped.
                self.memory.release_object(object);
                self.model.objects.get_mut(&object).expect("there").is_held = false;
                self.model.drop_unused();
            }
            (2, Some(object)) => {
                let size = self.random.below_u64(OBJECT * PAGE_SIZE);
                self.memory.truncate_object(object, size).expect("there");

                // What is cut off reads as zeros when it is there again.
                let pages = &mut self.model.objects.get_mut(&object).expect("there").pages;
                let behind = pages.iter_mut().flatten().skip(size as usize);
                behind.for_each(|byte| *byte = 0);
            }
            (_, Some(object)) => {
                let size = 1 + self.random.below_u64(2 * PAGE_SIZE);
                let offset = self.random.below_u64(OBJECT * PAGE_SIZE - size);
                let bytes = self.bytes(size as usize);
                self.memory
                    .write_object(object, offset, &bytes)
                    .expect("there");
                let pages = &mut self.model.objects.get_mut(&object).expect("there").pages;
                let to = pages.iter_mut().flatten().skip(offset as usize);
                to.zip(bytes).for_each(|(to, byte)| *to = byte);
            }
            (_, None) => {}
        }
    }

    fn change_spaces(&mut self) {
        let ids: Vec<SpaceId> = self.model.spaces.keys().copied().collect();
        let id = self.any(ids.iter()).copied().expect("one runs");

        match self.random.below_u64(6) {
            0 | 1 if ids.len() < SPACES_MAX => {
                let fork = self.memory.fork();
                let copy = self.model.own().clone();
                self.model.spaces.insert(fork, copy);
            }
            2 if ids.len() < SPACES_MAX => {
                let created = self.memory.create();
                self.model.spaces.insert(created, Space::new());
            }
            3 if self.random.below_u64(2) == 0 => {
                let is_resting = id != self.model.running;

                // The space that runs cannot be removed.
                assert_eq!(self.memory.remove_space(id), is_resting);
                if is_resting {
                    self.model.spaces.remove(&id);
                    self.model.drop_unused();
                }
            }
            _ => {
                assert!(self.memory.switch_to(id));
                self.model.running = id;
            }
        }
    }

    fn snapshot_or_restore(&mut self) {
        match self.random.below_u64(6) {
            0 | 1 => {
                let snapshot = self.memory.snapshot();
                self.held.push((snapshot, self.model.clone()));

                if self.held.len() > SNAPSHOTS_MAX {
                    let index = self.random.below(self.held.len());
                    self.held.remove(index);
                }
            }
            2 if !self.held.is_empty() => {
                let index = self.random.below(self.held.len());
                let (snapshot, model) = &self.held[index];
                self.memory.restore(snapshot).expect("there is a way back");
                self.model = model.clone();
                // Restoring a snapshot ends those that were taken after it.
                for (newer, _) in self.held.drain(index + 1..) {
                    assert_eq!(self.memory.restore(&newer), Err(RestoreError::Undone));
                }
                *self.seen.entry("restored").or_default() += 1;
                self.compare();
            }
            3 if self.random.below_u64(4) == 0 => {
                // A copy has none of the snapshots.
                self.memory = self.memory.clone();
                self.held.clear();
                *self.seen.entry("copied").or_default() += 1;
                self.compare();
            }
            _ => {}
        }
    }

    /// Compares all spaces and objects with the model, and checks the counts of frames.
    fn compare(&mut self) {
        let memory = &mut self.memory;
        let model = &self.model;
        assert_eq!(memory.id(), model.running);
        assert!(memory.spaces().eq(model.spaces.keys().copied()));

        let mut page = vec![0; PAGE];
        for &id in model.spaces.keys() {
            for number in FIRST..FIRST + COUNT {
                let there = memory.peek_in(id, number * PAGE_SIZE, &mut page).is_ok();
                let expected = model.seen(id, number);
                assert!(
                    there.then_some(&page) == expected.as_ref(),
                    "{id:?} {number:#x}"
                );
            }
        }

        for (number, page) in &model.spaces[&model.running] {
            let (_, area) = memory.area(number * PAGE_SIZE).expect("mapped");
            assert_eq!(area.permissions(), page.permissions);
        }

        for (&id, object) in &model.objects {
            let mut all = vec![0; object.pages.len() * PAGE];
            memory.read_object(id, 0, &mut all).expect("there");
            assert!(all == object.pages.concat(), "{id:?}");
            assert_eq!(memory.is_mapped(id), model.is_mapped(id));
        }

        // No frame is lost, and none is counted twice.
        let objects = memory.objects.tables();
        let spaces = memory.resting.values().chain([&memory.own]);
        let tables = objects.chain(spaces.map(|space| &space.table));
        audit(tables, &memory.frames);

        // What is decoded and not reported is still there.
        let changes = memory.take_code_changes();
        self.forget(changes);

        let own = self.code.entry(self.memory.code_stamp()).or_default();
        *self.seen.entry("decoded").or_default() += own.len();

        for (&at, block) in own {
            let mut now = vec![0; BLOCK as usize];
            assert_eq!(self.memory.fetch(at, &mut now), Ok(()), "{at:#x}");
            assert!(now == *block, "{at:#x}");
        }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..8 {
            self.map();
            self.change_object();
        }

        for step in 0..steps {
            match self.random.below_u64(20) {
                0 => self.map(),
                1 => self.change_mappings(),
                2..5 => self.change_spaces(),
                5 => self.change_object(),
                6 => self.snapshot_or_restore(),
                7..10 => self.decode(),
                _ => self.access(),
            }
            // Comparing everything takes much longer than a step.
            if step % 20 == 0 {
                self.compare();
            }
        }
        self.compare();

        // Without snapshots, only what the spaces hold remains.
        self.held.clear();
        assert!(!self.memory.has_snapshots());
        assert_eq!(self.memory.history_bytes(), 0);

        let ids: Vec<SpaceId> = self.memory.spaces().collect();
        for id in ids {
            self.memory.remove_space(id);
        }
        for &object in self.model.objects.keys() {
            self.memory.release_object(object);
        }
        self.memory
            .unmap(MMAP_MIN_ADDR..TASK_SIZE)
            .expect("in range");

        assert_eq!(self.memory.pages_in_use(), 0);
    }
}

#[test]
fn spaces_agree_with_a_plain_model() {
    let mut seen: BTreeMap<&'static str, usize> = BTreeMap::new();
    for seed in 0..40 {
        println!("seed {seed}");
        let mut test = Test::new(seed);
        test.run(1000);
        for (what, count) in test.seen {
            *seen.entry(what).or_default() += count;
        }
    }
    for (what, least) in [
        ("code hit", 600),
        ("restored", 100),
        ("copied", 30),
        ("decoded", 1500),
    ] {
        assert!(seen.get(what) >= Some(&least), "{seen:?}");
    }
}
