//! The page of a timeline.
//!
//! States are built, rendered and packed one by one, so that memory does not grow with the run, only
//! with the page.

use super::controls::controls;
use super::matrix::{link, matrix, title};
use super::page::{Page, legend};
use super::pieces::{Entries, Fragment};
use super::state::{shown_lines, state};
use super::tally::{FindingKey, FunctionCells, Occurrences, Tally};
use super::{PageSummary, flame, words};
use maud::{Markup, PreEscaped, html};
use std::collections::BTreeSet;
use std::io::{self, Write};
use unwind_sim_judge::input::InputError;
use unwind_sim_judge::states::{Index, StateView, States};
use unwind_sim_recordings::counted::counted;
use unwind_sim_unwind::reason::Code as ReasonCode;
use unwind_sim_unwind::verdict::Verdict;
use unwind_sim_view::code_rules::Observed;
use unwind_sim_view::json::PlaceLine;
use unwind_sim_view::timeline::{About, Builder, MarksLine, SourceKind, Walker, kind_of};

// The parts of a page together stay below 2 MB.
/// The bytes of a page that states may take, with the first one, which is plain.
const STATES_BYTES_MAX: usize = 1_300_000;
/// The bytes that packed maps and graphs may take beside them.
const MORE_BYTES_MAX: usize = 150_000;
/// The bytes of a map or graph that is plain, too.
const PLAIN_BYTES_MAX: usize = 120_000;
/// The number of findings that the table of a page has.
const FINDINGS_MAX: usize = 300;
/// The number of functions that a page has maps of.
const MAPS_MAX: usize = 500;
/// The number of states that are read at once first; then twice as many each time.
const PIECE: u64 = 32;

/// Which states a page shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pick {
    /// At most `count` from number `first` on.
    Window {
        /// The first one.
        first: u64,
        /// How many, at most.
        count: u64,
    },
    /// At most so many. Of a recording: of each kind of wrong stack some, then an even spread
    /// ([`Index::chosen`]). Of a program, whose states follow from each other: those around the first
    /// one at which an unwinder is wrong.
    OfInterest(u64),
}

/// Writes a page of states. It opens at the one that matters most ([`Index::first_finding`]), with the
/// unwinder that is wrong there. What `index` has not found is not on the page.
///
/// # Errors
/// If the recording cannot be read, or `out` not written.
pub fn timeline(
    about: About,
    states: &mut States,
    builder: &mut Builder<'_>,
    index: &Index<'_>,
    pick: Pick,
    out: &mut dyn Write,
) -> Result<PageSummary, TimelineError> {
    let kind = kind_of(states);
    let walkers = builder.walkers();
    let finding = index.first_finding();

    // The unwinders of an index are not always those of the page, nor in this order.
    let wrong = finding.and_then(|(_, unwinder)| index.unwinders().get(unwinder));
    let is_it = |walker: &Walker| {
        wrong.is_some_and(|name| *name == walker.name() || *name == walker.unwinder)
    };
    let chosen_walker = walkers.iter().position(is_it).unwrap_or(0);
    let opens = Opens {
        at: finding.map(|(number, _)| number),
        walker: chosen_walker,
    };

    let mut picked = Picked::of(pick, index);
    let mut gathered = gather(states, builder, &picked, opens)?;

    // A choice that has no room on the page is made again with fewer samples: cut, it would lack the
    // last ones, whatever is wrong there.
    while gathered.is_cut
        && let Picked::Chosen(numbers) = &picked
        && numbers.len() > 1
    {
        let fewer = gathered.tally.states.len().min(numbers.len() - 1) as u64;
        let Some(numbers) = index.chosen((fewer * 9 / 10).max(1)) else {
            break;
        };
        picked = Picked::Chosen(numbers);
        gathered = gather(states, builder, &picked, opens)?;
    }

    let Gathered {
        mut entries,
        tally,
        opening,
        is_cut,
    } = gathered;
    let is_chosen = matches!(picked, Picked::Chosen(_));
    let Some(opening) = opening else {
        return Err(TimelineError::no_state(picked.first(), states));
    };

    // Marks are looked up for the shown range only: the index covers the whole run.
    let numbers = tally.states.iter().map(|state| state.0);
    let range = numbers.clone().min().unwrap_or(0)..numbers.max().map_or(0, |last| last + 1);
    let found = MarksLine::of(index, range);

    let shown = tally.states.len() as u64;
    let content = Content {
        kind,
        chosen_walker,
        wrong_in_run: finding.map_or(0, |(_, unwinder)| wrong_states(index, unwinder)),
        walkers: &walkers,
        tally: &tally,
        marks: &found,
        total: states.total(),
        end: states.end(),
        notices: states.notices(),
        is_cut: is_cut && !is_chosen,
        is_chosen,
    };

    // The maps and graphs become entries, too, so the pieces are finished last.
    let main = content.main(&opening, &mut entries);
    let page = Page {
        summary: content.summary(),
        source: about.source,
        command: about.command,
        main,
        packed: Some(entries.finish()),
    };
    let html = page.html();

    out.write_all(html.as_bytes())?;
    Ok(PageSummary {
        shown,
        left_out: states.total().map(|total| total.saturating_sub(shown)),
        bytes: html.len(),
    })
}

