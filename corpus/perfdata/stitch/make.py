#!/usr/bin/env python3
"""Writes the cases of this folder: NAME.data, record by record, and beside it NAME.perf-7.2.txt,
what perf 7.2 makes of it.

    make.py [PERF]      PERF is a perf of version 7.2; without it only the recordings are written

The order of the lines below is that of the file; the number after the thread is the time in
nanoseconds. Cookies are those of a Linux 7.2 kernel: an odd count, then the CPU plus one.
"""
import os
import re
import struct
import subprocess
import sys

IDENTIFIER, IP, TID, TIME, CALLCHAIN = 1 << 16, 1, 2, 4, 1 << 5
SAMPLE_ID_ALL, DEFER_CALLCHAIN, DEFER_OUTPUT = 1 << 18, 1 << 38, 1 << 39
KERNEL, USER, DEFERRED = (word & (1 << 64) - 1 for word in (-128, -512, -640))
K1 = [KERNEL, 0xFFFFFFFF81000100, 0xFFFFFFFF81000200]
K2 = [KERNEL, 0xFFFFFFFF81000300, 0xFFFFFFFF81000400]
K3 = [KERNEL, 0xFFFFFFFF81000500, 0xFFFFFFFF81000600]
# From the outermost: the entry, what it called, and what that called.
INSIDE = [KERNEL, 0xFFFFFFFF81000900, 0xFFFFFFFF81000800, 0xFFFFFFFF81000700]
BACK = [KERNEL, 0xFFFFFFFF81000A00, 0xFFFFFFFF81000880, 0xFFFFFFFF81000700]
U1, U2, U3 = [0x401000, 0x401100, 0x401200], [0x402000, 0x402100], [0x403000]
C1, C2, C3, C4 = 0x3_00000001, 0x5_00000001, 0x7_00000002, 0x9_00000001


def record(kind, misc, body):
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


def trailer(tid, time):
    return struct.pack("<IIQQ", PID, tid, time, 1)


def sample(tid, time, chain, cookie=None):
    words = chain + ([DEFERRED, cookie] if cookie else [])
    ip = words[1] if words[0] == KERNEL else 0x401000
    misc = 1 if words[0] == KERNEL else 2
    body = struct.pack("<QQIIQQ", 1, ip, PID, tid, time, len(words))
    return record(9, misc, body + struct.pack(f"<{len(words)}Q", *words))


def deferred(tid, time, cookie, frames):
    body = struct.pack("<QQ", cookie, len(frames)) + struct.pack(f"<{len(frames)}Q", *frames)
    return record(22, 2, body + trailer(tid, time))


def comm(tid, time, name, misc=0):
    body = struct.pack("<II", PID, tid) + name.encode().ljust(8, b"\0")
    return record(3, misc, body + trailer(tid, time))


def execve(tid, time):
    return comm(tid, time, "other", 1 << 13)


def mmap(tid, time, path):
    body = struct.pack("<IIQQQ", PID, tid, 0x7FFF00000000, 0x1000, 0) + path.encode() + b"\0"
    body += b"\0" * (-len(body) % 8)
    return record(1, 0, body + trailer(tid, time))


def task(kind, tid, time):
    return record(kind, 0, struct.pack("<IIIIQ", PID, PID, tid, PID, time) + trailer(tid, time))


def fork(tid, time):
    return task(7, tid, time)


def exit_(tid, time):
    return task(4, tid, time)


def lost(tid, time, count):
    return record(2, 0, struct.pack("<QQ", 1, count) + trailer(tid, time))


