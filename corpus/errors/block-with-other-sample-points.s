#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#@ leaf: leaf <
#@     _start
leaf:
_start:
        ret
#= sample dwarf
#= leaf   .
#= sample fp
#= _start .
