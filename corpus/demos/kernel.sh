#!/bin/sh
# Records the demo of a kernel anew: kernel.sh VMLINUZ OUTPUT, with the vmlinuz of Debian's 6.12.117 and
# unwind-sim in PATH or in UNWIND_SIM. The first page fault of user mode is the one behind which sync_regs
# is called first; from there the states are counted.
set -eu

tool=${UNWIND_SIM:-unwind-sim}
sync_regs=$("$tool" step --json --count 1 --kernel "$1" --from sync_regs |
    sed 's/.*"first":\([0-9]*\).*/\1/')
# The fault is delivered 44 states before.
fault=$((sync_regs - 44))
# The handler's first instruction; those of error_entry, and within its pushes; that of the NMI, which
# comes behind the pushes; and in the NMI's handler.
"$tool" step --kernel "$1" --nmi $((fault + 21)) \
    --states "$fault,$((fault + 4)),$((fault + 13)),$((fault + 22)),$((fault + 110))" \
    --extract "$2" --scrub
