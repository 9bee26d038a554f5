#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf @hw
#@ leaf: leaf < _start
leaf:
        ret
