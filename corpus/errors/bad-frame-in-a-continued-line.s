#! claim: It is malformed.
#! source: this corpus
#! group: errors
#! right: dwarf
#@ leaf: leaf <
#@     middle < middle+ <
#@     _start
leaf:
        ret
