//! Random programs in C and C++, for compilers. They need not be run, only to be compiled, and use
//! whatever makes compilers write unusual frames.

use crate::random::Random;
use std::fmt::Write as _;

/// Whether a switch may be over `x & 15` and have fewer cases and an unreachable default. Its table
/// is shorter than the mask says, and the proof reads on behind it (fixture `good_masked_switch`).
const HAS_MASKED_SWITCHES: bool = false;

/// What is in front of every program.
const HEAD: &str = "
#ifdef __cplusplus
extern \"C\" {
#endif
long other(long, ...);
void use(void *, ...);
void abort(void) __attribute__((noreturn));
void die(const char *, ...) __attribute__((noreturn, cold));
#ifdef __cplusplus
}
struct Guard { long *p; Guard(long *q) : p(q) { use(q); } ~Guard() { use(p, 1); } };
struct Base { virtual long call(long) = 0; virtual ~Base() {} };
struct Error { long code; };
#endif
struct Pair { long a, b; };
struct Big { long words[9]; };
typedef __builtin_va_list list;
";

/// Writes one program.
struct Writer {
    random: Random,
    text: String,
    is_cpp: bool,
    /// The functions written so far, each with its kind of parameters.
    functions: Vec<Shape>,
    labels: u32,
    depth: u32,
    budget: u32,
}

/// The parameters of a function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Longs,
    Many,
    Structs,
    Variable,
}

/// A program in C, or in C++.
pub(crate) fn program(seed: u64, is_cpp: bool, functions: u32) -> String {
    let mut writer = Writer {
        random: Random::new(seed),
        text: HEAD.to_owned(),
        is_cpp,
        functions: Vec::new(),
        labels: 0,
        depth: 0,
        budget: 0,
    };
    for _ in 0..functions {
        writer.function();
    }
    writer
        .text
        .push_str("int main(int argc, char **argv) { long sum = argc; (void)argv;\n");
    for number in 0..writer.functions.len() {
        let call = writer.call_of(number);
        let call = call.replace("$x", "sum").replace("$y", "sum");
        let _ = writeln!(writer.text, "sum += {call};");
    }
    writer.text.push_str("return (int)sum; }\n");
    writer.text
}

impl Writer {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn label(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }

    fn function(&mut self) {
        let shapes = [
            Shape::Longs,
            Shape::Longs,
            Shape::Many,
            Shape::Structs,
            Shape::Variable,
        ];
        let shape = self.random.pick(&shapes);
        let inline = self
            .random
            .pick(&["", "", "static ", "__attribute__((noinline)) "]);

        // More words than registers for arguments, structs on the stack, and a register save area:
        // each gives a frame that the others do not have.
        let parameters = match shape {
            Shape::Longs => "long a, long b",
            Shape::Many => "long a, long b, long c, long d, long e, double f, long g, long h",
            Shape::Structs => "struct Pair p, struct Big q, long a, long b",
            Shape::Variable => "long a, long b, ...",
        };

        let number = self.functions.len();
        self.line(&format!("{inline}long f{number}({parameters}) {{"));
        self.line("long x = a, y = b, z = 1, *r = &z; double w = 1.5; (void)w; (void)r;");
        match shape {
            Shape::Many => self.line("x += c * d - e; w += f; y ^= g + h;"),
            Shape::Structs => self.line("x += p.a - p.b; y += q.words[a & 7];"),
            Shape::Variable => self.line(
                "list l; __builtin_va_start(l, b); x += __builtin_va_arg(l, long); w += \
                 __builtin_va_arg(l, double); __builtin_va_end(l);",
            ),
            Shape::Longs => {}
        }

        self.locals();
        self.budget = 6 + self.random.below(24) as u32;
        self.depth = 0;
        while self.budget > 0 {
            self.statement();
        }

        self.line("return x + y + z + (long)w; }");
        self.functions.push(shape);
    }

    fn locals(&mut self) {
        let line = match self.random.below(10) {
            0 => "char buffer[20000]; use(buffer, buffer[a & 15]);",
            1 => "long vector[8] __attribute__((aligned(64))) = {0}; use(vector); y += vector[1];",
            2 => "char vla[(a & 63) + 1]; use(vla); y += vla[0];",
            3 => "struct Big big = {{1, 2, 3}}; use(&big); y += big.words[2];",
            4 => "char *heap = (char *)__builtin_alloca(b & 255); use(heap); y += heap[0];",
            5 => "char text[40]; use(text); y += text[3];",
            6 => "float lanes[16] __attribute__((aligned(32))); use(lanes); w += lanes[2];",
            _ => "",
        };
        self.line(line);
    }

