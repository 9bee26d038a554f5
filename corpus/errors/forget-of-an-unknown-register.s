#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! forget: rbx foo @leaf
#@ leaf: leaf < _start
leaf:
        ret
