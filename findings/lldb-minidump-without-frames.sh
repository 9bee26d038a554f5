#!/usr/bin/env bash
# Breakpad shows no frame of a minidump that lldb saved on Linux. The registers of a thread are cut short,
# 720 bytes of 1232, and a module ends where its first segment does, before its code.
#
# getModuleFileSize() of lldb adds up segments until there is a gap, and today's linkers put code on
# pages of its own, behind one. lldb reads its dumps, so that it does not notice. LLVM's pull request
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

command -v gcc >/dev/null || unavailable gcc
command -v npm >/dev/null || unavailable npm
# Has Breakpad's programs, compiled.
(cd "$dir" && npm pack --silent minidump@0.26.0 && tar xzf minidump-0.26.0.tgz) >"$dir/log" 2>&1 ||
    unavailable "npm pack minidump@0.26.0"
breakpad=$dir/package/bin/linux-x64
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
expected: main. A thread has a CONTEXT, for x86-64 one of 1232 bytes (winnt.h; MDRawContextAMD64 of
Breakpad), and SizeOfImage is "the size of the executable module image":
https://learn.microsoft.com/en-us/windows/win32/api/minidumpapiset/ns-minidumpapiset-minidump_module
END
"$breakpad/minidump_dump" "$dir/stops.dmp" >"$dir/dump" 2>/dev/null || true
"$breakpad/minidump_stackwalk" "$dir/stops.dmp" >"$dir/walk" 2>/dev/null || true
echo "seen by Breakpad (minidump 0.26.0 of npm):"
size=$(awk '$1 == "thread_context.data_size" { print $3; exit }' "$dir/dump")
frames=$(grep -c '^ *[0-9][0-9]*  ' "$dir/walk" || true)
pc=$(awk '/^Crash address:/ { print $3 }' "$dir/walk")
end=$(awk '/ - .*stops/ { print $3; exit }' "$dir/walk")
[ -n "$size" ] && [ -n "$pc" ] && [ -n "$end" ] || unavailable "what Breakpad makes of the dump"
printf '  %d bytes of registers, %s frames\n' "$size" "$frames"
printf '  the program stopped at %s, its module ends at %s\n' "$pc" "$end"
if [ "$((size))" -lt 1232 ] && [ "$frames" -eq 0 ] && [ "$((pc))" -gt "$((end))" ]; then
    echo "still so: no frame, and no module for the address"
else
    echo "changed: frames, or all registers, or a module for the address"
    exit 1
fi
