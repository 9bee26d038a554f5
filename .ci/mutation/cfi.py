"""Reads .eh_frame and .eh_frame_hdr, and finds the row of an address; rules.py applies it.

This is the measure's own reader, which shares nothing with the program that is measured. Of each
instruction it keeps where its bytes are, so that a defect can be put there.
DWARF 5, section 6.4; LSB Core 5.0, chapter 10.6 (.eh_frame, .eh_frame_hdr).
"""

import struct

from elf import PT_GNU_EH_FRAME

RSP, RA = 7, 16
CALLEE_SAVED = (3, 6, 12, 13, 14, 15)
# Between calls, a walk knows only these.
KNOWN_IN_CALLERS = CALLEE_SAVED + (RSP,)
MASK = (1 << 64) - 1


class Unreadable(Exception):
    """The bytes cannot be read as the format wants it."""


class Reader:
    def __init__(self, data, at, end):
        if not 0 <= at <= end <= len(data):
            raise Unreadable("outside of the section")
        self.data, self.at, self.end = data, at, end

    def take(self, count):
        if count < 0 or self.at + count > self.end:
            raise Unreadable("behind the end")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]

    def uleb(self):
        value = shift = 0
        while True:
            byte = self.number("B")
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value
            if shift > 63:
                raise Unreadable("a number that is too long")

    def sleb(self):
        start = self.at
        value = self.uleb()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> (bits - 1) & 1 else value

    def pointer(self, encoding, address_of, base=0):
        """A pointer of DWARF's exception handling; address_of gives an offset's address."""
        place = address_of(self.at)
        forms = {0: "Q", 2: "H", 3: "I", 4: "Q", 10: "h", 11: "i", 12: "q"}
        kind = encoding & 15
        if kind == 1:
            value = self.uleb()
        elif kind == 9:
            value = self.sleb()
        elif kind in forms:
            value = self.number(forms[kind])
        else:
            raise Unreadable("an encoding that does not exist")
        relative = encoding & 0x70
        if relative == 0x10:
            value += place
        elif relative == 0x30:
            value += base
        elif relative:
            raise Unreadable("an encoding that is not used here")
        return value & MASK


class Op:
    """One instruction: where it lies, and where its operands do."""

    def __init__(self, name, start):
        self.name, self.start, self.end = name, start, start
        # (kind, offset, length, value); kinds: register, offset, delta, block
        self.operands = []

    def value(self, index):
        return self.operands[index][3]


# Opcode to name and operands: u, an unsigned LEB128; s, a signed one; r, a register; b, a block;
# 1, 2, 4, 8, an advance of so many bytes.
OPCODES = {
    0x00: ("nop", ""),
    0x01: ("set_loc", "p"),
    0x02: ("advance", "1"),
    0x03: ("advance", "2"),
    0x04: ("advance", "4"),
    0x05: ("offset", "ru"),
    0x06: ("restore", "r"),
    0x07: ("undefined", "r"),
    0x08: ("same_value", "r"),
    0x09: ("register", "rr"),
    0x0A: ("remember", ""),
    0x0B: ("recall", ""),
    0x0C: ("def_cfa", "ru"),
    0x0D: ("def_cfa_register", "r"),
    0x0E: ("def_cfa_offset", "u"),
    0x0F: ("cfa_expression", "b"),
    0x10: ("expression", "rb"),
    0x11: ("offset", "rs"),
    0x12: ("def_cfa", "rS"),
    0x13: ("def_cfa_offset", "S"),
    0x14: ("val_offset", "ru"),
    0x15: ("val_offset", "rs"),
    0x16: ("val_expression", "rb"),
    0x2E: ("args_size", "u"),
}


def read_ops(reader, set_loc=None):
    """The instructions up to the reader's end. What follows an unknown one is unreadable, but a
    consumer that stops before it uses the earlier ones: the error is the last element."""
    ops = []
    while reader.at < reader.end:
        start = reader.at
        try:
            ops.append(read_op(reader, set_loc))
        except Unreadable as error:
            ops.append(error)
            return ops
        ops[-1].end = reader.at
        assert reader.at > start
    return ops


def read_op(reader, set_loc):
    start = reader.at
    byte = reader.number("B")
    high, low = byte >> 6, byte & 63
    if high == 1:
        op = Op("advance", start)
        op.operands.append(("delta", start, 0, low))
        return op
    if high:
        op = Op({2: "offset", 3: "restore"}[high], start)
        op.operands.append(("register", start, 0, low))
        forms = "u" if high == 2 else ""
    else:
        if byte not in OPCODES:
            raise Unreadable("an instruction that does not exist")
        name, forms = OPCODES[byte]
        op = Op(name, start)
    for form in forms:
        at = reader.at
        if form in "ur":
            value = reader.uleb()
        elif form in "sS":
            value = reader.sleb()
        elif form == "b":
            value = reader.take(reader.uleb())
        elif form == "p":
            if set_loc is None:
                raise Unreadable("DW_CFA_set_loc here")
            value = set_loc(reader)
        else:
            value = reader.number({"1": "B", "2": "H", "4": "I"}[form])
        kind = {"r": "register", "b": "block", "p": "location"}.get(form)
        if kind is None:
            kind = "delta" if form in "124" else "offset"
        # A signed offset of the CFA is multiplied by the data alignment factor.
        op.operands.append((kind + ("_sf" if form == "S" else ""), at, reader.at - at, value))
    return op


