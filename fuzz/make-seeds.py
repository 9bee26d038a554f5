#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets (corpus/TARGET/*) from cases and recordings in the
repository. Needs cc and objcopy; run it in fuzz/. The formats are those of src/input.rs.

Inputs that a fuzzer finds are added by hand, one file for each defect."""
import base64
import bz2
import gzip
import json
import lzma
import pathlib
import shutil
import struct
import subprocess
import tempfile
import zlib

CASES = pathlib.Path("../corpus/cases")
CORPUS = pathlib.Path("corpus")
KINDS = [".eh_frame", ".eh_frame_hdr", ".debug_frame", ".sframe", ".orc_unwind",
         ".orc_unwind_ip", ".orc_header", ".text", ".got"]
STACK = 0x7FFC_0000_0000
BIAS = 0x5555_0000_0000


def build(case, folder, *flags):
    """Assembles and links a case; returns the path of the program."""
    out = folder / (case.stem + "".join(flags))
    flags = flags or ("-nostdlib", "-static", "-no-pie")
    subprocess.run(["cc", "-I", CASES, *flags, "-o", out, case], check=True)
    return out


def sections(elf):
    """Yields name, address and bytes of each section of an ELF file."""
    data = elf.read_bytes()
    shoff, = struct.unpack_from("<Q", data, 0x28)
    count, names = struct.unpack_from("<HH", data, 0x3C)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + 64 * i) for i in range(count)]
    strings = headers[names][4]
    for name, kind, _, address, offset, size, *_ in headers:
        at = strings + name
        yield data[at:data.index(0, at)].decode(), address, data[offset:offset + size]


def image(found, wanted):
    """An image in the format of `Input::image`."""
    text = next((a, len(b)) for n, a, b in found if n == ".text")
    kept = [(KINDS.index(n), a, b) for n, a, b in found if n in wanted]
    out = struct.pack("<IIB", *text, len(kept))
    for kind, address, data in kept:
        out += struct.pack("<BIH", kind, address, len(data)) + data
    return out


def save(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def tables(folder):
    pcs = struct.pack("<24H", *range(0, 120, 5))
    unwind = [".eh_frame", ".eh_frame_hdr", ".debug_frame"]
    walked = []
    for group in ["frame", "signal", "dwarf", "dynamic", "tables", "orc"]:
        for case in sorted((CASES / group).glob("*.s"))[:8]:
            text = case.read_text()
            if "\n#! link:" in text or "main:" in text or "\n#! cflags:" in text:
                continue
            program = build(case, folder)
            found = list(sections(program))
            names = {n for n, _, _ in found}
            if len(image(found, unwind)) < 3000:
                save("eh_frame", case.stem, image(found, unwind) + pcs)
                walked.append((case.stem, found))
            if ".orc_unwind" in names:
                save("orc", case.stem, image(found, KINDS[4:7]) + pcs)
            if ".sframe" in names:
                save("sframe", case.stem, image(found, [".sframe"]) + pcs)
    for name, found in walked[::4]:
        walks(name, found)
    for file in sorted(pathlib.Path("../corpus/sframe").glob("*.sframe.bin")):
        if file.stat().st_size < 2000:
            data = file.read_bytes()
            made = [(".text", 0x401000, bytes(0x1000)), (".sframe", 0x402000, data)]
            save("sframe", file.name, image(made, [".sframe"]) + pcs)


def walks(name, found):
    """A stack of frame pointers and return addresses, with the tables of a case."""
    text = next(a for n, a, _ in found if n == ".text")
    regs = b""
    for number in range(19):
        if number == 16:
            regs += struct.pack("<BH", 4, 8)        # rip, in the text
        elif number in (6, 7):
            regs += struct.pack("<BH", 1, 16 * (7 - number))
        else:
            regs += struct.pack("<BB", 7, number)
    words = []
    for frame in range(24):
        words += [STACK + 16 * (frame + 2), BIAS + text + 5 + 3 * frame]
    stack = struct.pack("<48Q", *words)
    tables = [".eh_frame", ".eh_frame_hdr", ".sframe", *KINDS[4:7]]
    save("walk", name, image(found, tables) + bytes([0x80]) + regs + stack)
    # Fake registers without flags, and a set of the unwinder's own registers.
    fake = regs[:-4] + struct.pack("<BBBB", 7, 0, 7, 0)
    save("walk", name + "-fake", image(found, tables) + bytes([0x41]) + fake + regs + stack)


def expressions():
    regs = b"".join(struct.pack("<BH", 1, 8 * n) for n in range(19))
    memory = struct.pack("<16Q", *(STACK + 8 * n for n in range(16)))
    head = struct.pack("<BH", 1, 0) + regs + struct.pack("<H", len(memory)) + memory
    for name, code in {
        "plt": bytes([0x77, 8, 0x80, 0, 0x3F, 0x1A, 0x3B, 0x2A, 0x33, 0x24, 0x22]),
        "sigreturn": bytes([0x77, 0xA0, 1, 6]),
        "drap": bytes([0x76, 0x78, 6]),
        "branch": bytes([0x31, 0x28, 1, 0, 0x32, 0x33]),
        "loop": bytes([0x31, 0x2F, 0xFC, 0xFF]),
        "arithmetic": bytes([0x35, 0x34, 0x1B, 0x1D, 0x39, 0x12, 0x1E, 0x13, 0x16, 0x19, 0x1F]),
    }.items():
        save("expression", name, head + code)


TABLES = """
    .globl _start
