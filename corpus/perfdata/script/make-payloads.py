#!/usr/bin/env python3
"""Replaces the samples of a recording of tracepoints by payloads of random bytes.

    make-payloads.py RECORDING OUTPUT KALLSYMS [SEED]

RECORDING is what `perf record -e SYSTEM:NAME,.. -- true` wrote. Every event gets as many samples
as PER_EVENT says, with fields that fit its format: addresses of functions, texts, dynamic arrays,
small, large and negative numbers. What perf prints of them is the expectation of a test.
"""
import random
import re
import struct
import sys

PER_EVENT = 5
FIELD = re.compile(r"field:([^;]*);\s*offset:(\d+);\s*size:(\d+);\s*signed:\d")
TEXT = b"abcXYZ_/.09"


def formats(section):
    """The formats of the tracing data section, by the event's number."""
    at = section.index(b"\0", 10) + 1 + 1 + 1 + 4
    found = {}

    def sized(kind, at):
        (size,) = struct.unpack_from(kind, section, at)
        at += struct.calcsize(kind)
        return section[at : at + size], at + size

    def name(at):
        return section.index(b"\0", at) + 1

    def events(at):
        (count,) = struct.unpack_from("<I", section, at)
        at += 4
        for _ in range(count):
            text, at = sized("<Q", at)
            text = text.decode()
            found[int(re.search(r"^ID: (\d+)", text, re.M)[1])] = text
        return at

    for _ in ("header_page", "header_event"):
        _, at = sized("<Q", name(at))
    at = events(at)
    (systems,) = struct.unpack_from("<I", section, at)
    at += 4
    for _ in range(systems):
        at = events(name(at))
    return found


def number(size, functions):
    chance = random.random()
    if size == 8 and chance < 0.4:
        value = random.choice(functions) + random.randrange(64)
    elif chance < 0.5:
        value = 0
    elif chance < 0.7:
        value = random.randrange(256)
    elif chance < 0.8:
        value = 256**size - 1
    elif chance < 0.9:
        value = 1 << random.randrange(8 * size)
    else:
        value = random.getrandbits(8 * size)
    return (value % 256**size).to_bytes(size, "little")


def text(length):
    return bytes(random.choice(TEXT) for _ in range(length))


def payload(event, form, functions):
    fields = [(what, int(at), int(size)) for what, at, size in FIELD.findall(form)]
    end = max(at + size for _, at, size in fields)
    fixed, dynamic = bytearray((end + 7) // 8 * 8), bytearray()
    for what, at, size in fields:
        if "common_type" in what:
            data = struct.pack("<H", event)
        elif "_loc" in what:
            if "char" in what:
                data = text(random.randrange(12)) + b"\0"
            else:
                sizes = [random.choice((1, 2, 4, 8)) for _ in range(random.randrange(6))]
                data = b"".join(number(size, functions) for size in sizes)
            place = len(fixed) + len(dynamic)
            if "__rel_loc" in what:
                place -= at + 4
            dynamic += data
            data = struct.pack("<I", len(data) << 16 | place)
        elif "char" in what and "[" in what and "unsigned" not in what:
            data = text(random.randrange(size)).ljust(size, b"\0")
        elif size in (1, 2, 4, 8):
            data = number(size, functions)
        else:
            data = b"".join(number(1, functions) for _ in range(size))
            if size == 28:  # an address of a socket: IPv4, IPv6 or another family
                data = struct.pack("<H", random.choice((2, 10, 10, 3))) + data[2:]
        fixed[at : at + size] = data
    return bytes(fixed + dynamic)


def main(source, target, kallsyms, seed="1"):
    random.seed(int(seed))
    old = open(source, "rb").read()
    functions = [int(line.split()[0], 16) for line in open(kallsyms) if line.split()[1] in "tT"]
    attr_size, attrs, attrs_size, data, data_size = struct.unpack_from("<16xQQQQQ", old)
    bits = struct.unpack_from("<4Q", old, 72)
    features = [bit for bit in range(256) if bits[bit // 64] >> bit % 64 & 1]
    table = data + data_size
    places = [struct.unpack_from("<QQ", old, table + 16 * n) for n in range(len(features))]
    at, size = places[features.index(1)]
    forms = formats(old[at : at + size])
    samples, time = bytearray(), 10**9
    while data < table:
        kind, _, size = struct.unpack_from("<IHH", old, data)
        if kind in (1, 10):  # what is mapped
            samples += old[data : data + size]
        data += size
    data = table - data_size
    for attr in range(attrs, attrs + attrs_size, attr_size):
        kind, _, event, _, sample_type = struct.unpack_from("<IIQQQ", old, attr)
        (ids,) = struct.unpack_from("<Q", old, attr + attr_size - 16)
        (number_of,) = struct.unpack_from("<Q", old, ids)
        if kind != 2 or event not in forms:
            continue
        for _ in range(PER_EVENT):
            time += 1000
            raw = payload(event, forms[event], functions)
            raw += bytes(-(4 + len(raw)) % 8)
            parts = (
                (1 << 16, struct.pack("<Q", number_of)),
                (1 << 0, struct.pack("<Q", 0)),
                (1 << 1, struct.pack("<ii", 100, 100)),
                (1 << 2, struct.pack("<Q", time)),
                (1 << 6, struct.pack("<Q", number_of)),
                (1 << 7, struct.pack("<II", 0, 0)),
                (1 << 8, struct.pack("<Q", 1)),
                (1 << 10, struct.pack("<I", len(raw)) + raw),
            )
            assert sample_type == sample_type & sum(bit for bit, _ in parts)
            body = b"".join(part for bit, part in parts if sample_type & bit)
            samples += struct.pack("<IHH", 9, 1, 8 + len(body)) + body
    new = bytearray(old[:data]) + samples
    moved = len(new) - table
    new += b"".join(struct.pack("<QQ", at + moved, size) for at, size in places)
    new += old[table + 16 * len(places) :]
    struct.pack_into("<Q", new, 48, len(samples))
    open(target, "wb").write(new)


main(*sys.argv[1:])
