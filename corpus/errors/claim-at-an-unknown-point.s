#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf(at leaf#2)
#@ leaf: leaf < _start
leaf:
        ret
