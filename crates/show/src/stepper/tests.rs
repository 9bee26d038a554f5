//! Screens at three sizes, keys and sizes at random, and recordings that lack something.

mod look;

use super::screen::draw;
use super::script::Played;
use super::{Key, Stepper, StepperPosition};
use quickcheck::{Arbitrary, Gen, QuickCheck};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::path::{Path, PathBuf};
use unwind_sim_judge::compare::GroupBy;
use unwind_sim_judge::engine::Setting;
use unwind_sim_judge::input::Input;
use unwind_sim_judge::run::{Against, Run};
use unwind_sim_judge::spec;
use unwind_sim_judge::states::{Index, States};
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::model::Sample;
use unwind_sim_recordings::trace::{Meta, Trace, TraceWriter};
use unwind_sim_recordings::view::MemoryView;
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::{SampleRegs, Variant};
use unwind_sim_unwind::truth::Truth;
use unwind_sim_view::timeline::Builder;

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name)
}

fn open(name: &str) -> Input {
    Input::open(&corpus(name), &OpenOptions::default()).expect("a recording")
}

fn run(names: &[&str], starts: &[&str], view: MemoryView) -> Run {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let variants = starts.iter().map(|start| Variant::from_name(start));
    Run {
        engines: spec::engines(&names).expect("unwinders"),
        variants: variants.collect::<Option<_>>().expect("starts"),
        setting: Setting {
            view,
            ..Setting::default()
        },
        against: Against::Truth,
        group_by: GroupBy::default(),
    }
}

fn stepper(input: Input, run: &Run) -> Stepper<'_> {
    let again =
        |spot: &StepperPosition| format!("go to {} {} {:?}", spot.number, spot.walk, spot.step);
    let states = States::of_recording(input);
    let (index, builder) = (Index::of_recording(run), Builder::new(run));
    let made = Stepper::new(states, index, builder, Box::new(again), 0);
    made.expect("it is read").expect("there is a state")
}

/// The screens of a script.
fn screens(mut stepper: Stepper<'_>, script: &str, size: (u16, u16)) -> String {
    let mut out = Vec::new();
    let mut played = Played::new(script).expect("keys");
    played
        .go_on(&mut stepper, size, &mut out)
        .expect("it plays");
    String::from_utf8(out).expect("text")
}

const SIZES: [(u16, u16); 3] = [(80, 24), (200, 60), (40, 10)];

#[track_caller]
fn check(name: &str, shown: &str) {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true,
        snapshot_path => "../../snapshots" }, {
        insta::assert_snapshot!(format!("step-{name}"), shown);
    });
}

#[test]
fn a_recording_at_three_sizes() {
    let run = run(&["dwarf", "orc", "fp"], &[], MemoryView::Cpu);
    for size in SIZES {
        let shown = screens(
            stepper(open("traces/throws.bin"), &run),
            "\ns 3\nf f\n?\nx Tab",
            size,
        );
        check(&format!("throws-{}x{}", size.0, size.1), &shown);
    }
}

/// The frames that are skipped under fake registers.
#[test]
fn start_paths_are_columns() {
    let starts = ["hw", "fake:v5.1", "fake:v5.2"];
    let run = run(&["orc", "fp"], &starts, MemoryView::Cpu);
    for size in SIZES {
        let shown = screens(
            stepper(open("traces/seed-004.bin"), &run),
            "\nr\nr f f f\n2",
            size,
        );
        check(&format!("seed-004-{}x{}", size.0, size.1), &shown);
    }
}

#[test]
fn words_outside_of_a_copy_are_named() {
    let run = run(&["dwarf"], &[], MemoryView::Copy(64));
    let shown = screens(stepper(open("traces/throws.bin"), &run), "", (100, 40));
    assert!(shown.contains("outside the copy"), "{shown}");
    let run = self::run(&["dwarf"], &[], MemoryView::Cpu);
    let shown = screens(stepper(open("traces/throws.bin"), &run), "", (100, 40));
    assert!(!shown.contains("outside the copy"), "{shown}");
}

