"""The peer of `vmcore.rs`: every task's stack as drgn unwinds it.

Usage: drgn_stacks.py VMCORE VMLINUX [ROUNDS]; needs the Python package drgn. Prints each task with
the addresses and functions of its stack. With ROUNDS, prints one JSON line for each task, and a
last one with the time of ROUNDS walks of all stacks, when everything is loaded (seconds).
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
    """The program with its types."""
    program = Program()
    try:
        program.set_core_dump(path)
    except ValueError:
        program = Program(vmcoreinfo=vmcoreinfo(path))
        program.set_core_dump(path)
    program.load_debug_info([vmlinux])
    return program


def name_of(task):
    return task.comm.string_().decode(errors="replace")


def plain(program, task):
    """The frames, without those of inlined functions."""
    return [f for f in program.stack_trace(task) if not f.is_inline]


def text(program, task):
    lines = [f"{task.pid.value_()} {name_of(task)}"]
    try:
        lines += [f"  {f.pc:x} {f.name}" for f in plain(program, task)]
    except Exception as error:  # drgn has many
        lines.append(f"  {error}")
    return "\n".join(lines)


def chain(program, task):
    """The addresses, or why there are none."""
    try:
        return [f.pc for f in plain(program, task)]
    except Exception as error:
        return str(error)


def walks(program, tasks, rounds):
    """The time of this many walks of all stacks, and the number of walks."""
    start = time.process_time()
    walked = 0
    for _ in range(rounds):
        for task in tasks:
            try:
                program.stack_trace(task)
                walked += 1
            except Exception:
                pass
    return {"warm": time.process_time() - start, "walked": walked}


def main():
    vmcore, vmlinux = sys.argv[1:3]
    program = open_dump(vmcore, vmlinux)
    tasks = list(for_each_task(program, idle=True))
    if len(sys.argv) == 3:
        for task in tasks:
            print(text(program, task))
        return
    for task in tasks:
        line = {"pid": task.pid.value_(), "name": name_of(task), "chain": chain(program, task)}
        print(json.dumps(line))
    print(json.dumps(walks(program, tasks, int(sys.argv[3]))))


main()