class Cie:
    pass


class Fde:
    pass


class Row:
    """The rules at an address. A rule is a tuple: its name and its operands."""

    def __init__(self):
        self.cfa = None
        self.rules = {}

    def copy(self):
        other = Row()
        other.cfa, other.rules = self.cfa, dict(self.rules)
        return other

    def claims(self, return_register):
        """What the row says, in one form: rules that say what no rule says are left out."""
        rules = tuple(
            sorted(
                (register, rule)
                for register, rule in self.rules.items()
                if not (rule == ("same_value",) and register in CALLEE_SAVED)
            )
        )
        return self.cfa, return_register, rules


class Table:
    """The table of a file's bytes, with the search table if there is one."""

    def __init__(self, elf, has_index=True):
        self.elf, self.data = elf, elf.data
        section = elf.sections[".eh_frame"]
        self.start, self.end = section.offset, section.offset + section.size
        self.move = section.address - section.offset
        self.cies, self.fdes, self.rows_of = {}, {}, {}
        self.index, self.hdr_at, self.is_overlapping = None, None, False
        if has_index:
            self.read_index()

    def address(self, offset):
        return offset + self.move

    # Entries.

    def records(self):
        """The records as a reader from the start finds them: (offset, end, is a CIE)."""
        at = self.start
        while at < self.end:
            try:
                reader = Reader(self.data, at, self.end)
                length = reader.number("I")
                if length == 0:
                    return
                if length == 0xFFFFFFFF:
                    raise Unreadable("a long record")
                end = reader.at + length
                if end > self.end:
                    raise Unreadable("a record behind the end")
                yield at, end, Reader(self.data, at + 4, end).number("I") == 0
            except Unreadable:
                return
            at = end

    def cie(self, at):
        if at not in self.cies:
            try:
                self.cies[at] = self.read_cie(at)
            except Unreadable as error:
                self.cies[at] = error
        if isinstance(self.cies[at], Unreadable):
            raise self.cies[at]
        return self.cies[at]

    def bounds(self, at):
        if not self.start <= at < self.end:
            raise Unreadable("outside of the section")
        reader = Reader(self.data, at, self.end)
        length = reader.number("I")
        if length in (0, 0xFFFFFFFF) or reader.at + length > self.end:
            raise Unreadable("a length that cannot be")
        return Reader(self.data, reader.at, reader.at + length)

    def read_cie(self, at):
        cie = Cie()
        cie.at = at
        reader = self.bounds(at)
        cie.end = reader.end
        if reader.number("I") != 0:
            raise Unreadable("not a CIE")
        cie.version_at = reader.at
        version = reader.number("B")
        if version not in (1, 3):
            raise Unreadable("a version that does not exist")
        cie.augmentation_at = reader.at
        letters = b""
        while (byte := reader.take(1)) != b"\0":
            letters += byte
        cie.augmentation = letters
        cie.code_at = reader.at
        cie.code = reader.uleb()
        cie.data_at = reader.at
        cie.factor = reader.sleb()
        cie.return_at = reader.at
        cie.return_register = reader.number("B") if version == 1 else reader.uleb()
        cie.encoding, cie.lsda, cie.is_signal = 0, 0xFF, False
        cie.encoding_at = None
        if letters[:1] == b"z":
            length = reader.uleb()
            after = reader.at + length
            for letter in letters[1:]:
                if letter == ord("R"):
                    cie.encoding_at = reader.at
                    cie.encoding = reader.number("B")
                elif letter == ord("L"):
                    cie.lsda = reader.number("B")
                elif letter == ord("P"):
                    encoding = reader.number("B")
                    reader.pointer(encoding & ~0x80, self.address)
                elif letter == ord("S"):
                    cie.is_signal = True
                else:
                    break
            reader.at = after
        elif letters:
            raise Unreadable("an augmentation that does not exist")
        if reader.at > reader.end:
            raise Unreadable("an augmentation behind the end")
        cie.ops = read_ops(Reader(self.data, reader.at, reader.end))
        return cie

    def fde(self, at):
        if at not in self.fdes:
            try:
                self.fdes[at] = self.read_fde(at)
            except Unreadable as error:
                self.fdes[at] = error
        if isinstance(self.fdes[at], Unreadable):
            raise self.fdes[at]
        return self.fdes[at]

    def read_fde(self, at):
        fde = Fde()
        fde.at = at
        reader = self.bounds(at)
        fde.end = reader.end
        fde.pointer_at = reader.at
        distance = reader.number("I")
        if distance == 0:
            raise Unreadable("not an FDE")
        fde.cie = self.cie(fde.pointer_at - distance)
        fde.begin_at = reader.at
        fde.begin = reader.pointer(fde.cie.encoding, self.address)
        fde.range_at = reader.at
        fde.range = reader.pointer(fde.cie.encoding & 15, self.address)
        fde.range_length = reader.at - fde.range_at
        fde.augmentation_at = None
        if fde.cie.augmentation[:1] == b"z":
            fde.augmentation_at = reader.at
            length = reader.uleb()
            reader.take(length)
        set_loc = lambda r: r.pointer(fde.cie.encoding, self.address)
        fde.ops = read_ops(Reader(self.data, reader.at, reader.end), set_loc)
        return fde

    # The search table.

    def read_index(self):
        found = self.elf.segment(PT_GNU_EH_FRAME)
        if not found:
            return
        address, offset, size = found
        try:
            reader = Reader(self.data, offset, offset + size)
            move = address - offset
            version, pointer, count, table = reader.take(4)
            if version != 1:
                return
            reader.pointer(pointer, lambda at: at + move, address)
            if count == 0xFF or table != 0x3B:
                return
            number = reader.pointer(count, lambda at: at + move, address)
            self.hdr_at, self.hdr_count_at = reader.at, reader.at - 4
            entries = []
            for _ in range(number):
                entries.append((address + reader.number("i"), address + reader.number("i")))
            self.index = entries
        except Unreadable:
            self.index = None

    # Rows.

    def find(self, pc):
        """The FDE of an address, by the search table or else in the section's order."""
        if self.index is not None:
            low, high = 0, len(self.index)
            while low < high:
                middle = (low + high) // 2
                if self.index[middle][0] <= pc:
                    low = middle + 1
                else:
                    high = middle
            if low == 0:
                return None
            fde = self.fde(self.index[low - 1][1] - self.move)
            return fde if fde.begin <= pc < fde.begin + fde.range else None
        for at, _end, is_cie in self.records():
            if is_cie:
                continue
            try:
                fde = self.fde(at)
            except Unreadable:
                continue
            if fde.begin <= pc < fde.begin + fde.range:
                return fde
        return None

    def claims(self, pc):
        """What the table says at an address, in one form; None if there is nothing to read."""
        found = self.row(pc)
        return None if found is None else found[0].claims(found[1])

    def row(self, pc):
        try:
            fde = self.find(pc)
            if fde is None:
                return None
            if fde.at not in self.rows_of:
                self.rows_of[fde.at] = self.execute(fde)
            best = None
            for start, row in self.rows_of[fde.at]:
                if start > pc:
                    break
                best = row
            if best is None or isinstance(best, Unreadable):
                return None
            return best, fde.cie.return_register
        except Unreadable:
            return None

    def execute(self, fde):
        """The rows of an FDE: (address, row). An error replaces the rows that are not readable."""
        initial = Row()
        try:
            location = fde.begin
            for op in fde.cie.ops:
                location = self.apply(op, initial, None, [], location, fde.cie)
        except Unreadable as error:
            return [(fde.begin, error)]
        rows, row, kept, location = [], initial.copy(), [], fde.begin
        for op in fde.ops:
            before = location
            try:
                previous = row.copy()
                location = self.apply(op, row, initial, kept, location, fde.cie)
            except Unreadable as error:
                rows.append((location, error))
                return rows
            if op.name in ("advance", "set_loc"):
                rows.append((before, previous))
        rows.append((location, row))
        return rows

    def apply(self, op, row, initial, kept, location, cie):
        if isinstance(op, Unreadable):
            raise op
        name, factor = op.name, cie.factor
        if name == "advance":
            return location + op.value(0) * cie.code
        if name == "set_loc":
            return op.value(0)
        if name == "def_cfa":
            signed = op.operands[1][0].endswith("_sf")
            row.cfa = ("register", op.value(0), op.value(1) * (factor if signed else 1))
        elif name in ("def_cfa_register", "def_cfa_offset"):
            if row.cfa is None or row.cfa[0] != "register":
                raise Unreadable("half of a rule for the CFA")
            if name == "def_cfa_register":
                row.cfa = ("register", op.value(0), row.cfa[2])
            else:
                signed = op.operands[0][0].endswith("_sf")
                row.cfa = ("register", row.cfa[1], op.value(0) * (factor if signed else 1))
        elif name == "cfa_expression":
            row.cfa = ("expression", bytes(op.value(0)))
        elif name in ("offset", "val_offset"):
            row.rules[op.value(0)] = (name, op.value(1) * factor)
        elif name in ("expression", "val_expression"):
            row.rules[op.value(0)] = (name, bytes(op.value(1)))
        elif name == "register":
            row.rules[op.value(0)] = ("register", op.value(1))
        elif name in ("undefined", "same_value"):
            row.rules[op.value(0)] = (name,)
        elif name == "restore":
            if initial is None:
                raise Unreadable("DW_CFA_restore in a CIE")
            row.rules.pop(op.value(0), None)
            if op.value(0) in initial.rules:
                row.rules[op.value(0)] = initial.rules[op.value(0)]
        elif name == "remember":
            kept.append(row.copy())
        elif name == "recall":
            if not kept:
                raise Unreadable("nothing was remembered")
            last = kept.pop()
            row.cfa, row.rules = last.cfa, last.rules
        return location


class Unknown(Exception):
    """A value that the state does not have."""
