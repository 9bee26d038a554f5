#!/usr/bin/env bash
# LLVM's libunwind and that of nongnu.org cannot unwind a function of the Windows calling convention
# on Linux: a row that says where xmm6 is saved ends the walk.
#
# GCC and clang save xmm6 to xmm15 in a function with `__attribute__((ms_abi))` and say so in
# `.eh_frame`. libgcc steps over such rows. The other two know no xmm register on x86-64 Linux, and
# give up, so backtraces end there; exceptions, which walk in the same way, were not tried. No report
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

pip ziglang==0.15.2 # clang 20.1.2
debian trixie libgcc-s1=14.2.0-19 libunwind-19=1:19.1.7-3+b1 libunwind8=1.8.1-0.1 \
    binutils-x86-64-linux-gnu=2.44-3

cat >"$dir/walk.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>

typedef int callback(void *context, void *frames);
static int (*backtrace_with)(callback *, void *);
static int frames, result;

static int frame(void *context, void *ignored) {
    frames++;
    return 0;
}

static void walk(void) { result = backtrace_with(frame, 0); }

__attribute__((ms_abi)) static int of_windows(int x) {
    walk();
    return x + 1;
}

static int of_linux(int x) {
    walk();
    return x + 1;
}

int main(int count, char **names) {
    void *library = count > 1 ? dlopen(names[1], RTLD_NOW) : 0;
    if (!library)
        return puts(dlerror()), 2;
    backtrace_with = (int (*)(callback *, void *))dlsym(library, "_Unwind_Backtrace");
    of_linux(1);
    printf("%d frames, ", frames);
    frames = 0;
    of_windows(1);
    printf("with ms_abi %d and _URC %d\n", frames, result);
}
END
export ZIG_GLOBAL_CACHE_DIR=$dir/cache ZIG_LOCAL_CACHE_DIR=$dir/cache
"$dir/python/ziglang/zig" cc -target x86_64-linux-gnu.2.31 -O0 -fno-sanitize=all \
    -o "$dir/root/usr/walk" "$dir/walk.c" -ldl

cat <<'END'
expected: the same number of frames from both functions. xmm0 is DWARF register 17, "DWARF Register
Number Mapping", https://gitlab.com/x86-psABIs/x86-64-ABI; xmm6 to xmm15 are the callee's to save:
https://learn.microsoft.com/en-us/cpp/build/x64-calling-convention
END
echo "rows of the ms_abi function by GNU readelf 2.44, the widest:"
run bin/x86_64-linux-gnu-readelf --debug-dump=frames-interp "$dir/root/usr/walk" 2>/dev/null |
    grep -A 99 'LOC.*xmm6' | sed -n '1p;/c-192/{p;q}'
seen=
for library in libgcc_s.so.1 libunwind.so.1 libunwind.so.8; do
    said=$(run walk "$library")
    printf '  %-15s %s\n' "$library" "$said"
    seen+=" $(sed 's/ frames, with ms_abi / /;s/ and.*//' <<<"$said")"
done
echo "libgcc_s.so.1: GCC 14.2.0; libunwind.so.1: LLVM 19.1.7; libunwind.so.8: nongnu.org 1.8.1"
read -r gcc gcc_ms llvm llvm_ms nongnu nongnu_ms <<<"$seen"
if [ "$gcc" = "$gcc_ms" ] && [ "$llvm_ms" -lt "$llvm" ] && [ "$nongnu_ms" -lt "$nongnu" ]; then
    echo "still so: libgcc has all frames, the others end in or at the ms_abi function"
else
    echo "changed: libgcc had as many frames with ms_abi as without, the others fewer"
    exit 1
fi
