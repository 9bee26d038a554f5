//! Compares `perf script` with the text of perf 6.1, where perf 7.2 prints the same: lists of
//! fields (`-F`), events of several kinds, the limits of the kernel's mapping, guests, losses.
//!
//! `corpus/perfdata/script/NAME.perf-6.1.txt.gz` was written by `expect-fields.py` in that folder.

use flate2::read::GzDecoder;
use std::io::Read;
use std::path::{Path, PathBuf};
use unwind_sim_perf_script::symbols::Places;
use unwind_sim_view::perf::script::{
    FieldList, Mode, Options, Report, RequestedFields, ScriptError, script,
};

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus/perfdata")
        .join(name)
}

/// The text of a recording for the lists of fields, and the report.
fn printed(
    name: &str,
    kallsyms: &str,
    lists: &[&str],
    join: Option<Mode>,
) -> Result<(String, Report), ScriptError> {
    let lists = lists.iter().map(|list| FieldList::parse(list));
    let lists: Vec<FieldList> = lists.collect::<Result<_, _>>().unwrap();
    let options = Options {
        fields: RequestedFields::of(&lists),
        join,
        ..Options::default()
    };
    let places = Places {
        symfs: Some(corpus("script/symfs")),
        kallsyms: Some(corpus(&format!("script/{kallsyms}"))),
        ..Places::default()
    };
    let mut text = Vec::new();
    let path = corpus(&format!("{name}.data"));
    let report = script(&path, &options, places, &mut text)?;
    Ok((String::from_utf8(text).unwrap(), report))
}

fn text_of(name: &str, lists: &[&str]) -> String {
    printed(name, "fields.kallsyms.txt", lists, None).unwrap().0
}

/// perf's blocks: the list of fields and the text, or `None` if perf refuses the list.
fn blocks(name: &str) -> Vec<(String, Option<String>)> {
    let file = std::fs::File::open(corpus(&format!("script/{name}.perf-6.1.txt.gz"))).unwrap();
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let blocks = text.strip_prefix("=== ").unwrap().split("\n=== ");
    let parts = blocks.map(|block| {
        let (list, text) = block.split_once('\n').unwrap_or((block, ""));
        let text = text.trim_end_matches('\n').to_owned();
        (list.to_owned(), (text != "!").then_some(text))
    });
    parts.collect()
}

/// Every field alone and every pair of fields, with signs and for one event type.
#[test]
fn lists_of_fields_are_printed_as_perf_does_and_refused_where_perf_refuses() {
    for (name, lists_min, refused_min) in [("fields", 70, 10), ("fields-chains", 50, 10)] {
        let blocks = blocks(name);
        assert!(blocks.len() > lists_min, "{name}: {}", blocks.len());
        let mut refused = 0;
        for (list, wanted) in &blocks {
            // Types that are not named keep their default fields, in which tid is wider in perf
            // 7.2.
            let lists: Vec<&str> = if list.contains(':') {
                vec!["-tid", list]
            } else {
                vec![list]
            };

            let found = printed(name, "fields.kallsyms.txt", &lists, None);
            match (found, wanted) {
                (Ok((found, _)), Some(wanted)) => {
                    assert_eq!(found.trim_end_matches('\n'), wanted, "{name} -F {list}");
                }
                (Err(ScriptError::Field(_)), None) => refused += 1,
                (found, _) => panic!("{name} -F {list}: {:?}", found.map(|(text, _)| text)),
            }
        }

        assert!(
            refused >= refused_min,
            "{name}: {refused} lists were refused"
        );
    }
}

#[test]
fn a_field_that_was_not_recorded_is_named_with_its_event() {
    let said = |list: &str| {
        let found = printed("fields", "fields.kallsyms.txt", &[list], None);
        found.map(|_| ()).unwrap_err().to_string()
    };
    let no_cpu = "samples of event cpu-clock:u have no cpu: leave the field cpu out";
    assert_eq!(said("cpu"), no_cpu);
    assert_eq!(said("symoff"), "the field symoff needs the field sym");
}

