//! The page of what `verify --json` or `tables check --json` found.

use super::PageSummary;
use super::causes::{Group, GroupExample, GroupKey, table};
use super::input::{Command, LinesError, lines};
use super::page::Page;
use maud::{Markup, html};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::names::file_name;

/// The number of groups that are kept; findings of others are only counted.
const GROUPS_MAX: usize = 20_000;
/// The number of rows of another table (slot stores, unproven functions, and so on).
const OTHERS_MAX: usize = 300;

/// A table of something else than findings.
#[derive(Default, Debug)]
struct OtherTable {
    rows: Vec<Vec<String>>,
    left_out: u64,
}

impl OtherTable {
    fn add(&mut self, row: Vec<String>) {
        if self.rows.len() < OTHERS_MAX {
            self.rows.push(row)
        } else {
            self.left_out += 1
        }
    }
}

/// What the lines say.
#[derive(Default, Debug)]
struct ReportContent {
    groups: BTreeMap<GroupKey, Group>,
    /// Findings, and those that are in no group.
    findings: u64,
    left_out: u64,
    totals: OtherTable,
    unproven: OtherTable,
    stores: OtherTable,
    jit: OtherTable,
    deadlock: OtherTable,
    index: OtherTable,
    unreadable: OtherTable,
    /// The command and the end of `verify`.
    about: Vec<String>,
}

