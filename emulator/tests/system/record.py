#!/usr/bin/env python3
"""Records what QEMU and Bochs do in the cases of corpus/system.

Usage: record.py [--all] [PART OF A NAME]...

Assembles each case, runs it as a PC's ROM, and writes the code and the outcomes into its file. Without
--all, only cases whose code has changed or that were never recorded. Needs GNU as and ld,
qemu-system-x86_64, and bochs with its terminal (Debian: qemu-system-x86, bochs, bochs-term).
"""

import pathlib
import re
import subprocess
import sys
import tempfile

CORPUS = pathlib.Path(__file__).resolve().parents[3] / "corpus" / "system"
SECONDS_MAX = 10
# The two processors of each: (QEMU, Bochs).
MODELS = {
    "intel": ("max,vendor=GenuineIntel", "corei7_icelake_u"),
    "amd": ("max,vendor=AuthenticAMD", "ryzen"),
}
BOCHS = """\
cpu: model={model}, count=1, ips=10000000, reset_on_triple_fault=0, ignore_bad_msrs=0
memory: guest=64, host=64
romimage: file=rom.bin
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
display_library: term
port_e9_hack: enabled=1
com1: enabled=0
floppya: 1_44=none, status=ejected
boot: floppy
log: log.txt
panic: action=fatal
error: action=ignore
info: action=ignore
"""


def assemble(folder, source, origin, output):
    """Assembles a file of the folder for an address. Returns the bytes."""
    run = dict(cwd=folder, check=True)
    subprocess.run(["as", "--64", "-I", CORPUS, source, "-o", "object"], **run)
    link = ["ld", "-e", "0", f"-Ttext={origin:#x}", "--oformat", "binary", "object", "-o", output]
    subprocess.run(link, **run)
    return (folder / output).read_bytes()


def events(text):
    """The lines that the recorder wrote, and whether it came to its end."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line.startswith("v=")], "." in lines


def on_qemu(folder, model):
    command = ["qemu-system-x86_64", "-accel", "tcg", "-singlestep", "-cpu", model, "-m", "64",
               "-bios", "rom.bin", "-display", "none", "-nodefaults", "-no-reboot",
               "-debugcon", "stdio", "-device", "isa-debug-exit,iobase=0xf4"]
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    ended = "triple-fault"
    try:
        output, _ = process.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        ended = "hangs"
    lines, finished = events(output.decode(errors="replace"))
    return lines if finished else lines + [ended]


def on_bochs(folder, model):
    (folder / "rc").write_text(BOCHS.format(model=model))
    (folder / "log.txt").write_text("")
    process = subprocess.Popen(["bochs", "-q", "-f", "rc"], cwd=folder, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        output, _ = process.communicate(b"c\nq\n", timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    # The debugger's prompt can stand before the first line.
    text = output.decode(errors="replace").replace("<bochs:1> ", "").replace("<bochs:2> ", "")
    lines, finished = events(text)
    if finished:
        return lines
    log = (folder / "log.txt").read_text(errors="replace")
    return lines + ["triple-fault" if "3rd (" in log else "hangs"]


def versions():
    qemu = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True)
    bochs = subprocess.run(["bochs", "--help"], capture_output=True, text=True)
    found = re.search(r"Bochs x86 Emulator (\S+)", bochs.stdout + bochs.stderr)
    return qemu.stdout.splitlines()[0], f"Bochs x86 Emulator {found.group(1) if found else '?'}"


def is_source(line):
    return line[:1].isspace() or re.match(r"\w+:", line) is not None


def without_rf(lines):
    """QEMU 7.2 pushes RF in no frame. Of RF, only Bochs is an authority."""
    return [re.sub(r"f=(\w+)", lambda f: f"f={int(f[1], 16) & ~0x10000:x}", line)
            for line in lines]


def record_case(folder, lines, everything, wanted):
    """The lines of a case, with what was recorded."""
    name = lines[0].split()[1]
    source = [line for line in lines[1:] if is_source(line)]
    (folder / "case.s").write_text('.include "environment.inc"\n' + "\n".join(source) + "\n")
    try:
        code = assemble(folder, "case.s", 0x20000, "case.bin").hex()
    except subprocess.CalledProcessError:
        sys.exit(f"{name}: as or ld failed")
    assert len(code) <= 2 * 0x2000, name
    is_known = f"code {code}" in lines and any(re.match("both |qemu ", line) for line in lines)
    if wanted and not any(part in name for part in wanted) or is_known and not everything:
        return lines
    vendor = "amd" if "processor amd" in lines else "intel"
    assemble(folder, CORPUS / "rom.s", 0, "rom.bin")
    qemu, bochs = on_qemu(folder, MODELS[vendor][0]), on_bochs(folder, MODELS[vendor][1])
    agree = qemu == without_rf(bochs)
    print(name, "" if agree else "differ", flush=True)
    kept = [line for line in lines if not re.match("(code|both|qemu|bochs) ", line)]
    at = max(i for i, line in enumerate(kept) if is_source(line)) + 1
    if agree:
        recorded = [f"both {line}" for line in bochs]
    else:
        recorded = [f"qemu {line}" for line in qemu] + [f"bochs {line}" for line in bochs]
    return kept[:at] + [f"code {code}"] + recorded + kept[at:]


def main():
    wanted = sys.argv[1:]
    everything = "--all" in wanted
    wanted = [part for part in wanted if not part.startswith("--")]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        environment = assemble(folder, CORPUS / "environment.s", 0x10000, "environment.bin").hex()
        hexadecimal = "\n".join(re.findall(".{1,96}", environment)) + "\n"
        (CORPUS / "environment.hex").write_text(hexadecimal)
        (CORPUS / "authorities.txt").write_text("\n".join(versions()) + "\n")
        for path in sorted(CORPUS.glob("*/*.txt")):
            # Blocks of lines between blank lines; those that begin with "case" are cases.
            blocks = path.read_text().rstrip("\n").split("\n\n")
            for number, block in enumerate(blocks):
                lines = [line for line in block.strip("\n").split("\n")]
                if lines[0].startswith("case "):
                    lines = record_case(folder, lines, everything, wanted)
                    blocks[number] = "\n".join(lines)
                    path.write_text("\n\n".join(blocks) + "\n")


main()
