#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! memory: rsp+8 = 5 @root
#@ leaf: leaf < _start
leaf:
        ret