/// The number of states of the run at which an unwinder of the index is wrong, as far as it was searched;
/// of a program, at which it becomes wrong.
fn wrong_states(index: &Index<'_>, unwinder: usize) -> u64 {
    let wrong = index.marks().wrong.iter();
    let is_wrong = |bits: u64| bits >> unwinder & 1 != 0;
    wrong.filter(|wrong| is_wrong(wrong.unwinders)).count() as u64
}

/// Where a page opens.
#[derive(Clone, Copy)]
struct Opens {
    /// The number of the state that matters most; without one, the first.
    at: Option<u64>,
    /// The place of the walker that is selected.
    walker: usize,
}

/// The states that a page is to show.
enum Picked {
    Window { first: u64, count: u64 },
    Chosen(Vec<u64>),
}

impl Picked {
    fn of(pick: Pick, index: &Index<'_>) -> Picked {
        let count = match pick {
            Pick::Window { first, count } => return Picked::Window { first, count },
            Pick::OfInterest(count) => count,
        };

        match index.chosen(count) {
            // All that there are.
            Some(_) if index.covered() <= count => Picked::Window { first: 0, count },
            Some(numbers) => Picked::Chosen(numbers),
            None => {
                let finding = index.first_finding().map_or(0, |finding| finding.0);
                // What leads to it is of interest, too.
                let first = if finding < count {
                    0
                } else {
                    finding - count / 2
                };
                Picked::Window { first, count }
            }
        }
    }

    /// The number of the first one.
    fn first(&self) -> u64 {
        match self {
            Picked::Window { first, .. } => *first,
            Picked::Chosen(numbers) => numbers.first().copied().unwrap_or(0),
        }
    }

    fn len(&self) -> u64 {
        match self {
            Picked::Window { count, .. } => *count,
            Picked::Chosen(numbers) => numbers.len() as u64,
        }
    }

