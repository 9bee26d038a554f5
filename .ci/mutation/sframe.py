"""Reads .sframe in versions 1 to 3, finds the row of an address, and applies it to a state.

The measure's own reader. It says what the format says: a table that is not as its header describes
it, or an FDE that is not, has no rows. Specification of SFrame: binutils 2.44 (version 2) and 2.46
(version 3).
"""

import struct

from cfi import MASK, RA, RSP, Unknown, Unreadable

RBP = 6
SORTED, PCREL = 1, 4
FDE_SIZES = {1: 17, 2: 20, 3: 16}


class Fde:
    pass


class Fre:
    pass


class Table:
    def __init__(self, elf):
        section = elf.sections[".sframe"]
        self.data, self.at, self.size = elf.data, section.offset, section.size
        self.address, self.move = section.address, section.address - section.offset
        self.fdes, self.error, self.is_overlapping = [], None, False
        try:
            self.read()
        except Unreadable as error:
            self.error = error

    def unpack(self, form, at):
        form = "<" + form
        if at < self.at or at + struct.calcsize(form) > self.at + self.size:
            raise Unreadable("outside of the section")
        return struct.unpack_from(form, self.data, at)

    def read(self):
        magic, version, flags, abi, fp, ra, extra = self.unpack("HBBBbbB", self.at)
        # No reader needs the number of rows.
        fdes, _fres, length, fde_at, fre_at = self.unpack("5I", self.at + 8)
        if magic != 0xDEE2 or version not in FDE_SIZES or abi != 3:
            raise Unreadable("not this processor's SFrame")
        if flags & ~7 or extra:
            raise Unreadable("flags or a header that do not exist")
        self.version, self.flags, self.fixed_fp, self.fixed_ra = version, flags, fp, ra
        self.header_end = self.at + 28
        self.fre_start = self.header_end + fre_at
        self.fre_end = self.fre_start + length
        size = FDE_SIZES[version]
        self.fde_start = self.header_end + fde_at
        self.is_overlapping = self.fde_start + fdes * size > self.fre_start
        # As libsframe: an FDE may lie where rows are, and is then what these bytes say.
        if self.fde_start > self.fre_start or self.fre_end > self.at + self.size:
            raise Unreadable("parts that overlap, or end behind the section")
        self.fdes = [self.read_fde(self.fde_start + i * size) for i in range(fdes)]

    def read_fde(self, at):
        fde = Fde()
        fde.at, fde.flags2 = at, 0
        if self.version == 3:
            start, fde.size, fre_at = self.unpack("qII", at)
            fde.attributes = self.fre_start + fre_at
            fde.fres_at = fde.attributes + 5
            try:
                form, place = "HBBB", fde.attributes
                fde.count, fde.info, fde.flags2, fde.repeat = self.unpack(form, place)
            except Unreadable:
                # Only this function is lost.
                fde.count, fde.info, fde.flags2, fde.repeat = 1, 15, 0, 0
        else:
            start, fde.size, fre_at, fde.count, fde.info = self.unpack("iIIIB", at)
            fde.fres_at = self.fre_start + fre_at
            fde.repeat = self.unpack("B", at + 17)[0] if self.version == 2 else 16
        base = at + self.move if self.flags & PCREL else self.address
        fde.start = (base + start) & MASK
        fde.is_mask = bool(fde.info & 0x10)
        try:
            fde.fres = self.read_fres(fde)
        except Unreadable as error:
            fde.fres = error
        return fde

    def read_fres(self, fde):
        form = {0: "B", 1: "H", 2: "I"}.get(fde.info & 15)
        if form is None or fde.flags2 > 1:
            raise Unreadable("a type that does not exist")
        at, fres, last = fde.fres_at, [], -1
        for _ in range(fde.count):
            fre = Fre()
            fre.at = at
            fre.start = self.unpack(form, at)[0]
            if fre.start <= last:
                raise Unreadable("rows that are not in order")
            last = fre.start
            at += struct.calcsize("<" + form)
            fre.info_at = at
            fre.info = self.unpack("B", at)[0]
            count, size = fre.info >> 1 & 15, fre.info >> 5 & 3
            if size == 3 or fre.info & 0x80:
                raise Unreadable("a size that does not exist")
            at += 1
            fre.words_at, fre.size = at, 1 << size
            fre.words = self.unpack(str(count) + "bhi"[size], at)
            if at + count * fre.size > self.fre_end:
                raise Unreadable("rows behind their end")
            at += count * fre.size
            fres.append(fre)
        return fres

    def find(self, pc):
        if self.error:
            return None
        if not self.flags & SORTED:
            return next((f for f in self.fdes if f.start <= pc < f.start + f.size), None)
        low, high = 0, len(self.fdes)
        while low < high:
            middle = (low + high) // 2
            if self.fdes[middle].start <= pc:
                low = middle + 1
            else:
                high = middle
        fde = self.fdes[low - 1] if low else None
        return fde if fde and pc < fde.start + fde.size else None

    def claims(self, pc):
        """What the table says at an address, in one form; None if there is nothing to read."""
        return self.row(pc)

    def row(self, pc):
        """Rules for the CFA, the return address and rbp: (base, offset, is it a load), base None for
        the CFA. None is no row; "outermost" is the end of the stack."""
        fde = self.find(pc)
        if fde is None or isinstance(fde.fres, Unreadable):
            return None
        distance = pc - fde.start
        if fde.is_mask:
            if not fde.repeat:
                return None
            distance %= fde.repeat
        best = None
        for fre in fde.fres:
            if fre.start <= distance:
                best = fre
        try:
            if not fde.fres and self.version == 3 and not fde.flags2:
                return "outermost"
            return None if best is None else self.rules(fde, best)
        except Unreadable:
            return None

    def rules(self, fde, fre):
        words = list(fre.words)
        ra = (None, self.fixed_ra, True) if self.fixed_ra else None
        fp = (None, self.fixed_fp, True) if self.fixed_fp else None
        if not words:
            # Version 1 and the first version 2 know no end of the stack.
            return "outermost" if self.version > 1 else None
        if not fde.flags2:
            cfa = (RSP if fre.info & 1 else RBP, words.pop(0), False)
            if ra is None and words:
                ra = (None, words.pop(0), True)
            if fp is None and words:
                fp = (None, words.pop(0), True)
        else:
            cfa = self.flex(words, fre.size)
            if cfa is None or cfa[0] is None:
                raise Unreadable("no rule for the CFA")
            ra = (self.flex(words, fre.size) if words else None) or ra
            fp = (self.flex(words, fre.size) if words else None) or fp
        if words or ra is None:
            raise Unreadable("another number of words")
        return cfa, ra, fp

    def flex(self, words, size):
        control = words.pop(0) & ((1 << 8 * size) - 1)
        if control == 0:
            return None
        if control & 4 or not words:
            raise Unreadable("a control word that does not exist")
        return control >> 3 if control & 1 else None, words.pop(0), bool(control & 2)


def wrong_claims(row, state):
    """The claims of a row that are wrong in a state: "row", "cfa", "ra", or the number of rbp."""
    if row is None:
        return {"row"}
    if row == "outermost":
        return {"ra"}
    value = lambda rule, cfa: apply(rule, cfa, state)
    cfa = value(row[0], None)
    if cfa != state.cfa:
        return {"cfa"}
    wrong = set()
    if value(row[1], cfa) != state.return_address:
        wrong.add("ra")
    fp = state.registers[RBP] if row[2] is None else value(row[2], cfa)
    if fp != state.entry[RBP]:
        wrong.add(RBP)
    return wrong


def apply(rule, cfa, state):
    base, offset, is_load = rule
    try:
        address = (cfa if base is None else state.register(base)) + offset & MASK
        return state.memory(address) if is_load else address
    except Unknown:
        return None


def lookup_address(state):
    """SFrame's readers look up a caller by its return address, not by the one before it."""
    return state.address + state.kind


assert RA == 16