_start:
    .cfi_startproc
    .cfi_undefined rip
    push %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset rbp, -16
    mov %rsp, %rbp
    .cfi_def_cfa_register rbp
    call realigned
    hlt
    .cfi_endproc
realigned:
    .cfi_startproc
    lea 8(%rsp), %r10
    .cfi_def_cfa r10, 0
    push %rbp
    .cfi_escape 0x10, 6, 2, 0x76, 0
    push %r10
    .cfi_escape 0x0f, 3, 0x76, 0x78, 6
    ret
    .cfi_endproc
signal:
    .cfi_startproc
    .cfi_signal_frame
    .cfi_escape 0x0f, 4, 0x77, 0xa0, 1, 6
    .cfi_escape 0x10, 16, 3, 0x77, 0xa8, 1
    nop
    .cfi_endproc
    .balign 16
plt:
    .cfi_startproc
    .cfi_escape 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22
    .fill 80, 1, 0x90
    .cfi_endproc
"""


def conversions(folder):
    """Programs with tables to convert, and with two SFrame tables to merge."""
    link = ["-nostdlib", "-static", "-no-pie", "-Wl,-z,noseparate-code", "-Wl,-z,max-page-size=4096",
            "-Wl,--build-id=none", "-s"]
    source = folder / "tables.s"
    source.write_text(TABLES)
    program = folder / "tables"
    subprocess.run(["cc", *link, "-Wl,--eh-frame-hdr", "-o", program, source], check=True)
    save("convert", "tables", program.read_bytes())
    objects = []
    for name in ["one", "two"]:
        (folder / f"{name}.c").write_text(f"int {name}(int a) {{ return a ? a * {name}(a - 1) : 1; }}\n")
        objects.append(folder / f"{name}.o")
        subprocess.run(["cc", "-c", "-Os", "-Wa,--gsframe", "-o", objects[-1], folder / f"{name}.c"],
                       check=True)
        subprocess.run(["objcopy", "--rename-section", ".sframe=.other", objects[-1]], check=True)
    both = folder / "both"
    subprocess.run(["cc", *link, "-Wl,-e,one", "-o", both, *objects], check=True)
    subprocess.run(["objcopy", "--rename-section", ".other=.sframe", both], check=True)
    save("convert", "two-tables", both.read_bytes())


# Code to follow: a jump table, a call, a frame that is aligned.
CODE = """
        .text
        .globl  _start
        .type   _start, @function
_start:
        .cfi_startproc
        pushq   %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        movl    %edi, %eax
        cmpl    $2, %eax
        ja      1f
        leaq    2f(%rip), %rdx
        movslq  (%rdx,%rax,4), %rcx
        addq    %rdx, %rcx
        jmp     *%rcx
1:      call    other
        popq    %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore %rbx
        ret
        .cfi_endproc
        .size   _start, . - _start
        .type   other, @function
other:
        .cfi_startproc
        pushq   %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        andq    $-32, %rsp
        leave
        .cfi_def_cfa %rsp, 8
        ret
        .cfi_endproc
        .size   other, . - other
        .section .rodata
