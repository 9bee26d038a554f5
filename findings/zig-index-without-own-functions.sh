#!/usr/bin/env bash
# The index of the unwind table, .eh_frame_hdr, that Zig's own linker writes has no entry for what Zig
# compiled: only functions from linked objects are in it. libgcc finds rows by the index alone, so
# backtraces end at the first such function. Exceptions, which search in the same way, were not tried.
#
# .eh_frame has all of them. Its start is not where the index says either: that is where the part from
# objects begins. Zig uses this linker and its own code generator for x86-64 Linux unless it optimizes.
# No report of the index found; issue 25421 is about when to write .eh_frame.
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

# Puts packages for Python into $dir/python.
pip() {
    python3 -m pip install --quiet --no-input --target "$dir/python" "$@" >"$dir/log" 2>&1 ||
        unavailable "pip install $*"
}

command -v gcc >/dev/null || unavailable gcc
pip ziglang==0.15.2 pyelftools==0.33

cat >"$dir/through.zig" <<'END'
extern fn back() void;
export fn through() void {
    back();
}
END
cat >"$dir/main.c" <<'END'
#include <stdio.h>
#include <unwind.h>

void through(void);
int main(void);

static _Unwind_Reason_Code look(struct _Unwind_Context *context, void *unused)
{
    void *function = _Unwind_FindEnclosingFunction((void *)(_Unwind_GetIP(context) - 1));
    if (function == (void *)main)
        puts("main");
    return (void)unused, _URC_NO_REASON;
}

void back(void) { _Unwind_Backtrace(look, NULL); }

int main(void) { return through(), 0; }
END
# The functions in .eh_frame, and how many of them the index has.
cat >"$dir/count.py" <<'END'
import struct
import sys
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile

file = ELFFile(open(sys.argv[1], "rb"))
index = file.get_section_by_name(".eh_frame_hdr")
data, base = index.data(), index["sh_addr"]
assert data[:4] == b"\x01\x1b\x03\x3b", "another encoding"
entries = {base + struct.unpack_from("<i", data, 12 + 8 * i)[0]
           for i in range(struct.unpack_from("<I", data, 8)[0])}
functions = [entry["initial_location"] for entry in file.get_dwarf_info().EH_CFI_entries()
             if isinstance(entry, FDE)]
start = base + 4 + struct.unpack_from("<i", data, 4)[0]
print(f"{sum(f in entries for f in functions)} of {len(functions)} functions in the index,",
      f"which points {start - file.get_section_by_name('.eh_frame')['sh_addr']} bytes into .eh_frame")
END

export ZIG_GLOBAL_CACHE_DIR=$dir/cache ZIG_LOCAL_CACHE_DIR=$dir/cache
zig=$dir/python/ziglang/zig
echo "zig $("$zig" version)"
cat <<'END'
expected: all functions are in the index, and the backtrace goes on to main. The index is searched
instead of .eh_frame, and points to its start: Linux Standard Base, Core, 10.6.2,
https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/ehframechpt.html
END
found=
for options in "" "-fllvm -flld"; do
    # shellcheck disable=SC2086
    (cd "$dir" && "$zig" build-lib -dynamic -target x86_64-linux $options through.zig \
        -femit-bin=libthrough.so) >"$dir/log" 2>&1 || unavailable "$(tail -n 1 "$dir/log")"
    gcc "$dir/main.c" "$dir/libthrough.so" "-Wl,-rpath,$dir" -rdynamic -o "$dir/program"
    end=$("$dir/program")
    printf 'seen, zig build-lib %s: %s; main %s\n' "${options:-by default}" \
        "$(PYTHONPATH=$dir/python python3 "$dir/count.py" "$dir/libthrough.so")" \
        "$([ "$end" = main ] && echo found || echo "not found")"
    found+="${end:-none} "
done
[ "$found" = "none main " ] || { echo "changed: $found"; exit 1; }
echo "still so: the backtrace ends at the function that Zig compiled"
