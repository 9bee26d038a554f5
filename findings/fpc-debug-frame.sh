#!/usr/bin/env bash
# Free Pascal's `.debug_frame` cannot be read: its FDEs have a 4-byte length and an 8-byte CIE
# pointer.
#
# A 4-byte length means 32-bit DWARF, where the pointer has four bytes too. Readers take the upper
# half of the pointer for the lower half of the address, and so on: the length comes out 2^32 times
# too large, and in a program the address is another one, too. No report found.
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

debian trixie fp-compiler-3.2.2=3.2.2+dfsg-46 elfutils=0.192-4 \
    binutils-x86-64-linux-gnu=2.44-3

cat >"$dir/twice.pas" <<'END'
unit twice;
interface
function double_of(n: longint): longint;
implementation
function double_of(n: longint): longint;
begin
  double_of := n * 2;
end;
end.
END
fpc=lib/x86_64-linux-gnu/fpc/3.2.2
(cd "$dir" && run $fpc/ppcx64 -n -gw2 "-Fu$dir/root/usr/$fpc/units/x86_64-linux/*" twice.pas) |
    head -1

code=$(run bin/x86_64-linux-gnu-readelf -sW "$dir/twice.o" | awk '/DOUBLE_OF/ { print $3; exit }')
cat <<END
expected: an FDE of $code bytes from 0 on, the size of the function. In 32-bit DWARF, the length and
the CIE pointer of an FDE have four bytes: DWARF 5, 6.4.1 and 7.4,
https://dwarfstd.org/doc/DWARF5.pdf
END
echo "the first FDE:"
run bin/x86_64-linux-gnu-objcopy -O binary -j .debug_frame \
    --set-section-flags .debug_frame=alloc "$dir/twice.o" "$dir/frame"
od -A d -t x1 -j 20 -N 28 "$dir/frame" | sed 's/^/  /'
echo "GNU readelf 2.44:"
run bin/x86_64-linux-gnu-readelf --debug-dump=frames "$dir/twice.o" | grep -m 1 FDE |
    tee "$dir/fde" | sed 's/^/  /'
echo "eu-readelf 0.192:"
run bin/eu-readelf --debug-dump=frame "$dir/twice.o" 2>&1 | grep -m 1 address_range
if grep -q 'pc=0*\.\.0*1c00000000$' "$dir/fde"; then
    echo "still so: readelf finds 0x1c00000000 bytes"
else
    echo "changed: the range is another one"
    exit 1
fi
