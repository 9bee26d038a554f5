//! Changes of stacks that leave the way back on the new one.

use super::{open, orc};
use crate::common::compiler::Scratch;
use unwind_sim_tables::generate::{Boundaries, Generated, Options, generate};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Base, Value};

/// The kernel's `call_on_stack` as GCC compiles it.
const SWIZZLE: &str = "push %rbx; mov %rdi, %rbx; mov %rsi, %rdi; \
    mov %rsp, (%rbx); mov %rbx, %rsp; after: call handler; pop %rsp; pop %rbx; ret";
/// With the address of another frame in between, and two words pushed on the new stack.
const DEEPER: &str = "sub $24, %rsp; mov %rsp, %rax; mov %rax, (%rdi); mov $1, %eax; \
    mov %rdi, %rsp; push %rsi; after: push %rsi; call handler; add $16, %rsp; pop %rsp; \
    add $24, %rsp; ret";
/// What is at the top of the new stack is not known: another store may have changed it, it is not
/// where rsp points to, or rsp becomes another register.
const OTHERS: [&str; 5] = [
    "mov %rsp, (%rdi); mov %rdx, (%rsi); mov %rdi, %rsp; after: call handler; pop %rsp; ret",
    "mov %rsp, 8(%rdi); mov %rdi, %rsp; after: call handler; pop %rsp; ret",
    "mov %rsp, (%rdi); mov %rsi, %rsp; after: call handler; pop %rsp; ret",
    "mov %rsp, (%rdi); add $8, %rdi; mov %rdi, %rsp; after: call handler; pop %rsp; ret",
    "mov %rsp, (%rbx); call handler; mov %rbx, %rsp; after: call handler; pop %rsp; ret",
];

/// What is found in a function, and its rules from its start, from `after` and from its last
/// instruction on.
fn generated(scratch: &Scratch, code: &str) -> (Generated, [Option<Value>; 3]) {
    let source = format!(
        ".text; .globl switch; .type switch, @function; switch: {code}; .size switch, . - switch\n"
    );
    let object = scratch.cc("switch.s", &source, &["-c"]).expect("cc");
    let file = open(&object);
    let symbol = |name: &str| {
        let mut symbols = file.image().symbols().iter();
        symbols.find(|symbol| symbol.name == name).expect("it")
    };
    let switch = symbol("switch");
    let last = switch.address + switch.size - 1;
    let places = [switch.address, symbol("after").address, last];
    let found = generate(&file, Options::new(Boundaries::All, orc())).expect("no hints");
    let rules = places.map(|at| found.rule_at(at).map(|rule| rule.cfa));
    (found, rules)
}

/// The CFA that the word at `offset` from rsp leads to.
fn indirect(offset: i32, addend: i32) -> Option<Value> {
    let base = Base::Reg(Reg::Rsp);
    Some(Value::Load {
        base,
        offset,
        addend,
    })
}

/// The names of what objtool would warn of. That a call has no frame is only for kernels with frame
/// pointers.
fn breaches(found: &Generated) -> Vec<&'static str> {
    let breaches = found.functions.iter().flat_map(|f| &f.breaches);
    let names = breaches.map(|(_, breach)| breach.as_str());
    names.filter(|name| *name != "no-frame").collect()
}

/// objtool 6.1 and 6.12 warn of nothing and write `(sp)+16`.
#[test]
fn the_way_back_is_at_the_top_of_the_new_stack() {
    let scratch = Scratch::new();
    let sp = Some(Value::reg(Reg::Rsp, 8));
    let (found, rules) = generated(&scratch, SWIZZLE);
    assert_eq!(rules, [sp, indirect(0, 16), sp]);
    assert!(breaches(&found).is_empty(), "{found:#x?}");

    let (found, rules) = generated(&scratch, DEEPER);
    assert_eq!(rules, [sp, indirect(8, 32), sp]);
    assert!(breaches(&found).is_empty(), "{found:#x?}");
}

#[test]
fn another_stack_is_not_known() {
    let scratch = Scratch::new();
    for code in OTHERS {
        let (found, [_, after, last]) = generated(&scratch, code);
        assert_eq!((after, last), (None, None), "{code}");
        assert!(breaches(&found).contains(&"stack-register"), "{code}");
    }
}
