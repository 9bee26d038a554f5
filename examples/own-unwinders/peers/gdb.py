"""gdb on core files made from the stacks it gets: `--unwinder cmd:gdb`.

Run inside gdb by the script `unwind-sim-unwinder-gdb`. The protocol uses descriptor 4 for input and
3 for output, since gdb itself uses the standard ones.
"""
import json
import os
import struct
import tempfile

import gdb

REQUESTS = os.fdopen(4, "r", encoding="utf-8", errors="replace")
ANSWERS = os.fdopen(3, "w", encoding="utf-8")
# The order of struct user_regs_struct; ss and everything after it is left 0.
REGISTERS = """r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax
rip cs rflags rsp""".split()
CHUNK = 4096
STACK_MAX = 64 << 20
FRAMES_MAX = 1 << 16
PT_LOAD, PT_NOTE, PF_X, PF_W, PF_R = 1, 4, 1, 2, 4


def quoted(path):
    """A path as one word of gdb's command line."""
    return "".join("\\" + c if c in " \t'\"\\" else c for c in path)


def send(**line):
    ANSWERS.write(json.dumps(line) + "\n")
    ANSWERS.flush()


def ask(**line):
    send(**line)
    return json.loads(REQUESTS.readline())


def read(address, length):
    """The recorded bytes at an address, or None."""
    answer = ask(type="read", address=hex(address), length=length)
    return bytes.fromhex(answer["bytes"]) if "bytes" in answer else None


def recorded(low, high):
    """The recorded pieces of a range: (address, bytes)."""
    pieces = []
    at = low
    while at < high:
        length = min(CHUNK - at % CHUNK, high - at)
        data = read(at, length)
        if data is None:
            # The stack copy ends somewhere in this piece.
            words = (read(word, 8) for word in range(at, at + length - 7, 8))
            data = b""
            for word in words:
                if word is None:
                    break
                data += word
        if data and pieces and sum(map(len, pieces[-1][1])) + pieces[-1][0] == at:
            pieces[-1][1].append(data)
        elif data:
            pieces.append((at, [data]))
        at += length
    return [(address, b"".join(data)) for address, data in pieces]


def code_of(path, bias):
    """The known parts of an image's code: (address, bytes)."""
    with open(path, "rb") as file:
        data = file.read()
    offset, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    parts = []
    for index in range(count):
        kind, flags, at, address, _, size = struct.unpack_from("<IIQQQQ", data, offset + 56 * index)
        if kind == PT_LOAD and flags & PF_X and size:
            parts.append(((address + bias) % 2**64, data[at : at + size]))
    return parts


def core(registers, pieces, code):
    """A core file of one thread."""
    regs = b"".join(struct.pack("<Q", registers.get(name, 0)) for name in REGISTERS)
    status = struct.pack("<iiihxxQQiiii", 0, 0, 0, 0, 0, 0, 1, 1, 1, 1)
    status = status.ljust(112, b"\0") + regs.ljust(27 * 8, b"\0") + bytes(8)
    note = struct.pack("<III", 5, len(status), 1) + b"CORE\0\0\0\0" + status
    segments = [(PT_NOTE, PF_R, 0, note)]
    segments += [(PT_LOAD, PF_R | PF_W, at, data) for at, data in pieces]
    segments += [(PT_LOAD, PF_R | PF_X, at, data) for at, data in code]
    header = b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 4, 62, 1, 0, 64, 0, 0, 64, 56, len(segments), 0, 0, 0
    )
    table, body = b"", b""
    start = 64 + 56 * len(segments)
    for kind, flags, address, data in segments:
        words = (start + len(body), address, address, len(data), len(data), 1)
        table += struct.pack("<II6Q", kind, flags, *words)
        body += data
    return header + table + body


class Images:
    """The symbol files that gdb has loaded."""

    def __init__(self):
        self.sent, self.code = None, []

    def load(self, images):
        if images == self.sent:
            return
        self.sent, self.code = images, []
        gdb.execute("symbol-file", to_string=True)
        known = set()
        for index, image in enumerate(images):
            path = ask(type="image", index=index).get("path")
            bias = int(image["bias"], 16)
            if path is None or (path, bias) in known:
                continue
            known.add((path, bias))
            gdb.execute(f"add-symbol-file {quoted(path)} -o {bias:#x}", to_string=True)
            self.code += code_of(path, bias)


def frames(mark):
    """Reports the frames whose rsp is above the mark."""
    frame = gdb.newest_frame()
    for _ in range(FRAMES_MAX):
        sp = int(frame.read_register("rsp"))
        sp %= 2**64
        if sp > mark:
            send(type="frame", pc=hex(frame.pc()), sp=hex(sp))
        older = frame.older()
        if older is None:
            reason = frame.unwind_stop_reason()
            at_root = reason in (gdb.FRAME_UNWIND_OUTERMOST, gdb.FRAME_UNWIND_NO_REASON)
            return "US001" if at_root else "US202"
        frame = older
    return "US401"


def main():
    for line in (
        "set confirm off",
        "set backtrace past-main on",
        "set backtrace past-entry on",
        "set backtrace limit unlimited",
        "set auto-load off",
        "set debuginfod enabled off",
        "set print frame-arguments none",
    ):
        try:
            gdb.execute(line, to_string=True)
        except gdb.error:
            pass  # This gdb does not have the setting.
    images = Images()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "core")
        for line in iter(REQUESTS.readline, ""):
            stack = json.loads(line)
            registers = {name: int(value, 16) for name, value in stack["registers"].items()}
            rsp = registers["rsp"]
            low, high = (int(x, 16) for x in stack["stack"] or (hex(rsp), hex(rsp + STACK_MAX)))
            low, high = max(low, rsp - 256), min(high, rsp + STACK_MAX)
            try:
                images.load(stack["images"])
                with open(path, "wb") as file:
                    file.write(core(registers, recorded(low, high), images.code))
                try:
                    gdb.execute(f"core-file {path}", to_string=True)
                except gdb.error:
                    # gdb 16 splits this command's argument into words, too.
                    gdb.execute(f"core-file {quoted(path)}", to_string=True)
                reason = frames(int(stack["first_frame"] or "-1", 16))
            except gdb.error as error:
                print(error)
                reason = "US402"
            send(type="end", reason=reason)


main()
