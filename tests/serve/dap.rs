//! The Debug Adapter Protocol, with a client that is a script.

use super::{CASE, Server};
use serde_json::{Value, json};
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
                Some(Received::Message(message)) => return message,
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
        server.send(&launch(arguments));
        let mut unframer = Unframer::default();
        let said = loop {
            let byte = server.byte();
            if let Some(Received::Message(message)) = unframer.push(byte) {
                break message;
            }
        };
        assert_eq!(said["success"], false, "{said}");
        let text = said["message"].as_str().expect("why");
        assert!(text.contains(why), "{text}");
    }
    assert_eq!(server.leave(), Some(0));
}