    /// Calls `take` with `count` states, from the one at `place` among them on. Returns how many there
    /// are.
    fn read(
        &self,
        states: &mut States,
        place: u64,
        count: u64,
        take: &mut dyn FnMut(&StateView<'_>),
    ) -> Result<u64, InputError> {
        match self {
            Picked::Window { first, .. } => states.range(first.saturating_add(place), count, take),
            Picked::Chosen(numbers) => {
                let rest = &numbers[place as usize..];
                states.each(&rest[..rest.len().min(count as usize)], take)
            }
        }
    }
}

/// The state in which a page opens.
struct Opening {
    number: u64,
    html: String,
    /// What is wrong there, if anything is.
    wrong: Option<(FindingKey, PlaceLine)>,
}

/// The states of a page, rendered.
struct Gathered {
    entries: Entries,
    tally: Tally,
    opening: Option<Opening>,
    /// Whether states that were asked for had no room.
    is_cut: bool,
}

/// Renders states, as many as there is room for.
fn gather(
    states: &mut States,
    builder: &mut Builder<'_>,
    picked: &Picked,
    opens: Opens,
) -> Result<Gathered, InputError> {
    let kind = kind_of(states);
    let walkers = builder.walkers();
    let mut tally = Tally::new(walkers.len());
    let mut entries = Entries::new();
    let mut opening: Option<Opening> = None;
    let (mut next, mut piece) = (0, PIECE);
    let end = picked.len();
    let mut is_cut = false;

    // The state in which the page opens is plain HTML, too, which is shown where no script runs.
    let is_full = |entries: &Entries, opening: &Option<Opening>| {
        let plain = opening.as_ref().map_or(0, |opening| opening.html.len());
        plain + entries.bytes() >= STATES_BYTES_MAX
    };

    // States are taken in pieces that double: a page that is soon full reads few in vain, and a
    // long one needs few calls.
    while next < end && !is_full(&entries, &opening) {
        let wanted = piece.min(end - next);
        let taken = picked.read(states, next, wanted, &mut |at| {
            // After the page is full, the rest of the piece is passed over.
            if is_full(&entries, &opening) {
                is_cut = true;
                return;
            }
            let code = builder.code(at.view);
            let built = builder.state(at);
            let shown = code.as_deref();
            let shown = shown.and_then(|code| Some((code, shown_lines(&built, code)?)));
            let rules = shown.map(|(code, lines)| {
                // What is true is known of this state: other lines have other states.
                let mut observed = Observed::default();
                builder.observe(at.view, 1, &mut observed);
                (code, builder.rules(at.view, (code, lines), &observed))
            });
            let shown = rules.as_ref().map(|(code, rules)| (*code, rules));
            let mut fragment = Fragment::default();
            state(&built, kind, &walkers, shown, &mut fragment);

            // Counted before the next state comes: neither states nor views are kept.
            tally.add(&built, code.as_ref());
            entries.add(&built.number.to_string(), &fragment);

            if opening.is_none() || opens.at == Some(built.number) {
                let walk = &built.walks[opens.walker];
                opening = Some(Opening {
                    number: built.number,
                    html: fragment.html(),
                    wrong: walk.is_wrong().then(|| {
                        let place = walk
                            .cause
                            .as_ref()
                            .map_or(&built.place, |cause| &cause.place);
                        (FindingKey::of(&built, opens.walker, walk), place.clone())
                    }),
                });
            }
        })?;

        next += taken;
        piece = piece.saturating_mul(2);
        // There are no more states.
        if taken < wanted {
            break;
        }
    }

    // Only if states are known to be left is it worth saying so.
    is_cut |= next < end
        && match picked {
            Picked::Window { first, .. } => states
                .total()
                .is_some_and(|total| first.saturating_add(next) < total),
            Picked::Chosen(_) => true,
        };

    Ok(Gathered {
        entries,
        tally,
        opening,
        is_cut,
    })
}

/// Why there is no page of a timeline.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// The recording cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The page cannot be written.
    #[error(transparent)]
    Output(#[from] io::Error),
    /// There is no state to show.
    #[error("there is no state {number}{}", of_total(*total))]
    NoState {
        /// The number that was asked for.
        number: u64,
        /// How many there are, if that is known.
        total: Option<u64>,
    },
}

impl TimelineError {
    /// That `states` has none of this number.
    pub(super) fn no_state(number: u64, states: &States) -> TimelineError {
        TimelineError::NoState {
            number,
            // Of a window it may only be outside.
            total: states.total().filter(|&total| number >= total),
        }
    }
}

fn of_total(total: Option<u64>) -> String {
    total.map_or_else(String::new, |total| {
        format!(": there are {total}, counted from 0")
    })
}

/// What the page is made of.
struct Content<'a> {
    kind: SourceKind,
    walkers: &'a [Walker],
    tally: &'a Tally,
    marks: &'a MarksLine,
    total: Option<u64>,
    end: Option<String>,
    notices: Vec<String>,
    /// The place of the walker that is selected first.
    chosen_walker: usize,
    /// The number of states at which it is wrong, in the whole run.
    wrong_in_run: u64,
    /// Whether states that were asked for had no room.
    is_cut: bool,
    /// Whether the states are a choice of the recording's.
    is_chosen: bool,
}

