#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! machine: kernel
#! interrupt: every in leaf: leaf
#! nmi: every in leaf: leaf
#@ leaf: leaf < _start
leaf:
        ret
