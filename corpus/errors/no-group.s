#! claim: It is malformed.
#! source: this corpus
#! right: dwarf
#@ leaf: leaf < _start
leaf:
        ret
