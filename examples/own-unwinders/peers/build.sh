#!/bin/sh
# Builds the adapters for external unwinders into FOLDER: next to unwind-sim, or a folder in PATH.
#   build.sh FOLDER [framehop|libunwind|libdw|gdb ..]
# Debian: apt-get install libunwind-dev libdw-dev libjson-c-dev gdb
set -eu
folder=${1:?usage: build.sh FOLDER [framehop|libunwind|libdw|gdb ..]}
shift
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
: "${CC:=cc}"
for name in ${*:-framehop libunwind libdw gdb}; do
    program=$folder/unwind-sim-unwinder-$name
    case $name in
    framehop)
        cd "$here"
        cargo build --release --locked --example framehop_unwinder
        built=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
        cp "$built/release/examples/framehop_unwinder" "$program"
        ;;
    libunwind) $CC -O2 -Wall -o "$program" "$here/libunwind.c" -lunwind-x86_64 -lunwind -ljson-c ;;
    libdw) $CC -O2 -Wall -o "$program" "$here/libdw.c" -ldw -lelf -ljson-c ;;
    gdb)
        cp "$here/gdb.py" "$folder/unwind-sim-unwinder-gdb.py"
        cp "$here/gdb.sh" "$program"
        chmod +x "$program"
        ;;
    *)
        echo "build.sh: there is no adapter for $name" >&2
        exit 2
        ;;
    esac
    echo "$program"
done
