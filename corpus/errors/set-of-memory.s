#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! set: rsp+8 = 5 @leaf
#@ leaf: leaf < _start
leaf:
        ret