fn trace(samples: &[Sample<'_>]) -> Input {
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(&mut bytes, &Meta::default()).expect("it is written");
    for sample in samples {
        writer.sample(sample).expect("it is written");
    }
    writer.finish().expect("it is written");
    Input::from_trace(Trace::from_bytes(bytes).expect("a trace"))
}

fn bare(rip: Option<u64>) -> Sample<'static> {
    let mut regs = Regs::UNKNOWN;
    if let Some(rip) = rip {
        regs.set(Reg::Rip, rip);
        regs.set(Reg::Rsp, 0x7fff_0000);
    }
    Sample {
        pid: 1,
        tid: 1,
        time: 0,
        regs: SampleRegs::hardware(regs),
        regions: Vec::new(),
        truth: Truth::Unknown,
        recorded: Vec::new(),
        branches: Vec::new(),
        kernel: None,
        process_memory: None,
    }
}

/// No truth, no memory, no image, no registers: the screen says so.
#[test]
fn what_a_recording_lacks_is_said() {
    let run = run(&["dwarf", "fp"], &[], MemoryView::Cpu);
    let shown = screens(
        stepper(trace(&[bare(Some(0x1234))]), &run),
        "\ns\nc\nEnter",
        (110, 24),
    );
    for said in [
        "the truth is not known",
        "no memory of the stack was recorded",
        "the code at 0x1234 is not known",
        "this is the end",
        "becomes wrong after this state",
    ] {
        assert!(shown.contains(said), "{said:?} is missing in\n{shown}");
    }
    let shown = screens(stepper(trace(&[bare(None)]), &run), "", (110, 24));
    assert!(shown.contains("no registers were recorded"), "{shown}");
}

#[test]
fn a_recording_without_samples_has_no_stepper() {
    let run = run(&["dwarf"], &[], MemoryView::Cpu);
    let states = States::of_recording(trace(&[]));
    let (index, builder) = (Index::of_recording(&run), Builder::new(&run));
    let made = Stepper::new(states, index, builder, Box::new(|_| String::new()), 0);
    assert!(made.expect("it is read").is_none());
}

/// The next wrong state is the one that a look at every state finds.
#[test]
fn c_finds_the_wrong_states() {
    let run = run(&["fp"], &[], MemoryView::Cpu);

    // The truth of the test: each state is looked at, one after the other.
    let mut all = Vec::new();
    let mut steps = stepper(open("traces/throws.bin"), &run);
    for _ in 0..30 {
        // All other letters are of wrong verdicts.
        let letter = steps.state.walks[0].letter;
        if !matches!(letter, '.' | '~' | '?' | 'u') {
            all.push(steps.state.number);
        }
        steps.press(Key::Char('s')).expect("it is read");
    }

    assert!(all.len() > 1, "{all:?}");
    let mut steps = stepper(open("traces/throws.bin"), &run);

    // The key goes to the next wrong state, so a first one at the start must be added by hand.
    let mut found: Vec<u64> = (all[0] == 0).then_some(0).into_iter().collect();

    for _ in found.len()..all.len() {
        let before = steps.state.number;
        steps.press(Key::Char('c')).expect("it is read");
        if steps.state.number != before {
            found.push(steps.state.number);
        }
    }
    assert_eq!(found, all);
    // And back.
    let last = all.len() - 1;
    steps.press(Key::Char('C')).expect("it is read");
    assert_eq!(steps.state.number, all[last - 1]);
}

#[test]
fn the_command_leads_to_the_place() {
    let run = run(&["orc", "fp"], &["hw", "fake:v5.2"], MemoryView::Cpu);
    let mut steps = stepper(open("traces/seed-004.bin"), &run);
    for key in ['2', 'f', 'f', 'y'] {
        steps.press(Key::Char(key)).expect("it is read");
    }
    let copied = steps.take_copied().expect("it is copied");
    assert_eq!(copied, "go to 0 fp@hw Some(2)");
    assert_eq!(steps.take_copied(), None);
    let mut other = stepper(open("traces/seed-004.bin"), &run);
    let told = |steps: &mut Stepper<'_>, walk, step| steps.tell(walk, step).expect("it is read");
    assert!(told(&mut other, "fp@hw", Some(2)) && !told(&mut other, "fp", None));
    assert_eq!((other.walker, other.step), (steps.walker, steps.step));
}

/// What a user does.
#[derive(Clone, Debug)]
enum UserInput {
    Key(Key),
    Mouse(u16, u16, i32),
    Size(u16, u16),
}

