#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! machine: kernel
#@ leaf #2 each: leaf < _start
leaf:
        ret
