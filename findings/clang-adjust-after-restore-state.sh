#!/usr/bin/env bash
# clang's assembler forgets the CFA's offset at `.cfi_restore_state`: a `.cfi_adjust_cfa_offset`
# that follows is added to the offset from before the restore, not to the restored one.
#
# All rows behind it are wrong. A push, an early return and a second push are enough. Seen with
# clang 14, 19.1.7, 20.1.2 and 22.1.8. No report found.
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

pip ziglang==0.15.2 # clang 20.1.2
debian trixie binutils-x86-64-linux-gnu=2.44-3

cat >"$dir/f.s" <<'END'
	.text
	.globl f
f:	.cfi_startproc
	push %rbx
	.cfi_adjust_cfa_offset 8
	test %edi, %edi
	je 1f
	.cfi_remember_state
	pop %rbx
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_restore_state
1:	push %r12
	.cfi_adjust_cfa_offset 8
	nop
	pop %r12
	.cfi_adjust_cfa_offset -8
	pop %rbx
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
END

zig=$dir/python/ziglang/zig
export ZIG_GLOBAL_CACHE_DIR=$dir/cache ZIG_LOCAL_CACHE_DIR=$dir/cache
"$zig" cc -c "$dir/f.s" -o "$dir/clang.o"
run bin/x86_64-linux-gnu-as "$dir/f.s" -o "$dir/gas.o"

# The CFA behind the second push, whose code is at 9, and at the last `ret`, at 13.
rows() {
    run bin/x86_64-linux-gnu-readelf --debug-dump=frames-interp "$1" |
        awk '$1 ~ /^0+(9|d)$/ { print "  " $1, $2 }'
}

"$zig" cc --version | head -1
run bin/x86_64-linux-gnu-as --version | head -1
cat <<'END'
expected: the offset is relative to the one in force, which the restore sets back to 16: rsp+24
behind the second push, rsp+8 at the last ret. The manual of GNU as on .cfi_adjust_cfa_offset,
https://sourceware.org/binutils/docs/as/CFI-directives.html; DWARF 5, 6.4.2.4 on restore_state,
https://dwarfstd.org/doc/DWARF5.pdf
END
echo "GNU as:"
rows "$dir/gas.o"
echo "clang:"
rows "$dir/clang.o"
if [ "$(rows "$dir/clang.o" | awk '{ print $2 }' | xargs)" = "rsp+16 rsp+0" ]; then
    echo "still so: clang writes 8 bytes too few"
else
    echo "changed: clang no longer writes rsp+16 and rsp+0"
    exit 1
fi