    fn place(&mut self) -> &'static str {
        self.random.pick(&["x", "y", "z"])
    }

    fn expression(&mut self) -> String {
        let (a, b) = (self.place(), self.place());
        let number = self.random.below(1000);
        match self.random.below(8) {
            0 => format!("{a} * {b} + {number}"),
            1 => format!("({a} ^ {b}) >> {}", number % 30),
            2 => format!("{a} / ({b} | 1)"),
            3 => format!("{a} < {b} ? {a} : {b} - {number}"),
            4 => format!("(long)(w * {number}.25) - {a}"),
            5 | 6 if !self.functions.is_empty() => {
                let callee = self.random.below(self.functions.len());
                self.call_of(callee).replace("$x", a).replace("$y", b)
            }
            _ => format!("other({a}, {b}, {number}, x, y, z, {a} + 1, {b} + 2)"),
        }
    }

    fn call_of(&self, callee: usize) -> String {
        match self.functions[callee] {
            Shape::Longs => format!("f{callee}($x, $y)"),
            Shape::Many => format!("f{callee}($x, $y, $x, 4, $y, 2.5, 7, $x + 8)"),
            Shape::Structs => {
                format!(
                    "({{ struct Pair p_ = {{$x, $y}}; struct Big q_ = {{{{$x}}}}; f{callee}(p_, q_, $x, $y); }})"
                )
            }
            Shape::Variable => format!("f{callee}($x, $y, $x + 1, 2.5)"),
        }
    }

    fn block(&mut self) {
        self.depth += 1;
        for _ in 0..1 + self.random.below(3) {
            if self.budget > 0 {
                self.statement();
            }
        }
        self.depth -= 1;
    }

    fn statement(&mut self) {
        self.budget = self.budget.saturating_sub(1);
        if self.depth > 3 {
            return self.assignment();
        }

        match self.random.below(if self.is_cpp { 17 } else { 13 }) {
            0..=2 => self.assignment(),
            3 | 4 => self.branch(),
            5 => self.repeat(),
            6 | 7 => self.switch(),
            8 => self.computed_goto(),
            9 => {
                let (a, b) = (self.place(), self.random.below(90));
                self.line(&format!(
                    "if (__builtin_expect({a} == {b}, 0)) die(\"no %ld\", {a});"
                ));
            }
            10 => {
                let (a, value) = (self.place(), self.expression());
                self.line(&format!("if ({a} > 77) return {value};"));
            }
            11 => {
                let a = self.place();
                self.line(&format!(
                    "{{ char *m = (char *)__builtin_alloca({a} & 127); use(m); }}"
                ));
            }
            12 => {
                let a = self.place();
                let end = self.random.pick(&[
                    "abort();",
                    "__builtin_trap();",
                    "__builtin_unreachable();",
                ]);
                self.line(&format!("if ({a} == -5) {{ use(&z); {end} }}"));
            }
            13 | 14 => self.attempt(),
            15 => {
                self.line("{ Guard guard(&z);");
                self.block();
                self.line("}");
            }
            _ => {
                let (a, b) = (self.place(), self.place());
                self.line(&format!("if ({a} == 9) throw Error{{{b}}};"));
            }
        }
    }

    fn assignment(&mut self) {
        let (to, value) = (self.place(), self.expression());
        let operator = self.random.pick(&["=", "+=", "^=", "-="]);
        self.line(&format!("{to} {operator} {value};"));
    }

    fn branch(&mut self) {
        let (a, b) = (self.place(), self.place());
        self.line(&format!("if ({a} < {b}) {{"));
        self.block();
        if self.random.below(2) == 0 {
            self.line("} else {");
            self.block();
        }
        self.line("}");
    }

    fn repeat(&mut self) {
        let (n, a) = (self.label(), self.place());
        let head = match self.random.below(3) {
            0 => format!("for (long i{n} = 0; i{n} < {a}; i{n}++) {{"),
            1 => format!("while ({a}-- > 0) {{"),
            _ => format!("for (;;) {{ if ({a}++ > 10) break;"),
        };
        self.line(&head);
        self.block();
        self.line("}");
    }

    fn switch(&mut self) {
        let (a, cases) = (self.place(), 4 + self.random.below(10));
        let mask = self.random.pick(&["", " & 7", " & 15"]);
        self.line(&format!("switch ({a}{mask}) {{"));

        for case in 0..cases {
            self.line(&format!("case {case}:"));
            if self.budget > 0 && self.random.below(3) == 0 {
                self.block();
            } else {
                self.assignment();
            }
            if self.random.below(4) != 0 {
                self.line("break;");
            }
        }

        let end = self
            .random
            .pick(&["", "default: __builtin_unreachable();", "default: x++;"]);
        let end = if mask.is_empty() || HAS_MASKED_SWITCHES {
            end
        } else {
            end.trim_start_matches("default: __builtin_unreachable();")
        };
        self.line(end);
        self.line("}");
    }

    fn computed_goto(&mut self) {
        if self.is_cpp {
            // A jump may not pass constructors.
            return self.switch();
        }
        let (n, a) = (self.label(), self.place());
        self.line(&format!(
            "{{ static void *const t{n}[] = {{&&a{n}, &&b{n}, &&c{n}, &&d{n}}}; goto *t{n}[{a} & 3];"
        ));
        for label in ["a", "b", "c", "d"] {
            self.line(&format!("{label}{n}:"));
            self.assignment();
        }
        self.line("}");
    }

    fn attempt(&mut self) {
        self.line("try {");
        self.block();
        self.line("} catch (Error &e) { x += e.code;");
        self.block();
        match self.random.below(3) {
            0 => self.line("} catch (...) { use(&x); throw; }"),
            1 => self.line("} catch (...) { y++; }"),
            _ => self.line("}"),
        }
    }
}
