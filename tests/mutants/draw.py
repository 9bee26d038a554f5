#!/usr/bin/env python3
"""Draws random mutants and runs the tests of its package on each.

    tests/mutants/draw.py --seed 20261122 --count 300
    tests/mutants/draw.py --all -f perf/data/src/stitch/own.rs

The mutants are those that `cargo mutants --list` finds in the files given by -f (path prefixes;
the default is the unwinders, traces, stitching and judging). Each is applied alone to a copy of the
tree, which is compiled incrementally, so it costs one build of one package. Prints the seed, one
line for each mutant, and the counts for each file. `caught`: a test failed; `timeout`: the tests
did not end; `unviable`: it does not compile; `survived`: no test failed. The exit status is 1 if a
mutant survived.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

SCOPE = [
    "unwind/src/",
    "perf/data/src/stitch/",
    "crates/recordings/src/trace/",
    "crates/judge/src/verify",
    "crates/judge/src/compare",
    "crates/judge/src/diagnose",
]
# The tests of a package to run besides its unit tests.
MORE = {
    "unwind-sim-perf-data": ["--test", "stitch", "--test", "stitch_properties"],
}


def output(command, root):
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


def mutated(text, mutant):
    """The text with the mutant's span replaced. Lines and columns are in characters, from 1."""
    lines = text.splitlines(keepends=True)

    def offset(place):
        before = sum(len(line) for line in lines[: place["line"] - 1])
        return before + place["column"] - 1

    start, end = (offset(mutant["span"][edge]) for edge in ("start", "end"))
    return text[:start] + mutant["replacement"] + text[end:]


def run(mutant, copy, timeout):
    path = copy / mutant["file"]
    original = path.read_text()
    path.write_text(mutated(original, mutant))
    package = mutant["package"]
    test = ["cargo", "test", "--quiet", "-p", package, "--lib", *MORE.get(package, ["--tests"])]
    try:
        if subprocess.run([*test, "--no-run"], cwd=copy, capture_output=True).returncode != 0:
            return "unviable"
        tests = subprocess.run(test, cwd=copy, capture_output=True, timeout=timeout)
        return "survived" if tests.returncode == 0 else "caught"
    except subprocess.TimeoutExpired:
        return "timeout"
    finally:
        path.write_text(original)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--all", action="store_true", help="all mutants, none drawn")
    parser.add_argument("-f", dest="files", action="append", help="prefix of the files' paths")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for the tests of one")
    args = parser.parse_args()
    root = pathlib.Path(output(["git", "rev-parse", "--show-toplevel"], ".").strip())
    listed = json.loads(output(["cargo", "mutants", "--list", "--json", "--workspace"], root))
    prefixes = tuple(args.files or SCOPE)
    mutants = sorted((m for m in listed if m["file"].startswith(prefixes)), key=lambda m: m["name"])
    total = len(mutants)
    if not args.all:
        random.Random(args.seed).shuffle(mutants)
        mutants = mutants[: args.count]
    print(f"seed {args.seed}: {len(mutants)} of {total} mutants", flush=True)
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        files = output(["git", "ls-files", "-z"], root)
        tar = ["tar", "c", "--null", "-T", "-"]
        archive = subprocess.run(tar, cwd=root, check=True, input=files.encode(), capture_output=True)
        subprocess.run(["tar", "x"], cwd=copy, check=True, input=archive.stdout)
        os.environ["CARGO_TARGET_DIR"] = str(copy / "target")
        for mutant in mutants:
            result = run(mutant, copy, args.timeout)
            counts[mutant["file"], result] += 1
            print(result, mutant["name"], flush=True)
    for (file, result), count in sorted(counts.items()):
        print(f"{file}: {count} {result}")
    survived = sum(count for (_, result), count in counts.items() if result == "survived")
    sys.exit(survived > 0)


if __name__ == "__main__":
    main()