PID = 100
CASES = {
    # One record for both samples.
    "A-two-samples-one-record": [
        sample(100, 1000, K1, C1), sample(100, 2000, K2, C1), deferred(100, 3000, C1, U1)],
    # The record is remembered: sampled after it, before the return to user space (perf: D1).
    "B-late-sample": [
        sample(100, 1000, K1, C1), deferred(100, 2000, C1, U1), sample(100, 3000, K2, C1),
        sample(100, 4000, K3, C2), deferred(100, 5000, C2, U2)],
    # Threads do not mix.
    "C-two-tids": [
        sample(100, 1000, K1, C1), sample(101, 1500, K2, C3), deferred(101, 2000, C3, U2),
        deferred(100, 3000, C1, U1)],
    # The record is lost; the next one is not its own (perf: D3).
    "D-lost-record": [
        sample(100, 1000, K1, C1), sample(100, 2000, K2, C2), lost(100, 3000, 1),
        deferred(100, 3000, C2, U2)],
    # Two cookies of a thread are pending; the records come in order (perf: D2).
    "E-two-cookies-pending": [
        sample(100, 1000, K1, C1), sample(100, 2000, K2, C2), deferred(100, 3000, C1, U1),
        deferred(100, 4000, C2, U2)],
    # The data ends first (perf: D4).
    "F-no-record-at-end": [
        sample(100, 1000, K1, C1), deferred(100, 2000, C1, U1), sample(100, 3000, K2, C2)],
    # The kernel found no frame.
    "G-empty-record": [sample(100, 1000, K1, C1), deferred(100, 2000, C1, [])],
    # Two events that write records: each is there twice.
    "H-duplicate-record": [
        sample(100, 1000, K1, C1), deferred(100, 2000, C1, U1), deferred(100, 2001, C1, U1),
        sample(100, 3000, K2, C2), deferred(100, 4000, C2, U2), deferred(100, 4001, C2, U2)],
    # Sampled in user space: the chain is the cookie.
    "I-user-mode-sample": [sample(100, 1000, [DEFERRED, C1]), deferred(100, 2000, C1, U1)],
    # Delivered when the record comes, not in time order (perf: D5).
    "J-delivery-order": [
        sample(100, 1000, K1, C1), sample(101, 1500, K2 + [USER] + U2),
        deferred(100, 2000, C1, U1)],
    # The record is before the sample in the file, after it in time.
    "K-out-of-file-order": [
        deferred(100, 3000, C1, U1), sample(100, 2000, K2, C1), sample(100, 1000, K1, C1)],
    # Nobody waits for the record.
    "L-orphan-record": [
        deferred(100, 1000, C1, U1), sample(100, 2000, K2, C2), deferred(100, 3000, C2, U2)],
    # A record of another thread has the sample's cookie.
    "M-cookie-of-another-thread": [
        sample(100, 1000, K1, C1), deferred(101, 2000, C1, U2), deferred(100, 3000, C1, U1)],
    # Inside execve: the record tells of the new program (perf: D8).
    "N-exec": [
        sample(100, 1000, K1, C1), execve(100, 2000), sample(100, 2500, K2, C1),
        mmap(100, 3000, "[vdso]"), deferred(100, 4000, C1, U2),
        sample(100, 5000, K3, C2), deferred(100, 6000, C2, U3)],
    # First sampled inside execve after the program was replaced.
    "O-exec-fresh-cookie": [
        execve(100, 1000), sample(100, 2000, K1, C1), mmap(100, 3000, "[vdso]"),
        deferred(100, 4000, C1, U2), sample(100, 5000, K2, C1)],
    # The thread ends in the kernel.
    "P-thread-exit": [sample(101, 1000, K1, C1), exit_(101, 2000), sample(100, 3000, K2, C2),
        deferred(100, 4000, C2, U2)],
    # Another thread gets the number, and the cookie has come round.
    "Q-tid-reuse": [
        sample(101, 1000, K1, C1), exit_(101, 2000), fork(101, 3000),
        sample(101, 4000, K2, C1), deferred(101, 5000, C1, U2)],
    # A late sample of a record that all of another cookie's samples came between.
    "R-record-of-a-stay-before": [
        sample(100, 1000, K1, C1), deferred(100, 2000, C1, U1), sample(100, 3000, K2, C2),
        deferred(100, 4000, C1, U1), deferred(100, 5000, C2, U2)],
    # The cookie has come round while the thread was away: same thread, same cookie, other stay.
    "S-cookie-came-round": [
        sample(100, 1000, K1, C1), lost(100, 2000, 1),
        sample(100, 2000 + 300 * 10**9, K2, C1), deferred(100, 3000 + 300 * 10**9, C1, U2)],
    # The last sample is of the way back from execve: the entry called something else.
    "T-execve-returned": [
        sample(100, 1000, INSIDE, C1), execve(100, 2000), sample(100, 2500, INSIDE, C1),
        mmap(100, 3000, "[vdso]"), sample(100, 3500, INSIDE, C1), sample(100, 4000, BACK, C1),
        sample(100, 4500, BACK, C1), deferred(100, 5000, C1, U2)],
    # The thread stepped over a probed instruction, at which it had been sampled.
    "U-stepped-over": [sample(100, 1000, [DEFERRED, C1]), deferred(100, 2000, C1, U2)],
}


def write(name, records):
    attr = struct.pack("<IIQQQQQ", 1, 136, 0, 4000, IDENTIFIER | IP | TID | TIME | CALLCHAIN, 0,
                       SAMPLE_ID_ALL | DEFER_CALLCHAIN | DEFER_OUTPUT).ljust(136, b"\0")
    data = comm(100, 1, "app") + b"".join(records)
    ids_at, attrs_at = 104, 112
    data_at = attrs_at + 136 + 16
    head = b"PERFILE2" + struct.pack("<8Q", 104, 152, attrs_at, 152, data_at, len(data), 0, 0)
    out = head.ljust(104, b"\0") + struct.pack("<Q", 1) + attr
    out += struct.pack("<QQ", ids_at, 8) + data
    with open(name + ".data", "wb") as file:
        file.write(out)


def perf_says(perf, name):
    command = [perf, "script", "--no-inline", "--ns", "-F", "tid,time,ip,sym", "-i", name + ".data"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    with open(name + ".perf-7.2.txt", "w") as out:
        for block in text.split("\n\n"):
            lines = block.strip("\n").splitlines()
            if not lines:
                continue
            tid, time = re.match(r"\s*(\d+)\s+([\d.]+):", lines[0]).groups()
            frames = (line.split() for line in lines[1:])
            frames = " ".join(f"{f[0]}(cookie)" if f[1] == "(cookie)" else f[0] for f in frames)
            out.write(f"sample {tid} {int(time.replace('.', ''))}: {frames}\n")


os.chdir(os.path.dirname(os.path.abspath(__file__)))
for name, records in CASES.items():
    write(name, records)
    if len(sys.argv) > 1:
        perf_says(sys.argv[1], name)