#[test]
fn a_page_fault_shows_what_lay_at_its_address_and_a_breakpoint_its_period() {
    let text = text_of("fields", &["event,addr,sym,dso"]);
    assert!(text.contains("page-faults:           4010de _start (/opt/fields)\n"));
    // In these the kernel itself faults, at an address of the process.
    assert!(text.contains("page-faults:     7f700cf62000 [unknown] (//anon)\n"));
    let text = text_of("fields", &[]);
    assert!(
        text.contains("          1  mem:0x0000000000403000:w: "),
        "{text}"
    );
}

/// perf takes the hyphen of `bpf-output` for a sign, so the default fields stay.
#[test]
fn a_hyphen_anywhere_adds_to_the_usual_fields() {
    assert_eq!(
        text_of("fields", &["comm,bpf-output"]),
        text_of("fields", &[])
    );
}

/// The text is that of perf 6.1 for `-F comm,time,ip,sym,symoff,dso` (`make-edges.py`).
#[test]
fn the_kernels_mapping_reaches_to_its_last_symbol_once_symbols_are_read() {
    let list = "comm,time,ip,sym,symoff,dso";
    let (found, report) = printed("edges", "edges.kallsyms.txt", &[list], None).unwrap();
    let wanted = std::fs::read_to_string(corpus("script/edges.perf-6.1.txt")).unwrap();
    assert!(wanted.contains("start_kernel+0x10 ([kernel.kallsyms])"));
    assert_eq!(found, wanted);
    assert_eq!(report.guests, 2, "perf prints no samples of guests");
}

#[test]
fn losses_are_told_by_event() {
    let (_, report) = printed("edges", "edges.kallsyms.txt", &[], None).unwrap();
    let wanted = "lost: 12 records of task-clock; number of times a buffer was full: 2
lost: 1 sample of cpu-clock
lost: 12 samples of task-clock
left out by the recording's filter: 3 samples of cpu-clock
";
    assert_eq!(report.losses, wanted);
    let (_, report) = printed("fields", "fields.kallsyms.txt", &[], None).unwrap();
    assert_eq!(report.losses, "");
}

/// The trampoline of a return probe starts a page: the address before it, which libdw looks up, is
/// in no mapping, so libdw continues with the frame pointer (elfutils, `backends/x86_64_unwind.c`).
/// The address 0 that `_start` has as its caller is not printed.
#[test]
fn a_return_address_in_no_mapping_does_not_end_a_stack() {
    let text = text_of("uretprobe", &["ip,sym,dso"]);
    let block = "
\t          401000 inner (/opt/probed)
\t          401075 middle (/opt/probed)
\t    7fffffffdfff [unknown] ([unknown])
\t          4010ea _start (/opt/probed)

";
    assert_eq!(text.matches(block).count(), 4, "{text}");
}

/// When recording all processors, the records of deferred chains belong to an event without chains,
/// whose samples have padded names.
#[test]
fn a_deferred_chain_has_its_own_events_columns() {
    let lists = ["comm,ip,sym"];
    let found = printed("deferred-by-dummy", "kallsyms.txt", &lists, None)
        .unwrap()
        .0;
    let wanted = "swapper 
\t       300000001 (cookie)

         swapper DEFERRED CALLCHAIN [cookie: 300000001]
\t          401000 [unknown]

";
    assert_eq!(found, wanted);
    let without = printed("deferred-by-dummy", "kallsyms.txt", &["comm"], None);
    let wanted = "         swapper \n         swapper DEFERRED CALLCHAIN [cookie: 300000001]\n";
    assert_eq!(without.unwrap().0, wanted, "no line for a chain");
}

#[test]
fn what_stands_for_missing_frames_is_never_only_a_number() {
    let name = "threads4-switch-defer";
    let lists = ["tid,time,ip"];
    let own = printed(name, "kallsyms.txt", &lists, Some(Mode::Own))
        .unwrap()
        .0;
    assert!(own.contains(" [no user frames: exec]\n"));
    let perfs = printed(name, "kallsyms.txt", &lists, Some(Mode::Perf72))
        .unwrap()
        .0;
    assert!(!perfs.contains("cookie"), "perf prints the number only");
}
