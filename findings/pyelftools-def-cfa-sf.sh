#!/usr/bin/env bash
# pyelftools leaves out the data alignment factor in `DW_CFA_def_cfa_sf`: the CFA of such a row is
# off by the factor, and has the wrong sign where that is -8.
#
# `get_decoded()` gives rbp-2 for rbp+16; for `DW_CFA_def_cfa_offset_sf` it is right. Zig's own code
# generator writes DW_CFA_def_cfa_sf into every CIE, so all CFAs of its functions' first rows are
# rsp-1. No report found; pull request 555 added DW_CFA_def_cfa_offset_sf.
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

pip pyelftools==0.33 ziglang==0.15.2

cat >"$dir/f.zig" <<'END'
export fn f(x: u64) u64 {
    return x *% 3;
}
END
export ZIG_GLOBAL_CACHE_DIR=$dir/cache ZIG_LOCAL_CACHE_DIR=$dir/cache
(cd "$dir" && python/ziglang/zig build-lib -dynamic -fno-llvm -fno-lld -target x86_64-linux f.zig)

cat <<'END'
expected: at the start of a function the CFA is rsp+8. The operand of DW_CFA_def_cfa_sf is a
factored offset, to be multiplied by the data alignment factor: DWARF 5, 6.4.2.2,
https://dwarfstd.org/doc/DWARF5.pdf
END
trap - ERR # the status is that of the program below
PYTHONPATH=$dir/python python3 - "$dir/libf.so" <<'END'
import sys
import elftools
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile

with open(sys.argv[1], "rb") as file:
    elf = ELFFile(file)
    dwarf = elf.get_dwarf_info()
    start = elf.get_section_by_name(".symtab").get_symbol_by_name("f")[0]["st_value"]
    for entry in dwarf.EH_CFI_entries():
        if isinstance(entry, FDE) and entry["initial_location"] == start:
            break
    for instruction in entry.cie.instructions:
        if instruction.opcode == 0x12:
            register, factored = instruction.args
    alignment = entry.cie["data_alignment_factor"]
    rule = entry.get_decoded().table[0]["cfa"]

print(f"pyelftools {elftools.__version__}, file of Zig 0.15.2")
print(f"  CIE: data alignment factor {alignment}, DW_CFA_def_cfa_sf r{register}, {factored}")
print(f"  first row of f: CFA is r{rule.reg}{rule.offset:+}; r7 is rsp")
if rule.offset == factored != alignment * factored:
    print("still so: the offset is not multiplied")
elif rule.offset == alignment * factored:
    print("changed: the offset is multiplied")
    sys.exit(1)
else:
    print("changed: neither the factored offset nor the product")
    sys.exit(1)
END
