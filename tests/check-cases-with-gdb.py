#!/usr/bin/env python3
"""Compares the stated chains of the case corpus with gdb.

Every case is assembled, linked and run; it must exit with 0 and reach every sample label.
At each label gdb's backtrace is compared with the author's `#@` line. If the case claims
`right: dwarf`, a difference is an error; otherwise it is listed. A case with an injected
defect is also assembled with DEFECT defined; then gdb must differ somewhere, unless the
defect is stated to be equivalent.

    tests/check-cases-with-gdb.py [NAME-PART..]
"""
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "corpus", "cases")

# Where gdb is wrong although the tables are right, and why.
KNOWN = {
    ("push-and-ret-is-a-jump", "before_ret"):
        "gdb takes every ret for the end of an epilogue and ignores the row there",
}

# Runs inside gdb: stops at the wanted addresses and records the frames.
INSIDE = r"""
import gdb, json
job = json.load(open(JOB))
for line in ("set pagination off", "set confirm off", "set backtrace past-main on",
             "set backtrace past-entry on", "set breakpoint pending on", "set width 0",
             "set debuginfod enabled off", "set auto-load no", "set startup-with-shell off",
             "set follow-fork-mode " + job["follow"], "handle all nostop noprint pass",
             "set backtrace limit 100000"):
    gdb.execute(line, to_string=True)
def execute(command):
    try:
        gdb.execute(command, to_string=True)
    except gdb.error:  # gdb could not print the frame at which it stopped
        pass


hits, out, bias = {}, {}, 0
if job["entry"]:  # position-independent: find its load address
    execute("starti")
    lines = gdb.execute("info auxv", to_string=True).splitlines()
    bias = next(int(line.split()[-1], 16) for line in lines if "AT_ENTRY" in line) - job["entry"]
for address in set(job["stops"]):
    gdb.execute("break *%d" % (address + bias), to_string=True)
execute("continue" if job["entry"] else "run")
while any(inferior.pid for inferior in gdb.inferiors()):
    pc = int(gdb.parse_and_eval("(unsigned long)$pc")) - bias
    if pc in job["stops"]:
        hits[pc] = hits.get(pc, 0) + 1
        if [pc, hits[pc]] in job["wanted"]:
            frames, why = [], ""
            try:
                frame = gdb.newest_frame()
                while frame is not None:
                    solib = gdb.solib_name(frame.pc()) or ""
                    frames.append([frame.pc() - bias, frame.type() == gdb.SIGTRAMP_FRAME, solib])
                    last, frame = frame, frame.older()
                why = gdb.frame_stop_reason_string(last.unwind_stop_reason())
            except gdb.error as error:
                why = str(error)
            out["%d:%d" % (pc, hits[pc])] = {"frames": frames, "why": why}
    execute("continue")
json.dump(out, open(job["out"], "w"))
"""


def lines(path):
    """The lines of a case; one with the same mark and four spaces continues the one above it."""
    joined = []
    for line in open(path):
        line = line.rstrip("\n")
        mark = line[:2]
        if mark in ("#!", "#@") and line[2:6] == "    " and joined and joined[-1].startswith(mark):
            joined[-1] += " " + line[2:].strip()
        else:
            joined.append(line)
    return joined


def parse(path):
    keys, points = {}, []
    for line in lines(path):
        if line.startswith("#!"):
            key, value = line[2:].split(":", 1)
            keys.setdefault(key.strip(), []).append(value.strip())
        elif line.startswith("#@"):
            head, chain = line[2:].split(":", 1)
            words = head.split()
            visit, own = 1, None
            for word in words[1:]:
                if word.startswith("#"):
                    visit = int(word[1:])
                elif word.startswith("own="):
                    own = word[4:]
            frames = []
            for frame in chain.replace("<signal>", "\0").split("<"):
                frame = frame.strip().replace("\0", "<signal>")
                name, _, count = frame.partition("*")
                frames += [name.strip()] * (int(count) if count else 1)
            points.append((words[0], visit, own, frames))
    return keys, points


def build(path, keys, folder, defect):
    program = os.path.join(folder, "defect" if defect else "right")
    command = ["cc", "-g0"]
    command += keys.get("link", ["-nostdlib -static -no-pie"])[0].split()
    command += keys.get("cflags", [""])[0].split()
    command += ["-Wa,--fatal-warnings", "-Wa,-I" + ROOT]
    command += ["-Wa,--defsym,DEFECT=1"] if defect else []
    done = subprocess.run(command + [path, "-o", program], capture_output=True, text=True)
    if done.returncode or done.stderr:
        raise SystemExit("%s: %s" % (path, done.stderr))
    return program


def symbols(program):
    labels, functions = {}, []
    text = subprocess.run(["readelf", "-sW", program], capture_output=True, text=True).stdout
    for line in text.splitlines():
        words = line.split()
        if len(words) == 8 and re.fullmatch("[0-9a-f]{16}", words[1]) and words[6] != "UND":
            address, name = int(words[1], 16), words[7]
            labels[name] = address
            if words[3] == "FUNC":
                functions.append((address, address + int(words[2], 0), name))
    return labels, functions


