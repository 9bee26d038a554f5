//! Findings with one cause, and the table of them.

use super::input::Command;
use maud::{Markup, html};
use std::collections::BTreeMap;
use unwind_sim_unwind::reason::Code;

/// The bytes of a page that the table may take.
const BYTES_MAX: usize = 1_700_000;

/// What identifies a group: findings with one cause.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct GroupKey {
    pub(super) image: String,
    pub(super) function: String,
    /// The unwinder, or the kind of table.
    pub(super) table: String,
    pub(super) code: String,
    pub(super) class: String,
    pub(super) register: String,
}

/// The findings of a group.
#[derive(Debug)]
pub(super) struct Group {
    /// The number of addresses, or of rows.
    pub(super) places: u64,
    /// How often they were met; in `tables check` the same as `places`.
    pub(super) count: u64,
    /// One of them, the first in the file.
    pub(super) first: GroupExample,
}

#[derive(Debug)]
pub(super) struct GroupExample {
    /// What is wrong, in words.
    pub(super) what: String,
    /// The row, and the one that would be right.
    pub(super) rules: Vec<(&'static str, String)>,
    pub(super) listing: Vec<(String, String, bool)>,
}

/// The table of groups, and the number of findings that it had no room for.
pub(super) fn table(groups: &BTreeMap<GroupKey, Group>, command: Command) -> (Markup, u64) {
    let of = match command {
        Command::Verify => "unwinder",
        Command::Check => "table",
    };

    let (mut bytes, mut hidden) = (0, 0);
    let mut bodies = Vec::new();

    // Groups come in the order of their keys, so the same input fills the page in the same way.
    for (key, group) in groups {
        let body = group_html(key, group);
        bytes += body.0.len();
        // What has no room is counted, so that the page can say so.
        if bytes <= BYTES_MAX {
            bodies.push(body)
        } else {
            hidden += group.places
        }
    }

    // The filter is hidden until the script runs: without it nothing could be filtered.
    let table = html! {
        p #filter-box hidden { label { "Filter " input #filter type="search" autocomplete="off"; }
            " " span #filter-count role="status" {} }
        div .scroll tabindex="0" role="region" aria-label="Findings" {
        table .sortable .groups { thead { tr {
            th scope="col" { "image" } th scope="col" { "function" } th scope="col" { (of) }
            th scope="col" { "cause" } th scope="col" { "register" }
            th scope="col" { "places" } th scope="col" { "times" } } }
            @for body in &bodies { (body) }
        } }
    };
    (table, hidden)
}

fn group_html(key: &GroupKey, group: &Group) -> Markup {
    let description = Code::from_name(&key.code).map_or("", Code::description);
    html! {
        tbody {
            tr { th scope="row" { (key.image) } td { (key.function) } td { (key.table) }
                td { (key.code) " " (description)
                    @if !matches!(key.class.as_str(), "" | "wrong") { " (" (key.class) ")" } }
                td { (key.register) }
                td .number { (group.places) } td .number { (group.count) } }
            tr .more { td colspan="7" { details { summary { (group.first.what) }
                @for (name, rule) in &group.first.rules { p { (name) ": " code { (rule) } } }
                (listing(&group.first.listing))
            } } }
        }
    }
}

fn listing(lines: &[(String, String, bool)]) -> Markup {
    html! { @if !lines.is_empty() { pre tabindex="0" role="region" aria-label="Code" {
        @for (address, text, is_marked) in lines {
            @let mark = if *is_marked { ">" } else { " " };
            span .line { (mark) " " (address) "  " (text) }
            "\n"
            @if *is_marked {
                @let indent = " ".repeat(address.chars().count() + 4);
                span .caret { (indent) ("^".repeat(text.chars().count())) }
                "\n"
            }
        }
    } } }
}
