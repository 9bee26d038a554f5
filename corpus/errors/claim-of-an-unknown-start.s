#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf@fake:v9
#@ leaf: leaf < _start
leaf:
        ret
