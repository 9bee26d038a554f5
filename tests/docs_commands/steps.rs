//! The commands of a page, with what they print; and the page with what they print now.

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The line of the command, counted from 1.
    pub(crate) line: usize,
    pub(crate) command: String,
    pub(crate) statuses: Vec<i32>,
    /// The lines below the command; `None` in a `sh` block, which states no output.
    pub(crate) output: Option<Vec<String>>,
    /// The indentation of the block, in bytes.
    pub(crate) indent: usize,
}

/// The commands of a page in order. A block may be indented, as in a list.
pub(crate) fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut block, mut inside, mut indent) = (None, false, 0);
    // Of the block, and of the next one.
    let (mut usual, mut told) = (vec![0], None);

    for (index, line) in page.lines().enumerate() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            // The fence that opens a block names its kind; the one that closes it names nothing.
            inside = !inside;
            block = Some(kind).filter(|kind| inside && ["sh", "console"].contains(kind));
            indent = line.len() - line.trim_start().len();
            usual = told.take().unwrap_or_else(|| vec![0]);
            continue;
        }

        // What ends with one status here and another there is said where readers do not see it.
        if !inside {
            let comment = line.trim().strip_prefix("<!-- ");
            let comment = comment.and_then(|rest| rest.strip_suffix(" -->"));
            told = comment.and_then(statuses);
            continue;
        }

        // Lines of an indented block have its indentation.
        let line = line.get(indent..).filter(|_| inside).unwrap_or_default();

        // A `console` block has prompts and output, a `sh` block only commands and comments.
        let command = match block {
            None => continue,
            Some("console") => line.strip_prefix("$ "),
            Some(_) => Some(line).filter(|line| !line.is_empty() && !line.starts_with('#')),
        };
        let console = block == Some("console");
        match (command, steps.last_mut()) {
            (Some(command), _) => {
                // What follows `#` may say the status.
                let (command, comment) = command.split_once(" # ").unwrap_or((command, ""));
                let own = statuses(comment.trim());
                assert!(
                    own.as_ref().is_none_or(|own| own.len() == 1),
                    "{command}: several statuses are said in a comment right before the block"
                );
                steps.push(Step {
                    line: index + 1,
                    command: command.trim().to_owned(),
                    statuses: own.unwrap_or_else(|| usual.clone()),
                    output: console.then(Vec::new),
                    indent,
                });
            }
            (
                None,
                Some(Step {
                    output: Some(output),
                    ..
                }),
            ) if console => output.push(line.into()),
            (None, _) => {}
        }
    }

    steps
}

/// The statuses allowed by a comment, if it is about them: `exit status 1`, `exit status 0 or 1`.
fn statuses(comment: &str) -> Option<Vec<i32>> {
    let list = comment.strip_prefix("exit status ")?;
    let numbers = list.split(" or ");
    Some(
        numbers
            .map(|n| n.parse().expect("an exit status"))
            .collect(),
    )
}

/// Whether `given` matches `stated`, in which `...` matches any lines.
pub(crate) fn matches(stated: &[String], given: &[&str]) -> bool {
    match stated.split_first() {
        None => given.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=given.len()).any(|skipped| matches(rest, &given[skipped..]))
        }
        Some((first, rest)) => match given.split_first() {
            Some((line, others)) => first.trim_end() == line.trim_end() && matches(rest, others),
            None => false,
        },
    }
}

/// The page in which `step`, which states its whole output, prints `given`. The steps below it move.
pub(crate) fn with_output(page: &str, step: &Step, given: &[&str]) -> String {
    let mut lines: Vec<String> = page.lines().map(str::to_owned).collect();
    let stated = step.output.as_ref().map_or(0, Vec::len);
    let indented = given.iter().map(|line| {
        let line = line.trim_end();
        let indent = if line.is_empty() { 0 } else { step.indent };
        format!("{:indent$}{line}", "")
    });
    lines.splice(step.line..step.line + stated, indented);
    lines.join("\n") + "\n"
}

#[test]
fn commands_are_found_with_what_they_print() {
    let page = "text\n```sh\na b # why\n\n# no command\nf # exit status 3\n```\n$ not\n\
                \x20 ```console\n  $ c\n  d\n  ...\n  $ e\n  ```\n```asm\n$ f\n```\n\
                <!-- exit status 0 or 1 -->\n```sh\ng\nh # exit status 3\n```\n\
                <!-- exit status 0 or 1 -->\n\n```sh\ni\n```\n";

    // Five blocks and a line outside of any: only `sh` and `console` have commands, and the
    // comment and the `asm` block have none. What is said of a status stands right before a block.
    let found = steps(page);
    let words: Vec<_> = found
        .iter()
        .map(|s| {
            (
                s.line,
                s.command.as_str(),
                s.statuses.as_slice(),
                s.output.as_deref(),
            )
        })
        .collect();
    let indents: Vec<usize> = found.iter().map(|step| step.indent).collect();
    // The indent is put back when a page is written anew with what its commands print.
    assert_eq!(indents, [0, 0, 2, 2, 0, 0, 0]);

    let printed = ["d".to_owned(), "...".to_owned()];
    /// Line, command, statuses, output.
    type StatedStep<'a> = (usize, &'a str, &'a [i32], Option<&'a [String]>);
    let expected: [StatedStep<'_>; 7] = [
        (3, "a b", &[0], None),
        (6, "f", &[3], None),
        (10, "c", &[0], Some(&printed)),
        (13, "e", &[0], Some(&[])),
        (20, "g", &[0, 1], None),
        (21, "h", &[3], None),
        (26, "i", &[0], None),
    ];

    assert_eq!(words, expected);
}

#[test]
fn dots_stand_for_any_lines_and_nothing_else_does() {
    let stated = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(matches(&stated("a\n...\nd"), &["a", "b", "c", "d"]));
    assert!(matches(&stated("a\n...\nd"), &["a", "d"]));
    assert!(!matches(&stated("a\n...\nd"), &["a", "b"]));
    assert!(!matches(&stated("a"), &["a", "b"]));
    assert!(!matches(&stated("a\nb"), &["a"]));
    assert!(!matches(&stated(""), &["a"]));
}

#[test]
fn an_output_is_replaced_where_it_stands() {
    let page = "a\n  ```console\n  $ b\n  old\n  older\n  $ c\n  d\n  ```\nend\n";
    let steps = steps(page);
    assert_eq!(
        with_output(page, &steps[0], &["new "]),
        "a\n  ```console\n  $ b\n  new\n  $ c\n  d\n  ```\nend\n"
    );
    assert_eq!(
        with_output(page, &steps[1], &["1", "", "2"]),
        "a\n  ```console\n  $ b\n  old\n  older\n  $ c\n  1\n\n  2\n  ```\nend\n"
    );
}
