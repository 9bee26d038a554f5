#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! wrong: fp(US51)
#@ leaf: leaf < _start
leaf:
        ret
