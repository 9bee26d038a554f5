#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! view: copy:many
#@ leaf: leaf < _start
leaf:
        ret
