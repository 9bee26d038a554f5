#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#@ leaf each: leaf < _start
leaf:
        ret