/// Writes a page of the findings in `input`, a file named `source`.
///
/// # Errors
/// If the lines are not whole or are of another command, or `out` cannot be written.
pub fn findings(
    source: &str,
    again: String,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<PageSummary, LinesError> {
    // The lines are read one by one and only sums and groups are kept, so the page's size bounds
    // the memory.
    let mut found = ReportContent::default();
    let command = lines(input, &mut |kind, line| found.add(kind, line))?;

    // Groups beyond the page's size are counted here, those beyond the number of groups while
    // reading.
    let (groups, hidden) = table(&found.groups, command);
    let left_out = found.left_out + hidden;

    let page = Page {
        source: source.to_owned(),
        summary: html! {
            "Output of " code { "unwind-sim " (command.as_str()) } ": "
            (counted(found.findings, "finding")) " with "
            (counted(found.groups.len(), "cause")) "."
            @for line in &found.about { " " (line) "." }
        },
        command: again,
        main: html! {
            @if left_out > 0 {
                p .notice { "A page holds at most 2 MB: " (counted(left_out, "finding"))
                    " at the end of the list are left out." }
            }
            section { h2 { "Findings" }
                @if found.findings == 0 { p { "Nothing is wrong." } } @else { (groups) }
            }
            (totals(&found.totals, command))
            (others("Slot stores", ["at", "register", "changed", "same", "owner"], &found.stores))
            (others("Generated code without a table", ["function", "instructions"], &found.jit))
            (others("Deadlock", ["thread", "waits for"], &found.deadlock))
            (others("Indexes of tables", ["file", "place", "flaw", "functions"], &found.index))
            (others("Unproven functions", ["function", "image", "why", "at"], &found.unproven))
            (others("Files that could not be checked", ["file", "why"], &found.unreadable))
        },
        packed: None,
    };

    let page = page.html();
    out.write_all(page.as_bytes())?;
    Ok(PageSummary {
        shown: found.findings - left_out,
        left_out: Some(left_out),
        bytes: page.len(),
    })
}

fn text(line: &Value, name: &str) -> String {
    match &line[name] {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

impl ReportContent {
    fn add(&mut self, kind: &str, line: &Value) {
        // Missing fields are empty text: lines of older versions have fewer fields.
        let t = |name: &str| text(line, name);

        // Lines of other types, such as the rows of a sweep, have no place on the page and are
        // passed over.
        match kind {
            "contradiction" => self.contradiction(line),
            "wrong_row" => self.wrong_row(line),
            "index" => {
                let place = format!("{}+{}", t("section"), t("offset"));
                self.index
                    .add(vec![t("file"), place, t("flaw"), t("functions")]);
            }
            "verified" => self.totals.add(
                [
                    "unwinder",
                    "checked",
                    "wrong",
                    "lost",
                    "rows",
                    "calls",
                    "calls_wrong",
                    "walks",
                    "walks_wrong",
                ]
                .map(t)
                .to_vec(),
            ),
            "check" => {
                // A `check` line has the number of functions for all and for each verdict.
                let number = |part: &str| text(&line[part], "functions");
                self.totals.add(vec![
                    t("file"),
                    number("all"),
                    number("proven"),
                    number("contradicted"),
                    number("unproven"),
                    text(&line["all"], "rows"),
                    t("rows_proven"),
                ]);
            }
            "slot_store" => {
                let call = match t("call") {
                    call if call.is_empty() => call,
                    call => format!("{call} "),
                };
                let at = format!("{call}{}", t("place"));
                let row = vec![at, t("register"), t("count"), t("same"), t("owner")];
                self.stores.add(row);
            }
            "jit" => self.jit.add(vec![t("function"), t("instructions")]),
            "deadlock" => {
                let thread = format!("{} ({})", t("tid"), t("name"));
                self.deadlock.add(vec![thread, t("text")]);
            }
            "unproven" => self.unproven(line),
            "function" if line["verdict"].as_str() == Some("unproven") => self.unproven(line),
            "unreadable" => self.unreadable.add(vec![t("file"), t("error")]),
            // `verify` ends with a summary that says how the program ended; other summaries have no
            // `end`.
            "summary" if line.get("end").is_some() => {
                self.about.push(format!("The program {}", t("end")));
                let counts = [("instructions", "instruction"), ("addresses", "address")];
                for (name, noun) in counts {
                    let number = line[name].as_u64().unwrap_or_default();
                    self.about.push(counted(number, noun));
                }
                self.about.push(format!("Run by {}", t("command")));
            }
            _ => {}
        }
    }

    fn unproven(&mut self, line: &Value) {
        let function = match text(line, "function") {
            name if name.is_empty() => text(line, "start"),
            name => name,
        };
        let doubts = line["doubts"].as_object().into_iter().flatten();
        let (why, at): (Vec<String>, Vec<String>) = doubts
            .map(|(why, at)| (why.clone(), at.as_str().unwrap_or_default().to_owned()))
            .unzip();
        let image = file_name(&text(line, "file")).to_owned();
        let row = vec![function, image, why.join(", "), at.join(", ")];
        self.unproven.add(row);
    }

    fn contradiction(&mut self, line: &Value) {
        let t = |name: &str| text(line, name);
        let image = t("image");
        // `function+0x12`; without a function `image+0x1234`, or an address.
        let place = t("place");
        let function = match place.rsplit_once('+') {
            Some((name, _)) if name != image => name.to_owned(),
            _ => String::new(),
        };

        // The address is not part of the key, so that a fault at many instructions of a function is
        // one group.
        let key = GroupKey {
            image,
            function,
            table: t("unwinder"),
            code: t("code"),
            class: t("class"),
            register: t("register"),
        };

        // Without a value, the row gave none at all: it is not a wrong value.
        let (register, truth) = (t("register"), t("truth"));
        let given = match t("given") {
            none if none.is_empty() => format!("no value for {register}"),
            given => format!("{register} is {given}"),
        };
        let what = format!("at {place}, by {}: {given}, true is {truth}", t("check"));

        let row = &line["row"];
        let mut rules = Vec::new();

        // Lines about code without a row have none to show.
        if row.is_object() {
            let table = text(row, "table");
            let place = match table.as_str() {
                // The convention holds for all code.
                "frame-pointer" => table,
                _ => format!("{table} of {}..{}", text(row, "start"), text(row, "end")),
            };
            let place = format!("{} ({place})", text(row, "rule"));
            rules.push(("row", place));
        }

        let count = line["count"].as_u64().unwrap_or(1);
        self.finding(key, count, what, rules, line);
    }

    fn wrong_row(&mut self, line: &Value) {
        // A function without a symbol is known by its start.
        let t = |name: &str| text(line, name);
        let function = match t("function") {
            name if name.is_empty() => t("function_start"),
            name => name,
        };

        let key = GroupKey {
            image: file_name(&t("file")).to_owned(),
            function,
            table: t("table"),
            code: t("code"),
            class: String::new(),
            register: t("register"),
        };

        // The lines name the CFA and the return address by the registers that they become.
        let subject = match t("register").as_str() {
            "rsp" => "CFA".to_owned(),
            "rip" => "return address".to_owned(),
            register => register.to_owned(),
        };

        let what = format!(
            "at {}: the row's {subject} is {}; rsp is {} here",
            t("address"),
            t("found"),
            t("sp")
        );

        // `right` is missing where no row can be derived from the code.
        let mut rules = vec![("row", rule(&line["row"]))];
        if line["right"].is_object() {
            rules.push(("right", rule(&line["right"])));
        }
        self.finding(key, 1, what, rules, line);
    }

    fn finding(
        &mut self,
        key: GroupKey,
        count: u64,
        what: String,
        rules: Vec<(&'static str, String)>,
        line: &Value,
    ) {
        // Of an unwinder that is expected to err, a line stands for many.
        let places = line["stands_for"].as_u64().unwrap_or(1);
        self.findings = self.findings.saturating_add(places);

        // The example of a group is its first finding; later ones are only counted.
        if let Some(group) = self.groups.get_mut(&key) {
            group.places = group.places.saturating_add(places);
            group.count = group.count.saturating_add(count);
            return;
        }

        // Groups that come later would make the page too large; they are only counted.
        if self.groups.len() >= GROUPS_MAX {
            self.left_out = self.left_out.saturating_add(places);
            return;
        }

        // The instruction at fault is marked in the listing around it.
        let listed = line["listing"].as_array().into_iter().flatten();
        let listing = listed.map(|insn| {
            let is_it = insn["is_marked"].as_bool() == Some(true);
            (text(insn, "address"), text(insn, "text"), is_it)
        });

        let group = Group {
            places,
            count,
            first: GroupExample {
                what,
                rules,
                listing: listing.collect(),
            },
        };
        self.groups.insert(key, group);
    }
}

/// A rule as in the text output: `cfa=rsp+8 ra=*(cfa-8)`.
fn rule(rule: &Value) -> String {
    let mut out = format!(
        "{} cfa={} ra={}",
        text(rule, "kind"),
        text(rule, "cfa"),
        text(rule, "ra")
    );
    for (name, value) in rule["registers"].as_object().into_iter().flatten() {
        out.push_str(&format!(" {name}={}", value.as_str().unwrap_or_default()));
    }
    out
}

fn totals(totals: &OtherTable, command: Command) -> Markup {
    // The columns are in the order in which `add` collects them.
    match command {
        Command::Verify => others(
            "Totals",
            [
                "unwinder",
                "checked",
                "wrong",
                "lost",
                "rows",
                "calls",
                "calls wrong",
                "walks",
                "walks wrong",
            ],
            totals,
        ),
        Command::Check => others(
            "Totals",
            [
                "file",
                "functions",
                "proven",
                "contradicted",
                "unproven",
                "rows",
                "rows proven",
            ],
            totals,
        ),
    }
}

fn others<const N: usize>(title: &str, columns: [&str; N], others: &OtherTable) -> Markup {
    html! { @if !others.rows.is_empty() {
        section { h2 { (title) }
            div .scroll tabindex="0" role="region" aria-label=(title) {
            table .sortable { thead { tr { @for column in columns { th scope="col" { (column) } } } }
                tbody { @for row in &others.rows { tr {
                    @for (nth, cell) in row.iter().enumerate() {
                        @if nth == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                    } } } } } }
            @if others.left_out > 0 { p .note { "and " (counted(others.left_out, "more row")) } }
        }
    } }
}
