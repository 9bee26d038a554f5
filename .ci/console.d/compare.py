#!/usr/bin/env python3
"""Compares what a kernel says in the emulated machine with what it says in QEMU.

Usage: compare.py OURS THEIRS DIFFERENCES RELEASE

Line by line, without the times in brackets, from the line with the kernel's version on: those of the
kernel, which have a time, and behind them those of programs, since another task may write the
kernel's. DIFFERENCES lists the lines that may differ. Status 1 if others do, or if an entry explains nothing.
"""

import collections
import difflib
import re
import sys

TIME = re.compile(r"^\[ *\d+\.\d+\] ")
# What clears a terminal, from a BIOS.
ESCAPE = re.compile(r"\x1b(\[[0-9;?=]*[A-Za-z]|c)")
KINDS = ("ours", "theirs", "differs", "moves")
SHOWN_MAX = 60


class Entry:
    """A line of the list: a kind, and a pattern of whole lines."""

    def __init__(self, place, kind, pattern):
        self.place, self.kind, self.pattern = place, kind, re.compile(pattern)
        self.matched = set()
        if kind not in KINDS:
            sys.exit(f"{place}: {kind} is none of {', '.join(KINDS)}")
        if kind == "differs" and not self.pattern.groups:
            sys.exit(f"{place}: no group says which part of the line differs")

    def sides(self):
        """The consoles in which it has to match."""
        return {"ours", "theirs"} if self.kind in ("differs", "moves") else {self.kind}


def entries(path, release):
    """Those of the list for this release. Each stands in a paragraph that begins with its reason."""
    found, reason, releases = [], False, ""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line, place = line.rstrip("\n"), f"{path}:{number}"
            if not line:
                reason, releases = False, ""
            elif line.startswith("#"):
                reason = True
            elif not reason:
                sys.exit(f"{place}: the paragraph does not begin with a reason")
            elif line.startswith("only "):
                releases = line.removeprefix("only ")
            elif not releases or any(release.startswith(one) for one in releases.split()):
                kind, _, pattern = line.partition(" ")
                found.append(Entry(place, kind, pattern))
    return found


def lines(path):
    """The lines of a console, from the kernel's first one on."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = ESCAPE.sub("", file.read().replace("\r", ""))
    start = text.find("Linux version ")
    if start < 0:
        sys.exit(f"{path}: no kernel says its version")
    found = text[start:].rstrip("\n").split("\n")
    is_kernels = [number == 0 or bool(TIME.match(line)) for number, line in enumerate(found)]
    ordered = sorted(range(len(found)), key=lambda number: not is_kernels[number])
    return [TIME.sub("", found[number]).rstrip() for number in ordered]


def masked(line, match):
    """The line with `*` for what the groups of the pattern match."""
    spans = [match.span(group) for group in range(1, match.re.groups + 1)]
    for start, end in sorted((span for span in spans if span[0] >= 0), reverse=True):
        line = line[:start] + "*" + line[end:]
    return line


def reduced(side, path, listed):
    """What has to be equal: the lines in order, and how often each of those occurs that move."""
    kept, moved = [], collections.Counter()
    for line in lines(path):
        for entry in listed:
            match = side in entry.sides() and entry.pattern.fullmatch(line)
            if match:
                entry.matched.add(side)
                if entry.kind == "differs":
                    line = masked(line, match)
                elif entry.kind == "moves":
                    moved[line] += 1
                    line = None
                else:
                    line = None
                break
        if line is not None:
            kept.append(line)
    return kept, moved


def main():
    ours_path, theirs_path, list_path, release = sys.argv[1:]
    listed = entries(list_path, release)
    ours, ours_moved = reduced("ours", ours_path, listed)
    theirs, theirs_moved = reduced("theirs", theirs_path, listed)
    wrong = [f"{line} occurs {ours_moved[line]} times in ours, {theirs_moved[line]} in theirs"
             for line in sorted(ours_moved.keys() | theirs_moved.keys())
             if ours_moved[line] != theirs_moved[line]]
    wrong += difflib.unified_diff(theirs, ours, "theirs", "ours", n=0, lineterm="")
    wrong += [f"{entry.place}: matches no line of {' and '.join(sorted(entry.sides() - entry.matched))}"
              for entry in listed if entry.sides() != entry.matched]
    if wrong:
        print("\n".join(wrong[:SHOWN_MAX]))
        sys.exit(f"{len(wrong)} lines about differences that {list_path} does not explain")
    print(f"{len(ours)} lines agree; {len(listed)} entries of the list explain what differs")


main()
