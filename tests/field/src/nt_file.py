#!/usr/bin/env python3
"""nt_file.py CORE OUT drop|bytes: the core without its NT_FILE note, or with its file offsets in bytes
(the note has them in pages)."""

import struct
import sys

data = bytearray(open(sys.argv[1], "rb").read())
headers = struct.unpack_from("<Q", data, 32)[0]
for i in range(struct.unpack_from("<H", data, 56)[0]):
    kind, _, offset, _, _, size, _, _ = struct.unpack_from("<IIQQQQQQ", data, headers + 56 * i)
    at = offset
    while kind == 4 and at < offset + size:
        name, length, note = struct.unpack_from("<III", data, at)
        start = at + 12 + (name + 3) // 4 * 4
        if note == 0x46494C45 and sys.argv[3] == "drop":
            struct.pack_into("<I", data, at + 8, 0x12345)
        elif note == 0x46494C45:
            count, page = struct.unpack_from("<QQ", data, start)
            for k in range(count):
                place = start + 16 + 24 * k + 16
                value = struct.unpack_from("<Q", data, place)[0]
                struct.pack_into("<Q", data, place, value * page)
        at = start + (length + 3) // 4 * 4
open(sys.argv[2], "wb").write(data)
