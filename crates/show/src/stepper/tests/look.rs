//! What is seen first, at 80x24 and in any terminal: heads of lists, whole words, colours that can be read,
//! the text of a demo.

use super::{SIZES, open, run, stepper};
use crate::stepper::screen::draw;
use crate::stepper::{Key, Stepper};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};
use unwind_sim_recordings::view::MemoryView;
use unwind_sim_unwind::reason::Code;
use unwind_sim_view::pages;

/// A screen with its attributes.
fn drawn(steps: &Stepper<'_>, (columns, rows): (u16, u16)) -> ratatui::buffer::Buffer {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, rows));
    let Ok(_) = terminal.draw(|frame| draw(steps, frame, true));
    terminal.backend().buffer().clone()
}

fn text(buffer: &ratatui::buffer::Buffer) -> Vec<String> {
    let rows = buffer.content().chunks(buffer.area.width.into());
    let line = |row: &[ratatui::buffer::Cell]| row.iter().map(|cell| cell.symbol()).collect();
    rows.map(line).collect()
}

/// The light of a colour of xterm, by the formula of WCAG 2.1.
fn luminance(colour: Color) -> Option<f64> {
    let [red, green, blue] = match colour {
        // The terminal's own.
        Color::Reset => return None,
        Color::Black => [0, 0, 0],
        Color::Red => [205, 0, 0],
        Color::Green => [0, 205, 0],
        Color::Yellow => [205, 205, 0],
        Color::Blue => [0, 0, 238],
        Color::Magenta => [205, 0, 205],
        Color::Cyan => [0, 205, 205],
        other => panic!("{other} is not one of the colours that every terminal has"),
    }
    .map(|value: u8| {
        let value = f64::from(value) / 255.0;
        if value <= 0.03928 {
            value / 12.92
        } else {
            ((value + 0.055) / 1.055).powf(2.4)
        }
    });
    Some(0.2126 * red + 0.7152 * green + 0.0722 * blue)
}

/// Whatever is on the screen can be read in a terminal with a light background, and in one with a dark
/// background: WCAG asks for a contrast of 3 for bold text.
#[test]
fn colours_are_readable_on_light_and_dark() {
    let run = run(
        &["dwarf", "orc", "fp"],
        &["hw", "fake:v5.2"],
        MemoryView::Cpu,
    );
    let mut colours = std::collections::HashSet::new();
    for name in ["traces/throws.bin", "traces/seed-004.bin"] {
        let mut steps = stepper(open(name), &run);
        for key in "ss1fff2f3ffffS?\tx".chars() {
            steps.press(Key::Char(key)).expect("it is read");
            for size in SIZES {
                let buffer = drawn(&steps, size);
                for cell in buffer.content() {
                    assert_eq!(cell.bg, Color::Reset, "{:?}", cell.symbol());
                    let is_bold = cell.modifier.contains(Modifier::BOLD);
                    assert!(cell.fg == Color::Reset || is_bold, "{:?}", cell.symbol());
                    colours.insert(cell.fg);
                }
            }
        }
    }

    assert!(colours.contains(&Color::Red), "what is wrong has a colour");
    for colour in colours {
        let Some(light) = luminance(colour) else {
            continue;
        };
        let (on_white, on_black) = (1.05 / (light + 0.05), (light + 0.05) / 0.05);
        assert!(
            on_white >= 3.0 && on_black >= 3.0,
            "{colour}: {on_white:.1}, {on_black:.1}"
        );
    }
}

/// Lists show their head, and the step that is made.
#[test]
fn the_walk_shows_its_head_and_follows_the_step() {
    let run = run(&["dwarf"], &[], MemoryView::Cpu);
    let mut steps = stepper(open("traces/throws.bin"), &run);
    let walk = |steps: &Stepper<'_>| text(&drawn(steps, (80, 24))).join("\n");

    let head = walk(&steps);
    assert!(head.contains("- Started at"), "{head}");
    assert!(head.contains("lines below"), "{head}");
    assert!(!head.contains("The walk ends"), "{head}");

    // The last step that was made has a mark, wherever it is in the walk.
    for made in 1..=steps.walk_len() {
        steps.press(Key::Char('f')).expect("it is read");
        let shown = walk(&steps);
        assert!(shown.contains(&format!("step {made} of")), "{shown}");
        assert!(shown.contains("│> "), "{shown}");
    }
    assert!(walk(&steps).contains("The walk ends"), "{}", walk(&steps));
}

/// Of many unwinders the chosen one is on the screen.
#[test]
fn the_list_of_unwinders_follows_the_choice() {
    let names = [
        "dwarf", "sframe", "orc", "fp", "guess", "dwarf+fp", "lbr:8", "lbr:16", "orc+fp",
    ];
    let run = run(&names, &[], MemoryView::Cpu);
    let mut steps = stepper(open("traces/throws.bin"), &run);
    let screen = text(&drawn(&steps, (80, 24))).join("\n");
    assert!(
        screen.contains("unwinders 1 to 6 of 9") && screen.contains("1>dwarf"),
        "{screen}"
    );

    steps.press(Key::Char('9')).expect("it is read");
    let screen = text(&drawn(&steps, (80, 24))).join("\n");
    assert!(
        screen.contains("unwinders 4 to 9 of 9") && screen.contains("9>orc+fp"),
        "{screen}"
    );

    // A click means the row that is seen.
    let rows = text(&drawn(&steps, (80, 24)));
    let row = rows
        .iter()
        .position(|row| row.contains("5 guess"))
        .expect("its row");
    steps.mouse(60, row as u16, 0).expect("it is read");
    assert_eq!(steps.walker, 4);
}

