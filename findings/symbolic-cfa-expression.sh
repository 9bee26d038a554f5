#!/usr/bin/env bash
# symbolic (Sentry's, also in Mozilla's dump_syms) leaves a CFA that is an expression out of the
# `STACK CFI` lines it writes, and with it says that the CFA before goes on to hold.
#
# GCC writes such rows for functions that realign the stack: the CFA is r10 for a few instructions,
# then *(rbp-N). The lines say ".cfa: $r10 0 +" for the whole body, where r10 is a scratch register.
# A reader finds a wrong frame and not "unknown". No report found.
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

pip symbolic==13.9.0
debian trixie binutils-x86-64-linux-gnu=2.44-3

# What GCC 12 -O2 -mavx makes of a function with an aligned array and an alloca, shortened.
cat >"$dir/f.s" <<'END'
	.text
	.globl f
	.type f, @function
f:	.cfi_startproc
	lea 8(%rsp), %r10
	.cfi_def_cfa %r10, 0
	and $-32, %rsp
	push -8(%r10)
	push %rbp
	mov %rsp, %rbp
	.cfi_escape 0x10, 6, 2, 0x76, 0		# rbp is saved at rbp+0
	push %r10
	.cfi_escape 0x0f, 3, 0x76, 0x78, 6	# the CFA is *(rbp-8)
	sub $40, %rsp
	xor %r10d, %r10d
	call g
	mov -8(%rbp), %r10
	.cfi_def_cfa %r10, 0
	leave
	lea -8(%r10), %rsp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size f, .-f
g:	ret
	.section .note.GNU-stack,"",@progbits
END
run bin/x86_64-linux-gnu-as "$dir/f.s" -o "$dir/f.o"
run bin/x86_64-linux-gnu-ld -shared --build-id "$dir/f.o" -o "$dir/f.so"

cat <<'END'
expected: at the call, no rule or one that reads memory, such as "$rbp 8 - ^": STACK CFI rules are
expressions, and each line says what changes from the line before,
https://chromium.googlesource.com/breakpad/breakpad/+/HEAD/docs/symbol_files.md
END
echo "GNU readelf:"
run bin/x86_64-linux-gnu-readelf --debug-dump=frames-interp "$dir/f.so" |
    awk '/FDE/ { fde = 1 } fde && /rsp|r10|exp/ && !/LOC/ { print "  " $1, $2 }' | tee "$dir/rows"
echo "symbolic 13.9.0:"
PYTHONPATH=$dir/python python3 - "$dir/f.so" <<'END' | tee "$dir/cfi"
import sys
import symbolic

cfi = symbolic.Archive.open(sys.argv[1]).get_object(arch="x86_64").make_cficache()
for line in cfi.open_stream().read().decode().splitlines():
    print(" ", line)
END
# The rows say "exp" from the address behind `push %r10` on.
expression=$(awk '$2 == "exp" { print $1; exit }' "$dir/rows" | sed 's/^0*//')
[ -n "$expression" ] || unavailable "a row with an expression"
if grep -q "STACK CFI $expression " "$dir/cfi"; then
    echo "changed: there is a line for $expression"
    exit 1
fi
echo "still so: no line for $expression, so the one before holds: CFA at r10"
