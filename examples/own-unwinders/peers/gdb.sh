#!/bin/sh
# Starts gdb with the adapter; gdb's own output must not get into the protocol.
exec 3>&1 4<&0 1>&2 </dev/null
exec gdb -nx -q -batch -x "$(dirname "$0")/unwind-sim-unwinder-gdb.py"
