"""The programs whose tables get defects: each is compiled here."""

import os
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.join(HERE, "programs")
FREE = "-w -ffreestanding -fno-stack-protector -fasynchronous-unwind-tables -nostdlib -static -Wl,--eh-frame-hdr"
FREE_CXX = FREE + " -std=c++17 -fno-exceptions -fno-rtti"

# Name, sources, compilers of which the first that is here is taken, options.
PROGRAMS = [
    ("sorts-gcc-O2", "start.s sorts.c", "gcc", "-O2 " + FREE),
    ("sorts-gcc-O0", "start.s sorts.c", "gcc", "-O0 " + FREE),
    ("sorts-clang-O3", "start.s sorts.c", "clang-19 clang-14 clang", "-O3 " + FREE),
    ("calls-gcc-Os", "start.s calls.c", "gcc", "-Os " + FREE),
    ("calls-gcc-O3", "start.s calls.c", "gcc", "-O3 " + FREE),
    (
        "calls-gcc-args",
        "start.s calls.c",
        "gcc",
        "-O2 -mno-accumulate-outgoing-args -mno-red-zone " + FREE,
    ),
    ("calls-clang-O2", "start.s calls.c", "clang-14 clang-19 clang", "-O2 " + FREE),
    (
        "calls-clang-O1-fp",
        "start.s calls.c",
        "clang-19 clang-14 clang",
        "-O1 -fno-omit-frame-pointer " + FREE,
    ),
    ("frames-gcc-O2", "start.s frames.c", "gcc", "-O2 " + FREE),
    ("frames-gcc-O1-avx2", "start.s frames.c", "gcc", "-O1 -mavx2 -mstackrealign " + FREE),
    ("frames-clang-O2", "start.s frames.c", "clang-19 clang-14 clang", "-O2 " + FREE),
    ("objects-gcc-O2", "start.s objects.cc", "g++", "-O2 " + FREE_CXX),
    ("objects-gcc-O0", "start.s objects.cc", "g++", "-O0 " + FREE_CXX),
    ("objects-clang-O1", "start.s objects.cc", "clang++-19 clang++-14 clang++", "-O1 " + FREE_CXX),
    ("hand", "start.s hand.s", "gcc", "-nostdlib -static -Wl,--eh-frame-hdr"),
    ("library-gcc-O1", "library.c", "gcc", "-O1 -no-pie -Wl,-z,lazy -fcf-protection=none"),
    ("library-clang-O2", "library.c", "clang-14 clang-19 clang", "-w -O2 -Wl,-z,lazy -fPIE -pie"),
    ("throws-gcc-O2", "throws.cc", "g++", "-O2 -Wl,-z,lazy"),
]


def build(name, sources, compilers, options, into):
    """The path of a program, and the first line of its compiler's version; None without a compiler."""
    compiler = next((c for c in compilers.split() if shutil.which(c)), None)
    if not compiler:
        return None
    path = os.path.join(into, name)
    files = [os.path.join(SOURCES, source) for source in sources.split()]
    subprocess.run([compiler, *options.split(), *files, "-o", path], check=True)
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    return path, version.stdout.splitlines()[0]


def stepper(into):
    path = os.path.join(into, "step")
    source = os.path.join(HERE, "step.c")
    subprocess.run(["gcc", "-O2", "-Wall", "-Werror", source, "-o", path], check=True)
    return path
