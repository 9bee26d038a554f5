#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#@ leaf: leaf < _start
leaf:
        ret
#= sample dwarf .
