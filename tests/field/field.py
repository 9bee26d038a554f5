"""Makes situations, asks the doctor, and judges what it says."""

import functools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = HERE / "src"
# Seconds until a situation counts as one that cannot be made, and an answer as one that never comes.
# FIELD_PATIENCE multiplies both, for slow machines.
PATIENCE = int(os.environ.get("FIELD_PATIENCE", 1))
MAKE_SECONDS_MAX = 120 * PATIENCE
DOCTOR_SECONDS_MAX = 120 * PATIENCE
# A complaint about fewer of the broken stacks than this is not judged.
SHARE_MIN = 0.05
# What counts as whole, and the most that may be called whole where something is broken.
WHOLE_MIN = 0.98
WHOLE_MAX = 0.1
# The share of stacks in which the chain known by construction must be, of those of its innermost function,
# and how many are compared with it.
CHAINS_MIN = 0.95
CHAINS_MAX = 500
VERDICTS = ["right", "honest", "wrong", "skipped"]
# Debian's loader has no frame pointers, so perf's chains of programs that start are broken by it as well.
LOADER = r"/ld-linux"
# Words of an answer that says that it does not know.
UNKNOWN = r"\bunknown\b|not known|cannot be seen|look at one|does not say|cannot tell"


def program():
    """The program to judge."""
    named = os.environ.get("UNWIND_SIM")
    top = HERE.parent.parent
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", top / "target"))
    return str(pathlib.Path(named or target / "debug" / "unwind-sim").resolve())


def situations():
    with open(HERE / "situations.toml", "rb") as file:
        return tomllib.load(file)["situation"]


def environment():
    own = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    own["S"] = str(SOURCES)
    own["FIELD_PYTHON"] = os.environ.get("FIELD_PYTHON", "python3")
    own["UNWIND_SIM"] = program()
    # rustup and pyenv find their toolchains by these.
    for name in ("RUSTUP_HOME", "CARGO_HOME", "PYENV_ROOT", "PYENV_VERSION", "JAVA_HOME"):
        if name in os.environ:
            own[name] = os.environ[name]
    return own


def shell(text, folder, seconds):
    """Runs `text` behind the prelude in `folder`. Its status, and what it wrote."""
    script = f". {HERE}/prelude.sh\n{text}"
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return -1, f"not done after {seconds} s"
    return process.returncode, output


_probed = {}


def missing(needs):
    """Why a situation with these needs cannot be made here; None if it can."""
    for need in needs:
        if need not in _probed:
            with tempfile.TemporaryDirectory() as folder:
                _, output = shell(f"probe {need}", folder, 60)
            _probed[need] = output.strip().splitlines()
        if _probed[need]:
            return _probed[need][0]
    return None


def perf_maps():
    return set(pathlib.Path("/tmp").glob("perf-*.map"))


def make(situation, folder):
    """Makes the situation in `folder`. Why it could not be made; None if it was."""
    before = perf_maps()
    status, output = shell(situation["make"], folder, MAKE_SECONDS_MAX)
    for path in perf_maps() - before:
        # A recording that was made in a virtual machine is judged without its /tmp.
        shutil.copy(path, folder)
    if status == 0 and (pathlib.Path(folder) / "recording").exists():
        return None
    last = output.strip().splitlines()[-1:] or ["no recording"]
    return f"cannot be made: status {status}, {last[0][:120]}"


def ask(situation, folder, *options):
    """What the doctor says of the recording: its status, its lines, its standard error."""
    command = [program(), "doctor", "recording", *options, *situation.get("options", [])]
    if "as" in situation:
        user = situation["as"]
        command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=DOCTOR_SECONDS_MAX,
    )
    return done.returncode, done.stdout, done.stderr


