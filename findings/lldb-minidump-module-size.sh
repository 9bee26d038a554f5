#!/usr/bin/env bash
# In the minidumps that lldb saves on Linux, a module ends where its first segment does: the size is that
# of the headers, and all of the module's code lies behind it. A reader finds no module for any frame.
#
# getModuleFileSize() adds up segments until there is a gap, and today's linkers put code on a page of
# its own, behind one. lldb's own reader goes by the file, and does not notice. LLVM's pull request
# 188363 is about another mistake in that loop, and its test makes segments without gaps. No report found.
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

command -v gcc >/dev/null || unavailable gcc
pip minidump==0.0.24
debian trixie lldb-19=1:19.1.7-3+b1

echo 'int main(void) { __asm__ volatile("int3"); return 0; }' >"$dir/stops.c"
gcc "$dir/stops.c" -o "$dir/stops"
# lldb starts its server by itself.
{
    printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' \
        "$dir/root/usr/lib64/ld-linux-x86-64.so.2" "$dir/root/usr/lib/x86_64-linux-gnu" \
        "$dir/root/usr/lib/llvm-19/bin/lldb-server"
} >"$dir/server"
chmod +x "$dir/server"
# The program stops at a trap: what is to be done then stands behind -k.
LLDB_DEBUGSERVER_PATH=$dir/server PYTHONHOME=$dir/root/usr run lib/llvm-19/bin/lldb \
    --no-lldbinit --batch -o 'settings set target.disable-aslr false' -o run \
    -k "process save-core --plugin-name=minidump --style=stack $dir/stops.dmp" -k kill -k quit \
    "$dir/stops" >"$dir/log" 2>&1 </dev/null || true
[ -s "$dir/stops.dmp" ] || unavailable "a minidump of lldb: $(grep error "$dir/log" | head -n 1)"

PYTHONHOME=$dir/root/usr run lib/llvm-19/bin/lldb --version | sed -n 1p
cat <<'END'
expected: each frame's address lies in its module, from BaseOfImage to BaseOfImage + SizeOfImage, "the
size of the executable module image":
https://learn.microsoft.com/en-us/windows/win32/api/minidumpapiset/ns-minidumpapiset-minidump_module
END
readelf -lW "$dir/stops" 2>/dev/null | awk '
    $1 == "LOAD" { print "segment: address " $3 ", size " $6 }'
PYTHONPATH=$dir/python python3 - "$dir/stops.dmp" <<'END' >"$dir/seen" 2>"$dir/log" || true
import sys
from minidump.minidumpfile import MinidumpFile

dump = MinidumpFile.parse(sys.argv[1])
rip = dump.threads.threads[0].ContextObject.Rip
for module in dump.modules.modules:
    if module.name.endswith("/stops"):
        break
offset = rip - module.baseaddress
print(f"SizeOfImage {module.size:#x}, the program stopped at offset {offset:#x}")
print(any(m.baseaddress <= rip < m.baseaddress + m.size for m in dump.modules.modules))
END
sed -n '1s/^/seen: /p' "$dir/seen"
case $(sed -n 2p "$dir/seen") in
False) echo "still so: no module has the address" ;;
True)
    echo "changed: a module has the address"
    exit 1
    ;;
*) unavailable "a module in the dump: $(tail -n 1 "$dir/log")" ;;
esac
