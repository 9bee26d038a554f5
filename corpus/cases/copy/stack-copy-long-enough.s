#! claim: A copy that ends with the root's return address is enough for the whole chain.
#! source: perf-record(1) --call-graph dwarf,SIZE
#! group: copy
#! view: copy:136
#! right: dwarf sframe orc guess
#@ in_leaf: leaf < one < two < three < four < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        ret
ENDFUNC leaf

PLAIN_CALLER one, leaf                  # 4 * 32 bytes and one return address
PLAIN_CALLER two, one
PLAIN_CALLER three, two
PLAIN_CALLER four, three
PLAIN_ROOT four

#= sample  dwarf sframe orc fp        guess
#= in_leaf .     .      .   t@1/US512 ~
