//! The stepper in tmux, under a real pseudo-terminal.

use crate::common::skip::skip;
use crate::common::tools::has_no_terminals;
use crate::step::CASE;
use std::process::Command;
use std::time::{Duration, Instant};

/// A tmux server of its own.
struct Tmux {
    socket: String,
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

impl Tmux {
    fn start(name: &str, size: (u32, u32)) -> Tmux {
        let tmux = Tmux {
            socket: format!("unwind-sim-{name}-{}", std::process::id()),
        };
        let (columns, rows) = (size.0.to_string(), size.1.to_string());
        let shell = "env -u NO_COLOR PS1='ready> ' sh";
        tmux.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &columns,
            "-y",
            &rows,
            shell,
        ]);
        tmux.wait("ready>");
        tmux
    }

    fn tmux(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.socket]).args(args);
        command
            .current_dir(crate::step::root(""))
            // A user's own shell may be one that refuses, such as nologin.
            .env("SHELL", "/bin/bash")
            .env("TERM", "xterm-256color");
        let output = command.output().expect("tmux runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn send(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Waits until the screen has this text.
    #[track_caller]
    fn wait(&self, text: &str) -> String {
        self.wait_until(text, 60, |screen| screen.contains(text))
    }

    /// Waits at most so many seconds until the screen is as wanted. It may be seen while only a part
    /// of it is drawn.
    #[track_caller]
    fn wait_until(&self, wanted: &str, seconds: u64, is_there: impl Fn(&str) -> bool) -> String {
        let begin = Instant::now();
        loop {
            let screen = self.screen();
            if is_there(&screen) {
                return screen;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(seconds),
                "no {wanted:?} in\n{screen}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn step(&self, args: &str) {
        let command = format!(
            "{} step {args}; stty -a | grep -c -w icanon",
            env!("CARGO_BIN_EXE_unwind-sim")
        );
        self.send(&["clear; ", &command, "Enter"]);
    }

    /// The number of the process that is in front of the terminal.
    fn in_front(&self) -> String {
        let pid = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let mut pgrep = Command::new("pgrep");
        let children = pgrep.args(["-P", pid.trim()]).output();
        let children = children.expect("pgrep runs").stdout;
        String::from_utf8_lossy(&children).trim().to_owned()
    }
}

/// Whether a screen with its attributes has a foreground colour: SGR 31 to 37, or 38 with a number.
/// SGR 39 is the default colour.
fn has_colour(screen: &str) -> bool {
    let esc = '\x1b';
    let plain = (1..=7).any(|colour| screen.contains(&format!("{esc}[3{colour}m")));
    plain || screen.contains("38;5;")
}

/// Whether a screen has a line that is the number of settings with `icanon`.
fn is_canonical(screen: &str) -> bool {
    screen.lines().any(|line| line.trim_end() == "1")
}

/// Whether there is no tmux, or no pseudo-terminal for it, which is a skip.
fn is_missing(name: &str) -> bool {
    let asked = Command::new("tmux").arg("-V").output();
    if !asked.is_ok_and(|output| output.status.success()) {
        skip(name, "tmux is not installed");
        return true;
    }
    has_no_terminals(name)
}

/// Keys, a resize, the mouse, and the terminal afterwards.
#[test]
fn a_session_in_a_real_terminal() {
    if is_missing("a_session_in_a_real_terminal") {
        return;
    }
    let tmux = Tmux::start("session", (100, 30));
    tmux.step(CASE);
    tmux.wait_until("all panes", 60, |screen| {
        let panes = ["unwinders", "code outer", "stack"];
        panes.iter().all(|pane| screen.contains(pane))
    });
    tmux.wait("wrong places");

    tmux.send(&["c"]);
    tmux.wait("wrong from here: fp");

    tmux.send(&["4", "f", "f"]);
    tmux.wait("step 2 of");

    // The colours of the screen.
    let coloured = tmux.tmux(&["capture-pane", "-p", "-e"]);
    assert!(has_colour(&coloured), "{coloured}");

    tmux.tmux(&["resize-window", "-x", "40", "-y", "10"]);
    tmux.wait_until("code and stack alone", 20, |screen| {
        !screen.contains("unwinders") && screen.contains("code") && screen.contains("stack")
    });
    tmux.tmux(&["resize-window", "-x", "100", "-y", "30"]);
    tmux.wait("unwinders");

    // A press of the left button on the second unwinder, as xterm reports it.
    tmux.send(&["-l", "\u{1b}[<0;56;4M\u{1b}[<0;56;4m"]);
    tmux.wait("2>sframe");

    tmux.send(&["y"]);
    tmux.wait("copied: unwind-sim step --from");
    tmux.send(&["q"]);

    // The shell's line discipline is back (grep finds `icanon`, not `-icanon`), and its screen.
    let screen = tmux.wait("ready>");
    assert!(!screen.contains("unwinders"), "{screen}");
    assert!(is_canonical(&screen), "{screen}");
}

/// The terminal belongs to the editor, and then to the stepper again.
#[test]
fn an_editor_has_the_terminal() {
    if is_missing("an_editor_has_the_terminal") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let case = crate::step::copy_of_case(folder.path());

    let text = std::fs::read_to_string(&case).expect("text");
    let text = text.replace("\nFUNC leaf\n", "\nFUNC leaf # edited\n");
    std::fs::write(&case, text).expect("it is written");

    // An editor that reads a line as the terminal gives it: in its usual mode, and all of it.
    let editor = folder.path().join("editor");
    let script = "echo \"edits $(stty -a | grep -c -w icanon)\"
read line
sed -i \"s/^.*# edited$/$line # edited/\" \"$1\"
";
    std::fs::write(&editor, script).expect("a file");
    let tmux = Tmux::start("edit", (100, 30));
    let export = format!("export VISUAL='sh {}'", editor.display());
    tmux.send(&[&export, "Enter"]);
    tmux.step(&case.display().to_string());
    tmux.wait("wrong places");

    // What cannot be assembled is edited again.
    tmux.send(&["e"]);
    tmux.wait("edits 1");
    tmux.send(&["no_such", "Enter"]);
    let screen = tmux.wait("Enter edits it again");
    assert!(screen.contains("no such instruction"), "{screen}");
    tmux.send(&["Enter"]);
    tmux.wait_until("a second edit", 60, |screen| {
        screen.matches("edits 1").count() == 2
    });
    tmux.send(&["FUNC leaf", "Enter"]);
    tmux.wait("unwinders");

    tmux.send(&["q"]);
    let screen = tmux.wait("ready>");
    assert!(is_canonical(&screen), "{screen}");
    let edited = std::fs::read_to_string(&case).expect("text");
    assert!(edited.contains("FUNC leaf # edited\n"), "{edited}");
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    if is_missing("a_signal_leaves_the_terminal_as_it_was") {
        return;
    }
    let tmux = Tmux::start("signal", (90, 24));
    tmux.step(&format!("--color never {CASE}"));
    tmux.wait("unwinders");
    let coloured = tmux.tmux(&["capture-pane", "-p", "-e"]);
    assert!(!has_colour(&coloured), "{coloured}");
    let child = tmux.in_front();
    let killed = Command::new("kill").args(["-TERM", &child]).status();
    assert!(killed.is_ok_and(|status| status.success()), "{child}");
    let screen = tmux.wait("ready>");
    assert!(
        !screen.contains("unwinders") && is_canonical(&screen),
        "{screen}"
    );
}

/// `NO_COLOR` leaves letters and marks.
#[test]
fn no_color_has_no_colour() {
    if is_missing("no_color_has_no_colour") {
        return;
    }
    let tmux = Tmux::start("plain", (90, 24));
    tmux.send(&["export NO_COLOR=1", "Enter"]);
    tmux.step(CASE);
    tmux.wait("unwinders");
    let coloured = tmux.tmux(&["capture-pane", "-p", "-e"]);
    assert!(!has_colour(&coloured), "{coloured}");
}

/// Ctrl-Z, and a signal from outside: the shell has its terminal back, and after `fg` the stepper is there
/// again.
#[test]
fn it_can_be_suspended() {
    if is_missing("it_can_be_suspended") {
        return;
    }
    let tmux = Tmux::start("suspend", (90, 24));
    tmux.step(CASE);
    tmux.wait("wrong places");
    let child = tmux.in_front();

    for by_signal in [false, true] {
        if by_signal {
            let stopped = Command::new("kill").args(["-TSTP", &child]).status();
            assert!(stopped.is_ok_and(|status| status.success()), "{child}");
        } else {
            tmux.send(&["C-z"]);
        }
        let screen = tmux.wait("ready>");
        assert!(!screen.contains("unwinders"), "{screen}");

        // The line discipline echoes again, which raw mode does not, and the cursor is there.
        tmux.send(&["clear; stty -a | grep -c -w icanon; jobs", "Enter"]);
        tmux.wait_until("a stopped job", 20, |screen| {
            is_canonical(screen) && screen.contains("Stopped")
        });
        assert_eq!(
            tmux.tmux(&["display-message", "-p", "#{cursor_flag}"])
                .trim(),
            "1"
        );

        tmux.send(&["fg", "Enter"]);
        tmux.wait_until("all panes", 60, |screen| {
            let panes = ["unwinders", "code ", "stack", "registers"];
            panes.iter().all(|pane| screen.contains(pane))
        });
        // And it takes keys.
        tmux.send(&["1", "f", "f"]);
        tmux.wait("step 2 of");
        tmux.send(&["2"]);
        tmux.wait("2>sframe");
    }

    // Somebody else has written to the terminal: a signal to go on draws everything anew.
    tmux.send(&["-R"]);
    tmux.wait_until("an empty screen", 20, |screen| {
        !screen.contains("registers")
    });
    let continued = Command::new("kill").args(["-CONT", &child]).status();
    assert!(continued.is_ok_and(|status| status.success()), "{child}");
    tmux.wait("registers");

    tmux.send(&["q"]);
    let screen = tmux.wait("ready>");
    assert!(!screen.contains("unwinders"), "{screen}");
}

#[test]
fn it_ends_when_its_terminal_is_gone() {
    if is_missing("it_ends_when_its_terminal_is_gone") {
        return;
    }
    let tmux = Tmux::start("gone", (90, 24));
    tmux.step(CASE);
    tmux.wait("unwinders");
    let child = tmux.in_front();
    tmux.tmux(&["kill-server"]);
    let begin = Instant::now();
    while std::path::Path::new(&format!("/proc/{child}")).exists() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{child} goes on");
        std::thread::sleep(Duration::from_millis(50));
    }
}
