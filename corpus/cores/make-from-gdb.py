#!/usr/bin/env python3
"""Writes threads.core.zst and threads.expected.txt: a core that gdb makes of threads.c, and what
gdb then says of it. Run in this directory; needs cc, gdb and zstd."""

import os
import re
import subprocess

REGISTERS = (
    "rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip eflags cs".split()
)
PROGRAM = "/tmp/unwind-sim-threads"
CORE = "/tmp/unwind-sim-threads.core"


def gdb(*arguments):
    return subprocess.run(
        ["gdb", "-nx", "-q", "-batch", *arguments],
        check=True, capture_output=True, text=True,
    ).stdout


def main():
    subprocess.run(
        ["cc", "-O1", "-g", "-ffile-prefix-map=" + os.getcwd() + "=.", "-pthread",
         "-Wl,--build-id=sha1", "threads.c", "-o", PROGRAM],
        check=True,
    )
    # Without the environment, which would be on the first stack for everybody to read.
    gdb("-ex", "set startup-with-shell off", "-ex", "unset environment",
        "-ex", "handle SIGUSR1 nostop noprint pass", "-ex", "break in_handler", "-ex", "run",
        "-ex", f"generate-core-file {CORE}", PROGRAM)
    registers = {}
    said = gdb("-ex", "thread apply all info registers " + " ".join(REGISTERS), PROGRAM, CORE)
    for line in said.splitlines():
        if thread := re.search(r"^Thread .*LWP (\d+)", line):
            tid = thread[1]
        elif register := re.match(r"(\w+) +(0x[0-9a-f]+)", line):
            registers.setdefault(tid, []).append((register[1], register[2]))
    with open("threads.expected.txt", "w") as out:
        for tid in sorted(registers, key=int):
            print(f"thread {tid}", file=out)
            for name, value in registers[tid]:
                print(f"{name} {value}", file=out)
        files = gdb("-ex", "info proc mappings", PROGRAM, CORE)
        for line in files.splitlines():
            words = line.split()
            if len(words) == 5 and words[0].startswith("0x"):
                print(f"file {words[0]} {words[1]} {words[3]} {words[4]}", file=out)
        notes = subprocess.run(["readelf", "-n", PROGRAM], check=True, capture_output=True,
                               text=True).stdout
        print("build-id", re.search(r"Build ID: (\w+)", notes)[1], file=out)
    subprocess.run(["zstd", "-q", "-19", "-f", CORE, "-o", "threads.core.zst"], check=True)


main()
