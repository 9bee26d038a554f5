#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! forget: @leaf
#@ leaf: leaf < _start
leaf:
        ret
