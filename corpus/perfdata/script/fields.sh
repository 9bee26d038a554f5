#!/bin/sh
# Builds fields.c and records it: fields.data, one event of each kind without chains;
# fields-chains.data, the same with chains; uretprobe.data, stack copies with a probe's trampoline
# among the return addresses. As root, with perf, in a folder to write to:
#     fields.sh SCRIPT_FOLDER
set -e
cc=${CC:-gcc}
"$cc" -O1 -fno-omit-frame-pointer -fcf-protection=none -fasynchronous-unwind-tables \
    -static -nostdlib -no-pie -Wl,--build-id=none -o /opt/fields "$1/fields.c"
strip -g /opt/fields
watched=0x$(nm /opt/fields | awk '/watched/ { print $1 }')
for kind in "fields" "fields-chains -g"; do
    set -- "$1" $kind
    perf record -q -o "$2.data" $3 -c 1 -d -e cpu-clock:u -e page-faults \
        -e syscalls:sys_enter_getpid -e "mem:$watched:w" -- /opt/fields
done
cp /opt/fields /opt/probed
perf probe -q -x /opt/probed inner
perf probe -q -x /opt/probed middle%return
perf record -q -o uretprobe.data -e probe_probed:inner --call-graph dwarf,128 \
    -e probe_probed:middle__return -- /opt/probed
perf probe -q -d 'probe_probed:*'
