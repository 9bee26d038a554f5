#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#@ 12: leaf
leaf:
        ret
