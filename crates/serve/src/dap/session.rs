//! A session with an editor: requests in, responses and events out. Not here: bytes and streams.

use super::breakpoints::Breakpoints;
use super::launch::Launch;
use crate::debuggee::Debuggee;
use crate::error::Error;
use serde_json::{Value, json};

/// A field that the reading thread adds to a request that has interrupted what ran: the number of the
/// interrupt. Editors do not send it.
pub(super) const INTERRUPT: &str = "unwind-sim interrupt";

/// The response to a request: its body, or what is wrong with the request.
pub(super) type Answer = Result<Value, String>;

/// A session with an editor.
pub struct Session<'a> {
    pub(super) debuggee: Debuggee<'a>,
    pub(super) breakpoints: Breakpoints,
    /// What comes after the response.
    pub(super) events: Vec<Value>,
    stops_on_entry: bool,
    is_over: bool,
}

/// The command of a request.
pub(super) fn command(message: &Value) -> Option<&str> {
    if message.get("type")?.as_str()? == "request" {
        message.get("command")?.as_str()
    } else {
        None
    }
}

/// Whether a request ends what runs.
pub(super) fn interrupts(message: &Value) -> bool {
    matches!(command(message), Some("pause" | "disconnect" | "terminate"))
}

/// A text that the editor shows in its console.
pub(super) fn complaint(text: &str) -> Value {
    output("important", &format!("unwind-sim: {text}\n"))
}

fn output(category: &str, text: &str) -> Value {
    event("output", json!({"category": category, "output": text}))
}

pub(super) fn event(name: &str, body: Value) -> Value {
    json!({"type": "event", "event": name, "body": body})
}

/// The number of a request, for its response; 0 if it has none, which the protocol does not allow.
fn number(request: &Value) -> Value {
    match &request["seq"] {
        Value::Number(number) if number.is_i64() || number.is_u64() => number.clone().into(),
        _ => 0.into(),
    }
}

/// The response to a request that succeeded.
fn success(request: &Value, body: Value) -> Value {
    json!({
        "type": "response",
        "request_seq": number(request),
        "success": true,
        "command": request["command"],
        "body": body,
    })
}

/// The response to a request that failed.
pub(super) fn failure(request: &Value, why: &str) -> Value {
    json!({
        "type": "response",
        "request_seq": number(request),
        "success": false,
        "command": request.get("command").unwrap_or(&Value::Null),
        "message": why,
        "body": {"error": {"id": 1, "format": "{why}", "variables": {"why": why}, "showUser": true}},
    })
}

/// Answers what comes before anything is launched. Returns the messages, and whether all is over.
pub(super) fn before_launch(request: &Value) -> (Vec<Value>, bool) {
    let Some(command) = command(request) else {
        return (vec![complaint("a message is not a request")], false);
    };
    match command {
        "initialize" => (vec![success(request, capabilities())], false),
        "disconnect" | "terminate" => (vec![success(request, json!({}))], true),
        "attach" => {
            let why = "nothing can be attached to: launch a program, trace or case";
            (vec![failure(request, why)], false)
        }
        _ => (vec![failure(request, "nothing is launched yet")], false),
    }
}

fn capabilities() -> Value {
    json!({
        "supportsConfigurationDoneRequest": true,
        "supportsFunctionBreakpoints": true,
        "supportsInstructionBreakpoints": true,
        "supportsStepBack": true,
        "supportsSteppingGranularity": true,
        "supportsDisassembleRequest": true,
        "supportsReadMemoryRequest": true,
        "supportsTerminateRequest": true,
        "supportsDelayedStackTraceLoading": true,
        "supportsExceptionFilterOptions": true,
        "exceptionBreakpointFilters": [{
            "filter": "wrong",
            "label": "an unwinder becomes wrong",
            "description": "Stop where the row of an unwinder becomes wrong",
            "default": false,
            "supportsCondition": true,
            "conditionDescription": "unwinders, such as dwarf,orc; all without a condition",
        }],
    })
}

impl<'a> Session<'a> {
    /// Begins a session with what `request` has launched. Returns it with the first messages.
    pub fn new(
        debuggee: Debuggee<'a>,
        launch: &Launch,
        request: &Value,
    ) -> (Session<'a>, Vec<Value>) {
        let mut session = Session {
            debuggee,
            breakpoints: Breakpoints::default(),
            events: Vec::new(),
            stops_on_entry: launch.stop_on_entry,
            is_over: false,
        };

        session.debuggee.begin();
        let process = json!({
            "name": session.debuggee.source(),
            "isLocalProcess": true,
            "startMethod": "launch",
            "pointerSize": 64,
        });

        // The editor now sends its breakpoints.
        let first = vec![
            success(request, json!({})),
            event("process", process),
            event("initialized", json!({})),
        ];
        (session, first)
    }

