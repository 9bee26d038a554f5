#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#@ leaf: leaf < the root
leaf:
        ret