class Answer:
    """The doctor's answer about one recording."""

    def __init__(self, situation, folder):
        start = time.monotonic()
        self.status, output, self.errors = ask(situation, folder, "--json")
        self.seconds = time.monotonic() - start
        lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        self.last = lines[-1] if lines else {}
        self.subject = situation.get("subject")
        for found in self.last.get("unwinders", []):
            walked = found["whole"] + found["broken"] + found.get("unknown", 0)
            if walked and self.subject in (None, found["unwinder"]):
                self.subject = found["unwinder"]
                self.counts = found
                break
        else:
            self.counts = {"whole": 0, "broken": 0}
        complaints = [line for line in lines if "advice" in line]
        own = [line for line in complaints if line.get("unwinder") == self.subject]
        # What a person reads, where the lines do not say all.
        self.text = ""
        if "says" in situation or not own:
            _, self.text, _ = ask(situation, folder, "--color", "never")
        self.complaints = sorted(own, key=lambda line: -line["stacks"])
        self.whole, self.broken = self.counts["whole"], self.counts["broken"]
        self.unknown = self.counts.get("unknown", 0)
        self.stacks = self.whole + self.broken + self.unknown

    def summary(self):
        """One line: the counts and the largest complaints."""
        parts = [f"{self.subject}: {self.whole} whole, {self.broken} broken, {self.unknown} unknown"]
        for line in self.complaints[:2]:
            functions = ",".join(f["function"] for f in line["functions"][:2])
            parts.append(
                f"{line['stacks']} {line['kind']} {line.get('image', '-')} [{functions}] "
                f"{line.get('author')}: {line['advice']}"
            )
        return " | ".join(parts)


def has(pattern, text):
    return re.search(pattern, text, re.IGNORECASE) is not None


def said(complaint):
    """What a complaint says besides its kind and its place."""
    notes = " ".join(complaint.get("notes", []))
    return f"{complaint['advice']} {notes} {complaint.get('author_text', '')}"


def sizes_fault(situation, folder, advice):
    """Whether the copy that the advice names is too short."""
    need = int((pathlib.Path(folder) / situation["copy"]).read_text())
    named = [int(size) for size in re.findall(r"dwarf,(\d+)", advice)]
    if named and max(named) < need:
        return f"a copy of {max(named)} bytes is too short, {need} are needed"
    return None


def chain_of(folder, unwinder, sample):
    """The functions of a sample's chain, innermost first, by one unwinder."""
    named = "fp" if unwinder == "perf" else unwinder.split("@")[0]
    command = [program(), "replay", "recording", "--json", "--unwinder", named]
    command += ["--sample", str(sample)]
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, errors="replace"
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    chains = [line for line in lines if line.get("type") == "chain"]
    return [frame.get("function", "?") for line in chains for frame in line["frames"]]


def is_in_order(wanted, functions):
    """Whether the functions of a true chain are in a chain, in their order."""

    def pattern(name):
        return name[1:] if name.startswith("/") else f"(^|[:. _]){re.escape(name)}([(.:_ @]|$)"

    rest = iter(functions)
    return all(any(has(pattern(name), f) for f in rest) for name in wanted)


def recorded_chains(folder):
    """The chains that perf recorded, innermost first, as perf shows them."""
    command = ["perf", "script", "-i", "recording", "--no-inline", "-F", "ip,sym"]
    # Its own limit is that of the kernel at the time.
    command += ["--max-stack", "65536"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    chains = []
    for block in done.stdout.split("\n\n"):
        frames = [line.split(None, 1) for line in block.splitlines() if line.strip()]
        user = [f for f in frames if f and not f[0].startswith("ffffffff")]
        if user:
            chains.append([f[1] if len(f) > 1 else "?" for f in user])
    return chains[-CHAINS_MAX:]


def walked_chains(folder, unwinder, options):
    """The chains of an unwinder, innermost first."""
    command = [program(), "replay", "recording", "--json", "--unwinder", unwinder.split("@")[0]]
    command += ["--limit", str(CHAINS_MAX), *options]
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, errors="replace"
    )
    lines = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    return [[f.get("function", "?") for f in c["frames"]] for c in lines if c["type"] == "chain"]


