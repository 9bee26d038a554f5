"""Compares `tables check` with LLVM's checker of CFI directives (`llvm-mc --validate-cfi`).

Both get the same assembly: C and C++ by clang, with one defect in a CFI directive. It is linked and
executed, and the native stepper decides whether a row is wrong where it ran, as for the other
measure. What a checker says of the assembly without a defect is not a find.
"""

import argparse
import collections
import os
import random
import re
import subprocess
import sys
import tempfile

import programs
from measure import Subject, Tool, static_verdict
from truth import read_states

OPTIONS = "-w -ffreestanding -fno-stack-protector -fasynchronous-unwind-tables"
LINK = "-nostdlib -static -Wl,--eh-frame-hdr"
SOURCES = [
    ("sorts.c", "-O0"),
    ("sorts.c", "-O2"),
    ("sorts.c", "-O3"),
    ("calls.c", "-O1"),
    ("calls.c", "-O2"),
    ("calls.c", "-Os"),
    ("calls.c", "-O1 -fno-omit-frame-pointer"),
    ("frames.c", "-O0"),
    ("frames.c", "-O2"),
    ("objects.cc", "-O0"),
    ("objects.cc", "-O1"),
    ("objects.cc", "-O2"),
]
REGISTERS = ["%rbx", "%rbp", "%r12", "%r13", "%r14", "%r15", "%rax", "%rsp"]


def is_directive(line, *names):
    return line.split()[:1] and line.split()[0] in ["." + name for name in names]


def offset_changed(lines, i, rng):
    if is_directive(
        lines[i], "cfi_def_cfa_offset", "cfi_offset", "cfi_def_cfa", "cfi_adjust_cfa_offset"
    ):
        number = re.findall(r"-?\d+", lines[i])[-1]
        at = lines[i].rindex(number)
        return [lines[i][:at] + str(int(number) + rng.choice((-16, -8, 8, 16)))]


def register_changed(lines, i, rng):
    if is_directive(lines[i], "cfi_offset", "cfi_def_cfa", "cfi_def_cfa_register", "cfi_restore"):
        old = re.search(r"%\w+", lines[i])
        return [lines[i].replace(old[0], rng.choice([r for r in REGISTERS if r != old[0]]), 1)]


def removed(lines, i, _rng):
    if is_directive(
        lines[i],
        "cfi_offset",
        "cfi_def_cfa",
        "cfi_def_cfa_register",
        "cfi_restore",
        "cfi_def_cfa_offset",
        "cfi_adjust_cfa_offset",
    ):
        return []


def doubled_save(lines, i, _rng):
    if is_directive(lines[i], "cfi_offset"):
        register = re.search(r"%\w+", lines[i])[0]
        return [lines[i], f"\t.cfi_restore {register}"]


# What a directive becomes, by kind: the lines that replace it, or nothing if it is no such directive.
KINDS = {
    "offset": offset_changed,
    "register": register_changed,
    "left out": removed,
    "taken back": doubled_save,
}


def moved(lines, i, by):
    """A directive one instruction later or earlier."""
    if not lines[i].lstrip().startswith(".cfi_") or is_directive(
        lines[i], "cfi_startproc", "cfi_endproc"
    ):
        return None
    if is_directive(
        lines[i], "cfi_remember_state", "cfi_restore_state", "cfi_personality", "cfi_lsda"
    ):
        return None
    is_instruction = lambda l: l.startswith("\t") and not l.lstrip().startswith((".", "#"))
    at = i + by
    while 0 <= at < len(lines) and not is_instruction(lines[at]):
        if is_directive(lines[at], "cfi_startproc", "cfi_endproc"):
            return None
        at += by
    if not 0 <= at < len(lines):
        return None
    changed = lines[:i] + lines[i + 1 :]
    # Later: behind that instruction, which has moved up by one line. Earlier: before it.
    return changed[:at] + [lines[i]] + changed[at:]


def mutants_of(lines, rng, count):
    """(kind, text, lines)"""
    places = [i for i, line in enumerate(lines) if line.lstrip().startswith(".cfi_")]
    makers = list(KINDS) + ["late", "early"]
    made, seen, turn = [], set(), 0
    while len(made) < count and turn < 60 * count:
        kind, i = makers[turn % len(makers)], rng.choice(places)
        turn += 1
        if kind in KINDS:
            new = KINDS[kind](lines, i, rng)
            changed = None if new is None else lines[:i] + new + lines[i + 1 :]
        else:
            changed = moved(lines, i, 1 if kind == "late" else -1)
        if changed is None or changed == lines or "\n".join(changed) in seen:
            continue
        seen.add("\n".join(changed))
        made.append((kind, f"line {i + 1}: {lines[i].strip()}", changed))
    return made


def assemble(clang, text, name, scratch):
    """The object and the linked program, or None if the assembler refuses it."""
    source = os.path.join(scratch, name + ".s")
    with open(source, "w") as file:
        file.write(text)
    path = os.path.join(scratch, name)
    start = os.path.join(programs.SOURCES, "start.s")
    done = subprocess.run([clang, *LINK.split(), start, source, "-o", path], capture_output=True)
    return (source, path) if done.returncode == 0 else None


