#!/bin/sh
# Builds the workload. Needs gcc and the kernel's headers (linux-libc-dev).
#
#   build.sh          builds ./workload, and writes into ./workload.built what it is made of
#   build.sh FILE     builds it elsewhere
#   build.sh --tools  prints the versions that decide what the result is
#   build.sh --sources  prints the hash of the sources
set -eu
cd "$(dirname "$0")"
export LC_ALL=C

tools() {
    gcc --version | head -n 1
    ld --version | head -n 1
    printf '#include <linux/version.h>\nheaders LINUX_VERSION_CODE\n' | gcc -E -P - | grep headers
}

sources() {
    cat -- *.S *.c *.h build.sh | sha256sum | cut -d ' ' -f 1
}

build() {
    gcc -std=gnu11 -Os -static -nostdlib -ffreestanding -fno-stack-protector -fcf-protection=none -no-pie -fno-pic \
        -fno-omit-frame-pointer -fno-asynchronous-unwind-tables -fno-ident -ffunction-sections -fno-strict-aliasing \
        -mgeneral-regs-only -Wall -Wextra -Werror -Wno-missing-field-initializers -Wno-cast-function-type \
        -Wl,--gc-sections -Wl,--build-id=none -Wl,-z,noexecstack -Wl,-z,noseparate-code -s -o "$1" *.S *.c
}

case ${1:-} in
--tools) tools ;;
--sources) sources ;;
'')
    build workload
    {
        tools
        sources
    } >workload.built
    ;;
*) build "$1" ;;
esac