def chain_share(own, folder, answer):
    """The share of chains that are the known one, of those that begin in its innermost function."""
    chain = own.get("chain", [])
    if not chain:
        return None
    if answer.subject == "perf":
        chains = recorded_chains(folder)
    else:
        chains = walked_chains(folder, answer.subject, own.get("options", []))
    whole = [c for c in chains if any(is_in_order(chain[:1], [f]) for f in c)]
    if not whole:
        return 0.0
    return sum(is_in_order(chain, c) for c in whole) / len(whole)


def unwinder_fault(situation, folder, complaint):
    """Whether the advice names an unwinder that does not give the true chain of the example."""
    if "chain" not in situation:
        return None
    for named in re.findall(r"--unwinder ([\w+:]+)", complaint["advice"]):
        functions = chain_of(folder, named, complaint["sample"])
        if not is_in_order(situation["chain"], functions):
            shown = " < ".join(functions[:12])
            return f"`--unwinder {named}` is advised, but lacks true frames: {shown}"
    return None


def complaint_faults(situation, folder, complaint):
    """What is wrong with the complaint: nothing if it is right."""
    kind, advice = complaint["kind"], complaint["advice"]
    faults = []
    if not has(situation.get("accept", situation["kind"]), kind):
        faults.append(f"the kind is {kind}")
    if "image" in situation and not has(situation["image"], complaint.get("image", "")):
        faults.append(f"the place is {complaint.get('image', 'none')}")
    functions = [line["function"] for line in complaint["functions"]]
    if "function" in situation and not any(has(situation["function"], f) for f in functions[:5]):
        faults.append(f"the functions are {', '.join(functions[:3]) or 'not named'}")
    # Where the proof ends with the chain, no lost frame is known, and the count is 0.
    lost, known = complaint.get("lost_frames", 0), complaint.get("lost_known", 0)
    if lost and lost < known * len(situation.get("lost", [])):
        faults.append(f"{lost / known:.1f} lost frames, not {len(situation['lost'])} or more")
    never = list(situation.get("never", []))
    if not is_intel():
        never.append("call-graph lbr")
    for pattern in never:
        if has(pattern, advice):
            faults.append(f"the advice has what cannot help, /{pattern}/")
    for pattern in situation.get("advice", []):
        if not has(pattern, said(complaint)):
            faults.append(f"the advice lacks /{pattern}/")
    if "copy" in situation:
        faults.append(sizes_fault(situation, folder, advice))
    faults.append(unwinder_fault(situation, folder, complaint))
    return [fault for fault in faults if fault]


@functools.cache
def is_intel():
    """Whether the processor has branch records that perf can use as call chains."""
    return "GenuineIntel" in pathlib.Path("/proc/cpuinfo").read_text()


def is_honest(situation, complaint):
    """Whether a complaint that is not right says that it does not know, and gives no false advice."""
    if any(has(pattern, complaint["advice"]) for pattern in situation.get("never", [])):
        return False
    return complaint.get("end") == "unknown" or has("unknown", complaint["kind"]) or (
        complaint["kind"] == "other" and has(UNKNOWN, f"{said(complaint)}")
    )


def judge_whole(situation, folder, answer):
    """The verdict where nothing is broken."""
    share = chain_share(situation, folder, answer) if answer.whole else None
    if share is not None and share < CHAINS_MIN:
        return "wrong", f"stacks are called whole, but the known chain is in {share:.0%}"
    least = situation.get("whole_min", WHOLE_MIN)
    if answer.stacks == 0:
        return "wrong", "no stack is judged"
    if answer.whole >= least * answer.stacks:
        return "right", ""
    if answer.broken > (1 - least) * answer.stacks:
        others = [c for c in answer.complaints if not has(situation.get("also", "$^"), c["kind"])]
        if sum(c["stacks"] for c in others) > (1 - least) * answer.stacks or not answer.complaints:
            return "wrong", f"{answer.broken} of {answer.stacks} are called broken, none is"
        return "wrong", f"only {answer.whole} of {answer.stacks} are whole"
    return "honest", f"{answer.unknown} of {answer.stacks} are unknown"