2:      .long   1b - 2b, 1b - 2b, 1b - 2b
"""


def proofs(folder):
    """Programs whose code is followed."""
    link = ["-nostdlib", "-static", "-no-pie", "-Wl,-z,noseparate-code", "-Wl,-z,max-page-size=4096",
            "-Wl,--build-id=none"]
    source = folder / "code.s"
    source.write_text(CODE)
    program = folder / "code"
    subprocess.run(["cc", *link, "-o", program, source], check=True)
    source.with_name("object.s").write_text(CODE.replace("leave", "nop"))
    wrong = folder / "object.o"
    subprocess.run(["cc", "-c", "-o", wrong, folder / "object.s"], check=True)
    tables = folder / "tables"
    for target in ["check", "generate"]:
        save(target, "tables", tables.read_bytes())
        save(target, "code", program.read_bytes())
        save(target, "object", wrong.read_bytes())


def files(folder):
    small = CASES / "frame"
    case = sorted(p for p in small.glob("*.s") if "main:" not in p.read_text())[0]
    program = build(case, folder)
    save("elf", "static", program.read_bytes())
    save("loader", "static", program.read_bytes())
    (folder / "lib.c").write_text("int f(int a) { return a ? f(a - 1) : 0; }\n")
    shared = folder / "lib.so"
    subprocess.run(["cc", "-Os", "-shared", "-nostdlib", "-s", "-Wl,-z,max-page-size=4096",
                    "-Wl,-z,noseparate-code", "-o", shared, folder / "lib.c"], check=True)
    save("elf", "shared", shared.read_bytes())
    save("loader", "shared", shared.read_bytes())
    (folder / "main.c").write_text("int main(void) { return 0; }\n")
    main = folder / "main"
    subprocess.run(["cc", "-Os", "-s", "-Wl,-z,noseparate-code", "-o", main, folder / "main.c"],
                   check=True)
    save("loader", "interpreter", main.read_bytes())
    for name in ["A-two-samples-one-record", "dwarf-zstd", "dwarf", "fp-pipe", "LBR-stitch-grow"]:
        shutil.copy(f"../corpus/perfdata/{name}.data", CORPUS / "perfdata" / name)
    for name in ["iprange", "profile", "lines"]:
        shutil.copy(f"../corpus/bpf/{name}.bpf.o", CORPUS / "bpf_object" / name)
    save("core", "small", core())
    save("vmcore", "cr3", vmcore(True))
    save("vmcore", "info", vmcore(False))
    page = pathlib.Path("../docs/trace-format.md").read_text()
    for number, dump in enumerate(page.split("```hex\n")[1:]):
        lines = (line.split("|")[0].split()[1:] for line in dump.split("```")[0].splitlines())
        save("trace", f"page-{number}", bytes(int(byte, 16) for line in lines for byte in line))
    shutil.copy("../corpus/traces/seed-004.bin", CORPUS / "trace" / "seed-004")
    for case in sorted(CASES.glob("*/*.s"))[::12]:
        save("case", case.stem, case.read_bytes())
    for case in sorted(pathlib.Path("../corpus/errors").glob("*.s"))[::12]:
        save("case", "error-" + case.stem, case.read_bytes())


def note(name, kind, data):
    padded = data + bytes(-len(data) % 4)
    return struct.pack("<III", len(name) + 1, len(data), kind) + name + bytes(-len(name) % 4 or 4) + padded


def core():
    """A core of one thread with one mapped file and a stack."""
    regs = struct.pack("<27Q", *([0] * 4 + [STACK + 32] + [0] * 11 + [0x401005, 0x33, 0x202, STACK + 16] + [0x2B] * 7))
    status = bytes(32) + struct.pack("<4I", 7, 1, 7, 7) + bytes(64) + regs + bytes(8)
    path = b"/bin/program\0"
    mapped = struct.pack("<5Q", 1, 4096, 0x401000, 0x402000, 1) + path
    notes = note(b"CORE", 1, status) + note(b"CORE", 0x46494C45, mapped)
    stack = struct.pack("<16Q", *([STACK + 48, 0x401010] * 8))
    offset = 64 + 2 * 56
    header = b"\x7fELF\2\1\1" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 4, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    header += struct.pack("<IIQQQQQQ", 4, 0, offset, 0, 0, len(notes), 0, 4)
    at = offset + len(notes)
    header += struct.pack("<IIQQQQQQ", 1, 6, at, STACK, 0, len(stack), len(stack), 1)
    return header + notes + stack


def vmlinux():
    """A kernel without section headers: code, ORC entries, and kallsyms that name both."""
    text, code = 0xFFFFFFFF81000000, 0x900
    rows = 4
    banner = b"Linux version 6.1.0 (a)\0"
    ip = code + len(banner)
    orc, end = ip + 4 * rows, ip + 10 * rows
    data = b"\xe8\0\0\0\0\x90\x90\xc3" * (code // 8) + banner
    data += b"".join(struct.pack("<i", 8 * n - (ip + 4 * n)) for n in range(rows))
    data += struct.pack("<hhH", 8, 0, 5) * rows
    data += bytes(-len(data) % 8)
    symbols = [(0, "T_stext")] + [(8 * n, "tf") for n in range(260)]
    symbols += [(code, "T_etext"), (code, "Dlinux_banner"), (ip, "R__start_orc_unwind_ip"),
                (orc, "R__stop_orc_unwind_ip"), (orc, "R__start_orc_unwind"),
                (end, "R__stop_orc_unwind")]
    data += struct.pack("<Q", len(symbols))
    names = [bytes([len(name)]) + name.encode() for _, name in symbols]
    markers = [len(b"".join(names[:n])) for n in range(0, len(names), 256)]
    data += b"".join(names) + bytes(-len(b"".join(names)) % 8)
    data += struct.pack(f"<{len(markers)}I", *markers) + bytes(-4 * len(markers) % 8)
    tokens = [bytes([n]) if chr(n).isalnum() and n < 128 or n == 95 else b"" for n in range(256)]
    starts = [len(b"".join(t + b"\0" for t in tokens[:n])) for n in range(256)]
    table = b"".join(t + b"\0" for t in tokens)
    data += table + bytes(-len(table) % 8) + struct.pack("<256H", *starts)
    data += struct.pack(f"<{len(symbols)}I", *(a for a, _ in symbols))
    data += bytes(-len(data) % 8) + struct.pack("<Q", text)
    head = b"\x7fELF\2\1\1" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, text, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    return head + struct.pack("<IIQQQQQQ", 1, 5, 120, text, text, len(data), len(data), 8) + data


def bzimage(packed):
    """A boot sector, a header, and a payload after the next sector."""
    head = bytearray(1024)
    head[0x1F1] = 1
    head[0x1FE:0x206] = b"\x55\xaa\0\0HdrS"
    struct.pack_into("<H", head, 0x206, 0x20F)
    struct.pack_into("<II", head, 0x248, 0, len(packed))
    return bytes(head) + packed


def kernels(folder):
    plain = vmlinux()
    size = struct.pack("<I", len(plain))
    save("kernel_image", "vmlinux", plain)
    save("kernel_image", "gzip", bzimage(gzip.compress(plain, mtime=0)))
    save("kernel_image", "bzip2", bzimage(bz2.compress(plain) + size))
    save("kernel_image", "xz", bzimage(lzma.compress(plain) + size))
    alone = lzma.compress(plain, format=lzma.FORMAT_ALONE)
    save("kernel_image", "lzma", bzimage(alone + size))
    # One block without matches: a token with the length of the literals.
    literals = bytes([0xF0]) + bytes([255] * ((len(plain) - 15) // 255))
    literals += bytes([(len(plain) - 15) % 255]) + plain
    lz4 = struct.pack("<II", 0x184C2102, len(literals)) + literals
    save("kernel_image", "lz4", bzimage(lz4 + size))
    (folder / "module.s").write_text(""".text
