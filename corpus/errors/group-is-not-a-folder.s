#! claim: It is malformed.
#! source: this corpus
#! group: Errors/x
#! right: dwarf
#@ leaf: leaf < _start
leaf:
        ret
