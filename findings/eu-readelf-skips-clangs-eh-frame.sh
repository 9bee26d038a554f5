#!/usr/bin/env bash
# eu-readelf prints nothing for the `.eh_frame` of an object that clang compiled, and says nothing.
# Its section has the type SHT_X86_64_UNWIND, as the psABI has it; GNU as writes SHT_PROGBITS.
#
# The exit status is 0. A shared library that GNU ld makes of such objects alone is the same. No
# report found.
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

debian trixie elfutils=0.192-4 clang-19=1:19.1.7-3+b1 binutils-x86-64-linux-gnu=2.44-3

echo 'int g(int); int f(int x) { return g(x) + 1; }' >"$dir/f.c"
run lib/llvm-19/bin/clang --target=x86_64-linux-gnu -O2 -c "$dir/f.c" -o "$dir/clang.o"
run lib/llvm-19/bin/clang --target=x86_64-linux-gnu -O2 -S "$dir/f.c" -o "$dir/f.s"
sed -i '/^\t\.addrsig/d' "$dir/f.s"
run bin/x86_64-linux-gnu-as "$dir/f.s" -o "$dir/gas.o"

run bin/eu-readelf --version | head -1
run lib/llvm-19/bin/clang --version | head -1
cat <<'END'
expected: a CIE and an FDE, of both. .eh_frame has the type SHT_X86_64_UNWIND: "Special Sections",
https://gitlab.com/x86-psABIs/x86-64-ABI
END
for object in clang gas; do
    run bin/x86_64-linux-gnu-readelf -SW "$dir/$object.o" |
        awk -v name="$object" '$2 == ".eh_frame" || $3 == ".eh_frame" { sub(/^ *\[ *[0-9]+\] /, "")
            print name ".o: " $1, $2 }'
    run bin/eu-readelf --debug-dump=frame "$dir/$object.o" >"$dir/$object.frames"
    echo "  eu-readelf: $(wc -l <"$dir/$object.frames") lines," \
        "$(grep -c 'FDE length' "$dir/$object.frames" || true) FDEs"
done
if [ ! -s "$dir/clang.frames" ] && grep -q 'FDE length' "$dir/gas.frames"; then
    echo "still so: not a line for clang's object"
else
    echo "changed: the two objects are no longer treated in this way"
    exit 1
fi
