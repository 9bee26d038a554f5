#!/usr/bin/env python3
"""Writes NAME.perf-6.1.txt.gz: what perf 6.1 prints of a recording for lists of fields (-F).

    expect-fields.py KALLSYMS SYMFS RECORDING..

Each list stands behind `=== `, then what was printed, or `!` where perf refuses. Not in the lists:
tid and pid, whose columns are wider in perf 7.2; ip of recordings with chains, where perf 6.1 shows
offsets in files; bpf-output, whose hyphen perf takes for a sign.
"""
import gzip
import subprocess
import sys

NAMES = "comm time cpu event trace ip sym symoff dso addr period".split()
MORE = ["ip,sym,symoff,dso", "addr,sym,symoff,dso", "-tid,-ip", "+addr,-tid,-ip",
        "sw:comm,addr,sym", "trace:comm,trace", "break:", "trace:", "raw:comm", "break:addr,dso"]

kallsyms, symfs, *recordings = sys.argv[1:]
for path in recordings:
    attributes = subprocess.run(["perf", "evlist", "-v", "-i", path], capture_output=True, text=True)
    chained = "CALLCHAIN" in attributes.stdout
    pairs = [f"{a},{b}" for i, a in enumerate(NAMES) for b in NAMES[i + 1:]]
    lists = [name for name in NAMES + pairs + MORE
             if not (chained and ("ip" in name.split(",") or ":" in name))]
    out = []
    for fields in lists:
        # Other types keep their default fields, which include tid.
        command = ["perf", "script", "--no-inline", "--kallsyms", kallsyms, "--symfs", symfs]
        command += ["-F", "-tid"] if ":" in fields else []
        command += ["-F", fields, "-i", path]
        ran = subprocess.run(command, capture_output=True, text=True)
        out.append(f"=== {fields}\n" + ("!\n" if ran.returncode else ran.stdout))
    name = path.rsplit("/", 1)[-1].removesuffix(".data")
    with open(f"{name}.perf-6.1.txt.gz", "wb") as file:
        file.write(gzip.compress("".join(out).encode(), mtime=0))
