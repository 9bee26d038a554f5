//! What is counted over the states of a page: verdicts, findings, where in the code they are, and
//! the stacks for the flame graphs.

use super::words;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use unwind_sim_unwind::verdict::Verdict;
use unwind_sim_view::timeline::{Code, State, StepKind, Walk};

/// The number of findings that are kept apart; others are only counted.
const FINDINGS_MAX: usize = 5_000;
/// The number of functions whose instructions are counted.
const FUNCTIONS_MAX: usize = 2_000;
/// The number of frames of a stack in a graph, from the root.
const DEPTH_MAX: usize = 48;
/// The number of boxes in a graph.
const BOXES_MAX: usize = 50_000;

/// What identifies a finding: the walker, the verdict's word, the reason code and the place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct FindingKey {
    /// The number of the walker.
    pub(super) walker: usize,
    /// The reason code of the cause, or else of the end.
    pub(super) code: &'static str,
    /// The verdict.
    pub(super) verdict: &'static str,
    /// The image of the code to blame.
    pub(super) image: String,
    /// Its function, or address.
    pub(super) function: String,
}

impl FindingKey {
    /// That of a wrong walk.
    pub(super) fn of(state: &State, walker: usize, walk: &Walk) -> FindingKey {
        let place = walk.cause.as_ref().map_or(&state.place, |c| &c.place);
        FindingKey {
            walker,
            code: walk.cause.as_ref().map_or(walk.end.code, |c| c.code),
            verdict: walk.verdict.word,
            image: place.image.clone().unwrap_or_default(),
            function: words::limited(place.function.as_ref().unwrap_or(&place.offset)).into(),
        }
    }
}

/// How often something was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Occurrences {
    pub(super) count: u64,
    /// The number of the first state.
    pub(super) first: u64,
}

/// The verdicts at an instruction, by letter.
pub(super) type Cell = BTreeMap<char, Occurrences>;

/// The instructions of a function, with a cell for each walker.
pub(super) struct FunctionCells {
    pub(super) code: Arc<Code>,
    pub(super) cells: BTreeMap<u64, Vec<Cell>>,
    /// The number of wrong verdicts.
    pub(super) wrong: u64,
}

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum FrameFate {
    /// It is true, and was found.
    Kept,
    /// It is true, and was not found.
    Lost,
    /// It is not true.
    Invented,
}

/// A box of a graph: a frame below its callers.
#[derive(Default, Debug)]
pub(super) struct Node {
    pub(super) count: u64,
    /// The number of the first state that has it.
    pub(super) first: u64,
    pub(super) children: BTreeMap<(String, FrameFate), Node>,
}

/// The stacks of a walker beside the true ones.
#[derive(Default, Debug)]
pub(super) struct Graphs {
    pub(super) truth: Node,
    pub(super) found: Node,
    /// Stacks that are not judged, and not shown.
    pub(super) unjudged: u64,
    /// Frames by name: how often lost and how often invented.
    pub(super) frames: BTreeMap<String, [u64; 2]>,
    boxes: usize,
    /// Stacks that were cut because there were too many boxes or frames.
    pub(super) cut: u64,
}

/// What was counted over the states of a page.
pub(super) struct Tally {
    /// By walker: the number of states by letter, in the order of [`Verdict::WORDS`].
    pub(super) letters: Vec<[u64; Verdict::WORDS.len()]>,
    pub(super) findings: BTreeMap<FindingKey, Occurrences>,
    /// Findings that are not among `findings`.
    pub(super) findings_left_out: u64,
    pub(super) functions: BTreeMap<(String, String, u64), FunctionCells>,
    /// States in functions that are not among `functions`.
    pub(super) functions_left_out: u64,
    pub(super) graphs: Vec<Graphs>,
    /// The numbers of the states, and whether an unwinder is wrong at each that was not wrong at the
    /// state before.
    pub(super) states: Vec<(u64, bool)>,
    /// The unwinders that are wrong at the last state.
    wrong: BTreeSet<usize>,
    /// The number of states without a known truth, and of those without a stack.
    pub(super) without_truth: u64,
    pub(super) without_memory: u64,
}

impl Tally {
    pub(super) fn new(walkers: usize) -> Tally {
        Tally {
            letters: vec![[0; Verdict::WORDS.len()]; walkers],
            findings: BTreeMap::new(),
            findings_left_out: 0,
            functions: BTreeMap::new(),
            functions_left_out: 0,
            graphs: (0..walkers).map(|_| Graphs::default()).collect(),
            states: Vec::new(),
            wrong: BTreeSet::new(),
            without_truth: 0,
            without_memory: 0,
        }
    }

    /// Counts a state.
    pub(super) fn add(&mut self, state: &State, code: Option<&Arc<Code>>) {
        let is_wrong = |walk: &Walk| words::class(walk.letter) == "wrong";
        self.without_truth += u64::from(state.truth == "unknown");
        self.without_memory += u64::from(state.stack.words.is_empty());

        let walks = state.walks.iter().enumerate();
        let wrong: BTreeSet<usize> = walks
            .filter(|(_, walk)| is_wrong(walk))
            .map(|(walker, _)| walker)
            .collect();

        // A mark is for the state at which an unwinder becomes wrong, not for all where it is.
        let becomes = !wrong.is_subset(&self.wrong);
        self.states.push((state.number, becomes));
        self.wrong = wrong;

        for (walker, walk) in state.walks.iter().enumerate() {
            // The table of verdicts has a column for each letter; a walk that was not judged has
            // none.
            let word = Verdict::WORDS.iter().position(|w| w.0 == walk.letter);
            if let Some(word) = word {
                self.letters[walker][word] += 1;
            }
            if is_wrong(walk) {
                self.finding(state, walker, walk);
            }

            // Right walks are counted in the graphs, too: they are the frames that were kept.
            self.graphs[walker].add(state, walk);
        }

        if let Some(code) = code {
            self.instruction(state, code);
        }
    }

