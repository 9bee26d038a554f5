//! The terminal after a panic, in tmux.
#![cfg(all(unix, feature = "terminal"))]

#[path = "common/skip.rs"]
mod skip;

use ratatui::widgets::Paragraph;
use std::process::Command;
use std::time::{Duration, Instant};
use unwind_sim_show::stepper::terminal::lend;

/// Set in the process that panics.
const CHILD: &str = "UNWIND_SIM_TERMINAL_CHILD";

/// Takes the terminal as the stepper does, draws, and panics. In a process of its own, which the
/// other test starts.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let done: std::io::Result<()> = lend(|terminal| {
        terminal.draw(|frame| frame.render_widget(Paragraph::new("drawn"), frame.area()))?;
        std::thread::sleep(Duration::from_secs(1));
        panic!("in the middle of a screen");
    });
    done.expect("a terminal");
}

#[test]
fn a_panic_leaves_the_terminal_as_it_was() {
    let asked = Command::new("tmux").arg("-V").output();
    if !asked.is_ok_and(|output| output.status.success()) {
        return skip::skip(
            "a_panic_leaves_the_terminal_as_it_was",
            "tmux is not installed",
        );
    }
    let mut open = std::fs::OpenOptions::new();
    // Without a mounted devpts this fails, although the file is there.
    if open.read(true).write(true).open("/dev/ptmx").is_err() {
        return skip::skip(
            "a_panic_leaves_the_terminal_as_it_was",
            "no pseudo-terminals here",
        );
    }
    let socket = format!("unwind-sim-panic-{}", std::process::id());
    let tmux = |args: &[&str]| {
        let mut command = Command::new("tmux");
        command
            .args(["-L", &socket])
            .args(args)
            // A user's own shell may be one that refuses, such as nologin.
            .env("SHELL", "/bin/bash")
            .env("TERM", "xterm-256color");
        let output = command.output().expect("tmux runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let wait = |text: &str| {
        let begin = Instant::now();
        loop {
            let screen = tmux(&["capture-pane", "-p"]);
            if screen.contains(text) {
                return screen;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "no {text:?} in\n{screen}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let shell = "env PS1='ready> ' RUST_BACKTRACE=0 sh";
    tmux(&[
        "-f",
        "/dev/null",
        "new-session",
        "-d",
        "-x",
        "100",
        "-y",
        "20",
        shell,
    ]);
    wait("ready>");
    let own = std::env::current_exe().expect("a path");
    let own = format!("{CHILD}=1 {} --exact child --nocapture", own.display());
    let command = format!("clear; {own}; stty -a | grep -c -w icanon");
    tmux(&["send-keys", &command, "Enter"]);
    wait("drawn");
    let screen = wait("in the middle of a screen");
    let screen = if screen.contains("\n1\n") {
        screen
    } else {
        wait("\n1\n")
    };
    // The message is on the shell's screen, and the mouse is the terminal's own again.
    assert!(screen.contains("running 1 test"), "{screen}");
    assert!(!screen.contains("drawn"), "{screen}");
    let mouse = tmux(&["display-message", "-p", "#{mouse_any_flag} #{alternate_on}"]);
    assert_eq!(mouse.trim(), "0 0");
    tmux(&["kill-server"]);
}
