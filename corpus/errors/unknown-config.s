#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! config: FRAME_POINTER=maybe
#@ leaf: leaf < _start
leaf:
        ret
