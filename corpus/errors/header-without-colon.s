#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! view copy
#@ leaf: leaf < _start
leaf:
        ret
