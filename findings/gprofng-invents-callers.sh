#!/usr/bin/env bash
# gprofng writes a function into the call tree as a caller that it never was: one that was called
# before, and has returned.
#
# Its collector uses no unwind tables. It reads instructions from the address on until a `ret`, to see
# how far away the return address is. A function that does not return has no `ret`, so it reads on in
# the next function: the frame comes out too small, and a word that was left behind is taken for the
# return address. A server's main loop is such a function. gprofng 2.40 does the same. No report found.
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
debian trixie binutils=2.44-3

cat >"$dir/server.c" <<'END'
#include <stdlib.h>
#define NOINLINE __attribute__((noinline, noclone))
volatile unsigned long sink;
NOINLINE void work(long n) { for (long i = 0; i < n; i++) sink += i; }
NOINLINE void serve(long n) { for (;;) { work(100000000); if (!n--) exit(0); } }
NOINLINE long setup(long a, long b, long c) { work(10); return a + b * c; }
NOINLINE void run(long n) { setup(n, 1, 2); serve(n); }
int main(int argc, char **argv) { run(40); return argc; }
END
# With the unpacked collector, and the libc that it was made for. An old-style path comes before
# LD_LIBRARY_PATH, which gprofng sets to the folder of an installed one.
libraries=$dir/root/usr/lib/x86_64-linux-gnu
gcc -O2 -fno-pie -no-pie "$dir/server.c" -o "$dir/server" \
    -Wl,--dynamic-linker="$dir/root/usr/lib64/ld-linux-x86-64.so.2" \
    -Wl,--disable-new-dtags,-rpath,"$libraries/gprofng:$libraries"

export GPROFNG_SYSCONFDIR=$dir/root/etc
run bin/gprofng-collect-app -a off -o "$dir/server.er" "$dir/server" >"$dir/log" 2>&1 ||
    unavailable "$(tail -n 1 "$dir/log")"
version=$(sed -n 's|.*<collector>\(.*\)</collector>.*|\1|p' "$dir/server.er/log.xml")
echo "gprofng collect app $version"
cat <<'END'
expected: main, run, serve, work. calltree displays "the dynamic call graph" (manual page of
gprofng-display-text); setup() does not call serve(), and has returned when serve() is called.
END
run bin/gprofng-display-text -calltree \
    "$dir/server.er" 2>"$dir/log" | sed -n '/-<Total>/,$p' | tee "$dir/tree"
[ -s "$dir/tree" ] || unavailable "a profile: $(head -n 1 "$dir/log")"

chain=$(sed 's/.*[+]-//' "$dir/tree" | xargs)
if [[ $chain == *"run setup serve work"* ]]; then
    echo "still so: run, setup, serve, work"
else
    echo "changed: $chain"
    exit 1
fi
