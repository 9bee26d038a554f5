#!/bin/sh
# Builds `minidebug` from minidebug.c: gdb's manual, "MiniDebugInfo".
set -e
gcc -O1 -fPIC -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -fno-stack-protector \
    -nostdlib -shared -Wl,-e,_start,-Bsymbolic,--build-id,-z,noseparate-code -o whole minidebug.c
nm -D whole --format=posix --defined-only | cut -d' ' -f1 | sort >dynamic
nm whole --format=posix --defined-only | awk '$2 == "t" || $2 == "T" { print $1 }' | sort >all
comm -13 dynamic all >keep
objcopy --only-keep-debug whole whole.debug
objcopy -S --remove-section .comment --keep-symbols=keep whole.debug mini
xz -f mini
strip --strip-all -R .comment -o minidebug whole
objcopy --add-section .gnu_debugdata=mini.xz minidebug
rm whole whole.debug mini.xz dynamic all keep