    fn finding(&mut self, state: &State, walker: usize, walk: &Walk) {
        let key = FindingKey::of(state, walker, walk);
        if let Some(met) = self.findings.get_mut(&key) {
            met.count += 1;
        } else if self.findings.len() < FINDINGS_MAX {
            let first = state.number;
            self.findings.insert(key, Occurrences { count: 1, first });
        } else {
            self.findings_left_out += 1;
        }
    }

    fn instruction(&mut self, state: &State, code: &Arc<Code>) {
        let Some(instruction) = &state.instruction else {
            return;
        };

        // A name is not unique, so the start of the function is part of the key.
        let start = code.lines.first().map_or(0, |line| line.address.0);
        let key = (
            code.image.clone().unwrap_or_default(),
            code.function.clone().unwrap_or_default(),
            start,
        );

        // A recording of a large program has many functions; the page has room for few of their
        // maps.
        if !self.functions.contains_key(&key) && self.functions.len() >= FUNCTIONS_MAX {
            self.functions_left_out += 1;
            return;
        }

        let function = self.functions.entry(key).or_insert_with(|| FunctionCells {
            code: code.clone(),
            cells: BTreeMap::new(),
            wrong: 0,
        });

        // All walkers have a cell from the start, or the columns would shift for those that come
        // later.
        let walks = state.walks.len();
        let row = function.cells.entry(instruction.address.0);
        let row = row.or_insert_with(|| vec![Cell::new(); walks]);

        for (cell, walk) in row.iter_mut().zip(&state.walks) {
            let first = state.number;
            let met = cell
                .entry(walk.letter)
                .or_insert(Occurrences { count: 0, first });
            met.count += 1;
            function.wrong += u64::from(words::class(walk.letter) == "wrong");
        }
    }
}

impl Graphs {
    fn add(&mut self, state: &State, walk: &Walk) {
        // What is not judged can be neither lost nor invented.
        if words::class(walk.letter) == "open" {
            self.unjudged += 1;
            return;
        }

        let kept: BTreeSet<usize> = walk
            .steps
            .iter()
            .filter(|step| step.judged == Some("same"))
            .filter_map(|step| step.truth)
            .collect();
        // A walk may start further out than at the innermost frame; what it does not claim is not
        // lost.
        let from = state
            .frames
            .len()
            .saturating_sub(walk.verdict.known as usize);

        // Flame graphs grow from the root, and chains are listed from the innermost frame.
        let truth = state.frames.iter().enumerate().skip(from).rev();
        let truth = truth.map(|(index, frame)| {
            let fate = if kept.contains(&index) {
                FrameFate::Kept
            } else {
                FrameFate::Lost
            };
            (words::frame(&frame.place), fate)
        });
        let truth: Vec<_> = truth.collect();

        // Steps that are no frames, such as skipped ones, have no box.
        let frames = walk.steps.iter().rev();
        let frames = frames.filter(|step| step.kind == StepKind::Frame);
        let found = frames.filter_map(|step| {
            let fate = match step.judged {
                Some("same") => FrameFate::Kept,
                Some("wrong" | "extra") => FrameFate::Invented,
                _ => return None,
            };
            Some((words::frame(&step.frame.as_ref()?.place), fate))
        });
        let found: Vec<_> = found.collect();

        // A frame that was kept needs no line in the table of what was lost or invented.
        for (name, fate) in truth.iter().chain(&found) {
            match fate {
                FrameFate::Kept => {}
                FrameFate::Lost => self.frames.entry(name.clone()).or_default()[0] += 1,
                FrameFate::Invented => self.frames.entry(name.clone()).or_default()[1] += 1,
            }
        }

        // Both graphs take boxes from one budget, so that their sizes stay comparable.
        let number = state.number;
        let whole = grow(&mut self.truth, (number, truth), &mut self.boxes);
        let whole = grow(&mut self.found, (number, found), &mut self.boxes) && whole;
        self.cut += u64::from(!whole);
    }
}

/// Adds the stack of state `number`, outermost frame first. Returns whether it is whole.
fn grow(
    root: &mut Node,
    (number, stack): (u64, Vec<(String, FrameFate)>),
    boxes: &mut usize,
) -> bool {
    root.count += 1;
    let is_whole = stack.len() <= DEPTH_MAX;
    let mut node = root;
    for frame in stack.into_iter().take(DEPTH_MAX) {
        if !node.children.contains_key(&frame) {
            if *boxes >= BOXES_MAX {
                return false;
            }
            *boxes += 1;
        }
        node = node.children.entry(frame).or_insert_with(|| Node {
            first: number,
            ..Node::default()
        });
        node.count += 1;
    }
    is_whole
}
