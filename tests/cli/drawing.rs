//! `report --svg` and `report --embed`: drawings of states, from good and bad input.

use crate::cli::{THROWS, ends_with, run, status, stderr, stdout, tool};
use std::path::Path;

const CASE: &str = "corpus/cases/frame/fp-loses-the-caller-before-push-rbp.s";
const DEFECT: &str = "corpus/cases/defect/wrong-slot-of-rbx.s";
const TWICE: &str = "corpus/cases/tables/row-that-loses-a-register-its-caller-needs.s";

/// Writes a drawing with these arguments; returns it.
fn drawing(args: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("drawing.svg");
    let output = tool(&["report", "-o"]).arg(&path).args(args).output();
    let output = output.expect("the tool runs");
    assert_eq!(status(&output), 0, "{args:?}: {}", stderr(&output));
    assert_eq!(stdout(&output), "");
    let image = std::fs::read_to_string(&path).expect("a drawing");
    is_sound(&image);
    image
}

/// What every drawing has to be: XML that loads nothing, in two colour schemes, and as text.
fn is_sound(image: &str) {
    assert!(image.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 "));
    assert!(image.ends_with("</svg>\n"));
    assert!(image.contains("prefers-color-scheme:dark"));
    assert!(text_of(image, "title").is_some_and(|text| !text.is_empty()));
    assert!(text_of(image, "desc").is_some_and(|text| text.contains("True frames: ")));

    // One name space is named, and one in the script; nothing is loaded, and nothing runs but our script.
    let without = image.replace("http://www.w3.org/2000/svg", "");
    let without = without.replace("http://www.w3.org/1999/xhtml", "");
    for outside in [
        "http:", "https:", "<image", "href=", "src=", "onload", "url(",
    ] {
        assert!(!without.contains(outside), "{outside}");
    }

    // Every element that is opened is closed, in order. Styles and scripts have no tags.
    let script = without
        .find("<script>")
        .map(|at| at..without.find("</script>").unwrap_or(at));
    let mut marks = without.clone();
    if let Some(script) = script {
        marks.replace_range(script, "<script>");
    }
    let mut open = Vec::new();
    for part in marks.split('<').skip(1) {
        let (tag, text) = part.split_once('>').expect("a whole tag");
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        assert!(!text.contains('>') || name == "style", "{text}");
    }
    assert!(open.is_empty(), "{open:?}");
}

/// The text of the element with this name and identifier.
fn text_of<'a>(image: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = image.split_once(&format!("<{name} id=\"{name}\">"))?;
    Some(rest.split_once('<')?.0)
}

/// The texts of a class, in order.
fn texts<'a>(image: &'a str, class: &str) -> Vec<&'a str> {
    let start = format!("<text class=\"{class}\"");
    let found = image.lines().filter_map(|line| line.strip_prefix(&start));
    let found = found.filter_map(|rest| rest.split_once('>')?.1.strip_suffix("</text>"));
    found.collect()
}

#[test]
fn a_walk_that_goes_wrong() {
    let image = drawing(&["--svg", "before_push", "--unwinder", "fp,dwarf", CASE]);
    assert_eq!(
        text_of(&image, "title"),
        Some(
            "The walk of fp at leaf+0x0 finds leaf &lt; outer &lt; _start; true is leaf &lt; mid &lt; \
             outer &lt; _start."
        )
    );
    assert_eq!(texts(&image, "place"), ["leaf+0x0: push %rbp"]);
    // fp's is the wrong one, so it is drawn.
    assert_eq!(
        texts(&image, "wrong drawn"),
        ["fp: missing, 3 of 4 frames: US510 frame pointer not yet set up in leaf+0x0"]
    );
    assert_eq!(texts(&image, "right"), ["dwarf: ok, 4 of 4 frames"]);
    assert_eq!(texts(&image, "mark wrong"), ["!"]);
    // The frame that is lost, on both sides.
    assert_eq!(texts(&image, "missing"), ["mid+0x9", "#1 mid+0x9"]);
    assert!(
        image.contains("<path class=\"wrong\""),
        "an arrow to the wrong frame"
    );

    let one = drawing(&["--svg", "before_push", "--unwinder", "dwarf", CASE]);
    assert!(text_of(&one, "title").is_some_and(|text| text.ends_with("that is the true chain.")));
    assert!(!one.contains("class=\"mark wrong\""));
}

/// A state is a number, a function, or a label, of which the second visit may be another one.
#[test]
fn a_state_is_named_in_several_ways() {
    let by_label = drawing(&["--svg", "before_push", CASE]);
    let by_function = drawing(&["--svg", "leaf", CASE]);
    assert_eq!(by_label, by_function);

    let first = drawing(&["--svg", "in_leaf", "--unwinder", "dwarf", TWICE]);
    let second = drawing(&["--svg", "in_leaf#2", "--unwinder", "dwarf", TWICE]);
    assert!(text_of(&first, "title").is_some_and(|text| text.contains("by_rsp")));
    assert!(text_of(&second, "title").is_some_and(|text| text.contains("by_rbx")));

    let samples = drawing(&["--svg", "1747", "--unwinder", "dwarf", THROWS]);
    assert!(text_of(&samples, "title").is_some_and(|text| text.contains("_Unwind_")));
}

