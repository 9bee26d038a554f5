#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
leaf:
        ret
