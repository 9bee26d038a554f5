#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#@ leaf #0: leaf
leaf:
        ret
