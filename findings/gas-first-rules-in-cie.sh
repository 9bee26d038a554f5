#!/usr/bin/env bash
# GNU as moves the directives that stand before a function's first instruction into the CIE. A later
# `.cfi_restore` then goes back to what those directives said, not to "not saved".
#
# GCC writes such functions: a cold part is entered with registers already saved. Where it also pops
# them, the row behind says that the register is in a slot that was given up. clang's assembler
# keeps the directives in the FDE. No report found.
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

debian trixie binutils-x86-64-linux-gnu=2.44-3 clang-19=1:19.1.7-3+b1

cat >"$dir/cold.s" <<'END'
	.text
	.globl cold
# Entered by a jump from a function that has pushed rbx.
cold:	.cfi_startproc
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	test %eax, %eax
	pop %rbx
	.cfi_def_cfa_offset 8
	.cfi_restore %rbx
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
END

run bin/x86_64-linux-gnu-as "$dir/cold.s" -o "$dir/gas.o"
run lib/llvm-19/bin/clang --target=x86_64-linux-gnu -c "$dir/cold.s" -o "$dir/clang.o"

rows() { run bin/x86_64-linux-gnu-readelf --debug-dump=frames-interp "$1" | sed 's/^/  /;/^  $/d'; }
# The rule of rbx at the `ret`.
last() { rows "$1" | awk '$1 ~ /^0+3$/ { print $3 }'; }

run bin/x86_64-linux-gnu-as --version | head -1
run lib/llvm-19/bin/clang --version | head -1
cat <<'END'
expected: at the ret, rbx is not saved. .cfi_restore goes back to the rule after the instructions
that .cfi_startproc itself added, https://sourceware.org/binutils/docs/as/CFI-directives.html
END
echo "GNU as:"
rows "$dir/gas.o"
echo "clang:"
rows "$dir/clang.o"
if [ "$(last "$dir/gas.o") $(last "$dir/clang.o")" = "c-16 u" ]; then
    echo "still so: at the ret, GNU as says that rbx is at c-16, which is below rsp"
else
    echo "changed: rbx is $(last "$dir/gas.o") by GNU as, $(last "$dir/clang.o") by clang"
    exit 1
fi
