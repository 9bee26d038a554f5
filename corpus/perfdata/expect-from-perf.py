#!/usr/bin/env python3
"""Writes NAME.expected.txt beside NAME.data: what perf says is in the recording.

    expect-from-perf.py NAME.data              from `perf script -D`
    expect-from-perf.py NAME.data SCRIPT.txt   from the text of `perf script --no-inline
                                               --no-merge-callchains` made elsewhere

A line is a record or one word of it, in time order:
    mmap PID TID ADDRESS LENGTH OFFSET PATH
    sample PID TID IP TIME PERIOD       then its parts:
    chain INDEX WORD / reg NAME VALUE / stack BYTES
and, from a text, `sample TID TIME_US: ADDRESS..` and `deferred TID TIME_US COOKIE: ADDRESS..`.
"""
import re
import subprocess
import sys

HEAD = re.compile(r"^(?:\d+ )?(\d+) 0x[0-9a-f]+(?:@.+?)? \[0x[0-9a-f]+\]: (PERF_RECORD_.*)$")
SAMPLE = re.compile(r"PERF_RECORD_SAMPLE\(IP, \S+\): (-?\d+)/(-?\d+): (\w+) period: (\d+)")
MMAP = re.compile(r"PERF_RECORD_MMAP2? (-?\d+)/(-?\d+): \[(\w+)\((\w+)\) @ (\w+).*?\]: \S+ (.*)$")
CHAIN = re.compile(r"^\.\.\.\.\.\s+(\d+): ([0-9a-f]{16})$")
REG = re.compile(r"^\.\.\.\. (\S+)\s+(0x[0-9a-f]+)$")
LEGACY = ("AX", "BX", "CX", "DX", "SI", "DI", "BP", "SP", "IP")


def from_dump(path):
    command = ["perf", "script", "-D", "--ns", "-i", path]
    dump = subprocess.run(command, capture_output=True, text=True, errors="replace").stdout
    part = ""
    for line in dump.splitlines():
        if head := HEAD.match(line):
            part = ""
            if m := SAMPLE.match(head[2]):
                yield f"sample {m[1]} {m[2]} {int(m[3], 16):#x} {head[1]} {m[4]}"
            elif m := MMAP.match(head[2]):
                words = " ".join(f"{int(m[i], 16):#x}" for i in (3, 4, 5))
                yield f"mmap {m[1]} {m[2]} {words} {m[6]}"
        elif line.startswith("... "):
            part = line
            if m := re.match(r"\.\.\. ustack: size (\d+)", line):
                yield f"stack {m[1]}"
        elif "chain: nr" in part and (m := CHAIN.match(line)):
            yield f"chain {m[1]} {int(m[2], 16):#x}"
        elif "user regs" in part and (m := REG.match(line)):
            name = "r" + m[1].lower() if m[1] in LEGACY + ("FLAGS",) else m[1].lower()
            yield f"reg {name} {int(m[2], 16):#x}"


def from_text(path):
    head = re.compile(r"^\s*.*?\s+(\d+)\s+(?:\[\d+\]\s+)?(\d+)\.(\d{6})\d*:\s*(.*)$")
    line = None
    for text in open(path, errors="replace"):
        if text.startswith("\t"):
            address, _, rest = text.strip().partition(" ")
            # A cookie is printed as if it were a frame.
            line += f" {int(address, 16):#x}" if "(cookie)" not in rest else ""
        elif m := head.match(text):
            if line:
                yield line
            when = f"{m[1]} {int(m[2] + m[3])}"
            cookie = re.match(r"DEFERRED CALLCHAIN \[cookie: (\w+)\]", m[4])
            line = f"deferred {when} {int(cookie[1], 16):#x}:" if cookie else f"sample {when}:"
    if line:
        yield line


lines = from_text(sys.argv[2]) if len(sys.argv) > 2 else from_dump(sys.argv[1])
with open(sys.argv[1].removesuffix(".data") + ".expected.txt", "w") as out:
    out.writelines(line + "\n" for line in lines)
