#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! covers: US203 US-1
#@ leaf: leaf < _start
leaf:
        ret
