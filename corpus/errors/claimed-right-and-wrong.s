#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! wrong: dwarf(US501)
#@ leaf: leaf < _start
leaf:
        ret
