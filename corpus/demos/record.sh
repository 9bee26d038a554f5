#!/bin/sh
# Records the demos of README.md anew, into corpus/traces/. Run it at the top of the repository, with
# unwind-sim in PATH or in UNWIND_SIM. Needs cc, root (for the folder /demo) and, for wrong-row, the
# libmvec of glibc 2.36 (Debian 12).
set -eu

top=$(pwd)
tool=${UNWIND_SIM:-unwind-sim}
mkdir /demo
trap 'rm -r /demo' EXIT

# record DEMO SOURCE LABELS [LINKED [OPTION..]]
record() {
    demo=$1 source=$2 labels=$3 linked=${4:-}
    shift 3
    [ $# -eq 0 ] || shift
    # shellcheck disable=SC2086 # several words, or none
    cc -g0 -nostdlib -static -no-pie -Wl,--build-id -Wa,-I,corpus/cases \
        "corpus/$source" $linked -o "/demo/$demo"
    # Status 3: the program of deadlock waits for ever.
    (cd /demo && "$tool" record --clear-env --engine emulator --at "$labels" "$@" \
        -o "$demo.bin" -- "./$demo") || [ $? -eq 3 ]
    cp "/demo/$demo.bin" "$top/corpus/traces/demo-$demo.bin"
}

record fp cases/frame/fp-loses-the-caller-before-push-rbp.s before_push,after_push
record dwarf cases/frame/rbp-as-data-in-a-middle-function.s at_leaf
record orc cases/orc/stack-switch-through-sp-indirect.s in_callee
record sframe cases/dwarf/lazy-resolver-hangs-its-cfa-on-rbx.s in_resolver,in_fixup
record guess cases/frame/guess-takes-a-function-pointer-for-a-frame.s in_leaf
record copy cases/copy/popped-slot-lies-outside-a-copy.s popped
record lbr demos/lbr.s at_the_bottom "" --lbr 8,16
record deadlock demos/deadlock.s waits
record wrong-row demos/wrong-row.s _ZGVcN4vvv_sincos+1,_ZGVcN4vvv_sincos+4 \
    "-Wl,--unresolved-symbols=ignore-all -lmvec" --max-instructions 2000
