#!/usr/bin/env bash
# GNU as 2.44 leaves `.cfi_undefined %rip` out of `.sframe`, without a word, and describes the
# function as if it had a caller whose return address is on the stack.
#
# `_start` and thread entries are marked like this. For other rules that the format cannot express,
# as leaves out the function and warns; here it writes a wrong row, by which a stack tracer goes on
# behind the end. SFrame got a form for it later (an FRE without offsets). clang 22.1.8 does so too,
# with its experimental option. No report found.
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

debian trixie binutils-x86-64-linux-gnu=2.44-3

cat >"$dir/start.s" <<'END'
	.text
	.globl start, other
	.type start, @function
start:	.cfi_startproc
	.cfi_undefined %rip
	xor %ebp, %ebp
	call main
	hlt
	.cfi_endproc
	.size start, .-start
# What cannot be expressed either, for comparison.
	.type other, @function
other:	.cfi_startproc
	mov %rsp, %r10
	.cfi_def_cfa %r10, 8
	nop
	ret
	.cfi_endproc
	.size other, .-other
	.section .note.GNU-stack,"",@progbits
END

run bin/x86_64-linux-gnu-as --version | head -1
cat <<'END'
expected: no SFrame row for start, and a warning, as for other. An undefined return address is the
end of the stack: DWARF 5, 6.4.4, https://dwarfstd.org/doc/DWARF5.pdf; the SFrame of 2.44 has no row
that says so, https://sourceware.org/binutils/docs-2.44/sframe-spec.html
END
run bin/x86_64-linux-gnu-as --gsframe "$dir/start.s" -o "$dir/start.o" 2>&1 |
    sed "s|$dir/|  |" | tee "$dir/said"
echo "  .eh_frame, by readelf:"
run bin/x86_64-linux-gnu-readelf --debug-dump=frames-interp "$dir/start.o" |
    grep -A 1 -m 1 'LOC' | sed 's/^/    /'
echo "  .sframe, by readelf:"
run bin/x86_64-linux-gnu-readelf --sframe "$dir/start.o" |
    sed -n 's/^ *\(func idx\|STARTPC\|0000\)/    \1/p' | tee "$dir/rows"
if grep -q 'sp+8 .* f *$' "$dir/rows" && ! grep -q undefined "$dir/said"; then
    echo "still so: the return address of start is said to be on the stack"
else
    echo "changed: there is a warning for start, or no such row"
    exit 1
fi
