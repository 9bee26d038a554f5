#!/usr/bin/env bash
# clang's hardened return (`-mlvi-cfi`, also in `-mlvi-hardening`, against Load Value Injection) has no
# row of its own: behind `pop %rcx`, while `lfence` and `jmp *%rcx` wait, the CFA is 8 too high.
#
# The return address is in rcx then. An unwinder takes the word above it for the return address and
# loses the caller, or goes astray. It is in each function, and `lfence` waits until all instructions
# before it are done, so samples of a profiler gather there. clang 14 does the same. No report found.
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
long g(void);
long f(long a) { return g() + a; }
END
run lib/llvm-19/bin/clang -O2 -fPIC -mlvi-cfi -c "$dir/f.c" -o "$dir/f.o"
run bin/x86_64-linux-gnu-ld -shared "$dir/f.o" -o "$dir/f.so"

run lib/llvm-19/bin/clang --version | head -n 1
cat <<'END'
expected: behind the `pop`, the CFA is rsp and the return address is in rcx: DW_CFA_def_cfa_offset 0
and DW_CFA_register (DWARF 5, 6.4.2), as the function's own pushes have rows. POP adds 8 to rsp
(Intel SDM, volume 2). LLVM describes the sequence in X86LoadValueInjectionRetHardening.cpp.
END

run bin/x86_64-linux-gnu-objdump -d --no-show-raw-insn --disassemble=f "$dir/f.so" >"$dir/code"
run bin/x86_64-linux-gnu-readelf --debug-dump=frames-interp "$dir/f.so" >"$dir/tables"
awk -v start="$(awk '/^[0-9a-f]+ </ { print $1 }' "$dir/code")" '
    / FDE / { here = index($0, "pc=" start "..") }
    here && NF' "$dir/tables" >"$dir/rows"
# Each instruction with the CFA and the return address in the row for it.
awk 'NR == FNR { if ($2 ~ /^r.*[+]/) { loc[++rows] = "x" $1; cfa[rows] = $2; ra[rows] = $NF } next }
     /^ +[0-9a-f]+:/ {
         at = $1; sub(":", "", at); padded = at
         while (length(padded) < 16) padded = "0" padded
         for (i = 1; i <= rows; i++) if (loc[i] <= "x" padded) now = i
         $1 = ""
         print "  " at, cfa[now], "ra:" ra[now] $0
     }' "$dir/rows" "$dir/code" | tee "$dir/seen"

fence=$(awk '$4 == "lfence" { print $2, $3 }' "$dir/seen")
jump=$(awk '$4 == "jmp" { print $2, $3 }' "$dir/seen")
[ "$fence, $jump" = "rsp+8 ra:c-8, rsp+8 ra:c-8" ] || { echo "changed: $fence, $jump"; exit 1; }
echo "still so: CFA rsp+8 and the return address at rsp, at both"
