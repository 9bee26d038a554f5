#! claim: It is malformed.
#! group: errors
#! right: dwarf
#@ leaf: leaf < _start
leaf:
        ret
