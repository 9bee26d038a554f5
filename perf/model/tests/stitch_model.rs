//! Stitching what the model's kernel wrote in random schedules: every sample gets frames of the
//! user stack that its thread had, or a reason.
//!
//! The truth is read from the model's log: on which stack each thread was when its sample was
//! taken. Where the stack itself was replaced in the same stay in the kernel (a signal, a uprobe's
//! step, an exec of which the recording does not tell enough), the kernel's record is of another
//! stack than the sample, which no reader of the records can know; these are counted apart.

use std::collections::{BTreeMap, BTreeSet};

use unwind_sim_perf_data::stitch::{
    Item, ItemKind, Judgement, MissingReason, Mode, Stitch, Stitched, Tally, judge, stitch,
};
use unwind_sim_perf_model::{Body, Fact, Form, Numbered, Schedule, StackId, StackSource, World};

/// What the log tells of a sample.
#[derive(Clone, Copy)]
struct Truth {
    stack: Option<StackId>,
    stay: (i32, u64),
}

/// The truth of each sample, by number; and the stays in which a stack was replaced.
fn truth(world: &World) -> (BTreeMap<u64, Truth>, BTreeSet<(i32, u64)>) {
    let mut stacks: BTreeMap<i32, StackId> = BTreeMap::new();
    let mut stays: BTreeMap<i32, u64> = BTreeMap::new();
    let (mut samples, mut replaced) = (BTreeMap::new(), BTreeSet::new());

    for entry in world.log() {
        // The thread's stay ends when user space runs again with a stack.
        let tid = entry.tid;
        let stay = *stays.entry(tid).or_default();
        match entry.fact {
            Fact::Stack { stack, .. } => {
                stacks.insert(tid, stack);
                stays.insert(tid, stay + 1);
            }
            Fact::Exec { stack } | Fact::Signal { stack } => {
                stacks.insert(tid, stack);
                replaced.insert((tid, stay));
            }
            Fact::Fork { child } => {
                if let Some(stack) = stacks.get(&tid).copied() {
                    stacks.insert(child, stack);
                }
            }
            // The truth is taken when the sample begins, not when it is written.
            Fact::Overflow { number, .. } => {
                let stack = stacks.get(&tid).copied();
                let stay = (tid, stay);
                samples.insert(number, Truth { stack, stay });
            }
            _ => {}
        }
    }
    (samples, replaced)
}

/// The records as items, in the order of time; a sample's key is its number, others have keys
/// above.
fn items(world: &World) -> Vec<Item> {
    const OTHERS: u64 = 1 << 40;
    let mut records: Vec<_> = world.records().iter().collect();
    records.sort_by_key(|record| (record.time, record.sequence));

    let item = |record: &&unwind_sim_perf_model::Record| {
        let mut key = OTHERS + record.sequence;
        let mut tid = record.tid;
        let what = match &record.body {
            Body::Sample { number, chain, .. } => {
                key = *number;
                ItemKind::Sample {
                    defer: world.events()[usize::from(record.event)].defer_callchain,
                    chain: chain.clone(),
                    ip: None,
                }
            }
            Body::Deferred { cookie, frames, .. } => ItemKind::Record {
                cookie: *cookie,
                frames: frames.clone(),
            },
            Body::Lost { lost } | Body::LostSamples { lost } => ItemKind::Lost { count: *lost },
            Body::Exec => ItemKind::Exec,
            Body::Exit => ItemKind::Exit,
            Body::Fork { child } => {
                tid = *child;
                ItemKind::Fork
            }
            _ => return None,
        };
        // Keys of records come after those of all samples.
        Some(Item {
            key,
            time: Some(record.time),
            tid,
            event: u64::from(record.event),
            what,
        })
    };

    records.iter().filter_map(item).collect()
}

/// Whether a stack has the frame, or has it before the instruction that a uprobe did.
fn has(stack: Option<StackId>, frame: u64) -> bool {
    let found = |stack| {
        let mut all = (0..Numbered.depth(stack)).map(|at| Numbered.frame(stack, at));
        all.any(|known| known == frame || known + 1 == frame)
    };
    stack.is_some_and(found)
}