/// The legend fits into the smallest usual terminal. Where a text does not fit, the border says so, and
/// the keys scroll to its end.
#[test]
fn what_covers_the_panes_fits_or_says_that_it_scrolls() {
    let run = run(&["fp"], &[], MemoryView::Cpu);
    let mut steps = stepper(open("traces/throws.bin"), &run);
    steps.press(Key::Char('?')).expect("it is read");
    let shown = |steps: &Stepper<'_>, size| text(&drawn(steps, size)).join("\n");
    let screen = shown(&steps, (80, 28));
    for part in ["s S      one", "t truncated  r refused"] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    assert!(!screen.contains("lines 1 to"), "{screen}");

    // All keys are there on a usual screen, which says that there is more.
    let screen = shown(&steps, (80, 24));
    for part in ["? q ", "mouse ", "lines 1 to 22 of", "Down and Up scroll"] {
        assert!(screen.contains(part), "{part}: {screen}");
    }

    let screen = shown(&steps, (80, 12));
    assert!(
        screen.contains("lines 1 to 10 of") && screen.contains("Down and Up scroll"),
        "{screen}"
    );
    assert!(!screen.contains("t truncated  r refused"), "{screen}");
    for _ in 0..20 {
        steps.press(Key::Down).expect("it is read");
    }
    assert!(shown(&steps, (80, 12)).contains("t truncated  r refused"));
    // Up again from the end, at once.
    steps.press(Key::Up).expect("it is read");
    assert!(!shown(&steps, (80, 12)).contains("t truncated  r refused"));
}

/// The commands and programs in a page keep their indentation.
#[test]
fn pages_keep_their_indentation() {
    let run = run(&["fp"], &[], MemoryView::Cpu);
    let mut steps = stepper(open("traces/throws.bin"), &run);
    let cause = steps.state.walks[0].cause.as_ref().expect("fp is wrong");
    let page = pages::page(Code::from_name(cause.code).expect("a code"));
    let is_indented = |line: &&str| line.starts_with("    ") && line.len() < 60;
    let indented: Vec<&str> = page.lines().filter(is_indented).collect();
    assert!(indented.len() > 2, "{page}");

    steps.press(Key::Enter).expect("it is read");
    let screen = text(&drawn(&steps, (100, 400)));
    for line in indented {
        let is_it = |row: &String| row.contains(&format!("│{}", line.trim_end()));
        assert!(screen.iter().any(is_it), "{line:?}: {screen:#?}");
    }
}

/// What a demo tells is beside the panes of every size, and `d` shows all of it.
#[test]
fn a_demo_is_told_beside_the_panes() {
    let demo = crate::demo::ALL.iter().find(|demo| demo.name == "fp");
    let demo = demo.expect("the first demo");
    let run = run(&["fp", "dwarf"], &[], MemoryView::Cpu);
    let shown = |steps: &Stepper<'_>, size| text(&drawn(steps, size)).join("\n");

    for size in [(80, 24), (100, 30), (200, 60)] {
        let mut steps = stepper(demo.input().expect("a trace"), &run);
        assert!(!shown(&steps, size).contains("A walk by frame pointers"));
        steps.tell_beside(demo.notes());
        let first = shown(&steps, size);
        for part in [
            "demo: 1 of 2",
            "A walk by frame pointers",
            "code ",
            "stack ",
            "unwinders",
        ] {
            assert!(first.contains(part), "{part}: {first}");
        }
        steps.press(Key::Char('s')).expect("it is read");
        let second = shown(&steps, size);
        assert!(second.contains("Two instructions later"), "{second}");
        assert!(!second.contains("A walk by frame pointers"), "{second}");
    }

    // A narrow screen has it below the panes, one that is low has it behind a key.
    let mut steps = stepper(demo.input().expect("a trace"), &run);
    steps.tell_beside(demo.notes());
    let narrow = shown(&steps, (40, 24));
    assert!(
        narrow.contains("A walk by frame") && narrow.contains("(d: all)"),
        "{narrow}"
    );
    steps.press(Key::Char('d')).expect("it is read");
    let all = shown(&steps, (100, 40));
    for part in [
        "A walk by frame pointers",
        "Two instructions later",
        "  unwind-sim demo dwarf",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
}

/// Of a recording, the most frequent error that counts comes first; what is expected of an unwinder only if
/// there is no other.
#[test]
fn it_opens_at_the_first_finding() {
    let opened = |names: &[&str]| {
        let judged = run(names, &[], MemoryView::Cpu);
        let mut steps = stepper(open("traces/throws.bin"), &judged);
        steps.open_at_finding().expect("it is read");
        let name = steps.walkers[steps.walker].name();
        let letter = steps.state.walks[steps.walker].letter;
        (steps.state.number, name, letter, steps.message.clone())
    };

    // 44 stacks of dwarf are wrong, most of them behind __cxa_finalize, and all of fp's.
    let (number, name, letter, said) = opened(&["fp", "dwarf"]);
    assert_eq!((number, &*name, letter), (2858, "dwarf", 't'), "{said}");
    assert!(said.contains("dwarf is wrong"), "{said}");

    let (number, name, letter, said) = opened(&["fp"]);
    assert_eq!((number, &*name), (588, "fp"), "{said}");
    assert!(letter != '.' && said.contains("expected of fp"), "{said}");

    let run = run(&["dwarf", "orc"], &[], MemoryView::Cpu);
    let mut steps = stepper(open("traces/demo-dwarf.bin"), &run);
    steps.open_at_finding().expect("it is read");
    assert_eq!(steps.state.number, 0);
    assert_eq!(steps.message, "no unwinder is wrong anywhere");
}