f: nop
 ret
.section .orc_unwind_ip, "a"
.long f - ., .text + 1 - .
.section .orc_unwind, "a"
.word 8, 0, 0x205, 0, 0, 0
""")
    subprocess.run(["as", "-o", folder / "module.o", folder / "module.s"], check=True)
    save("kernel_image", "module", (folder / "module.o").read_bytes())


def captures():
    """Stops in the kernel of `vmlinux`: a current task, an inactive one, a sample, steps."""
    text, stack = 0xFFFFFFFF81000000, 0xFFFFC90000000000

    def memory(words):
        return base64.b64encode(zlib.compress(struct.pack(f"<{len(words)}Q", *words))).decode()

    def stacks(words, kind="TASK", begin=stack):
        at = begin + 0x4000 - 8 * len(words)
        return {"type": kind, "begin": begin, "end": begin + 0x4000, "next_sp": None,
                "data_at": at, "data": memory(words)}

    def regs(ip, sp):
        return {"rip": ip, "rsp": sp, "rbp": 0, "eflags": 2, "cs": 16}

    def state(ip, sp, kind=1):
        return {"type": kind, "begin": stack, "end": stack + 0x4000, "next_sp": 0, "mask": 2,
                "graph_idx": 0, "error": 0, "signal": 0, "full_regs": 0, "sp": sp, "bp": 0,
                "ip": ip, "regs": "START", "prev_regs": 0}

    words = [text + 5, text + 13, 0xFFFFFFFFC0001010, text + 21, 0, 0]
    sp = stack + 0x4000 - 8 * len(words)
    states = [state(text + 5, sp + 8), state(0xFFFFFFFFC0001010, sp + 24), state(0, sp, 0)]
    head = {"kernel": "vmlinuz-6.1.0"}
    irq = stacks([stack + 0x3FF0, sp], "IRQ", stack + 0x10000)
    point = {"regs": regs(text + 1, sp), "stacks": [stacks(words), irq], "kernel": states,
             "ret_stack": memory([text + 5, 0, 0, sp]), "curr_ret_stack": 0,
             "rethooks": [{"ret_addr": text + 5, "frame": sp}]}
    ips = [text + 5, text + 13]
    save("capture", "points", json.dumps({**head, "points": [point], "generated": [
        {"start": 0xFFFFFFFFC0001000, "end": 0xFFFFFFFFC0002000, "name": "ftrace_trampoline"}]}).encode())
    save("capture", "inactive", json.dumps({**head, "points": [
        {"pid": 1, "thread_sp": sp - 56, "stack_begin": stack, "stack_at": sp - 56,
         "stack": memory([0] * 6 + words), "kernel": states}]}).encode())
    fake = {**regs(text + 13, sp + 8), "eflags": 0}
    save("capture", "samples", json.dumps({**head, "samples": [
        {"perf_regs": fake, "unwind_start": {"regs": regs(text, sp), "stacks": [stacks(words)]},
         "states": states, "result": ips}]}).encode())
    brief = [[text + 5, sp + 8, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]]
    save("capture", "steps", json.dumps({**head, "steps": [
        {"i": 0, "user": 1}, {"i": 1, "regs": regs(text, sp), "stack_type": "TASK",
         "stack_bounds": [stack, stack + 0x4000], "stack_at": sp, "stack": memory(words),
         "kernel": brief}]}).encode())


KERNEL, MOVED, PHYSICAL = 0xFFFFFFFF81000000, 0x600000, 0x200000


def vmcore(qemu):
    """The words that matter of a machine's memory: page tables, three tasks, their stacks. The
    kernel's symbols and offsets are those of `files.rs`."""
    at = KERNEL + MOVED
    present, large = 3, 1 << 7
    tables = [
        (0x1000 + 511 * 8, 0x2000 | present),
        (0x2000 + 510 * 8, 0x3000 | present),
        (0x3000 + 11 * 8, PHYSICAL | large | present),
        (0x1000 + 402 * 8, 0x4000 | present),
        (0x4000, 0x5000 | present),
        (0x5000, 0x6000 | present),
    ]
    tables += [(0x6000 + (8 * i + 3) * 8, 0x7000 + 0x1000 * i | present) for i in range(3)]
    pieces = [(physical, struct.pack("<Q", entry)) for physical, entry in tables]
    tasks = [at + 0x200 + 0x80 * i for i in range(3)]
    signals = [at + 0x380, at + 0x390]
    # The process is the only one in the task list; its thread is only in the process' own list.
    links = [(tasks[1],) * 2, (tasks[0],) * 2, (tasks[2],) * 2]
    threads = [(signals[0],) * 2, (tasks[2] + 16, signals[1]), (signals[1], tasks[1] + 16)]
    data = bytearray(0x400)
    data[0x100:0x140] = b"Linux version 6.1.0-tiny (nobody@nowhere) (cc) #1\n".ljust(64, b"\0")
    for i, task in enumerate(tasks):
        stack = 0xFFFFC90000000000 + 0x8000 * i
        words = struct.pack("<6Q", *links[i], *threads[i], signals[i > 0], [0, 7, 8][i])
        words += [b"swapper/0", b"process", b"thread"][i].ljust(16, b"\0")
        words += struct.pack("<2Q", stack, stack + 0x3F00)
        data[task - at:task - at + len(words)] = words
        frame = struct.pack("<7Q", 15, 14, 13, 12, 3, 0x1000 + i, at + 0x10 + i)
        pieces.append((0x7000 + 0x1000 * i + 0xF00, frame.ljust(256, b"\0")))
    heads = [(tasks[0] + 16,) * 2, (tasks[1] + 16, tasks[2] + 16)]
    data[0x380:0x3A0] = struct.pack("<4Q", *heads[0], *heads[1])
    # The address of one processor's data, and in the data its current task.
    per_cpu = at + 0x3D0 - 0x10
    data[0x3C0:0x3C8] = struct.pack("<Q", per_cpu)
    data[0x3D0:0x3D8] = struct.pack("<Q", tasks[1])
    pieces.append((PHYSICAL, bytes(data)))
    sp = 0xFFFFC90000008000 + 0x3F80
    regs = struct.pack("<27Q", *([0] * 4 + [0x2000] + [0] * 11 + [at + 0x20, 0x10, 0x202, sp] + [0] * 7))
    notes = note(b"CORE", 1, bytes(112) + regs + bytes(8))
    if qemu:
        state = struct.pack("<II", 1, 440) + bytes(280) + struct.pack("<Q", per_cpu)
        state += bytes(416 - len(state)) + struct.pack("<3Q", 0x1000, 0x20, 0)
        notes += note(b"QEMU", 0, state)
    else:
        text = "OSRELEASE=6.1.0-tiny\nSYMBOL(swapper_pg_dir)=ffffffff81401000\n"
        text += f"KERNELOFFSET={MOVED:x}\nNUMBER(phys_base)={0x1000 - 0x1401000}\n"
        notes += note(b"VMCOREINFO", 0, text.encode())
    count = 1 + len(pieces)
    header = b"\x7fELF\2\1\1" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 4, 62, 1, 0, 64, 0, 0, 64, 56, count, 0, 0, 0)
    offset = 64 + count * 56
    header += struct.pack("<IIQQQQQQ", 4, 0, offset, 0, 0, len(notes), 0, 4)
    offset += len(notes)
    for physical, piece in pieces:
        header += struct.pack("<IIQQQQQQ", 1, 6, offset, 0, physical, len(piece), len(piece), 1)
        offset += len(piece)
    return header + notes + b"".join(piece for _, piece in pieces)


