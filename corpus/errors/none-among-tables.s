#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! tables: eh_frame none
#@ leaf: leaf < _start
leaf:
        ret
