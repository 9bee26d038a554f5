#!/usr/bin/env bash
# The libunwind of nongnu.org skips the opcode of `DW_CFA_val_offset`, as of every instruction that
# it does not know, as if it had no operands. The operands are then run as instructions.
#
# DW_CFA_val_offset, of DWARF 3, is such an opcode. Here its operands, register 3 and factor 2, are
# DW_CFA_advance_loc2 with the next two bytes: the rules behind are lost, and the walk goes on with
# the callee's registers, with success. No report found.
#
# Exit status: 0 as written here, 1 otherwise, 2 if something needed is not available.
set -Eeuo pipefail
export LC_ALL=C

unavailable() {
    printf 'unavailable: %s\n' "$1"
    exit 2
}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap '[ "$BASH_SUBSHELL" -gt 0 ] || unavailable "line $LINENO failed"' ERR

# Unpacks packages of a Debian suite, with all that they need, below $dir/root. Nothing is
# installed. The mirror is the one that apt knows.
debian() {
    local suite=$1 apt=$dir/apt mirror deb
    shift
    command -v apt-get >/dev/null || unavailable "apt-get"
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL)' 2>/dev/null |
        awk '$2 == "Debian" && $3 == "Debian" && !uri { uri = $1 } END { print uri }')
    [ -n "$mirror" ] || unavailable "a mirror of Debian; apt-get update may help"
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$dir/root"
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' \
        "$mirror" "$suite" >"$apt/sources.list"
    : >"$apt/status"
    local options=(-qq -o "Dir::Etc::SourceList=$apt/sources.list"
        -o Dir::Etc::SourceParts=/dev/null -o "Dir::State=$apt" -o "Dir::State::Lists=$apt/lists"
        -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache" -o Debug::NoLocking=1
        -o APT::Sandbox::User= -o APT::Install-Recommends=0 -o Acquire::Languages=none)
    apt-get "${options[@]}" update >"$dir/log" 2>&1 || unavailable "the package list of $suite"
    apt-get "${options[@]}" --download-only -y install "$@" >>"$dir/log" 2>&1 ||
        unavailable "$* in $suite"
    for deb in "$apt"/cache/archives/*.deb; do dpkg -x "$deb" "$dir/root"; done
    rm -rf "$apt"
}

# Runs an unpacked program with the libraries unpacked beside it.
run() {
    "$dir/root/usr/lib64/ld-linux-x86-64.so.2" \
        --library-path "$dir/root/usr/lib/x86_64-linux-gnu" "$dir/root/usr/$1" "${@:2}"
}

# Puts packages for Python into $dir/python.
pip() {
    python3 -m pip install --quiet --no-input --target "$dir/python" "$@" >"$dir/log" 2>&1 ||
        unavailable "pip install $*"
}

pip ziglang==0.15.2
debian trixie libgcc-s1=14.2.0-19 libunwind8=1.8.1-0.1

# `inner` saves r12 and r13 at cfa-24 and cfa-32. With VAL, the row before these rules says that the
# caller's rbx is cfa-16: `.cfi_val_offset %rbx, -16`, as newer assemblers call it.
cat >"$dir/inner.S" <<'END'
	.text
	.globl outer
	.type outer, @function
	.type inner, @function
outer:	.cfi_startproc
	push %rbx
	.cfi_adjust_cfa_offset 8
	.cfi_offset %rbx, -16
	push %r12
	.cfi_adjust_cfa_offset 8
	.cfi_offset %r12, -24
	push %r13
	.cfi_adjust_cfa_offset 8
	.cfi_offset %r13, -32
	mov $0x1111, %ebx
	mov $0x2222, %r12d
	mov $0x3333, %r13d
	call inner
	pop %r13
	pop %r12
	pop %rbx
	ret
	.cfi_endproc
	.size outer, .-outer
inner:	.cfi_startproc
	push %rbx
	push %r12
	push %r13
	sub $16, %rsp
	.cfi_def_cfa_offset 48
#ifdef VAL
	.cfi_escape 0x14, 3, 2
#endif
	.cfi_offset %r12, -24
	.cfi_offset %r13, -32
	mov $0xb, %ebx
	mov $0xc, %r12d
	mov $0xd, %r13d
	call walk
	add $16, %rsp
	pop %r13
	pop %r12
	pop %rbx
	ret
	.cfi_endproc
	.size inner, .-inner
	.section .note.GNU-stack, "", @progbits
END
cat >"$dir/walk.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>

typedef int callback(void *context, void *frames);
static int (*backtrace_with)(callback *, void *);
static unsigned long (*register_of)(void *context, int index);

/* The third frame is outer's: walk, inner, outer. */
static int frame(void *context, void *frames) {
    if (++*(int *)frames == 3)
        printf("outer: r12 %#lx, r13 %#lx", register_of(context, 12), register_of(context, 13));
    return 0;
}

void walk(void) {
    int frames = 0;
    int result = backtrace_with(frame, &frames);
    printf("; %d frames, _URC %d\n", frames, result);
}

void outer(void);

int main(int count, char **names) {
    void *library = count > 1 ? dlopen(names[1], RTLD_NOW) : 0;
    if (!library)
        return puts(dlerror()), 2;
    backtrace_with = (int (*)(callback *, void *))dlsym(library, "_Unwind_Backtrace");
    register_of = (unsigned long (*)(void *, int))dlsym(library, "_Unwind_GetGR");
    outer();
}
END
export ZIG_GLOBAL_CACHE_DIR=$dir/cache ZIG_LOCAL_CACHE_DIR=$dir/cache
for val in -UVAL -DVAL; do
    "$dir/python/ziglang/zig" cc -target x86_64-linux-gnu.2.31 -O1 -o "$dir/root/usr/walk$val" \
        $val "$dir/walk.c" "$dir/inner.S" -ldl
done

cat <<'END'
expected: r12 0x2222, r13 0x3333, whether there is a rule for rbx or not, or an error.
DW_CFA_val_offset has two operands: DWARF 5, 6.4.2.3 and 7.24, https://dwarfstd.org/doc/DWARF5.pdf
END
for val in -UVAL -DVAL; do
    for library in libgcc_s.so.1 libunwind.so.8; do
        said=$(run "walk$val" "$library")
        printf '  %s %-14s %s\n' "$val" "$library" "$said"
        echo "$said" >"$dir/$library$val"
    done
done
echo "libgcc_s.so.1: GCC 14.2.0; libunwind.so.8: nongnu.org 1.8.1"
if grep -q 'r12 0x2222, r13 0x3333;' "$dir/libunwind.so.8-UVAL" &&
    grep -q 'r12 0xc, r13 0xd;' "$dir/libunwind.so.8-DVAL"; then
    echo "still so: with the rule for rbx, libunwind has the callee's r12 and r13"
else
    echo "changed: libunwind had 0x2222 and 0x3333 without the rule, 0xc and 0xd with it"
    exit 1
fi
