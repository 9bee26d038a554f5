#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! covers: US999
#@ leaf: leaf < _start
leaf:
        ret
