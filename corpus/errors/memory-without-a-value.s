#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! memory: rsp+8 @leaf
#@ leaf: leaf < _start
leaf:
        ret
