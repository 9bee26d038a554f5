"""Puts one defect into the bytes of a table. A defect is a kind, where it is, and what to write.

The kinds go by the format: each field that a reader of the table uses is changed by itself.
"""

import sframe
from cfi import Op, Unreadable


class Defect:
    def __init__(self, kind, text, *writes):
        self.kind, self.text = kind, text
        # (offset in the file, bytes)
        self.writes = writes

    def apply(self, data):
        changed = bytearray(data)
        for at, new in self.writes:
            changed[at : at + len(new)] = new
        return bytes(changed)


def leb(value, length, is_signed=False):
    """A LEB128 of a given length; None if it is too short."""
    low, high = (-(1 << 7 * length - 1), 1 << 7 * length - 1) if is_signed else (0, 1 << 7 * length)
    if not low <= value < high:
        return None
    parts = [value >> 7 * i & 0x7F for i in range(length)]
    return bytes(p | (0x80 if i < length - 1 else 0) for i, p in enumerate(parts))


def number(value, length):
    return (value & (1 << 8 * length) - 1).to_bytes(length, "little")


def cfi_defects(table, random, code):
    """Kinds of defects in .eh_frame and .eh_frame_hdr: {kind: a function that draws one or None}.
    `code` has the addresses of instructions."""
    data = table.data
    cies, fdes = [], []
    for at, _end, is_cie in table.records():
        (cies if is_cie else fdes).append(table.cie(at) if is_cie else table.fde(at))
    draw = lambda of: random.choice(of) if of else None

    def ops(places, names):
        return [
            (place, i, op)
            for place in places
            for i, op in enumerate(place.ops)
            if isinstance(op, Op) and op.name in names
        ]

    def text(place, op=None):
        what = "CIE" if place in cies else "FDE"
        base = table.start
        name = "" if op is None else f", {op.name} at {op.start - base:#x}"
        return f"{what} at {place.at - base:#x}{name}"

    def field(kind, place, at, length, old, new, name):
        if new == old:
            return None
        return Defect(kind, f"{text(place)}: {name} {old} to {new}", (at, number(new, length)))

    def fde_range(kind, change):
        fde = draw(fdes)
        new = change(fde)
        return new and field(kind, fde, fde.range_at, fde.range_length, fde.range, new, "range")

    def cut(fde):
        inner = [pc - fde.begin for pc in code if fde.begin < pc < fde.begin + fde.range]
        return draw(inner)

    def begin(kind):
        fde = draw(fdes)
        by = random.choice((-16, -4, -1, 1, 2, 4, 5, 16))
        old = int.from_bytes(data[fde.begin_at : fde.range_at], "little")
        return field(kind, fde, fde.begin_at, fde.range_at - fde.begin_at, old, old + by, "start")

    def other_cie(kind):
        fde = draw(fdes)
        others = [cie for cie in cies if cie is not fde.cie]
        if not others:
            return None
        at = fde.pointer_at
        return field(kind, fde, at, 4, at - fde.cie.at, at - draw(others).at, "distance of its CIE")

    def record(kind, places):
        place = draw(places)
        old = int.from_bytes(data[place.at : place.at + 4], "little")
        return field(kind, place, place.at, 4, old, old + random.choice((-8, -4, 4, 8)), "length")

    def augmentation_length(kind):
        fde = draw([fde for fde in fdes if fde.augmentation_at])
        if not fde:
            return None
        old = data[fde.augmentation_at]
        new = old + random.choice((-1, 1, 2))
        return (
            None
            if new < 0
            else field(kind, fde, fde.augmentation_at, 1, old, new, "length of its augmentation")
        )

    def advance(kind):
        found = draw(ops(fdes, {"advance"}))
        if not found:
            return None
        place, _i, op = found
        _kind, at, length, old = op.operands[0]
        new = old + random.choice((-4, -3, -2, -1, 1, 2, 3, 4, 7))
        if new < 0 or new >= (64 if length == 0 else 1 << 8 * length):
            return None
        bytes_ = bytes([0x40 | new]) if length == 0 else number(new, length)
        return Defect(kind, f"{text(place, op)}: {old} to {new}", (at, bytes_))

    def operand(kind, places, names, wanted, values):
        found = draw(ops(places, names))
        if not found:
            return None
        place, _i, op = found
        fit = [o for o in op.operands if o[0].startswith(wanted)]
        if not fit:
            return None
        what, at, length, old = draw(fit)
        new = values(old)
        if new == old or new < 0 and not what.endswith("_sf"):
            return None
        if length == 0:
            # In the low bits of the opcode.
            bytes_ = bytes([data[at] & 0xC0 | new]) if new < 64 else None
        else:
            bytes_ = leb(new, length, what.endswith("_sf"))
        return bytes_ and Defect(kind, f"{text(place, op)}: {old} to {new}", (at, bytes_))

    near = lambda old: old + random.choice((-16, -8, -4, -2, -1, 1, 2, 4, 8, 16))
    other = lambda old: random.choice([n for n in list(range(17)) if n != old])

    def removed(kind, places, names):
        found = draw(ops(places, names))
        if not found:
            return None
        place, _i, op = found
        return Defect(kind, text(place, op), (op.start, bytes(op.end - op.start)))

    def changed(kind):
        # To an instruction with operands of the same form.
        same = {
            0x05: 0x14,
            0x0D: 0x0E,
            0x0E: 0x0D,
            0x0A: 0x0B,
            0x0B: 0x0A,
            0x0C: 0x05,
            0x06: 0x08,
            0x08: 0x07,
            0x07: 0x08,
            0x09: 0x0C,
            0x10: 0x16,
            0x13: 0x0E,
            0x12: 0x0C,
            0x11: 0x15,
        }
        found = draw([f for f in ops(fdes, ALL) if data[f[2].start] in same])
        if not found:
            return None
        place, _i, op = found
        new = same[data[op.start]]
        return Defect(
            kind,
            f"{text(place, op)}: opcode {data[op.start]:#x} to {new:#x}",
            (op.start, bytes([new])),
        )

    def swapped(kind):
        place = draw(fdes)
        real = [op for op in place.ops if isinstance(op, Op)]
        pairs = [(a, b) for a, b in zip(real, real[1:]) if b.name != "nop"]
        found = draw(pairs)
        if not found:
            return None
        a, b = found
        return Defect(
            kind,
            f"{text(place, a)}: exchanged with {b.name}",
            (a.start, data[b.start : b.end] + data[a.start : a.end]),
        )

    def block(kind):
        found = draw(ops(cies + fdes, {"cfa_expression", "expression", "val_expression"}))
        if not found:
            return None
        place, _i, op = found
        _kind, at, length, value = op.operands[-1]
        inside = op.end - len(value) + random.randrange(len(value))
        new = data[inside] ^ random.choice((1, 2, 4, 8, 16, 32, 0x40))
        return Defect(
            kind, f"{text(place, op)}: byte {data[inside]:#x} to {new:#x}", (inside, bytes([new]))
        )

    def cie_number(kind, at_name, value_name, values, is_signed):
        cie = draw(cies)
        at, old = getattr(cie, at_name), getattr(cie, value_name)
        new = draw([v for v in values if v != old])
        return Defect(kind, f"{text(cie)}: {old} to {new}", (at, leb(new, 1, is_signed)))

    def augmentation(kind):
        cie = draw([cie for cie in cies if cie.augmentation])
        if not cie:
            return None
        at = random.randrange(len(cie.augmentation))
        new = draw([c for c in b"zRLPSBx" if c != cie.augmentation[at]])
        return Defect(
            kind,
            f"{text(cie)}: letter {at} of {cie.augmentation.decode()} to {chr(new)}",
            (cie.augmentation_at + at, bytes([new])),
        )

    def encoding(kind):
        cie = draw([cie for cie in cies if cie.encoding_at])
        if not cie:
            return None
        new = draw(
            [e for e in (0x00, 0x03, 0x0B, 0x10, 0x13, 0x1A, 0x1C, 0x3B, 0x9B) if e != cie.encoding]
        )
        return Defect(
            kind, f"{text(cie)}: {cie.encoding:#x} to {new:#x}", (cie.encoding_at, bytes([new]))
        )

    def version(kind):
        cie = draw(cies)
        return Defect(kind, text(cie), (cie.version_at, bytes([draw([0, 2, 4])])))

    # The search table.
    entry = lambda i: table.hdr_at + 8 * i
    entries = len(table.index or ())

    def index_swapped(kind):
        if entries < 2:
            return None
        i, j = sorted(random.sample(range(entries), 2))
        return Defect(
            kind,
            f"entries {i} and {j} are exchanged",
            (entry(i), data[entry(j) : entry(j) + 8]),
            (entry(j), data[entry(i) : entry(i) + 8]),
        )

    def index_missing(kind):
        if entries < 2:
            return None
        i = random.randrange(entries)
        return Defect(
            kind,
            f"without entry {i}",
            (table.hdr_count_at, number(entries - 1, 4)),
            (entry(i), data[entry(i + 1) : entry(entries)]),
        )

    def index_count(kind):
        if entries < 2:
            return None
        new = random.randrange(1, entries)
        return Defect(kind, f"{new} entries of {entries}", (table.hdr_count_at, number(new, 4)))

    def index_word(kind, which):
        if not entries:
            return None
        i = random.randrange(entries)
        at = entry(i) + 4 * which
        old = int.from_bytes(data[at : at + 4], "little")
        new = old + random.choice((-16, -8, -4, -1, 1, 4, 8, 16))
        return Defect(
            kind, f"entry {i}: {'FDE' if which else 'address'} by {new - old}", (at, number(new, 4))
        )

    def index_other(kind):
        if entries < 2:
            return None
        i, j = random.sample(range(entries), 2)
        return Defect(
            kind,
            f"entry {i} leads to the FDE of {j}",
            (entry(i) + 4, data[entry(j) + 4 : entry(j) + 8]),
        )

    CFA_RULES = {"def_cfa", "def_cfa_register", "def_cfa_offset", "cfa_expression"}
    SAVES = {"offset", "val_offset", "expression", "val_expression", "register"}
    BACK = {"restore", "same_value", "undefined"}
    STATES = {"remember", "recall"}
    ALL = CFA_RULES | SAVES | BACK | STATES | {"advance"}
    kinds = {
        "FDE: range cut": lambda k: fde_range(k, cut),
        "FDE: range extended": lambda k: fde_range(
            k, lambda f: f.range + random.choice((1, 4, 16, 64))
        ),
        "FDE: start": begin,
        "FDE: another CIE": other_cie,
        "FDE: length of the record": lambda k: record(k, fdes),
        "FDE: length of the augmentation": augmentation_length,
        "row: advance": advance,
        "row: advance removed": lambda k: removed(k, fdes, {"advance"}),
        "row: CFA's offset": lambda k: operand(k, fdes, CFA_RULES, "offset", near),
        "row: CFA's register": lambda k: operand(k, fdes, CFA_RULES, "register", other),
        "row: CFA's rule removed": lambda k: removed(k, fdes, CFA_RULES),
        "row: slot": lambda k: operand(k, fdes, SAVES, "offset", near),
        "row: saved register": lambda k: operand(k, fdes, SAVES, "register", other),
        "row: save removed": lambda k: removed(k, fdes, SAVES),
        "row: restored register": lambda k: operand(k, fdes, BACK, "register", other),
        "row: restore removed": lambda k: removed(k, fdes, BACK),
        "row: state kept or taken back removed": lambda k: removed(k, fdes, STATES),
        "row: another opcode": changed,
        "row: opcodes exchanged": swapped,
        "row: byte of an expression": block,
        "CIE: length of the record": lambda k: record(k, cies),
        "CIE: version": version,
        "CIE: augmentation": augmentation,
        "CIE: pointer encoding": encoding,
        "CIE: code alignment factor": lambda k: cie_number(
            k, "code_at", "code", (0, 1, 2, 4), False
        ),
        "CIE: data alignment factor": lambda k: cie_number(
            k, "data_at", "factor", (-8, -16, -4, -1, 8), True
        ),
        "CIE: return address register": lambda k: cie_number(
            k, "return_at", "return_register", (0, 3, 6, 7, 15, 16, 17), False
        ),
        "CIE: CFA's offset": lambda k: operand(k, cies, CFA_RULES, "offset", near),
        "CIE: CFA's register": lambda k: operand(k, cies, CFA_RULES, "register", other),
        "CIE: return address's slot": lambda k: operand(k, cies, SAVES, "offset", near),
        "CIE: rule removed": lambda k: removed(k, cies, CFA_RULES | SAVES),
        "index: entries exchanged": index_swapped,
        "index: entry missing": index_missing,
        "index: number of entries": index_count,
        "index: address": lambda k: index_word(k, 0),
        "index: FDE's address": lambda k: index_word(k, 1),
        "index: another FDE": index_other,
    }
    return {kind: (lambda d=draw_one, k=kind: d(k)) for kind, draw_one in kinds.items()}


