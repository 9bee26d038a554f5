//! What an editor wants to debug: the arguments of `launch`.

use serde_json::Value;

/// What is debugged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    /// A program and its arguments.
    Program(Vec<String>),
    /// The path of a recording or case.
    File(String),
    /// A kernel that is booted, which the options name.
    Kernel,
}

/// The arguments of `launch`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// What is debugged.
    pub subject: Subject,
    /// The first state: a number, or a function.
    pub from: Option<String>,
    /// Options of the command line of `step`, such as `--unwinder` and `dwarf,orc`.
    pub options: Vec<String>,
    /// Whether to stop at the first state. The default.
    pub stop_on_entry: bool,
}

impl Launch {
    /// Reads the arguments.
    ///
    /// # Errors
    /// What is missing, or of the wrong type.
    pub fn of(arguments: &Value) -> Result<Launch, String> {
        let text = |name: &str| match arguments.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(format!("{name} is {other}, not a string")),
        };
        let texts = |name: &str| match arguments.get(name) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(all)) => {
                let texts = all.iter().map(|one| one.as_str().map(str::to_owned));
                let texts: Option<Vec<String>> = texts.collect();
                texts.ok_or_else(|| format!("{name} has something that is not a string"))
            }
            Some(other) => Err(format!("{name} is {other}, not a list of strings")),
        };

        let options = texts("options")?;
        let names_kernel = |option: &String| option.split('=').next() == Some("--kernel");
        let (program, trace, case) = (text("program")?, text("trace")?, text("case")?);
        let subject = match (program, trace, case) {
            (Some(program), None, None) => {
                let mut words = vec![program];
                words.extend(texts("args")?);
                Subject::Program(words)
            }

            // What a file is, its contents say; the two keys are for people.
            (None, Some(file), None) | (None, None, Some(file)) => Subject::File(file),
            (None, None, None) if options.iter().any(names_kernel) => Subject::Kernel,
            (None, None, None) => {
                return Err("nothing to launch: program, trace or case is missing".to_owned());
            }
            _ => return Err("only one of program, trace and case can be launched".to_owned()),
        };

        Ok(Launch {
            subject,
            // A setting in JSON may be a number; the command line has only text.
            from: match arguments.get("from") {
                Some(Value::Number(number)) => Some(number.to_string()),
                _ => text("from")?,
            },
            options,
            // By default, because a run without breakpoints is over at once.
            stop_on_entry: match arguments.get("stopOnEntry") {
                None | Some(Value::Null) => true,
                Some(Value::Bool(stop)) => *stop,
                Some(other) => return Err(format!("stopOnEntry is {other}, not true or false")),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_subject_is_launched() {
        let launch = Launch::of(&json!({"program": "/bin/ls", "args": ["-l"], "from": 7}));
        let launch = launch.expect("it can be");
        let words = ["/bin/ls", "-l"].map(str::to_owned).to_vec();
        assert_eq!(launch.subject, Subject::Program(words));
        assert_eq!(launch.from.as_deref(), Some("7"));
        assert!(launch.stop_on_entry);

        let launch = Launch::of(&json!({"trace": "t.bin", "stopOnEntry": false}));
        let launch = launch.expect("it can be");
        assert_eq!(launch.subject, Subject::File("t.bin".to_owned()));
        assert!(!launch.stop_on_entry);

        for options in [
            json!(["--kernel", "k"]),
            json!(["--seed", "1", "--kernel=k"]),
        ] {
            let launch = Launch::of(&json!({"options": options})).expect("it can be");
            assert_eq!(launch.subject, Subject::Kernel);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (arguments, problem) in [
            (json!({}), "is missing"),
            (json!(null), "is missing"),
            (json!({"options": ["--kernels"]}), "is missing"),
            (json!({"program": "a", "case": "b"}), "only one"),
            (json!({"program": 1}), "program is 1"),
            (json!({"program": "a", "args": "b"}), "args is"),
            (json!({"program": "a", "args": [1]}), "args has"),
            (json!({"case": "a", "options": {}}), "options is"),
            (json!({"case": "a", "from": []}), "from is"),
            (json!({"case": "a", "stopOnEntry": 1}), "stopOnEntry"),
        ] {
            let error = Launch::of(&arguments).expect_err("it is wrong");
            assert!(error.contains(problem), "{arguments}: {error}");
        }
    }
}
