#!/usr/bin/env bash
# mold and lld put the `.sframe` sections of a program's objects one behind the other. The result
# has the header of the first, so readers see the functions of the first object, and nobody warns.
#
# Two objects of one function each: one function is left, and GNU readelf shows no error for the
# bytes behind. A tracer loses every stack that leaves the first object. GNU ld merges the sections.
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

debian trixie binutils-x86-64-linux-gnu=2.44-3 mold=2.37.1+dfsg-1 lld-19=1:19.1.7-3+b1

for name in first second; do
    cat >"$dir/$name.s" <<END
	.text
	.globl $name
	.type $name, @function
$name:	.cfi_startproc
	push %rbx
	.cfi_adjust_cfa_offset 8
	pop %rbx
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size $name, .-$name
	.section .note.GNU-stack,"",@progbits
END
    run bin/x86_64-linux-gnu-as --gsframe "$dir/$name.s" -o "$dir/$name.o"
done

cat <<'END'
expected: two functions in the table, or a message of the linker. A section has one header, which
counts the functions: "SFrame Header", https://sourceware.org/binutils/docs-2.44/sframe-spec.html
END
seen=
for linker in bin/x86_64-linux-gnu-ld.bfd bin/mold lib/llvm-19/bin/ld.lld; do
    run $linker --version | sed -n '1s/ (compatible.*//;1p'
    run $linker -shared "$dir/first.o" "$dir/second.o" -o "$dir/program.so" >"$dir/said" 2>&1
    size=$(run bin/x86_64-linux-gnu-readelf -SW "$dir/program.so" |
        awk '{ for (i = 1; i < NF; i++) if ($i == ".sframe") print $(i + 4) }')
    functions=$(run bin/x86_64-linux-gnu-readelf --sframe "$dir/program.so" 2>&1 |
        grep -c 'func idx' || true)
    echo "  .sframe of 0x$size bytes, functions for readelf: $functions," \
        "lines of the linker: $(wc -l <"$dir/said")"
    seen+=" $functions $(wc -l <"$dir/said")"
done
if [ "$seen" = " 2 0 1 0 1 0" ]; then
    echo "still so: one of two functions, with mold and with lld"
else
    echo "changed: 2 functions with GNU ld, 1 with mold and lld, no messages was expected"
    exit 1
fi
