#!/usr/bin/env bash
# clang's rows for an interrupt handler with an error code leave the error code out: the CFA is 8 too
# low, and what they call the return address is the error code.
#
# The processor pushes the error code last, below rip (Intel SDM, volume 3, "Error Code"). GCC's rows
# count it. An unwinder that begins in such a handler goes on at the error code.
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


debian trixie clang-19=1:19.1.7-3+b1

cat >"$dir/handler.c" <<'END'
struct frame;
__attribute__((interrupt)) void handler(struct frame *frame, unsigned long code) {
    (void)frame, (void)code;
    __asm__ volatile("" ::: "rbx", "memory");
}
END
cat <<'END'
expected: .cfi_def_cfa_offset 16 before the first instruction, as GCC 12 writes it: the error code lies at
rsp, and rip at rsp+8. "Error Code", Intel SDM volume 3, section 6.13.
END
run lib/llvm-19/bin/clang --version | sed -n 1p
run lib/llvm-19/bin/clang --target=x86_64-linux-gnu -O2 -mgeneral-regs-only -S "$dir/handler.c" \
    -o "$dir/handler.s"
echo "seen:"
sed -n '/^handler:/,/pushq[[:space:]]*%rbx/p' "$dir/handler.s"
# The directives before the first instruction.
first=$(awk '/^handler:/ { on = 1; next } on && /^\t[a-z]/ { exit } on' "$dir/handler.s")
case $first in
*.cfi_def_cfa_offset*)
    echo "changed: clang counts the error code"
    exit 1
    ;;
esac
echo "still so: the CFA is rsp+8 at the first instruction"
