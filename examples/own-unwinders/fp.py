#!/usr/bin/env python3
"""A frame-pointer unwinder for `unwind-sim replay TRACE --unwinder cmd:./fp.py`."""
import json
import sys


def send(**line):
    print(json.dumps(line), flush=True)


def read_word(address):
    send(type="read", address=hex(address), length=8)
    answer = json.loads(sys.stdin.readline())
    if "bytes" not in answer:
        return None
    return int.from_bytes(bytes.fromhex(answer["bytes"]), "little")


for line in sys.stdin:
    stack = json.loads(line)
    registers = {k: int(v, 16) for k, v in stack["registers"].items()}
    code = [range(int(i["start"], 16), int(i["end"], 16)) for i in stack["images"]]
    send(type="frame", pc=hex(registers["rip"]))
    rbp, floor, reason = registers.get("rbp", 0), registers["rsp"], "US001"
    while rbp:
        if rbp < floor:
            reason = "US204"
            break
        caller, ra = read_word(rbp), read_word(rbp + 8)
        if caller is None or not ra:
            reason = "US202"
            break
        if not any(ra - 1 in mapped for mapped in code):
            reason = "US206"
            break
        send(type="frame", pc=hex(ra), slot=hex(rbp + 8))
        rbp, floor = caller, rbp + 16
    send(type="end", reason=reason)
