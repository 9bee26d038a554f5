#!/usr/bin/env bash
# gdb finds two frames in valgrind's core of a position-independent program, and the second is the
# address 0. Of the same program linked at a fixed address it finds all.
#
# Valgrind writes no NT_AUXV (nor NT_FILE) into its core. gdb takes from it where the program and
# its libraries are, and without it knows no code at all. They can be found: eu-stack, which looks
# for ELF images in the core's memory, walks to the end. The pid in NT_PRPSINFO is 0, too. No report
# found.
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

# Puts packages for Python into $dir/python.
pip() {
    python3 -m pip install --quiet --no-input --target "$dir/python" "$@" >"$dir/log" 2>&1 ||
        unavailable "pip install $*"
}

pip ziglang==0.15.2
debian trixie valgrind=1:3.24.0-3 gdb=16.3-1 elfutils=0.192-4
ulimit -c unlimited 2>/dev/null || unavailable "a core: the limit of its size is fixed"

cat >"$dir/abort.c" <<'END'
#include <stdlib.h>

__attribute__((noinline)) void inner(void) { abort(); }

__attribute__((noinline)) void outer(void) {
    inner();
    __asm__ volatile("");
}

int main(void) {
    outer();
    return 0;
}
END
export ZIG_GLOBAL_CACHE_DIR=$dir/cache ZIG_LOCAL_CACHE_DIR=$dir/cache
for kind in fixed pie; do
    if [ $kind = pie ]; then options=(-fPIE -pie); else options=(-fno-pie -no-pie); fi
    "$dir/python/ziglang/zig" cc -target x86_64-linux-gnu.2.31 -O1 "${options[@]}" \
        -o "$dir/$kind" "$dir/abort.c"
    mkdir "$dir/core-$kind"
    (
        cd "$dir/core-$kind"
        VALGRIND_LIB=$dir/root/usr/libexec/valgrind \
            run bin/valgrind.bin --tool=none -q "../$kind" || true
    ) 2>/dev/null
    [ -n "$(ls "$dir/core-$kind")" ] || unavailable "a core of valgrind"
done

# Each frame in a word.
by_gdb() {
    PYTHONHOME=$dir/root/usr run bin/gdb -nx -batch "--data-directory=$dir/root/usr/share/gdb" \
        -ex backtrace "$dir/$1" "$dir/core-$1"/vgcore.* 2>/dev/null |
        sed -n 's/^#\([0-9]*\)  0x0*\([0-9a-f][0-9a-f]*\) in \([^ ]*\).*/\1 \2 \3/p' |
        sort -un |
        awk '{ printf " %s", $3 == "??" ? "0x" $2 : $3 } END { print "" }'
}
by_eu_stack() {
    local core
    core=$(echo "$dir/core-$1"/vgcore.*)
    { run bin/eu-stack "--core=$core" -e "$dir/$1" 2>/dev/null || true; } |
        sed -n 's/^#[0-9]* *0x0*\([0-9a-f]*\) *\(.*\)/\1 \2/p' |
        awk '{ printf " %s", $2 == "" ? "0x" $1 : $2 } END { print "" }'
}

run bin/gdb --version | head -1
VALGRIND_LIB=$dir/root/usr/libexec/valgrind run bin/valgrind.bin --version
cat <<'END'
expected: abort, inner, outer and main, of both. The core is for "post-mortem debugging with GDB or
similar", https://valgrind.org/docs/manual/manual-core.html#manual-core.signals
END
echo "notes of the core:$(run bin/eu-readelf -n "$dir"/core-pie/vgcore.* |
    awk '$1 == "CORE" || $1 == "LINUX" { printf " %s", $3 }')"
for kind in fixed pie; do
    echo "$kind"
    by_gdb $kind | tee "$dir/gdb-$kind" | sed 's/^/  gdb:     /'
    by_eu_stack $kind | sed 's/^/  eu-stack:/'
done
if grep -q ' inner outer main' "$dir/gdb-fixed" && ! grep -q 'abort\|main' "$dir/gdb-pie"; then
    echo "still so: gdb has main in the one, and no function in the other"
else
    echo "changed: gdb had main of the program at a fixed address only"
    exit 1
fi
