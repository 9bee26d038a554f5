#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#! forget: rbx @leaf#2
#@ leaf: leaf < _start
leaf:
        ret