impl Content<'_> {
    fn noun(&self) -> &'static str {
        match self.kind {
            SourceKind::Program => "instruction",
            SourceKind::Recording => "sample",
        }
    }

    fn summary(&self) -> Markup {
        let shown = self.tally.states.len() as u64;
        let first = self.tally.states.first().map_or(0, |s| s.0);
        let last = self.tally.states.last().map_or(0, |s| s.0);
        let of = match self.total {
            Some(total) => format!("{shown} of {}", counted(total, self.noun())),
            None => counted(shown, self.noun()),
        };
        html! {
            (of) ", "
            @if self.is_chosen { "chosen from " } @else { "number " }
            (first) " to " (last)
            @if self.is_chosen {
                ": of each kind of wrong stack the first ones, then an even spread"
            }
            @if let Some(end) = &self.end { "; the program " (end) }
            @if self.is_cut { ". "
                "A page holds at most 2 MB: the others that were asked for are left out" }
            "."
        }
    }

    fn main(&self, opening: &Opening, entries: &mut Entries) -> Markup {
        let maps = self.maps(entries);
        let graphs = self.graphs(entries);
        let noun = self.noun();
        html! {
            (self.headline(opening))
            (self.known())
            section #states { h2 { "Step by step" }
                (controls(noun, &self.tally.states, self.marks, (self.walkers, self.chosen_walker)))
                div #state tabindex="-1" data-opening=(opening.number) { (PreEscaped(&opening.html)) }
                (legend())
            }
            (self.findings())
            (self.scores())
            (maps)
            (graphs)
        }
    }

    /// What is wrong, of which unwinder, how often and why: what the picture below shows.
    fn headline(&self, opening: &Opening) -> Markup {
        let name = self.walkers[self.chosen_walker].name();
        let noun = self.noun();
        let all = self.tally.states.len() as u64;
        let Some((key, place)) = &opening.wrong else {
            // Of states without a truth, nothing is said that would be a verdict.
            return html! { @if self.tally.without_truth == 0 && self.tally.findings.is_empty() {
                p .headline { "Every unwinder that was asked finds the true chain at "
                    (counted(all, noun)) "." }
            } };
        };

        let verb = match self.kind {
            SourceKind::Program => "becomes wrong",
            SourceKind::Recording => "is wrong",
        };
        let of = match self.total {
            Some(total) => format!("{} of {}", self.wrong_in_run, counted(total, noun)),
            None => counted(self.wrong_in_run, noun),
        };
        let same = self.tally.findings.get(key).map_or(1, |met| met.count);
        html! {
            p .headline {
                @if self.walkers[self.chosen_walker].may_err {
                    "No unwinder whose errors count is wrong. "
                    b { (name) ", which cannot be right everywhere, " (verb) " at " (of) "." }
                } @else {
                    b { (name) " " (verb) " at " (of) "." }
                }
                " At " (noun) " " a href=(link(opening.number, &name)) { (opening.number) }
                ", which the picture shows, its chain " (words::verdict(key.verdict)) ": "
                (cause(key.code)) " in " (words::place(place))
                @if same > 1 { ", as at " (same - 1) " more on this page" }
                "."
            }
        }
    }

    /// What the page cannot show.
    fn known(&self) -> Markup {
        let tally = self.tally;
        let all = tally.states.len() as u64;
        let marks = self.marks;
        html! {
            @if tally.without_truth == all {
                p .notice { "No true chain was recorded, so nothing is judged: the page shows what "
                    "each unwinder finds." }
            } @else if tally.without_truth > 0 {
                p .notice { "Without a true chain, and not judged: "
                    (counted(tally.without_truth, self.noun())) "." }
            }
            @if tally.without_memory > 0 {
                p .notice { "Without stack memory: " (counted(tally.without_memory, self.noun()))
                    "." }
            }
            @if !marks.complete {
                p .notice { "The run was searched for findings up to " (self.noun()) " "
                    (marks.covered) "." }
            }
            @for notice in &self.notices { p .notice { "Not modelled: " (notice) } }
        }
    }

    fn scores(&self) -> Markup {
        let letters = &self.tally.letters;
        let is_used = |word: &usize| letters.iter().any(|l| l[*word] > 0);
        let used: Vec<usize> = (0..Verdict::WORDS.len()).filter(is_used).collect();
        html! {
            section { h2 { "Verdicts" }
                div .scroll tabindex="0" role="region" aria-label="Verdicts" {
                table { thead { tr { th scope="col" { "unwinder" }
                    @for &word in &used {
                        @let (letter, name) = Verdict::WORDS[word];
                        th scope="col" { (letter) " " (name) }
                    } } }
                    tbody { @for (walker, counts) in self.walkers.iter().zip(letters) {
                        tr { th scope="row" { (walker.name()) }
                            @for &word in &used { td .number { (counts[word]) } } }
                    } } } }
            }
        }
    }

    fn findings(&self) -> Markup {
        let tally = self.tally;
        let mut all: Vec<_> = tally.findings.iter().collect();
        // Ties are broken by what is shown, so that the same run gives the same page.
        all.sort_by(|a, b| b.1.count.cmp(&a.1.count).then_with(|| a.0.cmp(b.0)));

        // Unwinders that are wrong by nature are wrong most often: they come behind those that are not.
        let (expected, counted_ones): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|(key, _)| self.walkers[key.walker].may_err);

        let shown: BTreeSet<u64> = tally.states.iter().map(|state| state.0).collect();
        let here = self.marks.marks.iter();
        let here = here.filter(|mark| mark.kind == "wrong" && shown.contains(&mark.number));
        let here = here.count();

        // All states without a truth: "nothing is wrong" would claim too much.
        if tally.without_truth == tally.states.len() as u64 && self.marks.wrong == 0 {
            return html! {
                section { h2 { "Findings" }
                    p { "Not known: without a true chain no unwinder is judged." }
                }
            };
        }

        html! {
            section { h2 { "Findings" }
                p { "In the whole run, as far as it was searched, an unwinder "
                    @if self.kind == SourceKind::Program { "becomes wrong" } @else { "is wrong" }
                    " at " (counted(self.marks.wrong, self.noun())) "; on this page at "
                    (here) "." }
                @if tally.findings.is_empty() && tally.without_truth == 0 {
                    p { "No unwinder is wrong on this page." }
                } @else if tally.findings.is_empty() {
                    p { "No unwinder is wrong where the true chain is known." }
                } @else {
                    @if counted_ones.is_empty() {
                        p { "No unwinder whose errors count is wrong on this page." }
                    } @else {
                        (self.kinds(&counted_ones, "Findings"))
                    }
                    @if !expected.is_empty() {
                        details .expected open[counted_ones.is_empty()] {
                            summary { (counted(expected.len() as u64, "kind"))
                                " of error of unwinders that cannot be right everywhere" }
                            (self.kinds(&expected, "Expected errors"))
                        }
                    }
                    @if tally.findings_left_out > 0 { p .note { "and "
                        (counted(tally.findings_left_out, "more verdict")) " of rarer kinds" } }
                }
            }
        }
    }

    /// A table of kinds of wrong stacks, the most frequent ones first.
    fn kinds(&self, all: &[(&FindingKey, &Occurrences)], label: &str) -> Markup {
        let more: u64 = all.iter().skip(FINDINGS_MAX).map(|f| f.1.count).sum();
        html! {
            div .scroll tabindex="0" role="region" aria-label=(label) {
            table .sortable .findings { thead { tr { th scope="col" { "unwinder" }
                th scope="col" { "verdict" } th scope="col" { "cause" }
                th scope="col" { "function" } th scope="col" { "image" }
                th scope="col" { (self.noun()) "s" } th scope="col" { "first" } } }
                tbody { @for (key, met) in all.iter().take(FINDINGS_MAX) {
                    @let name = self.walkers[key.walker].name();
                    tr { th scope="row" { (name) } td { (key.verdict) }
                        td { (cause(key.code)) } td { (key.function) } td { (key.image) }
                        td .number { (met.count) }
                        td .number { a href=(link(met.first, &name)) { (met.first) } } }
                } } } }
            @if more > 0 { p .note { "and " (counted(more, "more verdict")) " of rarer kinds" } }
        }
    }

    /// The heat maps. The first is plain HTML.
    fn maps(&self, entries: &mut Entries) -> Markup {
        // The worst functions come first, and with the bound on bytes are the ones that stay.
        let mut functions: Vec<&FunctionCells> = self.tally.functions.values().collect();
        functions.sort_by_key(|function| std::cmp::Reverse(function.wrong));

        let before = entries.bytes();
        let mut opening = None;
        let mut titles = Vec::new();

        for (number, function) in functions.iter().enumerate() {
            // The bound is on what the maps add, not on the page: the states came before.
            if number == MAPS_MAX || entries.bytes() >= before + MORE_BYTES_MAX {
                break;
            }
            let mut fragment = Fragment::default();
            matrix(function, self.walkers, &mut fragment);
            entries.add(&format!("map:{number}"), &fragment);
            titles.push((title(function), function.wrong));
            opening.get_or_insert_with(|| plain(&fragment));
        }

        let left_out = functions.len() - titles.len();
        let others = self.tally.functions_left_out;
        let is_judged = self.tally.without_truth < self.tally.states.len() as u64;

        html! {
            section { h2 { "Where each unwinder is wrong" }
                @if let Some(opening) = opening {
                    p .note { "The instructions of a function that the page has states of. A cell has "
                        "the letter of the verdict there, and leads to its first state." }
                    p { label { "function " select .entry data-entry="map" disabled {
                        @for (number, (title, wrong)) in titles.iter().enumerate() {
                            option value=(number) { (title)
                                @if is_judged { ", " (wrong) " wrong" } } } } } }
                    div #map .scroll tabindex="0" role="region" aria-label="Heat map" {
                        (PreEscaped(opening)) }
                    @if left_out > 0 { p .note { "Left out: "
                        (counted(left_out as u64, "function")) "." } }
                    @if others > 0 { p .note { "In other functions: "
                        (counted(others, self.noun())) "." } }
                } @else {
                    p { "The code of these states is not known." }
                }
            }
        }
    }

    /// The flame graphs. Those of the walker that is wrong most often are plain HTML, of those whose errors
    /// count if one is wrong.
    fn graphs(&self, entries: &mut Entries) -> Markup {
        // What is open or right is not a reason to show a walker first.
        let wrong = |walker: &usize| -> u64 {
            let counts = Verdict::WORDS.iter().zip(&self.tally.letters[*walker]);
            let wrong = counts.filter(|(word, _)| words::class(word.0) == "wrong");
            wrong.map(|(_, n)| n).sum()
        };

        // Unwinders that cannot be right everywhere are wrong most often, and are of least interest.
        let counts = |walker: &usize| wrong(walker) > 0 && !self.walkers[*walker].may_err;

        // Of equals the first, so that the choice does not depend on the order of iteration.
        let all = 0..self.walkers.len();
        let worst = all
            .clone()
            .max_by_key(|w| (counts(w), wrong(w), std::cmp::Reverse(*w)));
        let worst = worst.unwrap_or(0);

        let mut opening = None;

        // All graphs become entries; the one that is shown at first is also plain HTML, for readers
        // without a script.
        for walker in all {
            let mut fragment = Fragment::default();
            let graphs = &self.tally.graphs[walker];
            flame::graphs(&self.walkers[walker].name(), graphs, &mut fragment);
            entries.add(&format!("flame:{walker}"), &fragment);
            if walker == worst {
                opening = Some(plain(&fragment));
            }
        }

        html! {
            section { h2 { "What was lost, what was invented" }
                p { label { "unwinder " select .entry data-entry="flame" disabled {
                    @for (number, walker) in self.walkers.iter().enumerate() {
                        option value=(number) selected[number == worst] { (walker.name()) } } } } }
                div #flame { (PreEscaped(opening.unwrap_or_default())) }
            }
        }
    }
}

/// The HTML of a map or graph, unless it is large: then only the packed one is in the page.
fn plain(fragment: &Fragment) -> String {
    let html = fragment.html();
    if html.len() <= PLAIN_BYTES_MAX {
        html
    } else {
        html! { p .packed { "This part is large, and needs JavaScript." } }.into_string()
    }
}

/// `US203 slot below rsp, outside the copy`.
fn cause(code: &str) -> String {
    match ReasonCode::from_name(code) {
        Some(known) => format!("{code} {}", known.description()),
        None => code.to_owned(),
    }
}
