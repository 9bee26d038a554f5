#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! wrong: fp
#@ leaf: leaf < _start
leaf:
        ret
