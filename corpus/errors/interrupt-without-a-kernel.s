#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! interrupt: before leaf
#@ leaf: leaf < _start
leaf:
        ret
