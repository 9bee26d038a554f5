"""The peer of `vmcore.rs`: every task's stack as drgn unwinds it.

Usage: drgn_stacks.py VMCORE VMLINUX ROUNDS; needs the Python package drgn. Prints one JSON line for
each task, and a last one with times (seconds).
"""

import json
import re
import sys
import time

from drgn import Program
from drgn.helpers.linux.pid import for_each_task


def vmcoreinfo(path):
    """The text of VMCOREINFO as it lies in memory, for dumps that were made without the note."""
    with open(path, "rb") as file:
        data = file.read()
    longest = b""
    for match in re.finditer(rb"OSRELEASE=\d[^\n\0]*\n(BUILD-ID|PAGESIZE)", data):
        end = data.index(b"\0", match.start())
        longest = max(longest, data[match.start() : end][:4096], key=len)
    return longest


def open_dump(path, vmlinux):
    """The program, and when it began to be opened."""
    start = time.monotonic()
    program = Program()
    try:
        program.set_core_dump(path)
    except ValueError:
        info = vmcoreinfo(path)
        start = time.monotonic()
        program = Program(vmcoreinfo=info)
        program.set_core_dump(path)
    program.load_debug_info([vmlinux])
    return program, start


def frames(program, task):
    """Addresses, without frames of inlined functions."""
    try:
        return [f.pc for f in program.stack_trace(task) if not f.is_inline]
    except Exception as error:  # drgn has many
        return str(error)


def main():
    vmcore, vmlinux, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    program, start = open_dump(vmcore, vmlinux)
    tasks = list(for_each_task(program, idle=True))
    chains = [frames(program, task) for task in tasks]
    end_to_end = time.monotonic() - start
    start = time.monotonic()
    walked = 0
    for _ in range(rounds):
        for task in tasks:
            try:
                program.stack_trace(task)
                walked += 1
            except Exception:
                pass
    warm = time.monotonic() - start
    for task, chain in zip(tasks, chains):
        name = task.comm.string_().decode(errors="replace")
        print(json.dumps({"pid": task.pid.value_(), "name": name, "chain": chain}))
    times = {"end_to_end": end_to_end, "warm": warm, "walked": walked}
    print(json.dumps(times))


main()
