//! Hostile debuggers: packets of gdb's remote protocol, and messages of the Debug Adapter Protocol.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use unwind_sim_emulator::linux::RunningProgram;
use unwind_sim_judge::compare::GroupBy;
use unwind_sim_judge::engine::Setting;
use unwind_sim_judge::input::Input;
use unwind_sim_judge::run::{Against, Run};
use unwind_sim_judge::spec;
use unwind_sim_judge::states::{Index, ProgramIndex, States};
use unwind_sim_record::reversible::{Reversible, ReversibleRun as _};
use unwind_sim_recordings::trace::Trace;
use unwind_sim_serve::dap::{self, Launch, Received};
use unwind_sim_serve::debuggee::{Debuggee, Opened};
use unwind_sim_serve::gdb::{self, Event};

/// A small recording, and a small static program.
const RECORDING: &str = "valid/traces/seed-004.bin";
const PROGRAM: &str = "corpus/loader/static";
/// The number of instructions that the program executes at most.
const INSTRUCTIONS_MAX: u64 = 10_000;
/// The number of packets or messages that are answered.
const ANSWERED_MAX: usize = 64;
/// The length of an answer, bytes. The longest explain a walk.
const ANSWER_BYTES_MAX: usize = 1 << 22;

/// Calls `with` with a program if the first byte of the data is odd, or else with a recording, and with
/// the rest of the data.
fn opened(data: &[u8], with: impl FnOnce(Debuggee<'_>, &[u8])) {
    let (first, rest) = data.split_first().unwrap_or((&0, &[]));
    let names = ["dwarf", "fp"].map(str::to_owned);
    let run = Run {
        engines: spec::engines(&names).expect("unwinders"),
        variants: Vec::new(),
        setting: Setting::default(),
        against: Against::Truth,
        group_by: GroupBy::default(),
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));

    // Saved inputs are not executable.
    let copied = tempfile::NamedTempFile::new().expect("a file");
    std::fs::copy(folder.join(PROGRAM), copied.path()).expect("it is copied");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(copied.path(), executable).expect("it is ours");

    let stop = Arc::default();
    let (states, index) = if first % 2 == 1 {
        let program = RunningProgram::alone(copied.path());
        let limit = INSTRUCTIONS_MAX;
        let index = ProgramIndex::start(program.clone(), &run.engines, run.setting, limit);
        let index = Index::of_program(index.expect("it starts"), &run.engines);
        let reversible = Reversible::start(program, 1 << 12, Arc::clone(&stop));
        let mut reversible = reversible.expect("it starts");
        reversible.set_limit(limit);
        (States::of_program(reversible, stop.clone()), index)
    } else {
        let bytes = std::fs::read(folder.join(RECORDING)).expect("a recording");
        let trace = Trace::from_bytes(bytes).expect("a trace");
        let states = States::of_recording(Input::from_trace(trace));
        (states, Index::of_recording(&run))
    };

    let debuggee = Debuggee::new(Opened {
        run: &run,
        states,
        index,
        stop,
        source: "fuzzed".to_owned(),
        executable: Some(copied.path().to_owned()),
        first: 0,
    });
    with(debuggee.expect("a first state"), rest);
}

/// The lines of the data are the bodies of packets; all of it is a stream of packets, too.
pub fn gdb_packet(data: &[u8]) {
    opened(data, |debuggee, rest| {
        let mut session = gdb::Session::new(debuggee).expect("it can be read");
        let mut unframer = gdb::Unframer::default();
        let events = rest.iter().filter_map(|byte| unframer.push(*byte));
        let framed = events.filter_map(|event| match event {
            Event::Packet(body) => Some(body),
            _ => None,
        });
        let lines = rest.split(|&byte| byte == b'\n').map(<[u8]>::to_vec);

        for body in lines.chain(framed).take(ANSWERED_MAX) {
            let (answer, end) = session.packet(&body).expect("it can be read");
            assert!(answer.len() <= ANSWER_BYTES_MAX, "{} bytes", answer.len());
            check(&answer);
            if end.is_some() {
                break;
            }
        }
    });
}

/// An answer is made of whole packets.
fn check(answer: &[u8]) {
    let mut unframer = gdb::Unframer::default();
    let mut read = 0;
    for event in answer.iter().filter_map(|byte| unframer.push(*byte)) {
        match event {
            Event::Packet(body) => read += gdb::framed(&body).len(),
            // A text of the console may be longer than what the server itself would read.
            Event::Broken(why) => return assert!(why.contains("longer"), "{why}"),
            other => panic!("{other:?} in an answer"),
        }
    }
    assert_eq!(read, answer.len(), "{}", String::from_utf8_lossy(answer));
}

/// The lines of the data are messages; all of it is a stream of messages, too.
pub fn dap_message(data: &[u8]) {
    opened(data, |debuggee, rest| {
        let first = rest.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let request: serde_json::Value = serde_json::from_slice(first).unwrap_or_default();
        let launch = request.get("arguments").map(Launch::of);
        let launch = launch.and_then(Result::ok).unwrap_or(Launch {
            subject: dap::Subject::Program(Vec::new()),
            from: None,
            options: Vec::new(),
            stop_on_entry: true,
        });
        let (mut session, _) = dap::Session::new(debuggee, &launch, &request);

        let mut unframer = dap::Unframer::default();
        let received = rest.iter().filter_map(|byte| unframer.push(*byte));
        let framed = received.filter_map(|received| match received {
            Received::Message(message) => Some(message),
            _ => None,
        });
        let lines = rest.split(|&byte| byte == b'\n');
        let lines = lines.filter_map(|line| serde_json::from_slice(line).ok());

        for message in lines.chain(framed).take(ANSWERED_MAX) {
            let answers = session.message(&message).expect("it can be read");
            for answer in answers {
                let bytes = dap::framed(&answer);
                assert!(bytes.len() <= ANSWER_BYTES_MAX, "{} bytes", bytes.len());
                let mut unframer = dap::Unframer::default();
                let back = bytes.iter().find_map(|byte| unframer.push(*byte));
                let is_long = bytes.len() > dap::MESSAGE_BYTES_MAX;
                assert!(is_long || back == Some(Received::Message(answer)));
            }
            if session.is_over() {
                break;
            }
        }
    });
}