impl Arbitrary for UserInput {
    fn arbitrary(g: &mut Gen) -> UserInput {
        const NAMED: [Key; 12] = [
            Key::Enter,
            Key::Escape,
            Key::Backspace,
            Key::Up,
            Key::Down,
            Key::Left,
            Key::Right,
            Key::PageUp,
            Key::PageDown,
            Key::Tab,
            Key::Home,
            Key::End,
        ];
        const KEYS: &[u8] = b"sSnNfFcCgtTruwd123456789/y?0xmain ";

        // Mostly characters, since most keys are; a few sizes and clicks between.
        match u8::arbitrary(g) % 8 {
            0 => UserInput::Key(NAMED[usize::arbitrary(g) % NAMED.len()]),
            1 => UserInput::Size(u16::arbitrary(g) % 130 + 1, u16::arbitrary(g) % 50 + 1),
            2 => UserInput::Mouse(
                u16::arbitrary(g) % 130,
                u16::arbitrary(g) % 50,
                i32::from(i8::arbitrary(g) % 4),
            ),
            3 if bool::arbitrary(g) => UserInput::Key(Key::Char(char::arbitrary(g))),
            _ => UserInput::Key(Key::Char(KEYS[usize::arbitrary(g) % KEYS.len()].into())),
        }
    }
}

/// Any keys on a screen of any size: no panic, and the code and the stack stay in view.
#[test]
fn any_keys_on_any_screen() {
    fn holds(all: Vec<UserInput>) -> bool {
        let run = self::run(
            &["dwarf", "orc", "guess"],
            &["hw", "fake:v5.2"],
            MemoryView::Cpu,
        );

        // One recording with everything, and one without memory, rows or truth.
        let bare = trace(&[bare(Some(0x1234)), bare(None)]);
        for input in [open("traces/seed-004.bin"), bare] {
            let mut steps = stepper(input, &run);
            let mut size = (80, 24);
            for does in &all {
                match *does {
                    // Leaving would end the run of keys.
                    UserInput::Key(Key::Char('q')) => continue,
                    UserInput::Key(key) => steps.press(key).expect("it is read"),
                    UserInput::Mouse(x, y, lines) => steps.mouse(x, y, lines).expect("it is read"),
                    UserInput::Size(columns, rows) => size = (columns, rows),
                }

                let Ok(mut terminal) = Terminal::new(TestBackend::new(size.0, size.1));
                let Ok(_) = terminal.draw(|frame| draw(&steps, frame, true));
                let text = terminal.backend().to_string();
                let covered = steps.over != super::Overlay::Nothing;

                // A smaller screen has no room for both panes.
                if size.0 >= 12 && size.1 >= 6 && !covered {
                    assert!(text.contains("code") && text.contains("stack"), "{text}");
                }
            }
        }
        true
    }

    let runs = match std::env::var_os("UNWIND_SIM_SLOW") {
        Some(_) => 400,
        None => 10,
    };
    QuickCheck::new()
        .tests(runs)
        .quickcheck(holds as fn(Vec<UserInput>) -> bool);
}

/// A click chooses what is drawn there.
#[test]
fn the_mouse_chooses() {
    let run = run(&["dwarf", "orc", "fp"], &[], MemoryView::Cpu);
    let mut steps = stepper(open("traces/throws.bin"), &run);
    let Ok(mut terminal) = Terminal::new(TestBackend::new(200, 60));
    let Ok(_) = terminal.draw(|frame| draw(&steps, frame, false));

    // The screen as text; a click is aimed at where a text was drawn.
    let rows: Vec<String> = terminal
        .backend()
        .to_string()
        .lines()
        .map(str::to_owned)
        .collect();

    let at = |text: &str| {
        let row = rows.iter().position(|row| row.contains(text)).expect(text);
        let column = rows[row].find(text).expect(text);
        // Frames and quotes are wider in bytes than on the screen.
        let column = rows[row][..column].chars().count() - 1;
        (column as u16, row as u16)
    };

    let (x, y) = at("3 fp");
    steps.mouse(x, y, 0).expect("it is read");
    assert_eq!(steps.walker, 2);

    let (x, y) = at("#0 main");
    // A click means what was drawn last.
    let Ok(_) = terminal.draw(|frame| draw(&steps, frame, false));
    steps.mouse(x, y, 0).expect("it is read");
    assert!(steps.step.is_some());

    let (x, y) = at("stack from");
    steps.mouse(x, y, 3).expect("it is read");
    assert_eq!(steps.scroll.stack, 3);
}