def scenarios():
    """The scenarios without their output."""
    for path in sorted(pathlib.Path("../corpus/scenarios").glob("*/*.txt")):
        lines = path.read_text().splitlines(keepends=True)
        text = "".join(line for line in lines if not line.startswith(("=", "#")))
        save("scenario", f"{path.parent.name}-{path.stem}", text.encode())


def stitches():
    """Streams in the format of `stitches.rs`: kind, thread, cookie, time step."""
    sample, record, fork, exit_, exec_, vdso, lost = 0, 0xC6, 10, 11, 12, 13, 14
    streams = {
        "two-samples-one-record": [(sample, 0, 1), (sample, 0, 1), (record, 0, 1)],
        "late": [(sample, 0, 1), (record, 0, 1), (sample, 0, 1), (sample, 0, 2), (record, 0, 2)],
        "two-pending": [(sample, 0, 1), (sample, 0, 2), (record, 0, 1), (record, 0, 2)],
        "lost": [(sample, 0, 1), (sample, 1, 2), (lost, 0, 0), (record, 1, 2), (record, 0, 3)],
        "exec": [(sample, 0, 1), (exec_, 0, 0), (sample, 0, 1), (vdso, 0, 0), (record, 0, 1)],
        "exit": [(sample, 0, 1), (exit_, 0, 0), (fork, 0, 0), (sample, 0, 1), (record, 0, 1)],
        "no-cookie": [(sample, 0, 0), (record, 0, 0), (sample, 0, 0), (lost, 0, 0), (record, 0, 0)],
        "many": [(sample, n % 4, n % 5 + 1) for n in range(100)] + [(record, 0, 1)],
    }
    for name, stream in streams.items():
        save("stitch", name, b"".join(bytes((*step, 5)) for step in stream))


