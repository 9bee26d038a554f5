#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! set: leaf = 5 @leaf
#@ leaf: leaf < _start
leaf:
        ret
