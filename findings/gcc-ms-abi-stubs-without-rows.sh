#!/usr/bin/env bash
# GCC's `-mcall-ms2sysv-xlogues` leaves the saved registers out of the rows: functions that save them
# with the stubs of libgcc have no rule for rbx, rbp and r12 to r15, though the stub stores them.
#
# An unwinder goes on with the registers of that function as if they were its caller's. A debugger
# shows wrong variables, and an exception continues in a caller with wrong values in these registers.
# The rows do say at the end that the registers are restored (`.cfi_restore`). GCC 12.2.0 does the
# same. The manual names no such limit. No report found.
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
debian trixie cpp-14-x86-64-linux-gnu=14.2.0-19

# Both save rbx, which they need over the call.
cat >"$dir/between.c" <<'END'
void inner(void);
__attribute__((ms_abi)) long between(long value)
{
    __asm__ volatile("" : "+b"(value));
    inner();
    __asm__ volatile("" : "+b"(value));
    return value;
}
END
cat >"$dir/main.c" <<'END'
#include <stdio.h>
#include <unwind.h>

__attribute__((ms_abi)) long between(long value);

__attribute__((noinline, noclone)) long outer(void)
{
    long value = 1111;
    __asm__ volatile("" : "+b"(value));
    long result = between(2222);
    __asm__ volatile("" : "+b"(value));
    return value + result;
}

static _Unwind_Reason_Code look(struct _Unwind_Context *context, void *rbx)
{
    if (_Unwind_FindEnclosingFunction((void *)_Unwind_GetIP(context)) == (void *)outer)
        *(long *)rbx = _Unwind_GetGR(context, 3);
    return _URC_NO_REASON;
}

void inner(void)
{
    long rbx = 0;
    _Unwind_Backtrace(look, &rbx);
    printf("%ld\n", rbx);
}

int main(void) { return outer() == 3333 ? 0 : 1; }
END

cat <<'END'
expected: rbx is 1111 in outer(), where the code has it. between() saves rbx, and a row tells where a
saved register is (DWARF 5, 6.4). The option saves the same registers, by stubs of libgcc:
https://gcc.gnu.org/onlinedocs/gcc-14.2.0/gcc/x86-Options.html#index-mcall-ms2sysv-xlogues
END
cc1=libexec/gcc/x86_64-linux-gnu/14/cc1
run $cc1 -version -o "$dir/log" /dev/null 2>&1 | sed -n "1s/ (x86.*//p"
found=
for option in -mno-call-ms2sysv-xlogues -mcall-ms2sysv-xlogues; do
    run $cc1 -quiet -O2 $option "$dir/between.c" -o "$dir/between.s"
    gcc -O2 "$dir/main.c" "$dir/between.s" -o "$dir/program"
    rbx=$("$dir/program")
    printf 'seen with %s: rbx %s, rules for rbx: %s\n' $option "$rbx" \
        "$(awk '/[.]cfi_offset/ && $2 == "3," { n++ } END { print n + 0 }' "$dir/between.s")"
    found+="$rbx "
done
[ "$found" = "1111 2222 " ] || { echo "changed: not 1111 and 2222"; exit 1; }
echo "still so: 2222 is the rbx of the function between them"
