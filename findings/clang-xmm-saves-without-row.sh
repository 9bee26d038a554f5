#!/usr/bin/env bash
# clang gives the `sub $N, %rsp` of a prologue no row until all xmm registers are stored: for up to ten
# instructions of a function of the Windows calling convention, the CFA is the frame's size too low.
#
# The row stands behind the stores. An unwinder there takes a word of the frame for the return address.
# Functions with `__attribute__((regcall))` and `preserve_all` have it, too; with a frame pointer it
# cannot show. GCC's row is in the right place. Intel's libraries, built with a compiler made from
# LLVM, have such rows. clang 14 does the same. No report found.
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

debian trixie clang-19=1:19.1.7-3+b1 binutils-x86-64-linux-gnu=2.44-3

cat >"$dir/f.c" <<'END'
void g(void);
__attribute__((ms_abi)) void f(void) { g(); g(); }
END
run lib/llvm-19/bin/clang -O2 -fPIC -c "$dir/f.c" -o "$dir/f.o"
run bin/x86_64-linux-gnu-ld -shared "$dir/f.o" -o "$dir/f.so"

run lib/llvm-19/bin/clang --version | head -n 1
cat <<'END'
expected: CFA rsp+192 from behind the `sub` to the call. The CFA is the same address throughout the
function (DWARF 5, 6.4), and the `sub` lowers rsp by 168. Rows for each instruction are the default
(-fasynchronous-unwind-tables).
END

run bin/x86_64-linux-gnu-objdump -d --no-show-raw-insn --disassemble=f "$dir/f.so" >"$dir/code"
run bin/x86_64-linux-gnu-readelf --debug-dump=frames-interp "$dir/f.so" >"$dir/tables"
awk -v start="$(awk '/^[0-9a-f]+ </ { print $1 }' "$dir/code")" '
    / FDE / { here = index($0, "pc=" start "..") }
    here && NF' "$dir/tables" >"$dir/rows"
# Each instruction with the CFA in the row for it, up to the first call.
awk 'NR == FNR { if ($2 ~ /^r.*[+]/) { loc[++rows] = "x" $1; cfa[rows] = $2 } next }
     /^ +[0-9a-f]+:/ {
         at = $1; sub(":", "", at); padded = at
         while (length(padded) < 16) padded = "0" padded
         for (i = 1; i <= rows; i++) if (loc[i] <= "x" padded) now = i
         $1 = ""
         print "  " at, cfa[now] $0
         if ($2 == "call") exit
     }' "$dir/rows" "$dir/code" | tee "$dir/seen"

at_sub=$(awk '$3 == "sub" { print $2 }' "$dir/seen")
stores=$(awk -v cfa="$at_sub" '$3 == "movaps" && $2 == cfa' "$dir/seen" | wc -l)
if [ "$stores" -gt 0 ]; then
    echo "still so: $stores stores behind the sub have the row from before it, $at_sub"
else
    echo "changed: no store has the row from before the sub"
    exit 1
fi
