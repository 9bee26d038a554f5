#!/usr/bin/env bash
# GCC's return thunks (`-mfunction-return=thunk`, against Spectre) have a wrong row at their `ret`: the
# return address that `lea 8(%rsp), %rsp` just dropped is still counted, so the CFA is 8 too high.
#
# Every function of such a program returns through this `ret`, and an unwinder there skips the caller.
# With `thunk-inline` each function has it, and the registers it restored are wrong one instruction
# earlier, too: the `call` overwrites the slot of the last one, to which the row still leads. The rows
# of the thunks for indirect branches are right. GCC 12.2.0 does the same. No report found.
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

debian trixie cpp-14-x86-64-linux-gnu=14.2.0-19 binutils-x86-64-linux-gnu=2.44-3

cat >"$dir/f.c" <<'END'
long g(void);
long f(long a) { return g() + a; }
END
# OPTION FUNCTION: the location, CFA, rule of rbx and instruction, from the `call` to the `ret`.
rows() {
    run $cc1 -quiet -O2 "$1" "$dir/f.c" -o "$dir/f.s"
    run bin/x86_64-linux-gnu-as "$dir/f.s" -o "$dir/f.o"
    run bin/x86_64-linux-gnu-ld -shared -z noseparate-code "$dir/f.o" -o "$dir/f.so"
    run bin/x86_64-linux-gnu-objdump -d --no-show-raw-insn --disassemble="$2" "$dir/f.so" \
        >"$dir/code"
    # The entry whose range has the function's address.
    run bin/x86_64-linux-gnu-readelf --debug-dump=frames-interp "$dir/f.so" >"$dir/tables"
    awk -v start="$(awk '/^[0-9a-f]+ </ { print $1 }' "$dir/code")" '
        / FDE / { here = index($0, "pc=" start "..") }
        here && NF' "$dir/tables" >"$dir/rows"
    awk 'NR == FNR {
             if ($1 == "LOC") for (i = 1; i <= NF; i++) if ($i == "rbx") column = i
             if ($2 ~ /^r.*[+]/) { loc[++rows] = "x" $1; cfa[rows] = $2; rbx[rows] = column ? $column : "-" }
             next
         }
         /^ +[0-9a-f]+:/ {
             at = $1; sub(":", "", at); padded = at
             while (length(padded) < 16) padded = "0" padded
             for (i = 1; i <= rows; i++) if (loc[i] <= "x" padded) now = i
             $1 = ""
             if ($2 ~ /^(call|lea|ret)/ && !/<g@plt>/) print "  " at, cfa[now], "rbx:" rbx[now] $0
         }' "$dir/rows" "$dir/code"
}

cc1=libexec/gcc/x86_64-linux-gnu/14/cc1
run $cc1 -version -o "$dir/log" /dev/null 2>&1 | sed -n "1s/ (x86.*//p"
cat <<'END'
expected: CFA rsp+8 at the `ret`, since LEA has added 8 to rsp (Intel SDM, volume 2). With
thunk-inline, rbx is no longer said to be at CFA-16 once it was popped and the `call` wrote there. The
unwind table is to be exact at each instruction boundary:
https://gcc.gnu.org/onlinedocs/gcc-14.2.0/gcc/Code-Gen-Options.html#index-fasynchronous-unwind-tables
END
echo "seen, -mfunction-return=thunk, __x86_return_thunk:"
rows -mfunction-return=thunk __x86_return_thunk | tee "$dir/thunk"
echo "seen, -mfunction-return=thunk-inline, f:"
rows -mfunction-return=thunk-inline f | tee "$dir/inline"

ret=$(awk '$4 == "ret" { print $2 }' "$dir/thunk")
lea=$(awk '$4 == "lea" { print $3 }' "$dir/inline")
[ "$ret $lea" = "rsp+16 rbx:c-16" ] || { echo "changed: $ret at the ret, $lea at the lea"; exit 1; }
echo "still so: CFA rsp+16 at the ret; rbx at CFA-16, which is rsp there, at the lea"
