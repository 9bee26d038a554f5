#!/usr/bin/env bash
# Go's linker drops the unwind rows of C code: in a program that uses cgo only through the standard
# library, such as package net, no C function has a row, neither in .eh_frame nor in .debug_frame.
#
# Go links such programs by itself ("internal" linking), and takes all of the C objects but .eh_frame.
# A backtrace that begins in libc's getaddrinfo, in a DNS query, goes astray in net's C function; with
# -linkmode=external it reaches runtime.asmcgocall. Go 1.19.8 does the same. No report found.
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
pip pyelftools==0.33
debian trixie golang-1.24-go=1.24.4-1

cat >"$dir/lookup.go" <<'END'
package main

import (
	"fmt"
	"net"
)

func main() {
	addresses, _ := net.LookupHost("localhost")
	fmt.Println(len(addresses))
}
END
# How many of the C functions have a row.
cat >"$dir/count.py" <<'END'
import re
import sys
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile

file = ELFFile(open(sys.argv[1], "rb"))
dwarf = file.get_dwarf_info()
entries = list(dwarf.CFI_entries()) if dwarf.has_CFI() else []
entries += dwarf.EH_CFI_entries() if dwarf.has_EH_CFI() else []
ranges = [(e["initial_location"], e["initial_location"] + e["address_range"])
          for e in entries if isinstance(e, FDE)]
functions = {s.name: s["st_value"] for s in file.get_section_by_name(".symtab").iter_symbols()
             if s["st_info"]["type"] == "STT_FUNC" and re.match("_cgo_[0-9a-f]+_C2?func_", s.name)}
print(sum(any(a <= pc < b for a, b in ranges) for pc in functions.values()), len(functions))
END

export GOROOT=$dir/root/usr/lib/go-1.24 GOCACHE=$dir/cache GOPATH=$dir/go HOME=$dir GOFLAGS='' \
    GOTOOLCHAIN=local GOENV=off GO111MODULE=off CGO_ENABLED=1 CC=gcc
"$GOROOT/bin/go" version
cat <<'END'
expected: a row for each C function, as gcc wrote them. External linking keeps the rows of the same
objects. -linkmode only says who links (https://pkg.go.dev/cmd/link).
END
found=
for mode in internal external; do
    # Internal is what Go chooses here by itself.
    link=''
    [ $mode = internal ] || link=-linkmode=external
    "$GOROOT/bin/go" build "-ldflags=$link" -o "$dir/lookup" "$dir/lookup.go" >"$dir/log" 2>&1 ||
        unavailable "$(tail -n 1 "$dir/log")"
    counts=$(PYTHONPATH=$dir/python python3 "$dir/count.py" "$dir/lookup")
    printf 'seen, %s: rows for %s of %s C functions of net\n' "$mode" "${counts% *}" "${counts#* }"
    found+="$counts, "
done
chmod -R u+w "$dir"
internal=${found%%, *}
external=${found#*, }
external=${external%, }
[ "${external% *}" -gt 0 ] || unavailable "C functions with rows"
if [ "${internal% *}" -eq 0 ] && [ "${external% *}" -eq "${external#* }" ]; then
    echo "still so: no rows after internal linking, all after external"
else
    echo "changed: $found"
    exit 1
fi
