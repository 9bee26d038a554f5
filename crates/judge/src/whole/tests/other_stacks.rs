//! Rows that count from another stack, and what Go does with stacks.

use super::super::one_row::{RSP, rows};
use super::*;

/// Go's `asmcgocall`, OCaml 4's `caml_c_call`: the row counts from rsp, which is another stack's.
#[test]
fn a_row_that_counts_from_another_stack_is_to_blame() {
    // mov (%r8),%rsp; mov %rdx,%rsp; mov %rbp,%rsp; ret before the call.
    let by = |before: &[u8], end: &End, outer: Option<u64>, has_rows: bool| {
        let program = Program(vec![
            ("leaf", vec![0x90, 0xc3]),
            ("switches", calls(before, 1, 0)),
            ("other", vec![0x90, 0xc3]),
        ]);

        let mut parts = program.parts(None);
        if has_rows {
            parts.sections.push(rows(parts.text[0].clone(), RSP));
        }

        let behind = at(1, before.len() as u64 + 5);
        let outer = outer.map(|pc| (pc, By::Row));
        let inner = [(at(0, 0), By::Row), (behind, By::Row)];
        let frames: Vec<(u64, By)> = inner.into_iter().chain(outer).collect();
        what(judged(Some(Image::new(parts)), &frames, end))
    };

    let (loaded, moved) = ([0x49, 0x8b, 0x20], [0x48, 0x89, 0xd4]);
    let (restored, returned) = ([0x48, 0x89, 0xec], [0x49, 0x8b, 0x20, 0xc3]);
    let not_text = End::from(Reason::NotText { address: 7 });
    let to_blame = Some((1, Fault::OtherStack));

    for end in [not_text, End::from(Reason::NotAtRoot)] {
        assert_eq!(by(&loaded, &end, None, true), to_blame);
        assert_eq!(by(&moved, &end, None, true), to_blame);
        for innocent in [&restored[..], &returned, &[0x90]] {
            assert_ne!(by(innocent, &end, None, true), to_blame, "{innocent:x?}");
        }
        assert_ne!(by(&loaded, &end, None, false), to_blame, "no row");
    }

    // A word of the other stack that is not behind a call.
    assert_eq!(by(&loaded, &END, Some(at(2, 1)), true), to_blame);
    // rsp was loaded with rbp, as in an epilogue: that is the function's own stack.
    let other = Some((2, Fault::NotBehindCall));
    assert_eq!(by(&restored, &END, Some(at(2, 1)), true), other);
}

/// Go's signal handler makes the interrupted code call `sigpanic`, and a goroutine whose thread runs on
/// another stack is said to be in `systemstack_switch`.
#[test]
fn some_return_addresses_are_made() {
    let image = |inner: &'static str, middle: &'static str| {
        let program = Program(vec![
            (inner, vec![0x90, 0xc3]),
            (middle, calls(&[0x90], 1, 1)),
            ("runtime.goexit", calls(&[], 2, 0)),
        ]);
        Some(program.image(None))
    };
    let frames = [
        (at(0, 0), By::Row),
        (at(1, 1), By::Row),
        (at(2, BEHIND), By::Row),
    ];
    let chain = |inner, middle| judged(image(inner, middle), &frames, &END);
    let missing = Some((1, Fault::NotBehindCall));
    assert_eq!(what(chain("leaf", "f")), missing);
    // The caller of the interrupted function is checked as always.
    let other = Some((1, Fault::OtherFunction));
    assert_eq!(what(chain("runtime.sigpanic", "f")), other);
    assert!(chain("leaf", "runtime.systemstack_switch.abi0").is_yes());
}

/// Go's threads start in `clone`, `rt0_go` or, with cgo, in a thread of C: all of them call `mstart`.
#[test]
fn the_start_of_a_languages_thread_may_have_a_caller() {
    let image = || {
        let program = Program(vec![
            ("runtime.sysmon", vec![0x90, 0xc3]),
            ("runtime.mstart.abi0", calls(&[], 1, 0)),
            ("crosscall_amd64", calls(&[], 2, 1)),
            ("runtime.mcall", calls(&[], 3, 0)),
        ]);
        Some(program.image(Some(at(2, 0))))
    };
    let chain = |functions: &[u64]| {
        let outer = functions.iter().map(|&f| (at(f, BEHIND), By::Row));
        let frames: Vec<(u64, By)> = std::iter::once((at(0, 0), By::Row)).chain(outer).collect();
        judged(image(), &frames, &END)
    };
    assert_eq!(chain(&[1]), Whole::Yes(Root::RuntimeThread));
    assert_eq!(chain(&[1, 2]), Whole::Yes(Root::Entry));
    // Go's own tracebacks end there, but the goroutine that called may not be gone.
    let is_end = |whole| matches!(whole, Whole::Unknown(doubt) if doubt.why == Why::StackEnd);
    assert!(is_end(chain(&[3])));
    let beyond = Fault::BeyondRoot(Root::Switch);
    assert_eq!(what(chain(&[3, 2])), Some((1, beyond)));
}
