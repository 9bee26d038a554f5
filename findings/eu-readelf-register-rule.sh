#!/usr/bin/env bash
# eu-readelf shows `DW_CFA_register` with the name of the wrong register: "register r12 (r12) in r0
# (r12)" for a register that is kept in r0, rax. It also prints the offset of `DW_CFA_val_offset` as
# an unsigned number, 2^64-16 for -16, though it prints that of `DW_CFA_offset` as -16.
#
# The rules are rare, but they are where one reads a dump word for word. No report found.
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

debian trixie elfutils=0.192-4 binutils-x86-64-linux-gnu=2.44-3

cat >"$dir/f.s" <<'END'
	.text
	.globl f
f:	.cfi_startproc
	mov %r12, %rax
	.cfi_register %r12, %rax
	xor %r12d, %r12d
	.cfi_val_offset %rsp, -16
	mov %rax, %r12
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
END
run bin/x86_64-linux-gnu-as "$dir/f.s" -o "$dir/f.o"

run bin/eu-readelf --version | head -1
cat <<'END'
expected: r12 is in r0, whose name is rax; rsp is the CFA - 16. DWARF register 0 is rax: "DWARF
Register Number Mapping", https://gitlab.com/x86-psABIs/x86-64-ABI; the offset of DW_CFA_val_offset
is multiplied by the data alignment factor, which is -8: DWARF 5, 6.4.2.3,
https://dwarfstd.org/doc/DWARF5.pdf
END
echo "GNU readelf:"
run bin/x86_64-linux-gnu-readelf --debug-dump=frames "$dir/f.o" | grep -E 'DW_CFA_(reg|val)'
echo "eu-readelf:"
run bin/eu-readelf --debug-dump=frame "$dir/f.o" | grep -E '^ *(register|val_offset)' |
    tee "$dir/seen"
if grep -q 'in r0 (r12)' "$dir/seen" && grep -q 18446744073709551600 "$dir/seen"; then
    echo "still so: r0 is called r12, and -16 is 18446744073709551600"
else
    echo "changed: the name or the number is another one"
    exit 1
fi
