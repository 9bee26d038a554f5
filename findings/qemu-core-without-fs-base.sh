#!/usr/bin/env bash
# The core that qemu-x86_64 writes when its program dies has the selector of fs (0) where the base of fs
# belongs, and that of gs for the base of gs. So a debugger has no thread pointer.
#
# With it go thread-local variables, errno among them, and what is reached from the thread's own block.
# elf_core_copy_regs() of QEMU (linux-user) writes the selectors twice. No report found.
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
debian trixie qemu-user=1:10.0.13+ds-0+deb13u1 elfutils=0.192-4
ulimit -c unlimited 2>/dev/null || unavailable "a core: the limit of its size is fixed"

# The word at fs:0 is its own address, the thread pointer.
cat >"$dir/dies.c" <<'END'
int main(void) { __asm__ volatile("mov %fs:0, %r15\n\tud2"); }
END
gcc -static "$dir/dies.c" -o "$dir/dies"
mkdir "$dir/core"
(cd "$dir/core" && { run bin/qemu-x86_64 ../dies || true; }) >"$dir/log" 2>&1
[ -n "$(ls "$dir/core")" ] || unavailable "a core of qemu: $(head -n 1 "$dir/log")"

run bin/qemu-x86_64 --version | head -n 1
cat <<'END'
expected: fs.base is r15, which the program loaded from fs:0 (ELF Handling For Thread-Local Storage,
3.4.6, https://www.akkadia.org/drepper/tls.pdf). The registers of NT_PRSTATUS are the
user_regs_struct of <sys/user.h>: fs_base is the 22nd, and the selector fs the 26th.
END
echo "seen:"
run bin/eu-readelf -n "$dir"/core/*.core | grep -E 'r15:|fs[.]base:| gs:' | tee "$dir/seen"
thread=$(awk '{ for (i = 1; i < NF; i++) if ($i == "r15:") print $(i + 1) }' "$dir/seen")
base=$(awk '{ for (i = 1; i < NF; i++) if ($i == "fs.base:") print $(i + 1) }' "$dir/seen")
[ "${thread:-0}" -ne 0 ] || unavailable "a thread pointer in r15"
if [ "$((base))" -eq 0 ]; then
    printf 'still so: fs.base is 0, and the thread pointer %#x\n' "$thread"
else
    echo "changed: fs.base is $base"
    exit 1
fi
