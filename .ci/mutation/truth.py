"""What step.c wrote: states of a program, with what is true in them."""

import struct

from cfi import KNOWN_IN_CALLERS, Unknown

WORDS = struct.Struct("<2Q16QQQ16Q2Q")


class State:
    """A state before an instruction (kind 0), or that of a caller while its callee runs (kind 1),
    whose address is that of the call's last byte."""

    def __init__(self, words, stack):
        self.kind, self.address = words[0], words[1]
        self.registers = words[2:18]
        self.cfa, self.return_address = words[18], words[19]
        self.entry = words[20:36]
        self.stack_at, self.stack = words[36], stack

    def register(self, number):
        # In procedure linkage tables, the CFA is computed from rip.
        if number == 16:
            return self.address + self.kind
        if number > 15 or (self.kind == 1 and number not in KNOWN_IN_CALLERS):
            raise Unknown
        return self.registers[number]

    def memory(self, address):
        at = address - self.stack_at
        # A walk reads no memory below the stack pointer of a caller.
        if at < 0 or at + 8 > len(self.stack) or (self.kind == 1 and address < self.registers[7]):
            raise Unknown
        return int.from_bytes(self.stack[at : at + 8], "little")


def read_states(path):
    data = open(path, "rb").read()
    states, at = [], 0
    while at < len(data):
        words = WORDS.unpack_from(data, at)
        at += WORDS.size
        states.append(State(words, data[at : at + words[-1]]))
        at += words[-1]
    return states