def judge(situation, folder, answer):
    """`right`, `honest` or `wrong`, and why."""
    if answer.status not in (0, 1, 3):
        return "wrong", f"status {answer.status}: {answer.errors.strip()[-160:]}"
    whole = answer.text + answer.errors + json.dumps(answer.complaints)
    unsaid = [p for p in situation.get("says", []) if not has(p, whole)]
    accept = situation.get("accept", situation["kind"])
    if accept == "whole":
        return judge_whole(situation, folder, answer)
    if answer.stacks and answer.whole > situation.get("whole_max", WHOLE_MAX) * answer.stacks:
        return "wrong", f"{answer.whole} of {answer.stacks} are called whole"
    if answer.stacks == 0 or not answer.complaints:
        lacking = [p for p in situation.get("advice", []) if not has(p, answer.text + answer.errors)]
        if has("whole", accept) and answer.whole and not unsaid:
            return judge_whole(situation, folder, answer)
        if answer.stacks == 0 and not lacking and not unsaid:
            return "right", ""
        if answer.unknown and not answer.broken:
            return "honest", f"{answer.unknown} of {answer.stacks} are unknown"
        if situation.get("whole_max") == 1.0 and answer.whole and not unsaid:
            return "right", ""
        return "wrong", f"nothing is said of it: {answer.text.strip()[:120]}"
    broken = sum(line["stacks"] for line in answer.complaints)
    faults, honest, is_found = [], [], False
    for number, complaint in enumerate(answer.complaints):
        if complaint["stacks"] < SHARE_MIN * broken and number:
            continue
        found = complaint_faults(situation, folder, complaint)
        if not found:
            is_found = True
            continue
        if has(situation.get("also", "$^"), complaint["kind"]):
            continue
        is_starting = complaint["kind"] == "no-frame-pointer" and answer.subject == "perf"
        if number and is_starting and has(LOADER, complaint.get("image", "")):
            continue
        place = complaint.get("image", "")
        fault = f"{complaint['stacks']} of {broken} {complaint['kind']} {place}: {'; '.join(found)}"
        (honest if is_honest(situation, complaint) else faults).append(fault)
    if not (faults or honest or is_found):
        faults.append("only other causes are named")
    if faults:
        return "wrong", faults[0]
    if unsaid:
        return ("honest" if honest else "wrong"), f"it does not say /{unsaid[0]}/"
    if honest:
        return "honest", honest[0]
    return "right", ""


def tried(situation, keep=None, look=None, again=False):
    """Makes the situation and judges the answer: the verdict, why, and the answer if there is one.
    `again`: takes what is kept if it is there."""
    is_kept = again and keep and (pathlib.Path(keep) / situation["name"] / "recording").exists()
    why = None if is_kept else missing(situation["needs"])
    if why:
        return "skipped", why, None
    folder = pathlib.Path(keep) / situation["name"] if keep else pathlib.Path(tempfile.mkdtemp())
    if keep and not is_kept:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    try:
        folder.chmod(0o755)
        why = None if is_kept else make(situation, folder)
        if why:
            return "skipped", why, None
        if look:
            return look(situation, folder)
        for path in folder.glob("perf-*.map"):
            if not (pathlib.Path("/tmp") / path.name).exists():
                shutil.copy(path, "/tmp")
        try:
            answer = Answer(situation, folder)
        except subprocess.TimeoutExpired:
            return "wrong", f"no answer after {DOCTOR_SECONDS_MAX} s", None
        verdict, why = judge(situation, folder, answer)
        return verdict, why, answer
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
