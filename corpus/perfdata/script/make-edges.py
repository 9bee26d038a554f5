#!/usr/bin/env python3
"""Writes edges.data and edges.kallsyms.txt, record by record, and with perf edges.perf-6.1.txt:
what the kernel's mapping does not cover, samples of guests, and losses; and
deferred-by-dummy.data.

    make-edges.py [PERF]
"""
import struct
import subprocess
import sys

IDENTIFIER, IP, TID, TIME, CALLCHAIN = 1 << 16, 1, 2, 4, 1 << 5
SAMPLE_ID_ALL = 1 << 18
KERNEL = -128 & (1 << 64) - 1
HOST_KERNEL, GUEST_KERNEL, GUEST_USER, FILTERED = 1, 4, 5, 1 << 15
TEXT = 0xFFFFFFFF81000000
SYMBOLS = [(TEXT, "T", "_text"), (TEXT + 0x400, "T", "idle"), (TEXT + 0x3000, "T", "start_kernel"),
           (TEXT + 0x3200, "T", "late"), (TEXT + 0x10000, "t", "init_module\t[some]")]


def record(kind, misc, body):
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


def trailer(time, event=1, pid=0):
    return struct.pack("<IIQQ", pid, pid, time, event)


def mmap(address, length, path):
    body = struct.pack("<iiQQQ", -1, 0, address, length, address) + path.encode() + b"\0"
    return record(1, 1, body + b"\0" * (-len(body) % 8) + trailer(0))


def sample(time, ips, misc=HOST_KERNEL, event=1):
    words = [KERNEL] + ips
    body = struct.pack("<QQIIQQ", event, ips[0], 0, 0, time, len(words))
    return record(9, misc, body + struct.pack(f"<{len(words)}Q", *words))


def lost(time, count, event):
    return record(2, 0, struct.pack("<QQ", event, count) + trailer(time, event))


def lost_samples(time, count, event, misc=0):
    return record(13, misc, struct.pack("<Q", count) + trailer(time, event))


RECORDS = [
    mmap(TEXT, 0x1000, "[kernel.kallsyms]_text"),
    # Behind the mapping, before perf has read the kernel's symbols: nothing is known there.
    sample(1000, [TEXT + 0x3010]),
    # Then all up to the last symbol is the kernel's.
    sample(2000, [TEXT + 0x410, TEXT + 0x3010, TEXT + 0x3250]),
    # The last symbol ends at the page's end but one, behind which nothing is.
    sample(3000, [TEXT + 0x3FFF, TEXT + 0x4FFF, TEXT + 0x5000, TEXT + 0x10010]),
    sample(4000, [TEXT + 0x410], GUEST_KERNEL),
    sample(5000, [0x401000], GUEST_USER),
    lost(5500, 7, 2), lost(5600, 5, 2),
    lost_samples(6000, 12, 2), lost_samples(6500, 1, 1), lost_samples(6600, 3, 1, FILTERED),
    sample(7000, [TEXT + 0x410], event=2),
]

# All processors at once: the user frames come with an event that has no chains of its own.
DEFERRED = -640 & (1 << 64) - 1
COOKIE = 0x3_00000001
BY_DUMMY = [
    record(9, 2, struct.pack("<QQIIQQQQ", 1, 0x401000, 0, 0, 1000, 2, DEFERRED, COOKIE)),
    record(22, 2, struct.pack("<QQQ", COOKIE, 1, 0x401000) + trailer(2000, 2)),
]


def write(name, events, records):
    """Events: type of samples, number of the software event, flags."""
    attrs, ids, ids_at = b"", b"", 104
    for number, (kinds, config, flags) in enumerate(events):
        attr = struct.pack("<IIQQQQQ", 1, 128, config, 4000, kinds, 0, SAMPLE_ID_ALL | flags)
        attrs += attr.ljust(128, b"\0") + struct.pack("<QQ", ids_at + 8 * number, 8)
        ids += struct.pack("<Q", number + 1)
    data, attrs_at = b"".join(records), ids_at + len(ids)
    data_at = attrs_at + len(attrs)
    with open(name, "wb") as file:
        head = b"PERFILE2" + struct.pack("<6Q", 104, 144, attrs_at, len(attrs), data_at, len(data))
        file.write(head.ljust(104, b"\0") + ids + attrs + data)


KINDS = IDENTIFIER | IP | TID | TIME
CPU_CLOCK, TASK_CLOCK, DUMMY = 0, 1, 9
write("edges.data", [(KINDS | CALLCHAIN, CPU_CLOCK, 0), (KINDS | CALLCHAIN, TASK_CLOCK, 0)], RECORDS)
write("deferred-by-dummy.data",
      [(KINDS | CALLCHAIN, CPU_CLOCK, 1 << 38), (KINDS, DUMMY, 1 << 39)], BY_DUMMY)
with open("edges.kallsyms.txt", "w") as file:
    file.writelines(f"{at:016x} {kind} {name}\n" for at, kind, name in SYMBOLS)
if len(sys.argv) > 1:
    command = [sys.argv[1], "script", "--no-inline", "--kallsyms", "edges.kallsyms.txt"]
    command += ["-F", "comm,time,ip,sym,symoff,dso", "-i", "edges.data"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    with open("edges.perf-6.1.txt", "w") as file:
        file.write(text)
