#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf(at leaf
#@ leaf: leaf < _start
leaf:
        ret
