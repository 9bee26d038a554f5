#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! machine: kernel
#! interrupt: every: leaf
#@ leaf: leaf < _start
leaf:
        ret
