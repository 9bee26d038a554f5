#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! regs: fake:v5.2
#@ leaf: leaf < _start
leaf:
        ret
