//! Scopes and variables: the registers of a frame, and how it was found.

use super::chains::{frames, of_frame};
use super::session::{Answer, Session};
use crate::error::Error;
use serde_json::{Value, json};

impl Session<'_> {
    pub(super) fn scopes(&mut self, arguments: &Value) -> Result<Answer, Error> {
        let Some(id) = arguments["frameId"].as_u64() else {
            return Ok(Err("frameId is missing".to_owned()));
        };
        // Two numbers for each frame.
        let Some(reference) = id.checked_mul(2) else {
            return Ok(Err(format!("there is no frame {id}")));
        };
        let scope = |name: &str, hint: &str, reference: u64| {
            json!({
                "name": name,
                "presentationHint": hint,
                "variablesReference": reference,
                "expensive": false,
            })
        };
        let scopes = [
            scope("Registers", "registers", reference),
            scope("Unwinding", "locals", reference + 1),
        ];
        Ok(Ok(json!({ "scopes": scopes })))
    }

    pub(super) fn variables(&mut self, arguments: &Value) -> Result<Answer, Error> {
        let Some(reference) = arguments["variablesReference"].as_u64() else {
            return Ok(Err("variablesReference is missing".to_owned()));
        };

        // `scopes` has given each frame an even number for registers, and the odd one after it.
        let (thread, index) = of_frame(reference / 2);
        let walkers = self.debuggee.walkers();
        let state = self.debuggee.state()?;
        let frames = match frames(state, &walkers, thread) {
            Ok(frames) => frames,
            Err(why) => return Ok(Err(why)),
        };

        // The editor may still have the number of a frame of an earlier state.
        let Some(frame) = frames.get(index) else {
            return Ok(Err(format!("there is no frame {index} of thread {thread}")));
        };

        let variables: Vec<Value> = if reference % 2 == 0 {
            let registers = frame.registers.iter();
            registers
                .map(|register| {
                    json!({
                        "name": register.name,
                        "value": register.value,
                        "variablesReference": 0,
                        "memoryReference": register.value,
                    })
                })
                .collect()
        } else {
            let about = frame.about.iter();
            about
                .map(|(name, value)| json!({"name": name, "value": value, "variablesReference": 0}))
                .collect()
        };
        Ok(Ok(json!({ "variables": variables })))
    }
}
