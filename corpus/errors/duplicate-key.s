#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! group: errors
#@ leaf: leaf < _start
leaf:
        ret
