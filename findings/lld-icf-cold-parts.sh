#!/usr/bin/env bash
# lld's identical code folding (`--icf=all`) folds the cold parts of two functions that have the same
# bytes and different frames, and keeps one of their FDEs: the row is wrong for the other function.
#
# A stack that passes through the folded part loses its callers. mold keeps both parts.
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

command -v gcc >/dev/null || unavailable gcc
debian trixie lld-19=1:19.1.7-3+b1 mold=2.37.1+dfsg-1 binutils-x86-64-linux-gnu=2.44-3

cat >"$dir/parts.c" <<'END'
void fail(void) __attribute__((noreturn, cold));
long fill(long *, long);
long small(long a) { long v[2]; if (fill(v, a) == 3) fail(); return v[1]; }
long large(long a) { long v[90]; if (fill(v, a) == 3) fail(); return v[1] + v[89]; }
END
cat >"$dir/main.c" <<'END'
long small(long), large(long);
long fill(long *p, long n) { p[0] = p[1] = n; return n; }
void fail(void) { __asm__ volatile("syscall" :: "a"(60), "D"(1)); __builtin_unreachable(); }
void _start(void) { small(1); large(3); fail(); }
END
gcc -O2 -ffunction-sections -c "$dir/parts.c" -o "$dir/parts.o"
gcc -O2 -ffunction-sections -w -c "$dir/main.c" -o "$dir/main.o"
cat <<'END'
expected: two cold parts, since their rows differ: the CFA is rsp+32 in one and rsp+736 in the other.
END
folded=
for linker in lib/llvm-19/bin/ld.lld bin/mold; do
    run $linker --version | sed -n '1s/ (compatible.*//;1p'
    run $linker --icf=all "$dir/parts.o" "$dir/main.o" -o "$dir/program"
    places=$(run bin/x86_64-linux-gnu-nm "$dir/program" | awk '/cold/ { print $1 }' | sort -u | wc -l)
    printf 'seen: cold parts at %s addresses\n' "$places"
    folded+="$places "
done
[ "$folded" = "1 2 " ] || { echo "changed: not one and two"; exit 1; }
echo "still so: lld folds them"
