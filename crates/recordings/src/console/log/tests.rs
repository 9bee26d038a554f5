//! Texts as consoles, dmesg and journals have them.

use super::*;

fn place(function: &str, offset: u64, size: u64) -> Place {
    Place {
        function: function.to_owned(),
        offset,
        size,
        module: None,
        address: None,
    }
}

const PLAIN: &str = "\
[    1.100000] sysrq: Show State
[    1.200000] task:sh              state:R  running task     stack:0     pid:1
[    1.200001] Call Trace:\r
[    1.200002]  <IRQ>\r
[    1.200003]  ? show_stack+0x4a/0x60\r
[    1.200004]  sched_show_task+0x1f/0x230 [some_module 0123abcd]\r
[    1.200005]  </IRQ>\r
[    1.200006]  <TASK>\r
[    1.200007] RIP: 0010:default_idle+0xf/0x20
[    1.200008] Code: 4c 01 c7 4c 29 c2 e9 72 ff ff ff
[    1.200009] RSP: 0018:ffffffff82603ea8 EFLAGS: 00000246
[    1.200010] RAX: ffff88801f600000 RBX: 0000000000000000 RCX: 0000000000000001
[    1.200011]  ret_from_fork_asm+0x1a/0x30
[    1.200012] RIP: 0033:0x401234
[    1.200013]  </TASK>
[    1.200014] task:kthreadd
[    1.200015]  stray+0x1/0x2
";

#[test]
fn a_trace_ends_at_the_first_line_that_is_none_of_it() {
    let found = traces(PLAIN.as_bytes());
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].line, 3);
    let in_module = Place {
        module: Some("some_module".into()),
        ..place("sched_show_task", 0x1f, 0x230)
    };
    let expected = [
        LoggedLine::StackBegin(StackType::Irq),
        LoggedLine::Address(place("show_stack", 0x4a, 0x60), false),
        LoggedLine::Address(in_module, true),
        LoggedLine::StackEnd(StackType::Irq),
        LoggedLine::StackBegin(StackType::Task),
        LoggedLine::Registers(Some(place("default_idle", 0xf, 0x20))),
        LoggedLine::Address(place("ret_from_fork_asm", 0x1a, 0x30), true),
        LoggedLine::Registers(None),
        LoggedLine::StackEnd(StackType::Task),
    ];
    assert_eq!(found[0].lines, expected);
}

/// The same lines behind other prefixes.
#[test]
fn what_stands_before_a_line_does_not_matter() {
    let body = [" <TASK>", " ? a.part.0+0x10/0x20", " b+0x1/0x2", " </TASK>"];
    let expected = [
        LoggedLine::StackBegin(StackType::Task),
        LoggedLine::Address(place("a.part.0", 0x10, 0x20), false),
        LoggedLine::Address(place("b", 1, 2), true),
        LoggedLine::StackEnd(StackType::Task),
    ];
    for prefix in [
        "",
        "<4>",
        "<4>[    0.000000] ",
        "[    0.000000][    T1] ",
        "[  +0,000012] ",
        "Nov 30 12:00:00 host kernel: ",
        "Nov 30 12:00:00 host kernel: [   12.345678] ",
    ] {
        let lines = ["Call Trace:"].into_iter().chain(body);
        let text: String = lines.map(|line| format!("{prefix}{line}\n")).collect();
        let found = traces(text.as_bytes());
        assert_eq!(found.len(), 1, "{prefix}");
        assert_eq!(found[0].lines, expected, "{prefix}");
    }
}

#[test]
fn an_old_kernel_prints_addresses() {
    let text = "Call Trace:\n [<ffffffff81234567>] ? f+0x7/0x10\n [<ffffffff81000000>] g+0x0/0x9\n";
    let found = traces(text.as_bytes());
    let LoggedLine::Address(place, false) = &found[0].lines[0] else {
        panic!("{:?}", found[0].lines);
    };
    assert_eq!(place.address, Some(0xffff_ffff_8123_4567));
    assert_eq!(found[0].lines.len(), 2);
}

#[test]
fn what_is_not_a_trace_is_passed_over() {
    for text in ["", "\n\n", "no trace\n", " ? f+0x7/0x10\n", "\0\u{ff}"] {
        assert_eq!(traces(text.as_bytes()), [], "{text:?}");
    }
    // Numbers that are none, and a second head at once.
    let text =
        b"Call Trace:\n f+0xzz/0x1\n g+0x1/0x2\nCall Trace:\nCall Trace:\n h+0x1/0x2 [m\n\xff\xfe";
    let found = traces(text);
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|trace| trace.lines.is_empty()));
}
