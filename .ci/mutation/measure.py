"""How many defects in unwind tables are found, by a measure that shares nothing with what it measures.

Programs are compiled and executed, instruction by instruction, on this machine's processor (step.c),
which tells what is true at each of their instructions. One defect is put into the bytes of a table of
one of them (mutate.py). A reader of the measure's own (cfi.py, sframe.py) says what the changed table
claims, and the truth whether that is wrong where the program ran. Then the static proof
(`tables check`) and the dynamic one (`verify`) are asked about the changed file.

A defect that changes no claim is equivalent. One that changes claims only where nothing ran
("elsewhere"), only where what it claims was true at each visit ("true"), only for readers without a
search table ("in order"), or only about registers that are not callee-saved ("register") is not
judged. These are counted apart, and not as caught.
"""

import argparse
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict

import cfi
import mutate
import programs
import rules
import sframe
from elf import Elf
from truth import read_states

# What a run has to reach, in hundredths of a percent of the wrong defects, by table.
STATIC_MIN = {"eh_frame": 9950, "sframe": 9700}
DYNAMIC_MIN = 10000


class Subject:
    """A program with one table, what is true of it, and what is said of it without a defect."""

    def __init__(self, name, path, kind, states):
        self.name, self.path, self.kind, self.states = name, path, kind, states
        self.data = open(path, "rb").read()
        self.table = self.read(self.data)
        self.code = code_addresses(path)
        # Claims that are wrong without a defect, by state: a defect is judged by what it adds.
        self.wrong = [self.claims_of(self.table, state) for state in states]
        self.claims = {pc: self.table.claims(pc) for pc in self.code}
        self.in_order = self.claims_in_order(self.data)

    def read(self, data):
        elf = Elf(data)
        return cfi.Table(elf) if self.kind == "eh_frame" else sframe.Table(elf)

    def claims_in_order(self, data):
        """What readers find that do not use the search table."""
        if self.kind == "eh_frame":
            table = cfi.Table(Elf(data), has_index=False)
        else:
            table = self.read(data)
            table.flags &= ~sframe.SORTED
        return [table.claims(pc) for pc in self.code]

    def row_address(self, state):
        return state.address if self.kind == "eh_frame" else sframe.lookup_address(state)

    def claims_of(self, table, state):
        module = rules if self.kind == "eh_frame" else sframe
        return module.wrong_claims(table.row(self.row_address(state)), state)

    def judge(self, data):
        """The class of a changed file, and the addresses whose rows are wrong: "wrong", "register"
        (only a claim about a register that is not callee-saved), "true" (where it ran), "elsewhere"
        (where nothing ran), "in order" (only for readers that do not search, or that check that the
        parts of a table do not overlap), "equivalent"."""
        table = self.read(data)
        changed = {pc for pc in self.code if table.claims(pc) != self.claims[pc]}
        ran, wrong, others = False, set(), False
        for state, before in zip(self.states, self.wrong):
            pc = self.row_address(state)
            if table.claims(pc) == self.table.claims(pc):
                continue
            ran = True
            now = self.claims_of(table, state) - before
            if any(isinstance(claim, str) or claim < 100 for claim in now):
                wrong.add(pc)
            elif now:
                others = True
        if wrong:
            return "wrong", wrong
        if others:
            return "register", wrong
        if ran:
            return "true", wrong
        if changed:
            return "elsewhere", wrong
        is_same = self.claims_in_order(data) == self.in_order and not table.is_overlapping
        return ("equivalent" if is_same else "in order"), wrong


def code_addresses(path):
    """Addresses of instructions, and of the last bytes of calls, where callers are looked up. Of a
    run of no-operations only the first."""
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True
    ).stdout
    addresses, calls, was_nop = [], [], False
    for line in listing.splitlines():
        head, colon, text = line.partition(":\t")
        if not colon:
            continue
        address = int(head, 16)
        if calls and calls[-1] is None:
            calls[-1] = address - 1
        words = text.split()
        is_nop = words[:1] == ["nop"]
        if not (is_nop and was_nop):
            addresses.append(address)
        was_nop = is_nop
        if words and "call" in words[0]:
            calls.append(None)
    return sorted(set(addresses) | {c for c in calls if c is not None})


