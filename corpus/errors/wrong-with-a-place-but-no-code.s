#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! wrong: fp(at leaf)
#@ leaf: leaf < _start
leaf:
        ret
