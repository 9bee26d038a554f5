#!/usr/bin/env bash
# The header of CPython's jitdump (`-X perf_jit`) has its time from another clock, and in another
# unit, than the records have: microseconds since 1970, and nanoseconds of CLOCK_MONOTONIC.
#
# A reader that takes the header's time for the earliest one drops all records. Nor is the header's
# padding zero: it holds what was in memory. (3.13.0 also writes machine 0; 3.13.5 does not.) No
# report of the clock found.
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

debian trixie python3.13-minimal
export PYTHONHOME=$dir/root/usr
version=$(run bin/python3.13 --version)
[ "$version" = "Python 3.13.5" ] || unavailable "Python 3.13.5 in trixie, which has $version"

printf 'import os\ndef f(): return os.getpid()\nprint(f())\n' >"$dir/f.py"
# CPython knows no other folder for the file.
dump=/tmp/jit-$(run bin/python3.13 -X perf_jit "$dir/f.py").dump
[ -f "$dump" ] || unavailable "a jitdump: this build of CPython wrote none"
mv "$dump" "$dir/dump"

echo "$version"
cat <<'END'
expected: the header's time is just before that of the first record. "All timestamps must use the
same clock source", of header and records:
https://github.com/torvalds/linux/blob/v6.12/tools/perf/Documentation/jitdump-specification.txt
END
cat >"$dir/read.py" <<'END'
import struct, sys, time

with open(sys.argv[1], "rb") as file:
    dump = file.read()
size, machine, padding, _, header = struct.unpack_from("<IIIIQ", dump, 8)
record, _, first = struct.unpack_from("<IIQ", dump, size)
print(f"  header: machine {machine}, padding {padding:#x}, time {header}")
print(f"  first record, of type {record}: time {first}")
print(f"  now: {time.time_ns() // 1000} us since 1970, {time.monotonic_ns()} ns of CLOCK_MONOTONIC")
near = lambda a, b, unit: abs(a - b) < 600 * unit
same = near(header, first, 10**9)
other = near(header, time.time_ns() // 1000, 10**6) and near(first, time.monotonic_ns(), 10**9)
sys.exit(1 if same else 0 if other else 3)
END
status=0
run bin/python3.13 "$dir/read.py" "$dir/dump" || status=$?
case $status in
    0) echo "still so: the header's time is of the other clock" ;;
    1) echo "changed: header and record have the same clock" && exit 1 ;;
    *) echo "changed: the two times are of neither clock known" && exit 1 ;;
esac