class Tool:
    def __init__(self, path, scratch):
        self.path, self.scratch = path, scratch

    def run(self, *arguments, timeout=120):
        try:
            return subprocess.run(
                [self.path, *arguments], capture_output=True, text=True, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            return None

    def check(self, paths):
        """What the static proof says of each file: {path: (functions, findings, problems)}."""
        listing = os.path.join(self.scratch, "list")
        with open(listing, "w") as file:
            file.write("".join(path + "\n" for path in paths))
        done = self.run("tables", "check", "--files", listing, "--out", "-", timeout=3600)
        answers = {path: {"functions": [], "findings": set(), "problems": []} for path in paths}
        if done is None or done.returncode not in (0, 1, 3):
            sys.exit(f"tables check --files: {done and done.stderr}")
        for line in done.stdout.splitlines():
            row = json.loads(line)
            answer = answers.get(row.get("file"))
            if answer is None:
                continue
            if row["type"] == "function":
                answer["functions"].append(row)
            elif row["type"] == "check":
                answer["problems"] += row.get("problems", [])
            elif "start" in row or "address" in row:
                answer["findings"].add(finding(row))
            elif row["type"] not in ("sweep", "summary"):
                answer["problems"].append(row["type"])
        return answers

    def verify(self, path, unwinder):
        """The addresses of what the dynamic proof contradicts; None if it could not say anything."""
        done = self.run("verify", "-u", unwinder, "--json", "--", path)
        if done is None or done.returncode not in (0, 1):
            return None
        found = set()
        for line in done.stdout.splitlines():
            row = json.loads(line)
            if row["type"] == "contradiction" and row["image"] == os.path.basename(path):
                found.add((row["check"], int(row["address"], 16), row.get("code")))
        return found


def finding(row):
    """A finding as its range, and what it is about."""
    at = int(row.get("address", row.get("start")), 16)
    # Of a row, where it is wrong: a defect may move the row's start alone.
    end = int(row["end"], 16) if "end" in row and "address" not in row else at + 1
    return at, end, row["type"], row.get("code"), row.get("register"), row.get("table")


def static_verdict(subject, answer, before, wrong):
    """caught, unreadable (reported as such), unproven, missed or proven, of a wrong defect."""
    new = answer["findings"] - before["findings"]

    # The functions as they were: a defect can move or cut one.
    def function_of(pc):
        for row in before["functions"]:
            if int(row["start"], 16) <= pc < int(row["end"], 16):
                return int(row["start"], 16), int(row["end"], 16)
        return pc, pc + 1

    places = {function_of(pc) for pc in wrong}
    touches = lambda start, end: any(start < e and s < end for s, e in places)
    if any(touches(start, end) for start, end, *_ in new):
        return "caught"
    if answer["problems"] != before["problems"]:
        return "unreadable"
    covering = [
        row
        for row in answer["functions"]
        if any(int(row["start"], 16) <= pc < int(row["end"], 16) for pc in wrong)
    ]
    if any(row["verdict"] == "proven" for row in covering):
        return "proven"
    if any(row["verdict"] == "unproven" for row in covering):
        return "unproven"
    return "missed"


def make_subjects(tool, scratch, only):
    """The programs with their tables, and lines about them."""
    step = programs.stepper(scratch)
    subjects, lines = [], []
    for name, sources, compilers, options in programs.PROGRAMS:
        if only and only not in name:
            continue
        built = programs.build(name, sources, compilers, options, scratch)
        if built is None:
            lines.append(f"{name}: not measured: there is none of {compilers}")
            continue
        path, version = built
        states_path = os.path.join(scratch, "states")
        stepped = subprocess.run([step, states_path, path], capture_output=True, text=True)
        if stepped.returncode:
            sys.exit(f"{name}: {stepped.stderr}")
        states = read_states(states_path)
        tables = [("eh_frame", path)]
        # The assembler's own tables are of version 1 here; the tool's are of all three.
        for version_ in ("v2", "v3"):
            converted = f"{path}-{version_}"
            done = tool.run(
                "tables", "convert", path, "--to", f"sframe-{version_}", "-o", converted
            )
            if done is None or done.returncode:
                sys.exit(f"tables convert {name}: {done and done.stderr}")
            tables.append((f"sframe-{version_}", converted))
        for kind, file in tables:
            subject = Subject(os.path.basename(file), file, kind, states)
            subjects.append(subject)
            bad = sum(1 for wrong in subject.wrong if wrong and wrong != {"row"})
            missing = sum(1 for wrong in subject.wrong if wrong == {"row"})
            lines.append(
                f"{subject.name}: {version}; {stepped.stdout.strip()} steps, {len(states)} states, "
                f"of which {bad} are wrong and {missing} without a row already"
            )
    return subjects, lines


class Mutant:
    def __init__(self, subject, defect, path):
        self.subject, self.defect, self.path = subject, defect, path
        self.static = self.dynamic = None


def draw_mutants(subjects, count, rng, scratch):
    """One defect a file; the kinds of a table in turn, so that rare ones are as frequent as others."""
    folder = os.path.join(scratch, "mutants")
    os.makedirs(folder, exist_ok=True)
    share = {"eh_frame": 0.6, "sframe-v2": 0.15, "sframe-v3": 0.25}
    mutants, seen = [], set()
    for table, part in share.items():
        own = [s for s in subjects if s.kind == table]
        makers = {}
        for subject in own:
            make = mutate.cfi_defects if table == "eh_frame" else mutate.sframe_defects
            makers[subject] = make(subject.table, rng, subject.code)
        kinds = list(next(iter(makers.values())))
        wanted, made, tries, turn = round(count * part), 0, 0, 0
        while made < wanted and tries < 50 * wanted:
            tries += 1
            kind, subject = kinds[turn % len(kinds)], rng.choice(own)
            turn += 1
            defect = makers[subject][kind]()
            if defect is None or (subject, str(defect.writes)) in seen:
                continue
            seen.add((subject, str(defect.writes)))
            made += 1
            path = os.path.join(folder, f"{len(mutants)}-{subject.name}")
            mutant = Mutant(subject, defect, path)
            with open(path, "wb") as file:
                changed = defect.apply(subject.data)
                file.write(changed)
            os.chmod(path, 0o755)
            mutant.verdict, mutant.wrong = subject.judge(changed)
            mutants.append(mutant)
    return mutants


def ask(tool, subjects, mutants, chosen):
    before = tool.check([subject.path for subject in subjects])
    answers = tool.check([mutant.path for mutant in mutants])
    for mutant in mutants:
        old, answer = before[mutant.subject.path], answers[mutant.path]
        mutant.complains = bool(answer["findings"] - old["findings"]) or (
            answer["problems"] != old["problems"]
        )
        if mutant.verdict == "wrong":
            mutant.static = static_verdict(mutant.subject, answer, old, mutant.wrong)

    if chosen.no_dynamic:
        return
    unwinder = lambda subject: "dwarf" if subject.kind == "eh_frame" else "sframe"
    with concurrent.futures.ThreadPoolExecutor(chosen.jobs) as pool:
        known = dict(zip(subjects, pool.map(lambda s: tool.verify(s.path, unwinder(s)), subjects)))
        found = pool.map(lambda m: tool.verify(m.path, unwinder(m.subject)), mutants)
        for mutant, addresses in zip(mutants, found):
            old = known[mutant.subject]
            if addresses is None or old is None:
                mutant.dynamic = "failed"
            else:
                mutant.dynamic = "caught" if addresses - old else "missed"


def write_details(mutants, path):
    with open(path, "w") as file:
        for mutant in mutants:
            row = {
                "file": os.path.basename(mutant.path),
                "program": mutant.subject.name,
                "table": mutant.subject.kind,
                "defect": mutant.defect.kind,
                "text": mutant.defect.text,
                "verdict": mutant.verdict,
                "wrong_at": [hex(pc) for pc in sorted(mutant.wrong)],
                "static": mutant.static,
                "dynamic": mutant.dynamic,
                "is_reported": mutant.complains,
            }
            print(json.dumps(row), file=file)


COLUMNS = ["made", "equivalent", "in order", "elsewhere", "true", "register", "wrong"]
STATIC = ["caught", "unreadable", "unproven", "missed", "proven"]


def report(mutants, write):
    counts = defaultdict(Counter)
    for mutant in mutants:
        table = "eh_frame" if mutant.subject.kind == "eh_frame" else mutant.subject.kind
        for key in ((table, "all"), (table, mutant.defect.kind)):
            count = counts[key]
            count["made"] += 1
            count[mutant.verdict] += 1
            if mutant.verdict == "wrong":
                count["static " + mutant.static] += 1
                count[f"dynamic {mutant.dynamic}"] += 1
            if mutant.verdict == "equivalent":
                count["false static"] += mutant.complains
                count["false dynamic"] += mutant.dynamic == "caught"
    for table in dict.fromkeys(key[0] for key in counts):
        write(f"### {table}\n")
        heads = COLUMNS + ["static: " + STATIC[0]] + STATIC[1:] + ["dynamic: caught", "missed"]
        write("| defect | " + " | ".join(heads) + " |")
        write("|" + "---|" * (len(heads) + 1))
        for (of, kind), count in counts.items():
            if of != table:
                continue
            cells = [count[c] for c in COLUMNS] + [count["static " + c] for c in STATIC]
            cells += [count["dynamic caught"], count["dynamic missed"] + count["dynamic failed"]]
            write(f"| {kind} | " + " | ".join(str(c or "") for c in cells) + " |")
        write("")
    return counts


def shares(counts):
    """Of the wrong defects, in hundredths of a percent, rounded down: static and dynamic."""
    result = {}
    for name, tables in (("eh_frame", ["eh_frame"]), ("sframe", ["sframe-v2", "sframe-v3"])):
        total = sum((counts[(t, "all")] for t in tables), Counter())
        wrong = total["wrong"]
        static = total["static caught"] + total["static unreadable"]
        result[name] = (
            wrong,
            static * 10000 // max(wrong, 1),
            total["dynamic caught"] * 10000 // max(wrong, 1),
            total["static proven"],
            total["false static"],
            total["false dynamic"],
            total["equivalent"],
        )
    return result


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--tool", required=True, help="the program that is measured")
    options.add_argument("--count", type=int, default=4000, help="defects")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    options.add_argument("--only", help="programs whose name has this in it")
    options.add_argument("--keep", metavar="DIR", help="keep programs and mutants here")
    options.add_argument("--missed", type=int, default=40, help="show so many that were missed")
    options.add_argument("--details", metavar="FILE", help="one JSON object for each defect")
    options.add_argument("--no-dynamic", action="store_true", help="do not ask `verify`")
    options.add_argument("--no-goal", action="store_true", help="only measure")
    chosen = options.parse_args()
    scratch = chosen.keep or tempfile.mkdtemp()
    os.makedirs(scratch, exist_ok=True)
    try:
        status = measure(chosen, scratch)
    finally:
        if not chosen.keep:
            subprocess.run(["rm", "-rf", scratch], check=True)
    sys.exit(status)


def measure(chosen, scratch):
    tool = Tool(os.path.abspath(chosen.tool), scratch)
    subjects, lines = make_subjects(tool, scratch, chosen.only)
    print(f"seed {chosen.seed}, {chosen.count} defects\n")
    print("\n".join("- " + line for line in lines) + "\n")
    mutants = draw_mutants(subjects, chosen.count, random.Random(chosen.seed), scratch)
    ask(tool, subjects, mutants, chosen)
    counts = report(mutants, print)
    if chosen.details:
        write_details(mutants, chosen.details)

    bad = [
        m for m in mutants if m.verdict == "wrong" and m.static in ("proven", "missed", "unproven")
    ]
    bad.sort(key=lambda m: ("proven", "missed", "unproven").index(m.static))
    for mutant in bad[: chosen.missed]:
        where = ", ".join(f"{pc:#x}" for pc in sorted(mutant.wrong)[:3])
        print(
            f"static, {mutant.static}: {mutant.subject.name}: {mutant.defect.kind}: {mutant.defect.text}; wrong at {where}"
        )
    bad = [m for m in mutants if m.verdict == "wrong" and m.dynamic != "caught"]
    for mutant in bad[: chosen.missed]:
        where = ", ".join(f"{pc:#x}" for pc in sorted(mutant.wrong)[:3])
        print(
            f"dynamic, {mutant.dynamic}: {mutant.subject.name}: {mutant.defect.kind}: {mutant.defect.text}; wrong at {where}"
        )
    bad = [
        m for m in mutants if m.verdict == "equivalent" and (m.complains or m.dynamic == "caught")
    ]
    for mutant in bad[: chosen.missed]:
        print(
            f"equivalent, but reported: {mutant.subject.name}: {mutant.defect.kind}: {mutant.defect.text}"
        )

    failed = False
    for table, (wrong, static, dynamic, proven, false, false_dynamic, equivalent) in shares(
        counts
    ).items():
        print(
            f"{table}: of {wrong} wrong defects, static {static / 100:.2f} %, dynamic {dynamic / 100:.2f} %, "
            f"called proven {proven}; of {equivalent} equivalent ones, reported: static {false}, dynamic {false_dynamic}"
        )
        failed |= static < STATIC_MIN[table] or dynamic < DYNAMIC_MIN or proven > 0
    return 1 if failed and not chosen.no_goal else 0


if __name__ == "__main__":
    main()