def calls():
    """Lists of system calls in the format of `syscalls.rs`: a favourite, and for each of six
    arguments a tag and a value."""
    source = pathlib.Path("src/syscalls.rs").read_text()
    start = source.index("FAVOURITES: &[u64] = &[")
    numbers = source[source.index("= &[", start) + 4:source.index("];", start)]
    favourites = [int(number) for number in numbers.split(",") if number.strip()]
    small, text, data, flag, byte, number, error, page, other = 0, 5, 7, 9, 10, 11, 12, 13, 14

    def call(number, *args):
        out = struct.pack("<H", favourites.index(number))
        return out + b"".join(bytes(arg) for arg in (*args, *[(small, 0)] * 6)[:6])

    def n(value):
        return (small, value)
    thread = call(56, (other, 6), n(0), (data, 8), n(0), n(0))
    lists = {
        "thread": [thread, call(202, (data, 0), n(0), n(0)), call(186)],
        "threads": [thread, thread, call(35, (text, 24)), call(202, (data, 0), n(1), n(9))],
        "fork": [call(57), call(61, (error, 1), (data, 0), n(0), n(0)), call(186)],
        "vfork-exec": [call(58), call(59, (text, 0), (text, 31), n(0))],
        "clone3": [call(435, (text, 29), (byte, 64)), call(435, (text, 30), (byte, 64)), call(61, (error, 1))],
        "pipe": [call(22, (data, 0)), call(57), call(1, n(4), (text, 1), n(5)), call(0, n(3), (data, 8), n(5))],
        "files": [call(257, (error, 4), (text, 5), (byte, 66), (byte, 255)), call(2, (text, 9), (byte, 66), (byte, 255)),
                  call(1, n(3), (text, 1), (byte, 100)), call(77, n(3), (page, 3)), call(8, n(3), n(0), n(0)), call(87, (text, 9))],
        "names": [call(83, (text, 5), (byte, 255)), call(80, (text, 5)), call(82, (text, 1), (text, 6)), call(86, (text, 4), (text, 5)),
                  call(88, (text, 1), (text, 6)), call(84, (text, 2))],
        "memory": [call(9, n(0), (page, 16), n(3), (byte, 34), (error, 1), n(0)), call(12, n(0)), call(25, (other, 5), (page, 1), (page, 2), n(1)),
                   call(10, (other, 3), (page, 1), n(1)), call(11, (other, 3), (page, 1))],
        "signals": [call(13, n(10), (text, 14), n(0), n(8)), call(62, (number, 12), n(10)), call(13, n(10), (text, 15), n(0), n(8)),
                    call(14, n(0), (data, 0), n(0), n(8)), call(130, (data, 0), n(8)), call(200, (number, 12), n(10))],
        "timers": [call(38, n(0), (text, 24), n(0)), call(222, n(1), n(0), (data, 0)), call(223, n(0), n(0), (text, 24), n(0)),
                   call(283, n(1), n(0)), call(286, n(3), n(0), (text, 24), n(0)), call(0, n(3), (data, 0), n(8)), call(35, (text, 25))],
        "sockets": [call(53, n(1), n(1), n(0), (data, 0)), call(46, n(3), (text, 18), n(0)), call(47, n(4), (text, 18), n(0)),
                    call(41, n(1), n(1), n(0)), call(49, n(5), (text, 21), (byte, 11)), call(50, n(5), n(5)), call(41, n(1), n(1), n(0)),
                    call(42, n(6), (text, 21), (byte, 11)), call(43, n(5))],
        "internet": [call(41, n(2), n(1), n(0)), call(49, n(3), (text, 22), (byte, 16)), call(50, n(3), n(5)), call(57),
                     call(41, n(2), n(1), n(0)), call(42, n(4), (text, 22), (byte, 16)), call(44, n(4), (text, 1), n(9))],
        "epoll": [call(291, n(0)), call(290, n(5), n(0)), call(233, n(3), n(1), n(4), (text, 28)), call(232, n(3), (data, 0), n(3), n(0)),
                  call(7, (text, 27), n(3), n(0))],
    }
    for name, made in lists.items():
        save("syscalls", name, bytes([7, 100]) + b"".join(made))


