#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! inject: sideways at leaf
#@ leaf: leaf < _start
leaf:
        ret
.ifdef DEFECT
.endif
