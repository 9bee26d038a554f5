#!/usr/bin/env bash
# ocamlopt puts the call that grows the stack behind a function's last instruction, and gives it the row
# of the function's body. But the jump from the function's first instructions leads there, before there is
# a frame: the CFA is too high by the frame's size.
#
# OCaml 5 checks the stack where a function begins. Behind each `ret`, emit.ml (asmcomp/amd64) says that the
# frame is there again, for the code of the body that may follow, and does not take that back for the call.
# OCaml 4.13 has the same rows at calls of the collector.
# Reported in https://github.com/ocaml/ocaml/issues/15037
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

debian trixie ocaml=5.3.0-3 binutils-x86-64-linux-gnu=2.44-3

cat >"$dir/program.ml" <<'CODE'
let twice f n = 1 + f (n + f n)
CODE
library=$(find "$dir/root/usr/lib" -name stdlib.cmxa | head -n 1)
[ -n "$library" ] || unavailable "OCaml's library"
# It calls an assembler of the system's, whose output is not used.
OCAMLLIB=${library%/*} run bin/ocamlopt.opt -S -c "$dir/program.ml" >"$dir/log" 2>&1 || true
[ -s "$dir/program.s" ] || unavailable "$(tail -n 1 "$dir/log")"
run bin/x86_64-linux-gnu-as "$dir/program.s" -o "$dir/program.o"

echo "OCaml $(run bin/ocamlopt.opt -version)"
cat <<'TEXT'
expected: where the jump of the third instruction leads, the CFA is rsp+8, as it was there. A row is for
the locations from its own to the next: DWARF 5, 6.4.2.1 and 6.4.3, https://dwarfstd.org/doc/DWARF5.pdf
TEXT

name=$(sed -n 's/^\(camlProgram.twice_[0-9]*\):$/\1/p' "$dir/program.s")
[ -n "$name" ] || unavailable "the function in the assembly"
run bin/x86_64-linux-gnu-objdump -d --no-show-raw-insn "--disassemble=$name" \
    "$dir/program.o" >"$dir/code"
start=$(awk -v name="<$name>:" '$2 == name { print $1 }' "$dir/code")
[ -n "$start" ] || unavailable "the function in the object"
run bin/x86_64-linux-gnu-readelf --debug-dump=frames-interp "$dir/program.o" |
    awk -v start="$start" '/ FDE / { here = index($0, "pc=" start "..") } here && NF' >"$dir/rows"
# Each instruction with the CFA in the row for it.
awk 'NR == FNR { if ($2 ~ /^r.*[+]/) { loc[++rows] = "x" $1; cfa[rows] = $2 } next }
     /^ +[0-9a-f]+:/ {
         at = $1; sub(":", "", at); padded = at
         while (length(padded) < 16) padded = "0" padded
         now = "none"
         for (i = 1; i <= rows; i++) if (loc[i] <= "x" padded) now = cfa[i]
         $1 = ""
         print "  " at, now $0
     }' "$dir/rows" "$dir/code" >"$dir/seen"
echo "GNU objdump and readelf 2.44: location, CFA, instruction:"
cat "$dir/seen"

target=$(awk '$3 == "jb" { print $4; exit }' "$dir/seen")
before=$(awk '$3 == "jb" { print $2; exit }' "$dir/seen")
behind=$(awk -v at="$target" '$1 == at { print $2 }' "$dir/seen")
if [ "$before" = rsp+8 ] && [ -n "$behind" ] && [ "$behind" != rsp+8 ]; then
    echo "still so: at $target, where the jump leads with rsp+8, the CFA is $behind"
else
    echo "changed: the jump leads with ${before:-nothing} to ${behind:-nothing}"
    exit 1
fi