def generated(folder):
    """Descriptions of generated code: a jitdump file as CPython 3.13 writes it, lines of perf's maps,
    and memory with gdb's list, which starts at 0x1000."""
    code = bytes.fromhex("4883ec08ffd14883c408c3")
    entries = bytes.fromhex("1400000000000000017a5200017810011b0c070890010000140000001c000000"
                            "d0ffffff0b00000000440e10460e0800011b033bccffffff01000000c0ffffffe8ffffff")
    head = struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, 7, 1, 0)

    def record(kind, time, body):
        return struct.pack("<IIQ", kind, 16 + len(body), time) + body

    def unwinding(data, header):
        return record(4, 1, struct.pack("<QQQ", len(data), header, 80) + data)

    def load(number, address, name):
        return record(0, number, struct.pack("<IIQQQQ", 7, 7, address, address, len(code), number)
                      + name.encode() + b"\0" + code)

    def moved(number, old, new):
        return record(1, 9, struct.pack("<IIQQQQQ", 7, 7, old, old, new, len(code), number))

    two = unwinding(entries, 20) + load(1, 0x1000, "py::a") + unwinding(entries, 20) + load(2, 0x1010, "b")
    swapped = entries[-20:] + entries[:-20]
    save("jitdump", "two", head + two)
    save("jitdump", "moved", head + two + moved(1, 0x1000, 0x8000) + record(3, 9, b""))
    save("jitdump", "replaced", head + two + load(3, 0x1004, "c") + record(2, 3, b"lines".ljust(16)))
    save("jitdump", "header-first", head + unwinding(swapped, 20) + load(1, 0x1000, "a"))
    save("jitdump", "cut", (head + two)[:-5])

    save("perf_map", "sizes", b"7f0000001000 10 py::a\n7f0000001010 20 b c\n0x7f0000001030 8 d\n")
    save("perf_map", "without-sizes", b"7f00001000 caml_a\n7f00001010 caml_b\n")
    save("perf_map", "reused", b"1000 20 old\n1010 20 new\n1000 8 newer\nnot a line\n")

    source = folder / "gdb.s"
    source.write_text(".text; f: .cfi_startproc; push %rbx; .cfi_def_cfa_offset 16; pop %rbx\n"
                      ".cfi_def_cfa_offset 8; ret; .cfi_endproc; .type f, @function; .size f, . - f\n")
    file = build(source, folder, "-c").read_bytes()
    save("gdb_jit", "file", file)
    entry = struct.pack("<QQQQ", 0, 0, 0x1000 + 56, len(file))
    save("gdb_jit", "list", struct.pack("<IIQQ", 1, 1, 0x1018, 0x1018) + entry + file)
    looped = struct.pack("<QQQQ", 0x1018, 0, 0x1000, 24)
    save("gdb_jit", "loop", struct.pack("<IIQQ", 1, 0, 0, 0x1018) + looped)


def machines():
    """Two threads, one of which changes the code of the other, in the format of `machine.rs`."""
    registers = bytes([0, 0, 0, 64, 32] + [0] * 11)
    codes = {
        # inc %eax; nop; jmp -- and: xorb $8, 1(%rbx); jmp: `inc` becomes `dec` and back.
        "two-threads-one-operand": (b"\xff\xc0\x90\xeb\xfb", b"\x80\x73\x01\x08\xeb\xfa"),
        # Over two blocks; and: movb $0x90, (%rbx); movb $0xf4, 3(%rbx): a `hlt` appears.
        "two-threads-halt": (b"\x48\xff\xc0\x74\x00\xeb\xf9", b"\xc6\x03\x90\xc6\x43\x03\xf4\xeb\xf7"),
        # Both push and pop on one stack.
        "two-threads-stack": (b"\x50\x58\xff\xc0\xeb\xfa", b"\x53\x5b\xff\xc3\xeb\xfa"),
    }
    turns = bytes([7, 3, 11, 2, 50, 1, 9, 4, 1, 1, 1, 2, 3, 5, 90, 30])
    for name, (first, second) in codes.items():
        code = first.ljust(64, b"\x90") + second.ljust(32, b"\x90")
        tail = (struct.pack("<H", 64) + registers).ljust(40, b"\0")
        save("machine", name, registers + code + tail + turns + bytes([len(turns), 0x2B]))


def systems():
    """The cases of system mode, in the format of `system.rs`: no changes, all registers zero, and a turn
    of three instructions before an NMI."""
    for path in sorted(pathlib.Path("../corpus/system/cases").glob("*.txt")):
        for block in path.read_text().split("\n\n"):
            lines = block.strip("\n").split("\n")
            if not lines[0].startswith("case "):
                continue
            code = next(line for line in lines if line.startswith("code ")).split()[1]
            vendor = 1 if "processor amd" in lines else 0
            head = bytes([vendor, 0]) + bytes(16) + bytes([2, 3, 0x80 | 9])
            save("system", f"{path.stem}-{lines[0].split()[1]}", head + bytes.fromhex(code))


