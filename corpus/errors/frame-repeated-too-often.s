#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#@ leaf: leaf*100000 < mid*100000
leaf:
        ret
