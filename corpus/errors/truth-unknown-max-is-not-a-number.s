#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! truth-unknown-max: few
#@ leaf: leaf < _start
leaf:
        ret
