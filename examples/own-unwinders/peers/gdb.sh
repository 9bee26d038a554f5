#!/bin/sh
# Starts gdb with the adapter, keeping gdb's own output out of the protocol.
exec 3>&1 4<&0 1>&2 </dev/null
exec gdb -nx -q -batch -x "$(dirname "$0")/unwind-sim-unwinder-gdb.py"
