//! Tests of what is invisible from outside: the child's limits, and cases that attack it.

use super::*;
use crate::skip;
use layout::SLOT;
use nix::libc;

fn spawn(test: &str) -> Option<Native> {
    match Native::spawn() {
        Ok(native) => Some(native),
        Err(error) if error.is_denied() => {
            skip::skip(
                test,
                format_args!("single instructions are denied: {error}"),
            );
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs `case` between two additions, which must be right, and returns its outcome.
fn run(native: &mut Native, case: NativeCase) -> Outcome {
    let mut add = NativeCase::new(Mode::Plain, &[0x48, 0x01, 0xd8]); // add rax, rbx
    add.state.gpr[0] = 40;
    add.state.gpr[3] = 2;
    let mut results = [(Outcome::Hung, NativeState::default()); 3];
    native
        .run(&[add, case, add], &mut results)
        .expect("the child goes on or is replaced");
    for (outcome, state) in [&results[0], &results[2]] {
        assert_eq!((*outcome, state.gpr[0]), (Outcome::Done, 42));
    }
    results[1].0
}

/// `jmp rcx`, to `target`.
fn jump(target: u64) -> NativeCase {
    let mut case = NativeCase::new(Mode::Plain, &[0xff, 0xe1]);
    case.state.gpr[1] = target;
    case
}

#[test]
fn the_child_is_shut_in() {
    let Some(native) = spawn("the_child_is_shut_in") else {
        return;
    };

    let status = std::fs::read_to_string(format!("/proc/{}/status", native.pid()))
        .expect("the child has a status");

    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.expect("the kernel says so").trim()
    };

    // A filter is in use (proc(5)).
    assert_eq!(value("Seccomp:"), "2");
    assert_eq!(value("NoNewPrivs:"), "1");
    assert_eq!(value("SigBlk:"), "0000000000000000");

    // Only root may see the memory of a process that is not dumpable.
    if let Ok(maps) = std::fs::read_to_string(format!("/proc/{}/maps", native.pid())) {
        for line in maps.lines() {
            let begin = line.split('-').next().expect("an address");
            let begin = u64::from_str_radix(begin, 16).expect("an address");
            let ours = (layout::DRIVER..layout::ARENA_END).contains(&begin);
            // Mappings that the kernel may keep: [vdso], [vvar] and the like, [vsyscall].
            assert!(ours || line.contains(" [v"), "{line}");
        }
    }

    let limits = std::fs::read_to_string(format!("/proc/{}/limits", native.pid()))
        .expect("the child has limits");

    for name in ["Max core file size", "Max file size", "Max open files"] {
        let line = limits.lines().find_map(|line| line.strip_prefix(name));
        let mut words = line.expect("the kernel says so").split_whitespace();
        assert_eq!(
            (words.next(), words.next()),
            (Some("0"), Some("0")),
            "{name}"
        );
    }
}

#[test]
fn only_the_drivers_system_calls_are_made() {
    let Some(mut native) = spawn("only_the_drivers_system_calls_are_made") else {
        return;
    };
    let is_sigsys =
        |outcome| matches!(outcome, Outcome::Signal { signal, .. } if signal == libc::SIGSYS);
    // futex, as the driver calls it, but from elsewhere.
    let mut elsewhere = NativeCase::new(Mode::Plain, &[0x0f, 0x05]);
    elsewhere.state.gpr[0] = libc::SYS_futex as u64;
    assert!(is_sigsys(run(&mut native, elsewhere)));
    // The driver's `syscall`, but another call.
    let mut other = jump(driver::sites().syscall_end - 2);
    other.state.gpr[0] = libc::SYS_getpid as u64;
    other.state.gpr[3] = driver::sites().exit;
    assert!(is_sigsys(run(&mut native, other)));
    // Calls of 32-bit programs have other numbers: 20 is getpid.
    let mut compatible = NativeCase::new(Mode::Plain, &[0xcd, 0x80]);
    compatible.state.gpr[0] = 20;
    let outcome = run(&mut native, compatible);
    assert!(
        is_sigsys(outcome) || matches!(outcome, Outcome::Signal { trapno: 13, .. }),
        "{outcome:?}"
    );
}

#[test]
fn a_case_that_kills_the_child_is_killed() {
    let Some(mut native) = spawn("a_case_that_kills_the_child_is_killed") else {
        return;
    };
    // Breaks the driver: mov [rdi], rax over the slot's address.
    let mut case = NativeCase::new(Mode::Plain, &[0x48, 0x89, 0x07]);
    case.state.gpr[7] = SLOT;
    let signal = libc::SIGSEGV;
    assert_eq!(run(&mut native, case), Outcome::Killed { signal });
    // Then the next batch.
    assert_eq!(run(&mut native, jump(Native::place(1) + 2)), Outcome::Done);
}

#[test]
fn a_case_that_hides_in_the_driver_is_hung() {
    let Some(mut native) = spawn("a_case_that_hides_in_the_driver_is_hung") else {
        return;
    };
    // `jmp rbx` to itself, at an address that the tick takes for the driver's.
    let mut case = jump(driver::sites().syscall_end);
    case.state.gpr[3] = driver::sites().syscall_end;
    assert_eq!(run(&mut native, case), Outcome::Hung);
}

#[test]
fn a_child_that_died_between_batches_is_replaced() {
    let Some(mut native) = spawn("a_child_that_died_between_batches_is_replaced") else {
        return;
    };
    let nop = NativeCase::new(Mode::Plain, &[0x90]);
    assert_eq!(run(&mut native, nop), Outcome::Done);
    let before = native.pid();
    nix::sys::signal::kill(before, nix::sys::signal::SIGKILL).expect("it is alive");
    assert_eq!(run(&mut native, nop), Outcome::Done);
    assert_ne!(native.pid(), before);
}