/// The user frames that came from a record.
fn user(sample: &Stitched) -> impl Iterator<Item = u64> + '_ {
    let is_user = |frame: &u64| (Numbered::BASE..1 << 47).contains(frame);
    let from_record = sample.how.record().is_some();
    sample
        .chain
        .iter()
        .copied()
        .filter(move |frame| from_record && is_user(frame))
}

#[derive(Default, Debug)]
struct Sums {
    deferred: u64,
    replaced: u64,
    unanswered: u64,
    late: u64,
    missing: BTreeMap<MissingReason, u64>,
    judged: BTreeMap<Judgement, u64>,
}

fn check(seed: u64, form: Form, sums: &mut Sums) {
    let schedule = Schedule::random(seed, 400, None);
    if schedule.setup.form != form {
        return;
    }

    // The run is the truth, its records are all that the stitcher sees.
    let mut world = schedule.world().expect("a world");
    schedule.run(&mut world);
    let (truths, replaced) = truth(&world);
    let items = items(&world);
    let (own, counts) = stitch(Mode::Own, items.iter().cloned());
    assert_eq!(counts.out_of_order, 0, "seed {seed}");
    for sample in &own {
        let truth = truths[&sample.key];
        if user(sample).all(|frame| has(truth.stack, frame)) {
            continue;
        }

        // Without cookies, a record can answer a sample of an earlier stay.
        if form == Form::Rfc2023 && !replaced.contains(&truth.stay) {
            sums.unanswered += 1;
            continue;
        }
        assert!(
            replaced.contains(&truth.stay),
            "seed {seed}: {sample:x?} is of {:?}",
            truth.stack
        );
        sums.replaced += 1;
    }
    // Where none is given, none is there.
    let has_record = |sample: &Stitched| {
        items.iter().any(|item| {
            let ItemKind::Record { cookie, .. } = item.what else {
                return false;
            };
            cookie.is_some() && (item.tid, cookie) == (sample.tid, sample.cookie)
        })
    };
    for sample in &own {
        let is_refused = matches!(sample.how, Stitch::Missing(why) if why != MissingReason::Exec);
        assert!(
            !(is_refused && has_record(sample)),
            "seed {seed}: {sample:x?}"
        );
        if let Stitch::Missing(why) = sample.how {
            *sums.missing.entry(why).or_default() += 1;
        }
    }

    // perf's method on the same items, judged by ours.
    let (perf, _) = stitch(Mode::Perf72, items);
    let tally = Tally::of(&judge(&own, &perf));
    sums.deferred += tally.deferred;
    sums.late += tally.late;
    for (judgement, count) in tally.other {
        *sums.judged.entry(judgement).or_default() += count;
    }
}

#[test]
fn every_sample_of_the_model_gets_its_own_stack_or_a_reason() {
    let mut sums = Sums::default();
    for seed in 0..2000 {
        check(seed, Form::Upstream, &mut sums);
    }
    println!("{sums:?}");
    assert!(sums.deferred > 10_000 && sums.late > 100, "{sums:?}");
    let lacking = sums.judged.get(&Judgement::Lacking).copied();
    assert!(lacking > Some(100), "perf lacks late ones: {sums:?}");
}

/// In the form of 2023 an event has one task work: what a thread asks for while that is queued
/// for another thread is never answered, without a word, and the thread's next record is taken
/// for the answer. No reader can know; it is rare, and cookies ended it.
#[test]
fn r001_4_without_cookies_a_request_that_nobody_answers_brings_a_wrong_stack() {
    let mut sums = Sums::default();
    for seed in 0..2000 {
        check(seed, Form::Rfc2023, &mut sums);
    }
    println!("{sums:?}");
    assert!(sums.deferred > 3000, "{sums:?}");
    let is_rare = sums.unanswered * 100 < sums.deferred;
    assert!(sums.unanswered > 0 && is_rare, "{sums:?}");
}
