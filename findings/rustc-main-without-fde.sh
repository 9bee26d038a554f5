#!/usr/bin/env bash
# rustc gives `main` no FDE under `-C panic=abort`, also with `-C force-unwind-tables=yes`.
#
# This `main` is the shim that calls `std::rt::lang_start`, and it pushes. All other functions of
# the object have an FDE; with `-C panic=unwind`, `main` has one too. Profilers and debuggers that
# go by the table lose `main` and what called it. Also seen with rustc 1.95.0. No report of the shim
# found.
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

debian trixie rustc=1.85.1+dfsg1-1+deb13u1 binutils-x86-64-linux-gnu=2.44-3

echo 'fn main() { std::process::exit(std::env::args().count() as i32) }' >"$dir/main.rs"
run bin/rustc --sysroot "$dir/root/usr" --version
cat <<'END'
expected: every function has an FDE. The option "forces the generation of unwind tables",
https://doc.rust-lang.org/rustc/codegen-options/index.html#force-unwind-tables
END
# The names of the functions that have an FDE, by the relocations of .eh_frame.
described() {
    run bin/x86_64-linux-gnu-readelf -rW "$1" | sed -n '/rela.eh_frame/,/^$/p' |
        sed -n 's/.* \.text\.\([^ ]*\) + 0$/\1/p'
}
for panic in abort unwind; do
    run bin/rustc --sysroot "$dir/root/usr" -O -C panic=$panic -C force-unwind-tables=yes \
        --emit obj -o "$dir/$panic.o" "$dir/main.rs"
    functions=$(run bin/x86_64-linux-gnu-readelf -sW "$dir/$panic.o" | grep -c ' FUNC ')
    described "$dir/$panic.o" >"$dir/$panic"
    if grep -qx main "$dir/$panic"; then main=with; else main=without; fi
    echo "  panic=$panic: $functions functions, $(wc -l <"$dir/$panic") FDEs, main $main one"
    echo "$main" >>"$dir/seen"
done
run bin/x86_64-linux-gnu-objdump -d --no-show-raw-insn -j .text.main "$dir/abort.o" |
    sed -n '/<main>:/,/mov/p'
if [ "$(xargs <"$dir/seen")" = "without with" ]; then
    echo "still so: main lacks one under panic=abort alone"
else
    echo "changed: main was without one under panic=abort, and with one under panic=unwind"
    exit 1
fi
