"""The sections and segments of an ELF file of x86-64. No more than the measure needs."""

import struct

PT_GNU_EH_FRAME = 0x6474E550


class Section:
    def __init__(self, name, address, offset, size, flags):
        self.name, self.address, self.offset, self.size = name, address, offset, size
        self.is_code = bool(flags & 4)


class Elf:
    def __init__(self, data):
        self.data = data
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit little-endian ELF file")
        phoff, shoff = struct.unpack_from("<QQ", data, 32)
        phsize, phcount, shsize, shcount, names = struct.unpack_from("<HHHHH", data, 54)
        heads = [struct.unpack_from("<IIQQQQ", data, shoff + i * shsize) for i in range(shcount)]
        strings = heads[names][4]
        self.sections = {}
        for name, _type, flags, address, offset, size in heads:
            end = data.index(b"\0", strings + name)
            text = data[strings + name : end].decode()
            self.sections[text] = Section(text, address, offset, size, flags)
        self.segments = [
            struct.unpack_from("<IIQQQQ", data, phoff + i * phsize) for i in range(phcount)
        ]

    def segment(self, kind):
        """Address and offset of the first segment of a type."""
        for type_, _flags, offset, address, _physical, size in self.segments:
            if type_ == kind:
                return address, offset, size
        return None
