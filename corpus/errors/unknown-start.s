#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! regs: hw fake:v6
#@ leaf: leaf < _start
leaf:
        ret
