//! The Debug Adapter Protocol, with a client that is a script.

use super::{CASE, Server};
use crate::common::compiler::{Scratch, run};
use crate::common::dap_schema::{assert_conforms, problems};
use crate::common::tools::is_missing;
use serde_json::{Value, json};
use std::process::Command;
use unwind_sim_serve::dap::{Received, Unframer, framed};

struct Client {
    server: Server,
    unframer: Unframer,
    seq: u64,
}

impl Client {
    /// Launches, and goes to the first stop. Returns the text of that, too.
    fn start(launch: Value) -> Client {
        let mut client = Client {
            server: Server::start(&["dap"]),
            unframer: Unframer::default(),
            seq: 0,
        };
        client.ask("initialize", json!({}));
        client.ask("launch", launch);
        assert_eq!(client.next()["event"], "process");
        assert_eq!(client.next()["event"], "initialized");
        client
    }

    fn next(&mut self) -> Value {
        loop {
            let byte = self.server.byte();
            match self.unframer.push(byte) {
                Some(Received::Message(message)) => {
                    assert_conforms(&message);
                    return message;
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
    }

    fn request(&mut self, command: &str, arguments: Value) {
        self.seq += 1;
        self.server.send(&framed(&json!({
            "seq": self.seq,
            "type": "request",
            "command": command,
            "arguments": arguments,
        })));
    }

    #[track_caller]
    fn ask(&mut self, command: &str, arguments: Value) -> Value {
        self.request(command, arguments);
        let mut response = self.next();
        assert_eq!(response["request_seq"], self.seq, "{response}");
        assert_eq!(response["success"], true, "{response}");
        response["body"].take()
    }

    /// Makes a way, and returns the reason of the stop.
    #[track_caller]
    fn go(&mut self, command: &str) -> String {
        self.ask(
            command,
            json!({"threadId": 1, "granularity": "instruction"}),
        );
        let stopped = self.next();
        assert_eq!(stopped["event"], "stopped", "{stopped}");
        stopped["body"]["reason"].as_str().expect("why").to_owned()
    }

    /// The source line of the next instruction.
    fn line(&mut self) -> u64 {
        let body = self.ask("stackTrace", json!({"threadId": 1, "levels": 1}));
        body["stackFrames"][0]["line"].as_u64().expect("a line")
    }

    /// The places of the true chain.
    fn truth(&mut self) -> Vec<String> {
        let body = self.ask("stackTrace", json!({"threadId": 1}));
        let frames = body["stackFrames"].as_array().expect("frames").clone();
        let name = |frame: &Value| frame["name"].as_str().expect("a name").to_owned();
        let place = |name: String| name.split([' ']).next().unwrap_or_default().to_owned();
        frames.iter().map(name).map(place).collect()
    }
}

#[test]
fn a_program_is_stepped_in_over_out_and_back() {
    let mut editor = Client::start(json!({"case": CASE}));
    let breakpoints = json!({"breakpoints": [{"name": "mid"}]});
    let set = editor.ask("setFunctionBreakpoints", breakpoints);
    assert_eq!(set["breakpoints"][0]["verified"], true, "{set}");
    assert_eq!(editor.go("configurationDone"), "entry");
    assert_eq!(editor.go("continue"), "breakpoint");
    let entry = editor.truth();
    assert_eq!(entry[0], "mid+0x0");
    assert_eq!(entry.len(), 3, "{entry:?}");
    // Each request replaces the whole list. Left there, the breakpoint would stop later steps.
    editor.ask("setFunctionBreakpoints", json!({"breakpoints": []}));

    // push, mov, and then the call: over it, and back over it.
    for _ in 0..2 {
        assert_eq!(editor.go("next"), "step");
    }
    let before = editor.truth();
    assert_eq!(editor.go("next"), "step");
    let after = editor.truth();
    assert!(after[0].starts_with("mid+"), "{after:?}");
    assert_ne!(before, after);
    assert_eq!(editor.go("stepBack"), "step");
    assert_eq!(editor.truth(), before);

    // Into it, and out.
    assert_eq!(editor.go("stepIn"), "step");
    assert_eq!(editor.truth()[0], "leaf+0x0");
    assert_eq!(editor.go("stepOut"), "step");
    assert_eq!(editor.truth(), after);

    // At the first instruction of leaf, fp loses its caller: the frame to blame is marked.
    assert_eq!(editor.go("stepBack"), "step");
    assert_eq!(editor.go("stepIn"), "step");
    let threads = editor.ask("threads", json!({}));
    let names: Vec<&str> = (0..6)
        .filter_map(|at| threads["threads"][at]["name"].as_str())
        .collect();
    assert_eq!(
        names[..5],
        [
            "truth",
            "dwarf: ok",
            "sframe: ok",
            "orc: ok",
            "fp: missing, US510",
        ]
    );
    // Each walk is a thread of its own in the editor; `fp` is the fifth.
    let chain = editor.ask("stackTrace", json!({"threadId": 5}));
    let chain = chain["stackFrames"].as_array().expect("frames").clone();
    let name = |at: usize| chain[at]["name"].as_str().expect("a name").to_owned();
    assert!(name(0).contains("<- to blame: US510"), "{chain:?}");
    assert!(
        name(1).starts_with("Missing: true frame 1, mid+"),
        "{chain:?}"
    );
    assert!(name(2).starts_with("outer+"), "{chain:?}");

    // Code before the instruction: mid's, of which only the call is left out.
    let pc = chain[2]["instructionPointerReference"].clone();
    let wanted = json!({
        "memoryReference": pc, "instructionOffset": -3, "instructionCount": 4,
    });
    let code = editor.ask("disassemble", wanted);
    let text = |at: usize| {
        code["instructions"][at]["instruction"]
            .as_str()
            .unwrap_or("")
    };
    assert!(text(0).starts_with("push"), "{code}");
    assert_eq!(code["instructions"][0]["symbol"], "outer");
    assert!(text(2).starts_with("call"), "{code}");
    assert_eq!(code["instructions"][3]["address"], pc);

    // No breakpoint is left, so going back ends at the start of the run.
    assert_eq!(editor.go("reverseContinue"), "pause");
    editor.ask("disconnect", json!({}));
    assert_eq!(editor.next()["event"], "terminated");
    assert_eq!(editor.server.leave(), Some(0));
}

#[test]
fn a_run_without_an_end_is_paused() {
    let mut editor = Client::start(json!({
        "program": "/bin/sh",
        "args": ["-c", "while :; do :; done"],
        "stopOnEntry": false,
        "options": ["--unwinder", "dwarf"],
    }));
    editor.ask("configurationDone", json!({}));
    editor.request("pause", json!({}));
    // The way ends before the request is answered.
    let stopped = editor.next();
    assert_eq!(stopped["body"]["reason"], "pause", "{stopped}");
    assert_eq!(editor.next()["command"], "pause");
    // It may have been paused at the first state.
    assert_eq!(editor.go("stepIn"), "step");
    assert_eq!(editor.go("stepBack"), "step");
    editor.request("continue", json!({}));
    assert_eq!(editor.next()["success"], true);
    // An editor that leaves while it runs ends the server.
    assert_eq!(editor.server.leave(), Some(0));
}

#[test]
fn a_launch_that_fails_says_why() {
    let mut server = Server::start(&["dap"]);
    let launch = |arguments: Value| {
        framed(&json!({"seq": 1, "type": "request", "command": "launch", "arguments": arguments}))
    };
    for (arguments, why) in [
        (json!({"program": "/no/such/program"}), "/no/such/program"),
        (json!({"trace": "no.bin"}), "no.bin"),
        (json!({"case": CASE, "from": "nobody"}), "nobody"),
        (json!({"case": CASE, "options": ["--dance"]}), "--dance"),
    ] {
        // One server for all: after a launch that failed, it takes the next one.
        server.send(&launch(arguments));
        let mut unframer = Unframer::default();
        let said = loop {
            let byte = server.byte();
            if let Some(Received::Message(message)) = unframer.push(byte) {
                break message;
            }
        };
        assert_conforms(&said);
        assert_eq!(said["success"], false, "{said}");
        let text = said["message"].as_str().expect("why");
        assert!(text.contains(why), "{text}");
    }
    assert_eq!(server.leave(), Some(0));
}

#[test]
fn messages_that_are_not_of_the_protocol_are_seen() {
    let event = |body: Value| json!({"type": "event", "event": "stopped", "seq": 1, "body": body});
    assert_eq!(
        problems(&event(json!({"reason": "step", "threadId": 1}))),
        [""; 0]
    );

    let wrong = [
        (event(json!({"threadId": 1})), "lacks reason"),
        (event(json!({"reason": 1})), "type"),
        (event(json!({"reason": "step", "thread": 1})), "has thread"),
        (
            json!({"type": "event", "event": "stoped", "seq": 1}),
            "no StopedEvent",
        ),
        (json!({"type": "reply"}), "neither"),
        (
            json!({
                "type": "response", "seq": 1, "request_seq": 1, "success": true, "command": "scopes",
                "body": {"scopes": [{"name": "a", "variablesReference": "b", "expensive": false}]},
            }),
            "scopes[0].variablesReference",
        ),
        (
            json!({"type": "response", "seq": 1, "success": true, "command": "launch"}),
            "lacks request_seq",
        ),
        (
            json!({
                "type": "response", "seq": 1, "request_seq": 1, "success": true,
                "command": "setBreakpoints",
                "body": {"breakpoints": [{"verified": false, "reason": "later"}]},
            }),
            "none of",
        ),
    ];
    for (message, problem) in wrong {
        let found = problems(&message).join("\n");
        assert!(found.contains(problem), "{found}");
    }
}

/// A program with source lines, so small that all its code is known: no libc.
const SOURCE: &str = "\
__attribute__((noinline)) static int twice(int a)
{
    int b = a + a;
    return b;
}

__attribute__((noreturn)) void _start(void)
{
    volatile int sum = 0;
    sum = twice(1);
    sum += twice(2);
    __asm__ volatile (\"syscall\" : : \"a\"(60), \"D\"(sum));
    __builtin_unreachable();
}
";

/// How it is built. Without a library nobody sets up the segment that a stack protector reads its canary
/// from.
const ARGS: [&str; 5] = ["-g", "-O0", "-nostdlib", "-static", "-fno-stack-protector"];

#[test]
fn lines_are_stepped_in_both_directions() {
    if is_missing("lines_are_stepped_in_both_directions", "cc") {
        return;
    }
    let folder = Scratch::new();
    let program = folder.cc("lines.c", SOURCE, &ARGS).expect("cc links");

    let source = folder.path("lines.c");
    let mut editor = Client::start(json!({ "program": program }));
    let lines = json!({"source": {"path": source}, "breakpoints": [
        {"line": 11}, {"line": 6}, {"line": 99},
    ]});
    let set = editor.ask("setBreakpoints", lines);
    assert_eq!(set["breakpoints"][0]["verified"], true, "{set}");
    // The next line with code.
    assert_eq!(set["breakpoints"][1]["line"], 8, "{set}");
    assert_eq!(set["breakpoints"][2]["verified"], false, "{set}");
    editor.go("configurationDone");
    assert_eq!(editor.go("continue"), "breakpoint");
    assert_eq!(editor.line(), 11);
    // An empty list removes those of the file, which would stop the steps that follow.
    let no_lines = json!({"source": {"path": source}, "breakpoints": []});
    editor.ask("setBreakpoints", no_lines);

    let mut ways = |all: &[(&str, u64)]| {
        for (way, line) in all {
            editor.ask(way, json!({"threadId": 1}));
            let stopped = editor.next();
            assert_eq!(stopped["body"]["reason"], "step", "{way}: {stopped}");
            assert_eq!(editor.line(), *line, "{way}");
        }
    };
    ways(&[
        ("next", 12),
        ("stepBack", 11),
        ("stepBack", 10),
        ("stepBack", 9),
    ]);
    // Line 10 has a call: into it, through it, and out, which ends on the same line again.
    ways(&[
        ("next", 10),
        ("stepIn", 2),
        ("next", 3),
        ("next", 4),
        ("stepOut", 10),
    ]);
    ways(&[("next", 11), ("stepBack", 10)]);
}

/// Distributions strip their programs, and have the lines in a file of its own.
#[test]
fn lines_of_a_separate_debug_file_are_shown() {
    let name = "lines_of_a_separate_debug_file_are_shown";
    if is_missing(name, "cc") || is_missing(name, "objcopy") {
        return;
    }
    let folder = Scratch::new();
    let program = folder.cc("lines.c", SOURCE, &ARGS).expect("cc links");
    folder.split_debug(&program).expect("objcopy splits it");

    let mut editor = Client::start(json!({ "program": program }));
    let lines = json!({
        "source": {"path": folder.path("lines.c")}, "breakpoints": [{"line": 11}],
    });
    let set = editor.ask("setBreakpoints", lines);
    assert_eq!(set["breakpoints"][0]["verified"], true, "{set}");
    editor.go("configurationDone");
    assert_eq!(editor.go("continue"), "breakpoint");
    assert_eq!(editor.line(), 11);

    // The report and the stepper read them through the image of the mapping.
    let page = folder.path("page.html");
    let mut report = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    report
        .args(["report", "-o"])
        .arg(&page)
        .arg("--")
        .arg(&program);
    run(&mut report).expect("it is written");
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.contains("lines.c:"), "no lines in the page");
}