def sframe_defects(table, random, _code):
    """The same for .sframe."""
    data, at = table.data, table.at
    draw = lambda of: random.choice(of) if of else None
    fdes = [fde for fde in table.fdes if not isinstance(fde.fres, Unreadable)]
    fres = [(fde, fre) for fde in fdes for fre in fde.fres]
    size = sframe.FDE_SIZES[table.version]
    is_v3 = table.version == 3

    def field(kind, place, offset, length, change):
        old = int.from_bytes(data[offset : offset + length], "little")
        new = change(old) & (1 << 8 * length) - 1
        if new == old:
            return None
        return Defect(
            kind,
            f"{place} at {offset - at:#x}: {old:#x} to {new:#x}",
            (offset, number(new, length)),
        )

    def header(kind, offset, length, change):
        return field(kind, "header", at + offset, length, change)

    by = lambda *of: lambda old: old + random.choice(of)
    flip = lambda *of: lambda old: old ^ random.choice(of)

    def fde_field(kind, offsets, length, change):
        fde = draw(fdes)
        return field(kind, "FDE", offsets(fde), length, change)

    def attribute(kind, name, change):
        fde = draw(fdes)
        v3 = {"count": (0, 2), "info": (2, 1), "flags2": (3, 1), "repeat": (4, 1)}
        v2 = {"count": (12, 4), "info": (16, 1), "repeat": (17, 1)}
        places = v3 if is_v3 else v2
        if name not in places or (name == "repeat" and table.version == 1):
            return None
        offset, length = places[name]
        return field(kind, "FDE", (fde.attributes if is_v3 else fde.at) + offset, length, change)

    def cut(kind):
        fde = draw([fde for fde in fdes if fde.size > 1])
        return fde and field(
            kind, "FDE", fde.at + (8 if is_v3 else 4), 4, lambda old: random.randrange(1, old)
        )

    def swapped(kind):
        if len(fdes) < 2 or not table.flags & sframe.PCREL:
            return None
        i = random.randrange(len(table.fdes) - 1)
        a, b = table.fdes[i], table.fdes[i + 1]
        start = 8 if is_v3 else 4
        one, two = data[a.at : a.at + size], data[b.at : b.at + size]
        # A start that is relative to its own place moves along.
        move = (
            lambda entry, by: number(int.from_bytes(entry[:start], "little") + by, start)
            + entry[start:]
        )
        return Defect(
            kind, f"FDEs {i} and {i + 1} are exchanged", (a.at, move(two, size) + move(one, -size))
        )

    def fre_field(kind, change_info=None, word=None):
        found = draw([f for f in fres if word is None or f[1].words])
        if not found:
            return None
        _fde, fre = found
        if change_info:
            return field(kind, "row", fre.info_at, 1, change_info)
        i = random.randrange(len(fre.words))
        return field(kind, "row", fre.words_at + i * fre.size, fre.size, word)

    def fre_start(kind):
        fde, fre = draw(fres)
        return field(kind, "row", fre.at, 1 << (fde.info & 15), by(-3, -2, -1, 1, 2, 3))

    def fre_removed(kind):
        # The row takes over what the row before it says.
        found = draw(
            [
                (f, i)
                for f in fdes
                for i in range(1, len(f.fres))
                if f.fres[i].size == f.fres[i - 1].size
                and len(f.fres[i].words) == len(f.fres[i - 1].words)
            ]
        )
        if not found:
            return None
        fde, i = found
        before, fre = fde.fres[i - 1], fde.fres[i]
        length = len(fre.words) * fre.size
        return Defect(
            kind,
            f"row at {fre.at - at:#x}",
            (fre.info_at, data[before.info_at : before.info_at + 1 + length]),
        )

    kinds = {
        "header: version": lambda k: header(k, 2, 1, lambda _: random.choice((0, 1, 2, 3, 4))),
        "header: flags": lambda k: header(k, 3, 1, flip(1, 4, 8)),
        "header: ABI": lambda k: header(k, 4, 1, lambda _: random.choice((1, 2, 4))),
        "header: fixed offset of rbp": lambda k: header(
            k, 5, 1, lambda _: random.choice((-8, -16, -24))
        ),
        "header: fixed offset of the return address": lambda k: header(k, 6, 1, by(-8, 8, -16, 1)),
        "header: length of more headers": lambda k: header(k, 7, 1, by(1, 4, 8)),
        "header: number of FDEs": lambda k: header(k, 8, 4, by(-2, -1, 1)),
        "header: number of rows": lambda k: header(k, 12, 4, by(-1, 1)),
        "header: length of the rows": lambda k: header(k, 16, 4, by(-4, -1, 1, 64)),
        "header: offset of FDEs": lambda k: header(k, 20, 4, by(1, 4, 20)),
        "header: offset of rows": lambda k: header(k, 24, 4, by(-4, -1, 1, 4)),
        "FDE: start": lambda k: fde_field(
            k, lambda f: f.at, 8 if is_v3 else 4, by(-16, -4, -1, 1, 4, 16)
        ),
        "FDE: size cut": cut,
        "FDE: size extended": lambda k: fde_field(
            k, lambda f: f.at + (8 if is_v3 else 4), 4, by(1, 4, 16)
        ),
        "FDE: offset of its rows": lambda k: fde_field(
            k, lambda f: f.at + (12 if is_v3 else 8), 4, by(-5, -3, -1, 1, 3, 5)
        ),
        "FDE: number of its rows": lambda k: attribute(k, "count", by(-1, 1)),
        "FDE: width of its rows": lambda k: attribute(k, "info", flip(1, 2, 3)),
        "FDE: repeated or not": lambda k: attribute(k, "info", flip(0x10)),
        "FDE: size that is repeated": lambda k: attribute(k, "repeat", by(-8, 1, 8, 16)),
        "FDE: form of its rows": lambda k: attribute(k, "flags2", flip(1, 2)),
        "FDE: signal frame": lambda k: attribute(k, "info", flip(0x80)) if is_v3 else None,
        "FDEs exchanged": swapped,
        "row: start": fre_start,
        "row: base register": lambda k: fre_field(k, change_info=flip(1)),
        "row: number of offsets": lambda k: fre_field(k, change_info=by(-2, 2)),
        "row: size of offsets": lambda k: fre_field(k, change_info=flip(0x20, 0x40)),
        "row: outermost": lambda k: fre_field(k, change_info=lambda _: 0),
        "row: offset or control": lambda k: fre_field(k, word=by(-16, -8, -1, 1, 8, 16)),
        "row removed": fre_removed,
    }
    return {kind: (lambda d=draw_one, k=kind: d(k)) for kind, draw_one in kinds.items()}
