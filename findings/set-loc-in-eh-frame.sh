#!/usr/bin/env bash
# `DW_CFA_set_loc` in `.eh_frame` is misread by llvm-dwarfdump, by pyelftools, by eu-readelf and by
# LLVM's libunwind. Its operand is encoded as the FDE's addresses are, here four bytes relative to
# their place.
#
# The first two take eight bytes for it: llvm-dwarfdump prints not one entry of the section, and
# pyelftools raises. eu-readelf prints a wrong address. libunwind leaves out all rows behind it, and
# walks on by the row before. GNU readelf, libgcc and gimli (since its pull request 403) are right.
# No report of the four found.
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

pip pyelftools==0.33 ziglang==0.15.2
debian trixie binutils-x86-64-linux-gnu=2.44-3 llvm-19=1:19.1.7-3+b1 elfutils=0.192-4 \
    libgcc-s1=14.2.0-19 libunwind-19=1:19.1.7-3+b1

cat >"$dir/f.s" <<'END'
	.text
	.globl f, walk
	.hidden f, walk
	.type f, @function
f:	push %rbx
	push %r12
	sub $8, %rsp
	call walk
	add $8, %rsp
	pop %r12
	pop %rbx
	ret
.Lf_end:
	.size f, .-f
	.section .eh_frame, "a", @progbits
.Lcie:	.long .Lcie_end-.-4
	.long 0
	.byte 1
	.asciz "zR"
	.uleb128 1
	.sleb128 -8
	.byte 16
	.uleb128 1
	.byte 0x1b			# addresses: relative to their place, four bytes
	.byte 0x0c, 7, 8, 0x90, 1	# def_cfa rsp+8, ra at cfa-8
	.balign 8
.Lcie_end:
	.long .Lfde_end-.-4
	.long .-.Lcie
	.long f-.
	.long .Lf_end-f
	.uleb128 0
	.byte 0x41, 0x0e, 16
	.byte 0x42, 0x0e, 24
	.byte 0x01			# set_loc f+7: behind the sub
	.long f+7-.
	.byte 0x0e, 32
	.byte 0x49, 0x0e, 24
	.byte 0x42, 0x0e, 16
	.byte 0x41, 0x0e, 8
	.balign 8
.Lfde_end:
	.section .note.GNU-stack, "", @progbits
END
printf '.globl walk\n.hidden walk\nwalk: ret\n' >"$dir/stub.s"
run bin/x86_64-linux-gnu-as "$dir/f.s" -o "$dir/f.o"
run bin/x86_64-linux-gnu-as "$dir/stub.s" -o "$dir/stub.o"
run bin/x86_64-linux-gnu-ld -shared "$dir/f.o" "$dir/stub.o" -o "$dir/f.so"

cat >"$dir/walk.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>

typedef int callback(void *context, void *frames);
static int (*backtrace_with)(callback *, void *);

static int frame(void *context, void *frames) {
    ++*(int *)frames;
    return 0;
}

void walk(void) {
    int frames = 0;
    backtrace_with(frame, &frames);
    printf("%d frames from f on\n", frames - 1);
}

void f(void);

int main(int count, char **names) {
    void *library = count > 1 ? dlopen(names[1], RTLD_NOW) : 0;
    if (!library)
        return puts(dlerror()), 2;
    backtrace_with = (int (*)(callback *, void *))dlsym(library, "_Unwind_Backtrace");
    f();
    return 0;
}
END
export ZIG_GLOBAL_CACHE_DIR=$dir/cache ZIG_LOCAL_CACHE_DIR=$dir/cache
"$dir/python/ziglang/zig" cc -target x86_64-linux-gnu.2.31 -O1 -o "$dir/root/usr/walk" \
    "$dir/walk.c" "$dir/f.o" -ldl

cat <<'END'
expected: the CFA is rsp+8, 16, 24, 32, 24, 16, 8 from f, f+1, f+3, f+7, f+16, f+18, f+19 on. R in
the augmentation gives the encoding of all address pointers in the FDE: Linux Standard Base,
https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/ehframechpt.html
END
echo "GNU readelf 2.44:"
run bin/x86_64-linux-gnu-readelf --debug-dump=frames-interp "$dir/f.so" |
    awk '/FDE/ { fde = 1 } fde && /rsp/ { print "  " $1, $2 }'
echo "llvm-dwarfdump 19.1.7:"
run lib/llvm-19/bin/llvm-dwarfdump --eh-frame "$dir/f.so" >"$dir/llvm" 2>&1 || true
sed "s|$dir/||;s/^/  /;/^ *\$/d" "$dir/llvm"
echo "eu-readelf 0.192:"
run bin/eu-readelf --debug-dump=frame "$dir/f.so" | grep -E 'initial_location|set_loc' |
    tee "$dir/elfutils"
echo "pyelftools 0.33:"
PYTHONPATH=$dir/python python3 - "$dir/f.so" 2>&1 <<'END' | tee "$dir/pyelftools"
import sys
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile

try:
    with open(sys.argv[1], "rb") as file:
        for entry in ELFFile(file).get_dwarf_info().EH_CFI_entries():
            if isinstance(entry, FDE):
                for row in entry.get_decoded().table:
                    print(f"  {row['pc']:#x} r{row['cfa'].reg}+{row['cfa'].offset}")
except Exception as error:
    print(f"  {type(error).__name__}: {error}")
END
echo "backtraces, by libgcc of GCC 14.2.0 and libunwind of LLVM 19.1.7:"
echo "  $(run walk libgcc_s.so.1)" | tee "$dir/libgcc"
echo "  $(run walk libunwind.so.1)" | tee "$dir/libunwind"

changed=
grep -q CIE "$dir/llvm" && changed+=" llvm-dwarfdump"
grep -q 'set_loc.*0x1007' "$dir/elfutils" && changed+=" eu-readelf"
grep -q '0x1007 r7+32' "$dir/pyelftools" && changed+=" pyelftools"
[ "$(tr -dc 0-9 <"$dir/libunwind")" -gt 1 ] && changed+=" libunwind"
if [ -z "$changed" ]; then
    echo "still so: the four misread it; libunwind loses all callers of f"
else
    echo "changed:$changed"
    exit 1
fi
