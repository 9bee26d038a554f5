#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! colour: red
#@ leaf: leaf < _start
leaf:
        ret
