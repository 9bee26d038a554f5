#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#@ leaf often: leaf
leaf:
        ret
