#!/usr/bin/env python3
"""Boots a kernel in the emulated machine, with and without `verify`, and in QEMU, and steps it through
QEMU's gdb stub.

Usage: kernels.py UNWIND_SIM VMLINUZ INIT [ROUNDS]

INIT is a static program that powers off. Takes turns, and prints the median processor time of each: that
of other processes does not count. Needs qemu-system-x86_64 (Debian: qemu-system-x86).
"""

import os
import pathlib
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile

APPEND = "console=ttyS0 acpi=off pci=off nosmp nokaslr mitigations=off panic=-1"
STEPS = 5000


def children():
    """Processor seconds of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ours(command):
    """Runs a command of ours. Returns processor seconds and instructions."""
    before = children()
    run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    if run.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)}: status {run.returncode}\n{run.stderr}")
    count = re.search(r"([\d,]+) (?:kernel )?instructions", run.stderr + run.stdout)
    return children() - before, int(count[1].replace(",", ""))


def qemu(kernel, initrd, *options):
    """Starts QEMU, whose standard output is the console."""
    command = ["qemu-system-x86_64", "-accel", "tcg", "-m", "512", "-nographic", "-no-reboot",
               "-machine", "pc", "-kernel", kernel, "-initrd", initrd, "-append", APPEND, *options]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)


def console_until(process, words):
    """Reads the console until it says these words."""
    said = b""
    while words not in said:
        more = process.stdout.read1(65536)
        if not more:
            sys.exit(f"QEMU ended before it said {words.decode()}")
        said += more


def booted(kernel, initrd):
    """Processor seconds of QEMU until the kernel is at its end."""
    before = children()
    process = qemu(kernel, initrd)
    console_until(process, b"reboot: ")
    process.kill()
    process.wait()
    return children() - before


class Stub:
    """A client of a gdb stub."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.rest = b""
        self.ask(b"QStartNoAckMode")
        self.socket.sendall(b"+")

    def ask(self, packet):
        """Sends a packet and returns the answer."""
        self.socket.sendall(b"$%s#%02x" % (packet, sum(packet) % 256))
        while not (found := re.search(rb"\$([^#]*)#..", self.rest)):
            self.rest += self.socket.recv(65536)
        self.rest = self.rest[found.end():]
        return found[1]


def stepped(kernel, initrd, folder):
    """Processor seconds of QEMU and of this process for a step, behind the kernel's first line."""
    path = str(pathlib.Path(folder) / "stub")
    chardev = f"socket,path={path},server=on,wait=off,id=stub"
    process = qemu(kernel, initrd, "-chardev", chardev, "-gdb", "chardev:stub")

    def used():
        fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(os.times()[:2])

    console_until(process, b"Linux version")
    stub = Stub(path)
    stub.ask(b"?")
    before = used()
    for _ in range(STEPS):
        stub.ask(b"s")
    time = used() - before
    process.kill()
    process.wait()
    return time / STEPS


def main():
    program, kernel, init = sys.argv[1:4]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "root"
        root.mkdir()
        (root / "init").write_bytes(pathlib.Path(init).read_bytes())
        (root / "init").chmod(0o755)
        initrd = str(pathlib.Path(folder) / "initramfs")
        with open(initrd, "wb") as archive:
            subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=b"init\n",
                           stdout=archive, check=True)
        count = 0
        for _ in range(rounds):
            common = ["--kernel", kernel, "--initrd", initrd]
            time, count = ours([program, "emulate", *common])
            found.setdefault("emulate --kernel", []).append(time)
            time, _ = ours([program, "verify", *common])
            found.setdefault("verify --kernel", []).append(time)
            found.setdefault("QEMU TCG, all of it", []).append(booted(kernel, initrd))
            found.setdefault("QEMU's gdb stub, by steps", []).append(stepped(kernel, initrd, folder) * count)
    for name, times in found.items():
        time = statistics.median(times)
        print(f"{name:28} {time:12.1f} s  {count / time:14,.0f} instructions a second")


main()