    /// Whether the editor has disconnected.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The response to a request that is given before its work is done, as the protocol wants it.
    pub(super) fn early(&self, request: &Value) -> Option<Value> {
        match command(request)? {
            "continue" | "reverseContinue" => {
                Some(success(request, json!({"allThreadsContinued": true})))
            }
            "next" | "stepIn" | "stepOut" | "stepBack" => Some(success(request, json!({}))),
            "configurationDone" => Some(success(request, json!({}))),
            _ => None,
        }
    }

    /// Answers a message; for a request with an early response, returns what comes after that.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn message(&mut self, request: &Value) -> Result<Vec<Value>, Error> {
        let Some(command) = command(request) else {
            return Ok(vec![complaint("a message is not a request")]);
        };
        if let Some(number) = request.get(INTERRUPT).and_then(Value::as_u64) {
            self.debuggee.ignore_interrupt(number);
        }

        let arguments = request.get("arguments").unwrap_or(&Value::Null);
        let answer = self.answer(command, arguments)?;
        let mut messages = match answer {
            Ok(_) if self.early(request).is_some() => Vec::new(),
            Ok(body) => vec![success(request, body)],
            // It was told that the way begins; it ends where it began.
            Err(why) if self.early(request).is_some() => {
                let stopped = self.stopped("pause", &why);
                vec![complaint(&why), stopped]
            }
            Err(why) => vec![failure(request, &why)],
        };
        messages.append(&mut self.events);
        Ok(messages)
    }

    fn answer(&mut self, command: &str, arguments: &Value) -> Result<Answer, Error> {
        match command {
            // Nothing runs before this request, which says that the breakpoints are set.
            "configurationDone" if self.stops_on_entry => {
                let stopped = self.stopped("entry", "the first state");
                self.events.push(stopped);
                Ok(Ok(json!({})))
            }
            "configurationDone" => self.go("continue", arguments),
            "continue" | "reverseContinue" | "next" | "stepIn" | "stepOut" | "stepBack" => {
                self.go(command, arguments)
            }

            // What ran has ended: the thread that reads saw this request first.
            "pause" => Ok(Ok(json!({}))),
            "setBreakpoints" => self.of_source(arguments),
            "setFunctionBreakpoints" => self.of_functions(arguments),
            "setInstructionBreakpoints" => Ok(self.breakpoints.of_instructions(arguments)),
            "setExceptionBreakpoints" => Ok(self.of_exceptions(arguments)),
            "threads" => self.threads(),
            "stackTrace" => self.stack_trace(arguments),
            "scopes" => self.scopes(arguments),
            "variables" => self.variables(arguments),
            "disassemble" => self.disassemble(arguments),
            "readMemory" => self.read_memory(arguments),
            "evaluate" => self.evaluate(arguments),
            "source" | "loadedSources" | "modules" => {
                Ok(Err(format!("{command} is not known here")))
            }
            // Some editors disconnect after they have terminated, others kill the adapter: dape does, as soon
            // as it has this response. So it ends by itself, with whatever it has to remove.
            "disconnect" | "terminate" => {
                self.is_over = true;
                self.events.push(event("terminated", json!({})));
                Ok(Ok(json!({})))
            }

            // A session has one debuggee from its start to its end.
            "initialize" | "launch" | "attach" => {
                Ok(Err("something is launched already".to_owned()))
            }
            "setVariable" | "setExpression" | "writeMemory" => Ok(Err(
                "the state is read-only: a run can be looked at, not changed".to_owned(),
            )),
            // Every request gets a response, or the editor would wait for it.
            _ => Ok(Err(format!("the request {command:?} is not supported"))),
        }
    }

    /// The event that all threads have stopped, at the truth.
    pub(super) fn stopped(&self, reason: &str, text: &str) -> Value {
        let mut body = json!({
            "reason": reason,
            "description": text,
            "threadId": super::chains::TRUTH,
            "allThreadsStopped": true,
        });
        // VS Code shows this one beside the line; others show both behind each other.
        if reason == "exception" {
            body["text"] = text.into();
        }
        event("stopped", body)
    }

    /// A command in the editor's console, as behind gdb's `monitor`.
    fn evaluate(&mut self, arguments: &Value) -> Result<Answer, Error> {
        // The context is optional: Helix sends none from its command line.
        if !matches!(arguments["context"].as_str(), None | Some("repl")) {
            return Ok(Err("only the console's commands are evaluated".to_owned()));
        }
        let Some(expression) = arguments["expression"].as_str() else {
            return Ok(Err("there is no expression".to_owned()));
        };
        let answer = self.debuggee.command(expression)?;
        Ok(answer.map(|text| json!({"result": text, "variablesReference": 0})))
    }
}
