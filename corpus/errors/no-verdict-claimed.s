#! claim: It is malformed.
#! source: this corpus
#! group: errors
#@ leaf: leaf < _start
leaf:
        ret