def name_frames(found, functions):
    names, exact = [], True
    for pc, signal, solib in found:
        lookup = pc if exact else pc - 1
        name = next((n for a, b, n in functions if a <= lookup < b), None)
        if signal:
            name = "<signal>"
        elif name is None:
            name = "[%s]" % os.path.basename(solib) if solib else hex(pc)
        names.append(name)
        exact = signal
    return names


def agrees(stated, found):
    if stated[-1] == "...":
        stated = stated[:-1]
        found = found[: len(stated)]
    if len(stated) != len(found):
        return False
    for want, have in zip(stated, found):
        image = want.startswith("[") and have.startswith("[" + want[1:-1])
        if want != have and not image:
            return False
    return True


def run_gdb(program, points, labels, folder, follow):
    header = subprocess.run(["readelf", "-hW", program], capture_output=True, text=True).stdout
    dynamic = "DYN" in re.search("Type: *(.*)", header)[1]
    job = {
        "follow": follow,
        "entry": int(re.search("Entry point address: *(.*)", header)[1], 16) if dynamic else 0,
        "out": os.path.join(folder, "out.json"),
        "stops": [],
        "wanted": [],
    }
    for label, visit, own, _ in points:
        job["stops"].append(labels[label])
        job["wanted"].append([labels[label], visit])
        if own:
            job["stops"].append(labels[own])
            job["wanted"].append([labels[own], 1])
    if os.path.exists(job["out"]):
        os.unlink(job["out"])
    name = os.path.join(folder, "job.json")
    json.dump(job, open(name, "w"))
    script = os.path.join(folder, "inside.py")
    open(script, "w").write("JOB=%r\n%s" % (name, INSIDE))
    command = ["gdb", "-nx", "-batch", "-x", script, program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if not os.path.exists(job["out"]):
        raise SystemExit("%s: gdb failed: %s" % (program, done.stderr))
    return json.load(open(job["out"]))


def compare(program, points, folder):
    """Yields (point, stated, found or None, why gdb stopped)."""
    labels, functions = symbols(program)
    for label, _, own, _ in points:
        for name in filter(None, (label, own)):
            if name not in labels:
                raise SystemExit("%s has no symbol %s" % (program, name))
    seen = run_gdb(program, points, labels, folder, "parent")
    wanted = ["%d:%d" % (labels[label], visit) for label, visit, _, _ in points]
    if any(key not in seen for key in wanted):
        seen = {**run_gdb(program, points, labels, folder, "child"), **seen}
    for key, (label, visit, own, stated) in zip(wanted, points):
        name = "%s%s%s" % (label, "#%d" % visit if visit > 1 else "", "/" + own if own else "")
        if key not in seen or (own and "%d:1" % labels[own] not in seen):
            yield name, stated, None, "not reached"
            continue
        found = name_frames(seen[key]["frames"], functions)
        yield name, stated, found[1:] if own else found, seen[key]["why"]


def claimed_right(keys, point):
    for item in re.findall(r"dwarf(?:@\S+?)?(?:\(([^)]*)\)|(?=\s|$))", " ".join(keys.get("right", []))):
        places = [word.strip()[3:].strip() for word in item.split(",") if word.strip()]
        if not places or point in places:
            return True
    return False


def short(chain):
    text = " < ".join(chain[:12])
    return text + (" < .. (%d)" % len(chain) if len(chain) > 12 else "")


def main():
    parts = sys.argv[1:]
    bad = total = listed = cases = defects = 0
    for folder, _, names in sorted(os.walk(ROOT)):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not name.endswith(".s") or (parts and not any(part in path for part in parts)):
                continue
            keys, points = parse(path)
            if keys.get("machine") == ["kernel"]:  # not a program
                continue
            cases += 1
            short_name = os.path.relpath(path, ROOT)
            with tempfile.TemporaryDirectory() as temp:
                builds = [build(path, keys, temp, False)]
                if "inject" in keys:
                    builds.append(build(path, keys, temp, True))
                for program in builds:
                    done = subprocess.run([program], capture_output=True, timeout=20)
                    if done.returncode:
                        bad += 1
                        print("BAD  %s: exit status %d" % (short_name, done.returncode))
                for point, stated, found, why in compare(builds[0], points, temp):
                    total += 1
                    if found is not None and agrees(stated, found):
                        continue
                    shown = "%s at %s: stated %s, gdb %s (%s)" % (
                        short_name, point, short(stated), short(found or ["nothing"]), why)
                    known = KNOWN.get((name[:-2], point))
                    if known and found is not None:
                        listed += 1
                        print("note %s: %s" % (shown, known))
                    elif found is None or claimed_right(keys, point):
                        bad += 1
                        print("BAD  " + shown)
                    else:
                        listed += 1
                        print("note " + shown)
                if len(builds) == 2:
                    defects += 1
                    result = list(compare(builds[1], points, temp))
                    same = all(found and agrees(stated, found) for _, stated, found, _ in result)
                    equivalent = "equivalent:" in keys["inject"][0]
                    if same != equivalent:
                        bad += 1
                        word = "not noticed" if same else "noticed, though equivalent,"
                        print("BAD  %s: the defect is %s by gdb" % (short_name, word))
    print("%d cases, %d sample points, %d notes, %d defects, %d errors"
          % (cases, total, listed, defects, bad))
    if not cases:
        sys.exit("no case's path contains " + " or ".join(parts))
    sys.exit(1 if bad else 0)


main()
