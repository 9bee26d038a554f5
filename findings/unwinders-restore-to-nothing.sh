#!/usr/bin/env bash
# libgcc and LLVM's libunwind take `DW_CFA_restore` for "not saved". DWARF says: back to the rule of
# the CIE. Where the CIE has a rule for a callee-saved register, exceptions and backtraces go on
# with another value of it than gdb and the libunwind of nongnu.org.
#
# It shows nowhere as long as CIEs only describe the CFA and the return address; but GNU as moves a
# function's first directives into the CIE (gas-first-rules-in-cie.sh). No report found.
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
debian trixie libgcc-s1=14.2.0-19 libunwind-19=1:19.1.7-3+b1 libunwind8=1.8.1-0.1

# `inner` saves rbx, whose value is then 0x1111, at cfa-16, and sets it to 0x2222. Its CIE has this
# rule; its FDE says "same value", and after the push DW_CFA_restore.
cat >"$dir/inner.s" <<'END'
	.text
	.globl outer, inner
	.type outer, @function
	.type inner, @function
outer:	push %rbx
	sub $16, %rsp
	mov $0x1111, %ebx
	call inner
	add $16, %rsp
	pop %rbx
	ret
.Louter_end:
	.size outer, .-outer
inner:	push %rbx
	mov $0x2222, %ebx
	sub $16, %rsp
	call walk
	add $16, %rsp
	pop %rbx
	ret
.Linner_end:
	.size inner, .-inner

	.section .eh_frame, "a", @progbits
.Lcie:	.long .Lcie_end-.-4
	.long 0
	.byte 1
	.asciz "zR"
	.uleb128 1
	.sleb128 -8
	.byte 16
	.uleb128 1
	.byte 0x1b
	.byte 0x0c, 7, 8, 0x90, 1	# def_cfa rsp+8, ra at cfa-8
	.byte 0x83, 2			# rbx at cfa-16
	.balign 8
.Lcie_end:
	.long .Lfde_end-.-4
	.long .-.Lcie
	.long inner-.
	.long .Linner_end-inner
	.uleb128 0
	.byte 0x08, 3			# same_value rbx
	.byte 0x41, 0x0e, 16		# behind the push
	.byte 0xc3			# restore rbx
	.byte 0x49, 0x0e, 32		# behind the sub
	.balign 8
.Lfde_end:
	.long .Lfde_2_end-.-4
	.long .-.Lcie
	.long outer-.
	.long .Louter_end-outer
	.uleb128 0
	.byte 0x08, 3
	.byte 0x41, 0x0e, 16, 0x83, 2
	.byte 0x44, 0x0e, 32
	.balign 8
.Lfde_2_end:
	.section .note.GNU-stack, "", @progbits
END
cat >"$dir/walk.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef int callback(void *context, void *frames);
static int (*backtrace_with)(callback *, void *);
static unsigned long (*register_of)(void *context, int index);

/* The third frame is outer's: walk, inner, outer. */
static int frame(void *context, void *frames) {
    if (++*(int *)frames < 3)
        return 0;
    printf("rbx in outer: %#lx\n", register_of(context, 3));
    return 5; /* _URC_END_OF_STACK */
}

void walk(void) {
    int frames = 0;
    backtrace_with(frame, &frames);
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
"$dir/python/ziglang/zig" cc -target x86_64-linux-gnu.2.31 -O1 -o "$dir/root/usr/walk" \
    "$dir/walk.c" "$dir/inner.s" -ldl

cat <<'END'
expected: rbx in outer is 0x1111, the word that inner pushed. DW_CFA_restore gives a register the
rule that the CIE's initial instructions gave it: DWARF 5, 6.4.2.3,
https://dwarfstd.org/doc/DWARF5.pdf
END
seen=
for library in libgcc_s.so.1 libunwind.so.1 libunwind.so.8; do
    said=$(run walk "$library")
    printf '  %-15s %s\n' "$library" "$said"
    seen+=" ${said##* }"
done
echo "libgcc_s.so.1: GCC 14.2.0; libunwind.so.1: LLVM 19.1.7; libunwind.so.8: nongnu.org 1.8.1"
if [ "$seen" = " 0x2222 0x2222 0x1111" ]; then
    echo "still so: the first two leave rbx as it is in inner"
else
    echo "changed: 0x2222 0x2222 0x1111 was expected here"
    exit 1
fi