/// Addresses of the stack and of code are not in a drawing.
#[test]
fn a_drawing_does_not_depend_on_the_folder_of_the_build() {
    let folder = tempfile::tempdir().expect("a folder");
    let drawn = |name_len: usize| {
        let own = folder.path().join("x".repeat(name_len));
        std::fs::create_dir_all(&own).expect("a folder");
        let path = own.join("drawing.svg");
        let mut made = tool(&["report", "--svg", "in_leaf#2", TWICE, "-o"]);
        let made = made.arg(&path).env("TMPDIR", &own).output();
        assert_eq!(status(&made.expect("it runs")), 0);
        std::fs::read_to_string(path).expect("a drawing")
    };
    let first = drawn(1);
    for name_len in [17, 50] {
        assert_eq!(drawn(name_len), first);
    }
    assert!(!first.contains("0x7f"), "{first}");
}

#[test]
fn what_is_not_known_is_said() {
    let image = drawing(&[
        "--svg",
        "0",
        "--unwinder",
        "dwarf",
        "corpus/perfdata/dwarf.data",
    ]);
    let title = text_of(&image, "title").expect("a title");
    assert!(title.ends_with("the true chain is not known."), "{title}");
    assert_eq!(texts(&image, "note"), ["end: US101", "not known"]);
    for claim in ["not a return address", " 0 frames", "class=\"missing\""] {
        assert!(!image.contains(claim), "{claim}");
    }
}

/// A deep stack is drawn in part.
#[test]
fn a_drawing_is_bounded() {
    let case = "corpus/cases/corrupt/more-frames-than-the-limit.s";
    let image = drawing(&["--svg", "bottom", "--unwinder", "dwarf", case]);
    assert!(image.len() < 40_000, "{} bytes", image.len());
    assert!(image.contains(" more</text>"), "{image}");
    assert!(image.contains(" more words further up</text>"), "{image}");
}