def debuggers():
    """Bodies of gdb's packets and messages of editors, one on each line, behind a byte that chooses a
    recording (even) or a program (odd), as in `debuggers.rs`."""
    def monitor(command):
        return "qRcmd," + command.encode().hex()

    start = ["qSupported:multiprocess+;swbreak+;hwbreak+;xmlRegisters=i386", "vMustReplyEmpty",
             "QStartNoAckMode", "Hgp0.0", "qXfer:features:read:target.xml:0,1000", "?",
             "qfThreadInfo", "qsThreadInfo", "qAttached:1", "qXfer:exec-file:read:1:0,1000", "qOffsets",
             "g", "p10", "pffffffff"]
    go = ["vCont?", "vCont;s:p1.3e8;c", "bs", "vCont;r401000,402000:3e8;c", "vCont;c", "bc", "vCont;c"]
    stops = ["Z0,401000,1", "Z1,40101d,1", "Z2,7fffffffee08,8", "Z3,7fffffffee00,10", "Z4,7fffffffee08,1",
             "vCont;c:p1.-1", "bc", "z2,7fffffffee08,8", "z0,401000,1", "vCont;c", "bc"]
    memory = ["m401000,40", "m7fffffffee00,100000000", "mffffffffffffffff,ffffffffffffffff", "M0,1:00",
              "X0,1:a", "P10=00", "G00", "qXfer:auxv:read::0,1000", "qThreadExtraInfo,p1.3e8", "Tp1.3e8"]
    told = [monitor(command) for command in
            ["help", "truth", "truth 1000", "walk", "walk dwarf", "wrong", "wrong next", "explain",
             "explain fp", "state", "files", "walk \x1b[2J"]]
    ends = ["vKill;1", "D;1", "k"]
    packets = {"start": start, "go": start + go, "stops": stops, "memory": memory, "monitor": told + go,
               "ends": ends}
    for name, bodies in packets.items():
        for kind, first in [("recording", b"\0"), ("program", b"\1")]:
            save("gdb_packet", f"{name}-{kind}", first + "\n".join(bodies).encode())
    stream = b"".join(b"$%s#%02x" % (body.encode(), sum(body.encode()) % 256) for body in start + go)
    save("gdb_packet", "stream", b"\1+" + stream + b"\x03-$g#00")

    def requests(*commands):
        all = [{"seq": seq, "type": "request", "command": command, "arguments": arguments}
               for seq, (command, arguments) in enumerate(commands, 1)]
        return [json.dumps(one).encode() for one in all]

    launch = ("launch", {"program": "p", "args": ["a"], "from": "main", "stopOnEntry": False,
                         "options": ["--unwinder", "fp"]})
    thread = {"threadId": 1, "granularity": "instruction"}
    messages = {
        "ways": requests(launch, ("configurationDone", {}), *[(way, thread) for way in
                         ["next", "stepIn", "stepOut", "stepBack", "continue", "reverseContinue", "pause"]],
                         ("disconnect", {})),
        "looks": requests(launch, ("threads", {}), ("stackTrace", {"threadId": 2, "startFrame": 0, "levels": 9}),
                          ("stackTrace", {"threadId": 2000}), ("scopes", {"frameId": 4096}),
                          ("variables", {"variablesReference": 8192}), ("variables", {"variablesReference": 16385}),
                          ("disassemble", {"memoryReference": "0x40101d", "instructionOffset": -9, "instructionCount": 40}),
                          ("readMemory", {"memoryReference": "0x7fffffffee00", "offset": -8, "count": 4294967296}),
                          ("evaluate", {"expression": "explain", "context": "repl"})),
        "stops": requests(launch, ("setFunctionBreakpoints", {"breakpoints": [{"name": "main"}, {"name": "_start"}]}),
                          ("setInstructionBreakpoints", {"breakpoints": [{"instructionReference": "0x401000", "offset": 4}]}),
                          ("setBreakpoints", {"source": {"path": "a"}, "breakpoints": [{"line": 1}]}),
                          ("setExceptionBreakpoints", {"filters": ["wrong"], "filterOptions": [{"filterId": "wrong", "condition": "fp"}]}),
                          ("continue", thread), ("reverseContinue", thread)),
    }
    for name, lines in messages.items():
        for kind, first in [("recording", b"\0"), ("program", b"\1")]:
            save("dap_message", f"{name}-{kind}", first + b"\n".join(lines))
    stream = b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(line), line) for line in messages["ways"])
    save("dap_message", "stream", b"\1" + stream)
    save("dap_message", "length", b"\0Content-Length: 1000000000000000000\r\n\r\n{}")


if __name__ == "__main__":
    for target in ["perfdata"]:
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tables(pathlib.Path(folder))
        files(pathlib.Path(folder))
        conversions(pathlib.Path(folder))
        proofs(pathlib.Path(folder))
        kernels(pathlib.Path(folder))
        generated(pathlib.Path(folder))
    captures()
    expressions()
    scenarios()
    stitches()
    calls()
    machines()
    systems()
    debuggers()
