#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! machine: kernel
#! inject: offset at leaf
#@ leaf: leaf < _start
leaf:
        ret
