"""Applies a row of .eh_frame to a state, and says which of its claims are wrong there.

DWARF 5, sections 2.5 (expressions) and 6.4.3 (rules).
"""

from cfi import CALLEE_SAVED, MASK, RSP, Reader, Unknown, Unreadable


def expression(block, state, stack):
    """The value of a DWARF expression."""
    reader = Reader(block, 0, len(block))
    steps = 0
    while reader.at < reader.end:
        steps += 1
        op = reader.number("B")
        if op == 0x06:
            stack.append(state.memory(stack.pop()))
        elif op == 0x08:
            stack.append(reader.number("B"))
        elif op == 0x09:
            stack.append(reader.number("b") & MASK)
        elif op == 0x0A:
            stack.append(reader.number("H"))
        elif op == 0x0B:
            stack.append(reader.number("h") & MASK)
        elif op == 0x10:
            stack.append(reader.uleb())
        elif op == 0x11:
            stack.append(reader.sleb() & MASK)
        elif op == 0x12:
            stack.append(stack[-1])
        elif op == 0x1F:
            stack.append(-stack.pop() & MASK)
        elif op in (0x1A, 0x1C, 0x21, 0x22, 0x24, 0x25, 0x27, 0x2A, 0x2D):
            b, a = stack.pop(), stack.pop()
            signed = lambda v: v - (1 << 64) if v >> 63 else v
            result = {
                0x1A: lambda: a & b,
                0x1C: lambda: a - b,
                0x21: lambda: a | b,
                0x22: lambda: a + b,
                0x24: lambda: a << b if b < 64 else 0,
                0x25: lambda: a >> b if b < 64 else 0,
                0x27: lambda: a ^ b,
                0x2A: lambda: signed(a) >= signed(b),
                0x2D: lambda: signed(a) < signed(b),
            }[op]()
            stack.append(int(result) & MASK)
        elif op == 0x23:
            stack.append((stack.pop() + reader.uleb()) & MASK)
        elif 0x30 <= op <= 0x4F:
            stack.append(op - 0x30)
        elif 0x70 <= op <= 0x8F:
            stack.append((state.register(op - 0x70) + reader.sleb()) & MASK)
        elif op != 0x96:
            raise Unreadable("an operation that is not read here")
    return stack[-1]


def wrong_claims(found, state):
    """The claims of a row that are wrong in a state: "cfa", "ra", and numbers of registers. Those of
    registers that are not callee-saved are numbers of 100 and more."""
    if found is None:
        return {"row"}
    row, return_register = found
    wrong = set()
    try:
        if row.cfa is None:
            return {"cfa"}
        if row.cfa[0] == "register":
            cfa = (state.register(row.cfa[1]) + row.cfa[2]) & MASK
        else:
            cfa = expression(row.cfa[1], state, [])
    except (Unknown, Unreadable, IndexError):
        return {"cfa"}
    if cfa != state.cfa:
        return {"cfa"}
    if (
        value_of(row.rules.get(return_register), return_register, cfa, state)
        != state.return_address
    ):
        wrong.add("ra")
    for register in set(row.rules) | set(CALLEE_SAVED):
        if register == return_register or register > 15:
            continue
        rule = row.rules.get(register)
        if rule == ("undefined",):
            continue
        # At entry a called function's callee-saved registers are its caller's.
        if value_of(rule, register, cfa, state) != state.entry[register]:
            is_saved = register in CALLEE_SAVED or register == RSP
            if is_saved or state.kind == 0:
                wrong.add(register if is_saved else 100 + register)
    return wrong


def value_of(rule, register, cfa, state):
    """The caller's value by a rule; None if it is not known."""
    try:
        if rule is None or rule[0] == "same_value":
            if rule is None and register == RSP:
                return cfa
            return state.register(register)
        name = rule[0]
        if name == "offset":
            return state.memory((cfa + rule[1]) & MASK)
        if name == "val_offset":
            return (cfa + rule[1]) & MASK
        if name == "register":
            return state.register(rule[1])
        if name == "expression":
            return state.memory(expression(rule[1], state, [cfa]))
        if name == "val_expression":
            return expression(rule[1], state, [cfa])
    except (Unknown, Unreadable, IndexError):
        pass
    return None
