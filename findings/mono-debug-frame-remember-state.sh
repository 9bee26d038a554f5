#!/usr/bin/env bash
# The `.debug_frame` of Mono's AOT compiler has the rows of the epilogue right behind the prologue,
# where rsp is still lowered. At the real `ret`, the CFA is too high.
#
# Mono says where the epilogue begins with an instruction of its own, DW_CFA_mono_advance_loc, that
# only its own unwinder knows. mono_unwind_ops_encode_full (mono/mini/unwind.c) leaves it out of
# `.debug_frame`, but counts from there on, so the advance is missing. What saved registers are said
# to be is wrong for the same few bytes. Debian 12's Mono 6.8.0.105 does it too, and the same code is
# in dotnet/runtime. No report found.
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

# Mono with the assemblies unpacked beside it, and without compiled ones that may be installed.
mono() {
    HOME=$dir MONO_CFG_DIR=$dir/root/etc MONO_PATH=$dir/root/usr/lib/mono/4.5 \
        run bin/mono-sgen -O=-aot "$@"
}

debian trixie mono-mcs=6.12.0.199+dfsg-6 mono-runtime-sgen=6.12.0.199+dfsg-6 \
    binutils-x86-64-linux-gnu=2.44-3

# The one library that is looked for by its whole path.
sed -i "s|\$mono_libdir|$dir/root/usr/lib|" "$dir/root/etc/mono/config"

cat >"$dir/program.cs" <<'CODE'
public class Program {
    public static int Half(int n) { return n / 2; }
}
CODE
mono "$dir/root/usr/lib/mono/4.5/mcs.exe" -target:library "-out:$dir/program.dll" "$dir/program.cs"
mono --aot=asmonly "$dir/program.dll" >"$dir/log" 2>&1 || unavailable "$(tail -n 1 "$dir/log")"
run bin/x86_64-linux-gnu-as "$dir/program.dll.s" -o "$dir/program.o"

mono --version | head -n 1
cat <<'TEXT'
expected: the CFA is rsp+16 from behind the `sub` to the `add`, and rsp+8 at the `ret`. A row is for
the locations from its own to the next: DWARF 5, 6.4.2.1 and 6.4.3,
https://dwarfstd.org/doc/DWARF5.pdf
TEXT

run bin/x86_64-linux-gnu-objdump -d --no-show-raw-insn --disassemble=Program_Half_int \
    "$dir/program.o" >"$dir/code"
start=$(awk '/<Program_Half_int>:/ { print $1 }' "$dir/code")
[ -n "$start" ] || unavailable "the method in the object"
# OPTION: what readelf prints for the FDE of the method.
fde() {
    run bin/x86_64-linux-gnu-readelf "--debug-dump=$1" "$dir/program.o" |
        awk -v start="$start" '/ FDE / { here = index($0, "pc=" start "..") } here && NF'
}
echo "GNU readelf 2.44, the FDE:"
fde frames | sed '/DW_CFA_nop/d; s/^ */  /'
fde frames-interp >"$dir/rows"
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
echo "location, CFA, instruction:"
cat "$dir/seen"

wrong=$(awk '$3 != "ret" && NR > 1 && $2 == "rsp+8" { print $1; exit }' "$dir/seen")
ret=$(awk '$3 == "ret" { print $1, $2 }' "$dir/seen")
if [ -n "$wrong" ] && [ "${ret#* }" = rsp+16 ]; then
    echo "still so: the CFA is rsp+8 at $wrong, not at the ret, ${ret% *}"
else
    echo "changed: the CFA at the ret is ${ret#* }"
    exit 1
fi