/// The packed states of an embedded drawing, as `embed.js` reads them.
fn unpacked(image: &str) -> Vec<String> {
    use base64::Engine as _;
    use std::io::Read as _;
    let packed = image
        .split_once("<metadata id=\"states\">")
        .expect("packed states");
    let packed = packed.1.split_once('<').expect("their end").0;
    let bytes = base64::engine::general_purpose::STANDARD.decode(packed);
    let mut text = String::new();
    flate2::read::DeflateDecoder::new(&bytes.expect("base64")[..])
        .read_to_string(&mut text)
        .expect("compressed text");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn an_embedded_drawing_has_its_neighbours() {
    let args = ["--embed", "before_push", "--unwinder", "fp,dwarf", CASE];
    let image = drawing(&args);
    assert!(image.len() < 15_000, "{} bytes", image.len());

    let lines = unpacked(&image);
    assert_eq!(lines[..4], ["instruction", "2", "fp", "dwarf"]);

    // Behind the names, each state has its number and a line for each walk.
    let states: Vec<&[String]> = lines[4..].chunks(3).collect();
    let numbers: Vec<u64> = states
        .iter()
        .map(|s| s[0].parse().expect("a number"))
        .collect();
    assert!(numbers.len() > 20 && numbers.windows(2).all(|two| two[1] == two[0] + 1));

    // What it shows first is one of them, and fp is right and wrong among them.
    let shown = image
        .split_once("aria-describedby=\"desc\">\n")
        .expect("a drawing")
        .1;
    let shown = shown
        .split_once("</g>\n<path id=\"ticks\"")
        .expect("its end")
        .0
        .replace('\n', "");
    let is_shown = |state: &&[String]| state[1].ends_with(&format!("\t{shown}"));
    assert_eq!(states.iter().filter(|state| is_shown(state)).count(), 1);
    for class in ["right\t", "wrong\t"] {
        assert!(
            states.iter().any(|state| state[1].starts_with(class)),
            "{class}"
        );
    }
    assert!(states.iter().all(|state| state[2].starts_with("right\t")));

    // Others are asked for by their number.
    let few = drawing(&[
        "--embed",
        "12",
        "--from",
        "10",
        "--count",
        "4",
        "--unwinder",
        "fp",
        CASE,
    ]);
    let lines = unpacked(&few);
    let numbers: Vec<&str> = lines[3..].iter().step_by(2).map(String::as_str).collect();
    assert_eq!(numbers, ["10", "11", "12", "13"]);
    assert!(few.contains("data-state=\"2\" data-walker=\"0\""));
}

/// The bytes of a row are below its rule, of every table; without `--bytes` there are none.
#[test]
fn rows_have_their_bytes() {
    let case = "corpus/cases/orc/one-function-in-three-tables.s";
    for (unwinder, of_leaf, of_vla) in [
        ("dwarf", "eh_frame 0c 07 08 90 01", "eh_frame 4f 0d 06"),
        (
            "sframe",
            "sframe(derived) 00 03 08",
            "sframe(derived) 13 04 10 f0",
        ),
        ("orc", "orc 08 00 00 00 05 02", "orc 10 00 f0 ff 14 02"),
    ] {
        let args = ["--svg", "in_leaf", "--unwinder", unwinder, case];
        let image = drawing(&[&args[..], &["--bytes"]].concat());
        let small = texts(&image, "small soft");
        // The walk starts without a row, and ends without another one.
        assert_eq!(small[2], of_leaf);
        assert_eq!(small[4], of_vla);
        assert!(text_of(&image, "desc").is_some_and(|text| text.contains(of_vla)));

        let without = drawing(&args);
        assert!(!without.contains(of_leaf) && !without.contains(of_vla));
    }

    // Frame pointers have rules and no table.
    let image = drawing(&["--svg", "after_push", "--bytes", "--unwinder", "fp", CASE]);
    let without = drawing(&["--svg", "after_push", "--unwinder", "fp", CASE]);
    assert_eq!(image, without);
}

/// Names of functions that try to leave the text.
#[test]
fn hostile_names_are_text() {
    // What ends a text of an SVG, a script, a character that turns the direction of text, and what
    // ends CDATA and attributes.
    const NAME: &str = "</text><script>alert(1)</script>\u{202e}]]>'&";
    let folder = tempfile::tempdir().expect("a folder");
    let assembly = format!(
        "        .globl _start
        .type _start, @function
_start: .cfi_startproc
        .cfi_undefined rip
        call \"{NAME}\"
        mov $60, %eax
        xor %edi, %edi
        syscall
        .cfi_endproc
        .size _start, .-_start
        .type \"{NAME}\", @function
\"{NAME}\":
        .cfi_startproc
        ret
        .cfi_endproc
        .size \"{NAME}\", .-\"{NAME}\"
        .section .note.GNU-stack,\"\",@progbits\n"
    );
    let file = folder.path().join("a.s");
    std::fs::write(&file, assembly).expect("a file");
    let program = folder.path().join("a");
    let built = std::process::Command::new("cc")
        .args(["-nostdlib", "-static", "-no-pie", "-o"])
        .args([&program, &file])
        .status();
    assert!(built.expect("cc runs").success());
    let program = program.to_string_lossy().into_owned();

    for option in ["--svg", "--embed"] {
        let image = drawing(&[option, "1", "--clear-env", "--", &program]);
        assert!(
            image.contains("&lt;/text&gt;&lt;script&gt;"),
            "the name is there"
        );
        assert!(!image.contains('\u{202e}'));
        // An embedded drawing has one script, which is ours; another drawing has none.
        assert_eq!(
            image.matches("<script").count(),
            usize::from(option == "--embed")
        );
    }
}

#[test]
fn bad_input_leaves_no_drawing() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let lines = ends_with(1, &["verify", "--json", "--defect", DEFECT]);
    std::fs::write(at("verify.json"), lines).expect("a file");
    let out = at("drawing.svg");

    let cases: [(&[&str], &str); 10] = [
        (
            &["--svg", "no_such_label", CASE],
            "no state is in a function no_such_label",
        ),
        // The program has not ended, so it is not said that there is none.
        (
            &["--svg", "no_such_label", "--max-instructions", "2", CASE],
            "no state is in a function no_such_label in the first 2 states",
        ),
        (
            &["--svg", "in_leaf#3", TWICE],
            "in_leaf is reached 2 times only",
        ),
        (
            &["--svg", "1000000", CASE],
            "there is no state 1000000: there are ",
        ),
        (
            &["--svg", "1000000", THROWS],
            "there is no state 1000000: there are ",
        ),
        // Before the first state of the window.
        (
            &["--embed", "3", "--from", "10", CASE],
            "there is no state 3",
        ),
        (
            &["--svg", "0", &at("verify.json")],
            "--svg: findings have no states",
        ),
        (
            &["--embed", "0", &at("verify.json")],
            "--embed: findings have no states",
        ),
        (&["--svg", "0", "--count", "3", CASE], "cannot be used with"),
        (&["--bytes", CASE], "<--svg <STATE>|--embed <STATE>>"),
    ];
    for (args, what) in cases {
        let output = run(&[&["report", "-o", &out], args].concat());
        let told = stderr(&output);
        assert_eq!(status(&output), 2, "{args:?}: {told}");
        assert!(told.contains(what), "{args:?}: {told}");
        assert!(!Path::new(&out).exists(), "{args:?}");
    }
}
