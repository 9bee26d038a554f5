"""Compares an ORC table with the text of `readelf --debug-dump=frames-interp`.

Reads the sections by themselves, byte by byte, with the layout of Linux 6.4 (struct orc_entry in
arch/x86/include/asm/orc_types.h): usage: orc.py ELF < the text of readelf. Prints the number of rows
compared, and those that differ; the exit status is 1 if there are any.
"""

import bisect
import re
import struct
import sys

REGS = {1: "prevsp", 2: "rdx", 3: "rdi", 4: "rbp", 5: "rsp", 6: "r10", 7: "r13"}
CALL = 2


def sections(data):
    """The sections of an ELF file: name to address and bytes."""
    table, entry, count, names = (
        struct.unpack_from("<Q", data, 0x28)[0],
        *struct.unpack_from("<HHH", data, 0x3A),
    )
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * entry) for i in range(count)]
    strings = headers[names][4]
    out = {}
    for name, _, _, address, offset, size in headers:
        end = data.index(b"\0", strings + name)
        out[data[strings + name : end].decode()] = (address, data[offset : offset + size])
    return out


def entries(data):
    """The table: sorted addresses, and (sp_reg, sp_offset, bp_reg, bp_offset, type) of each."""
    found = sections(data)
    base, ips = found[".orc_unwind_ip"]
    _, rows = found[".orc_unwind"]
    starts, out = [], []
    for i in range(len(ips) // 4):
        starts.append(base + 4 * i + struct.unpack_from("<i", ips, 4 * i)[0])
        sp, bp, flags = struct.unpack_from("<hhH", rows, 6 * i)
        out.append((flags & 15, sp, flags >> 4 & 15, bp, flags >> 8 & 7))
    assert starts == sorted(starts), "the entries are not sorted"
    lookup_base, lookup = found[".orc_lookup"]
    assert len(lookup) % 4 == 0 and lookup_base % 4 == 0
    assert len(found[".orc_header"][1]) == 20
    return starts, out


def rows(text):
    """The rows that readelf shows: address, CFA, the column of rbp, the column of ra."""
    columns, is_function = [], False
    for line in text:
        words = line.split()
        if "CIE" in words[3:4]:
            # The state that functions start with, which is shown at address 0.
            is_function = False
        elif "FDE" in words[3:4]:
            is_function = True
        if words[:2] == ["LOC", "CFA"]:
            columns = words[2:]
        elif len(words) >= 2 and re.fullmatch(r"[0-9a-f]{16}", words[0]) and columns and is_function:
            if len(words) == len(columns) + 2:
                named = dict(zip(columns, words[2:]))
                yield int(words[0], 16), words[1], named.get("rbp", "u"), named.get("ra", "u")
        elif not words:
            columns = []


def main():
    with open(sys.argv[1], "rb") as file:
        starts, table = entries(file.read())
    compared, wrong = 0, 0
    for address, cfa, rbp, ra in rows(sys.stdin):
        simple = re.fullmatch(r"(rsp|rbp)\+(\d+)", cfa)
        if not simple or ra != "c-8" or not re.fullmatch(r"u|c-\d+", rbp):
            continue
        if int(simple[2]) > 0x7FFF:
            continue
        sp_reg, sp, bp_reg, bp, kind = table[bisect.bisect_right(starts, address) - 1]
        want = (simple[1], int(simple[2]), rbp)
        saved = f"c{bp:+}" if REGS.get(bp_reg) == "prevsp" else "u" if bp_reg == 0 else "?"
        have = (REGS.get(sp_reg), sp, saved)
        compared += 1
        if have != want or kind != CALL:
            wrong += 1
            print(f"{address:#x}: readelf {want}, ORC {have} type {kind}")
    print(f"{compared} rows compared, {wrong} differ")
    return 1 if wrong or not compared else 0


sys.exit(main())
