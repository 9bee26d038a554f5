//! The Debug Adapter Protocol.

use crate::common::{SEED, THROWS, opened, run};
use crate::dap_schema::assert_conforms;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use unwind_sim_serve::Error;
use unwind_sim_serve::dap::{self, Received, Subject, Unframer, framed};

/// A client.
struct Client {
    stream: UnixStream,
    unframer: Unframer,
    seq: u64,
    /// The number of the last message of the server.
    last: u64,
}

impl Client {
    fn new(stream: UnixStream) -> Client {
        Client {
            stream,
            unframer: Unframer::default(),
            seq: 0,
            last: 0,
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// The next message; `None` at the end.
    fn next(&mut self) -> Option<Value> {
        let mut byte = [0];
        loop {
            if self.stream.read(&mut byte).ok()? == 0 {
                return None;
            }
            match self.unframer.push(byte[0]) {
                Some(Received::Message(message)) => {
                    assert_eq!(message["seq"], self.last + 1, "{message}");
                    self.last += 1;
                    assert_conforms(&message);
                    return Some(message);
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
    }

    fn request(&mut self, command: &str, arguments: Value) {
        self.seq += 1;
        self.send(&framed(&json!({
            "seq": self.seq,
            "type": "request",
            "command": command,
            "arguments": arguments,
        })));
    }

    /// The response to a request.
    #[track_caller]
    fn response(&mut self, command: &str, arguments: Value) -> Value {
        self.request(command, arguments);
        let response = self.next().expect("a response");
        assert_eq!(response["type"], "response", "{response}");
        assert_eq!(response["command"], command);
        assert_eq!(response["request_seq"], self.seq);
        response
    }

    /// The body of a response that succeeds.
    #[track_caller]
    fn ask(&mut self, command: &str, arguments: Value) -> Value {
        let mut response = self.response(command, arguments);
        assert_eq!(response["success"], true, "{response}");
        response["body"].take()
    }

    /// The message of a response that fails.
    #[track_caller]
    fn fails(&mut self, command: &str, arguments: Value) -> String {
        let response = self.response(command, arguments);
        assert_eq!(response["success"], false, "{response}");
        response["message"].as_str().expect("why").to_owned()
    }

    /// The body of the next message, which is this event.
    #[track_caller]
    fn event(&mut self, name: &str) -> Value {
        let mut event = self.next().expect("an event");
        assert_eq!(event["event"], name, "{event}");
        event["body"].take()
    }

    /// Where a way ends.
    #[track_caller]
    fn go(&mut self, command: &str) -> Value {
        self.ask(command, json!({"threadId": 1}));
        let stopped = self.event("stopped");
        assert_eq!(stopped["allThreadsStopped"], true);
        stopped
    }

    /// Launches what there is, up to the first stop.
    fn launch(&mut self, arguments: Value) -> Value {
        let capabilities = self.ask("initialize", json!({"adapterID": "unwind-sim"}));
        assert_eq!(capabilities["supportsStepBack"], true);
        self.ask("launch", arguments);
        self.event("process");
        self.event("initialized");
        self.ask("configurationDone", json!({}));
        self.event("stopped")
    }

    /// The names of the frames of a thread.
    fn frames(&mut self, thread: u64) -> Vec<String> {
        let body = self.ask("stackTrace", json!({ "threadId": thread }));
        let frames = body["stackFrames"].as_array().expect("frames").clone();
        assert_eq!(body["totalFrames"], frames.len());
        let name = |frame: &Value| frame["name"].as_str().expect("a name").to_owned();
        frames.iter().map(name).collect()
    }
}

/// Serves whatever is launched as this recording.
fn with_client(name: &str, client: impl FnOnce(Client) + Send + 'static) -> Result<(), Error> {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let client = thread::spawn(move || client(Client::new(ours)));
    let run = run();
    let from = theirs.try_clone().expect("a second end");
    let mut to = &theirs;
    let end = dap::serve(from, &mut to, &mut |launch, debug| match &launch.subject {
        Subject::File(path) if path == name => Ok(debug(opened(name, &run))),
        other => Err(format!("there is no {other:?}")),
    });
    theirs.shutdown(Shutdown::Both).expect("it closes");
    client.join().expect("the client is content");
    end
}

#[test]
fn the_call_stacks_are_the_truth_and_each_unwinder() {
    let end = with_client(THROWS, |mut editor| {
        let stopped = editor.launch(json!({"trace": THROWS}));
        assert_eq!(stopped["reason"], "entry");
        assert_eq!(stopped["threadId"], 1);

        let threads = editor.ask("threads", json!({}));
        let threads = threads["threads"].as_array().expect("threads").clone();
        let name = |at: usize| threads[at]["name"].as_str().expect("a name").to_owned();
        assert_eq!(name(0), "truth");
        assert_eq!(name(1), "dwarf: ok");
        assert!(name(2).starts_with("fp: "), "{threads:?}");
        assert_eq!(threads.len(), 4);

        let truth = editor.frames(1);
        assert!(truth[0].starts_with("main+0x"), "{truth:?}");
        let dwarf = editor.frames(2);

        // Where another unwinder is wrong, the truth has marks that this walk does not have.
        let plain = truth.iter().map(|name| name.split("  <-").next());
        let plain: Vec<&str> = plain.flatten().collect();
        assert_eq!(&dwarf[..truth.len()], &plain[..]);

        // The label behind the last frame of a walk says why it ended.
        assert!(dwarf[truth.len()].contains("walk ends"), "{dwarf:?}");

        // A part of a chain is that part.
        let part = json!({"threadId": 1, "startFrame": 1, "levels": 1});
        let part = editor.ask("stackTrace", part);
        assert_eq!(part["stackFrames"][0]["name"], truth[1]);
        assert_eq!(part["stackFrames"].as_array().map(Vec::len), Some(1));
        assert_eq!(part["totalFrames"], truth.len());
        editor.ask("disconnect", json!({}));
        editor.event("terminated");
        assert_eq!(editor.next(), None);
    });
    end.expect("it was served");
}

#[test]
fn the_frame_to_blame_is_marked_where_an_unwinder_becomes_wrong() {
    let end = with_client(THROWS, |mut editor| {
        editor.launch(json!({"trace": THROWS}));
        let filters = json!({"filters": [], "filterOptions": [
            {"filterId": "wrong", "condition": "dwarf"},
            {"filterId": "wrong", "condition": "nobody"},
        ]});

        // One names an unwinder that walks here, the other none.
        let set = editor.ask("setExceptionBreakpoints", filters);
        assert_eq!(set["breakpoints"][0]["verified"], true);
        assert_eq!(set["breakpoints"][1]["verified"], false);

        let stopped = editor.go("continue");
        assert_eq!(stopped["reason"], "exception", "{stopped}");
        assert!(
            stopped["text"]
                .as_str()
                .is_some_and(|text| text.contains("dwarf"))
        );

        // A wrong unwinder's thread has the code of the cause in its name.
        let threads = editor.ask("threads", json!({}));
        let dwarf = threads["threads"][1]["name"]
            .as_str()
            .expect("a name")
            .to_owned();
        assert!(dwarf.contains(", US"), "{dwarf}");
        let truth = editor.frames(1);
        let is_marked = |name: &String| name.contains("<- to blame: ") && name.contains("dwarf US");
        assert_eq!(
            truth.iter().filter(|name| is_marked(name)).count(),
            1,
            "{truth:?}"
        );

        // Backwards it is the last such place.
        editor.go("continue");
        let again = editor.go("reverseContinue");
        assert_eq!(again["reason"], "exception", "{again}");
        let console = json!({"expression": "wrong", "context": "repl"});
        let wrong = editor.ask("evaluate", console);
        // Some editors do not say that it is their console.
        let unsaid = editor.ask("evaluate", json!({"expression": "wrong"}));
        assert_eq!(unsaid, wrong);
        assert!(
            wrong["result"]
                .as_str()
                .is_some_and(|text| text.contains("dwarf: "))
        );
    });
    end.expect("it was served");
}

#[test]
fn variables_are_the_registers_and_how_a_frame_was_found() {
    with_client(THROWS, |mut editor| {
        editor.launch(json!({"trace": THROWS}));
        let stack = editor.ask("stackTrace", json!({"threadId": 2}));
        let (first, second) = (&stack["stackFrames"][0], &stack["stackFrames"][1]);
        let pc = first["instructionPointerReference"].clone();

        let scopes = editor.ask("scopes", json!({"frameId": first["id"]}));
        let reference = scopes["scopes"][0]["variablesReference"].clone();
        let body = editor.ask("variables", json!({ "variablesReference": reference }));
        let all = body["variables"].as_array().expect("variables").clone();
        let rip = all.iter().find(|variable| variable["name"] == "rip");
        assert_eq!(rip.expect("rip")["value"], pc);

        let scopes = editor.ask("scopes", json!({"frameId": second["id"]}));
        let reference = scopes["scopes"][1]["variablesReference"].clone();
        let body = editor.ask("variables", json!({ "variablesReference": reference }));
        let all = body["variables"].as_array().expect("variables").clone();

        // The second frame was found by a row, so all of this is known of it.
        for name in ["found by", "rule", "row", "words read"] {
            assert!(
                all.iter().any(|variable| variable["name"] == name),
                "{all:?}"
            );
        }

        // Its code is that of the images.
        let wanted = json!({
            "memoryReference": pc, "instructionOffset": -3, "instructionCount": 8,
        });
        let code = editor.ask("disassemble", wanted);
        let code = code["instructions"]
            .as_array()
            .expect("instructions")
            .clone();
        assert_eq!(code.len(), 8);

        // Three instructions before the pc were asked for.
        assert_eq!(code[3]["address"], pc);
        assert!(
            code[3..]
                .iter()
                .all(|line| line["instructionBytes"].is_string()),
            "{code:?}"
        );
        let wanted = json!({"memoryReference": pc, "count": 3});
        let memory = editor.ask("readMemory", wanted);

        // Three bytes are four characters of base64.
        assert_eq!(memory["data"].as_str().map(str::len), Some(4));
    })
    .expect("it was served");
}

#[test]
fn a_recording_is_gone_through_in_both_directions() {
    with_client(SEED, |mut editor| {
        editor.launch(json!({"case": SEED, "stopOnEntry": true}));
        let first = editor.frames(1);
        let stopped = editor.go("stepBack");
        assert!(stopped["description"].as_str().is_some_and(|text| text.contains("start")));
        assert_eq!(editor.go("stepIn")["reason"], "step");
        assert_eq!(editor.go("next")["reason"], "step");
        editor.go("stepBack");
        editor.go("stepBack");
        assert_eq!(editor.frames(1), first);
        let stopped = editor.go("continue");
        assert!(stopped["description"].as_str().is_some_and(|text| text.contains("the end")));

        // 0x1 is a number, so it is accepted, though no code is there; x is none.
        let at = json!({"breakpoints": [{"instructionReference": "0x1"}, {"instructionReference": "x"}]});
        let set = editor.ask("setInstructionBreakpoints", at);
        assert_eq!(set["breakpoints"][0]["verified"], true);
        assert_eq!(set["breakpoints"][1]["verified"], false);
        let named = json!({"breakpoints": [{"name": "nobody"}]});
        let set = editor.ask("setFunctionBreakpoints", named);
        assert_eq!(set["breakpoints"][0]["verified"], false);
        let lines = json!({"source": {"path": "a.c"}, "breakpoints": [{"line": 3}]});
        let set = editor.ask("setBreakpoints", lines);
        assert_eq!(set["breakpoints"][0]["verified"], false);

        // No breakpoint is at an address of the recording, so nothing stops before its start.
        editor.go("reverseContinue");
        assert_eq!(editor.frames(1), first);
    })
    .expect("it was served");
}

#[test]
fn what_cannot_be_answered_is_refused_in_words() {
    with_client(SEED, |mut editor| {
        assert!(editor.fails("threads", json!({})).contains("nothing is launched"));
        assert!(editor.fails("attach", json!({})).contains("launch"));
        assert!(editor.fails("launch", json!({})).contains("missing"));
        assert!(editor.fails("launch", json!({"trace": "/no"})).contains("there is no"));

        // A launch that has failed can be tried again.
        editor.launch(json!({"trace": SEED}));

        // With the largest and smallest numbers, too: what an editor sends is not trusted.
        for (command, arguments, why) in [
            ("launch", json!({"trace": SEED}), "already"),
            ("stackTrace", json!({}), "threadId"),
            ("stackTrace", json!({"threadId": 77}), "no thread"),
            ("stackTrace", json!({"threadId": u64::MAX}), "no thread"),
            ("scopes", json!({}), "frameId"),
            ("scopes", json!({"frameId": u64::MAX}), "no frame"),
            ("variables", json!({"variablesReference": u64::MAX}), "no thread"),
            ("variables", json!({"variablesReference": 0}), "no thread"),
            ("readMemory", json!({"memoryReference": "x", "count": 1}), "address"),
            ("readMemory", json!({"memoryReference": "0x10"}), "count"),
            ("readMemory", json!({"memoryReference": "0xffffffffffffffff", "offset": 1, "count": 1}), "no address"),
            ("disassemble", json!({"memoryReference": "0x10", "instructionCount": 1_000_000_000}), "at most"),
            ("disassemble", json!({"memoryReference": "0x10", "instructionOffset": i64::MIN, "instructionCount": 1}), "at most"),
            ("setBreakpoints", json!({"breakpoints": 1}), "not a list"),
            ("setFunctionBreakpoints", json!({"breakpoints": vec![json!({}); 2000]}), "too many"),
            ("setVariable", json!({}), "read-only"),
            ("writeMemory", json!({}), "read-only"),
            ("evaluate", json!({"expression": "1", "context": "hover"}), "console"),
            ("evaluate", json!({"expression": "dance", "context": "repl"}), "help"),
            ("dance", json!({}), "not supported"),
        ] {
            let said = editor.fails(command, arguments);
            assert!(said.contains(why), "{command}: {said}");
        }

        // 4 GB of memory are as much as there is, and not more than an answer has.
        let wanted = json!({"memoryReference": "0x10", "count": 1_u64 << 32});
        let memory = editor.ask("readMemory", wanted);
        assert_eq!(memory["data"], "");
        assert_eq!(memory["unreadableBytes"], 1 << 16);

        // The last 16 addresses: as many instructions are listed as were asked for, with or without
        // code.
        let nowhere = json!({"memoryReference": "0xfffffffffffffff0", "instructionCount": 9});
        let code = editor.ask("disassemble", nowhere);
        assert_eq!(code["instructions"].as_array().map(Vec::len), Some(9));
    })
    .expect("it was served");
}

#[test]
fn malformed_messages_get_an_answer_and_the_session_goes_on() {
    with_client(SEED, |mut editor| {
        for bytes in [
            &b"Content-Length: 3\r\n\r\n{]}"[..],
            b"Content-Length: 0\r\n\r\n",
        ] {
            editor.send(bytes);
            editor.event("output");
        }
        editor.launch(json!({"trace": SEED}));
        for message in [
            json!(null),
            json!([1]),
            json!({"type": "response"}),
            json!({"seq": 1}),
        ] {
            editor.send(&framed(&message));
            editor.event("output");
        }

        // The length is right, but the JSON is not whole.
        editor.send(b"Content-Length: 1\r\n\r\n{");
        editor.event("output");
        // The request lacks its number.
        editor.send(&framed(&json!({"type": "request", "command": "threads"})));
        assert_eq!(editor.next().expect("a response")["success"], true);
        editor.ask("pause", json!({}));
        assert_eq!(editor.go("next")["reason"], "step");
    })
    .expect("it was served");
}

#[test]
fn a_message_of_any_length_ends_the_session_in_words() {
    for length in ["1000000000000000000", "4294967296", "x"] {
        let end = with_client(SEED, move |mut editor| {
            editor.launch(json!({"trace": SEED}));
            editor.send(format!("Content-Length: {length}\r\n\r\n").as_bytes());
            let said = editor.event("output");
            assert!(
                said["output"]
                    .as_str()
                    .is_some_and(|text| text.contains(length))
            );
            editor.event("terminated");
            assert_eq!(editor.next(), None);
        });
        let error = end.expect_err("it cannot go on").to_string();
        assert!(error.contains(length), "{error}");
    }
}

#[test]
fn an_editor_may_leave_at_any_moment() {
    for bytes in [&b""[..], b"Content-Le", b"Content-Length: 9\r\n\r\n{"] {
        with_client(SEED, |mut editor| editor.send(bytes)).expect("it ends");
        with_client(SEED, |mut editor| {
            editor.launch(json!({"trace": SEED}));

            // The response is not waited for: the editor leaves while something runs.
            editor.request("continue", json!({}));
            editor.send(bytes);
        })
        .expect("it ends");
    }
}