class Llvm:
    def __init__(self, command):
        self.command = command

    def messages(self, source):
        """Errors, and all messages: each without its line's number, counted."""
        done = subprocess.run(
            [
                *self.command,
                "--validate-cfi",
                "-triple",
                "x86_64-linux-gnu",
                "-filetype=obj",
                source,
                "-o",
                "/dev/null",
            ],
            capture_output=True,
            text=True,
        )
        found = re.findall(r":\d+:\d+: (error|warning): (.*)", done.stderr)
        every = collections.Counter(text for _kind, text in found)
        errors = collections.Counter(text for kind, text in found if kind == "error")
        return errors, every


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--tool", required=True)
    options.add_argument("--llvm-mc", required=True, help="the command, with its arguments")
    options.add_argument("--clang", default="clang-19")
    options.add_argument("--count", type=int, default=360)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    rng = random.Random(chosen.seed)
    llvm = Llvm(chosen.llvm_mc.split())
    with tempfile.TemporaryDirectory() as scratch:
        compare(chosen, rng, llvm, scratch)


def compare(chosen, rng, llvm, scratch):
    tool = Tool(os.path.abspath(chosen.tool), scratch)
    step = programs.stepper(scratch)
    counts = collections.defaultdict(collections.Counter)
    plain = collections.Counter()
    for number, (source, level) in enumerate(SOURCES):
        compiler = (
            chosen.clang.replace("clang", "clang++") if source.endswith("cc") else chosen.clang
        )
        cxx = "-std=c++17 -fno-exceptions -fno-rtti" if source.endswith("cc") else ""
        command = [
            compiler,
            *f"{OPTIONS} {level} {cxx} -S -o -".split(),
            os.path.join(programs.SOURCES, source),
        ]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        built = assemble(chosen.clang, text, f"base{number}", scratch)
        states = os.path.join(scratch, "states")
        subprocess.run([step, states, built[1]], check=True, capture_output=True)
        subject = Subject(f"{source} {level}", built[1], "eh_frame", read_states(states))
        errors, every = llvm.messages(built[0])
        before = tool.check([built[1]])[built[1]]
        # None of the rows is wrong where it ran: what is said of them is a false alarm.
        plain["files"] += 1
        plain["wrong rows"] += sum(1 for wrong in subject.wrong if wrong)
        plain["llvm errors"] += sum(errors.values())
        plain["llvm messages"] += sum(every.values())
        plain["tables check"] += len(before["findings"]) + len(before["problems"])

        mutants = []
        share = chosen.count // len(SOURCES)
        for kind, what, lines in mutants_of(text.splitlines(), rng, share):
            changed = assemble(
                chosen.clang, "\n".join(lines) + "\n", f"{number}-{len(mutants)}", scratch
            )
            if changed:
                mutants.append((kind, what, changed))
        answers = tool.check([path for _kind, _what, (_source, path) in mutants])
        for kind, what, (asm, path) in mutants:
            verdict, wrong = subject.judge(open(path, "rb").read())
            of = (counts[kind], counts["all"])
            new_errors, new_every = llvm.messages(asm)
            llvm_error, llvm_any = bool(new_errors - errors), bool(new_every - every)
            answer = answers[path]
            complains = bool(answer["findings"] - before["findings"])
            for count in of:
                count["made"] += 1
                count[verdict] += 1
                if verdict == "wrong":
                    found = static_verdict(subject, answer, before, wrong)
                    count["ours"] += found in ("caught", "unreadable")
                    count["llvm"] += llvm_error
                    count["llvm any"] += llvm_any
                    count["only ours"] += found == "caught" and not llvm_error
                    count["only llvm"] += llvm_error and found != "caught"
                elif verdict == "equivalent":
                    count["ours false"] += complains
                    count["llvm false"] += llvm_error
            if verdict == "wrong" and found not in ("caught", "unreadable"):
                print(f"{found} by tables check: {subject.name}: {kind}: {what}", file=sys.stderr)
    show(plain, counts)


def show(plain, counts):
    print(
        f"Without a defect, {plain['files']} files, {plain['wrong rows']} wrong rows where they ran: LLVM "
        f"{plain['llvm errors']} errors and {plain['llvm messages'] - plain['llvm errors']} warnings, "
        f"`tables check` {plain['tables check']} findings.\n"
    )
    print(
        "| defect in a directive | made | wrong where it ran | `tables check` | LLVM, errors | LLVM, any "
        "new message | only `tables check` | only LLVM | equivalent | reported: `tables check` | LLVM |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for kind in sorted(counts, key=lambda k: k == "all"):
        count = counts[kind]
        cells = [
            count[c]
            for c in (
                "made",
                "wrong",
                "ours",
                "llvm",
                "llvm any",
                "only ours",
                "only llvm",
                "equivalent",
                "ours false",
                "llvm false",
            )
        ]
        print(f"| {kind} | " + " | ".join(map(str, cells)) + " |")


if __name__ == "__main__":
    main()
