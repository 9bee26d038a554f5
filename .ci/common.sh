# Shared by the scripts beside it, which source it at the top of the repository and set NAME for
# messages.

export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-always}
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}

step() { printf '\n== %s (after %d:%02d)\n' "$*" $((SECONDS / 60)) $((SECONDS % 60)); }
fail() { printf '\n%s: %s\n' "$NAME" "$*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif has sudo; then sudo "$@"
    else fail "this needs root or sudo: $*"
    fi
}

# PACKAGE: prints the name that the system's package manager has for a package of Debian. Nothing if
# it has none, or if this is not known.
package_of() {
    if has apt-get; then
        printf '%s' "$1"
        return
    fi
    # Fedora.
    case $1 in
    clang-14 | libc6-dev-arm64-cross) ;;
    g++) printf gcc-c++ ;;
    golang-go) printf golang ;;
    libboost-context-dev) printf boost-devel ;;
    libc6-dev) printf glibc-devel ;;
    libdw-dev) printf elfutils-devel ;;
    libjson-c-dev) printf json-c-devel ;;
    libunwind-dev) printf libunwind-devel ;;
    libzstd-dev) printf libzstd-devel ;;
    linux-perf) printf perf ;;
    musl-tools) printf musl-gcc ;;
    pkg-config) printf pkgconf-pkg-config ;;
    xz-utils) printf xz ;;
    *) printf '%s' "$1" ;;
    esac
}
# PACKAGE: whether the system's package manager has it.
is_package() {
    [ -n "$1" ] || return
    if has apt-get; then
        [ -n "${updated:-}" ] || { as_root apt-get update -qq; updated=yes; }
        apt-cache show "$1" >/dev/null 2>&1
    else
        dnf --quiet info "$1" >/dev/null 2>&1
    fi
}

# Packages to install, by the names of Debian.
packages=()
# COMMAND PACKAGE: marks the package for installation unless the command exists.
needs() { has "$1" || packages+=("$2"); }
# The same for an optional tool: does nothing if the system has no such package.
wants() {
    has "$1" && return
    has apt-get || has dnf || return 0
    is_package "$(package_of "$2")" && packages+=("$2")
    return 0
}
install_packages() {
    [ ${#packages[@]} -gt 0 ] || return 0
    local package named=()
    for package in "${packages[@]}"; do
        # Unquoted: a package without a name here is left out, and what needs it says so.
        # shellcheck disable=SC2207
        named+=($(package_of "$package"))
    done
    if has apt-get; then
        export DEBIAN_FRONTEND=noninteractive
        [ -n "${updated:-}" ] || { as_root apt-get update -qq; updated=yes; }
        as_root apt-get install -y -qq --no-install-recommends "${named[@]}"
    elif has dnf; then
        as_root dnf install -y --quiet --setopt=install_weak_deps=False "${named[@]}"
    else
        fail "missing, and there is no apt-get or dnf to install it with: ${packages[*]}"
    fi
    packages=()
}

# Marks what the tests need or can use.
tools_of_the_tests() {
    local header
    needs cc gcc
    needs c++ g++
    needs as binutils
    needs readelf binutils
    needs objdump binutils
    needs gdb gdb
    needs git git
    needs perl perl
    needs perf linux-perf
    needs tmux tmux
    # Some tests read the system's own files, so a python3 elsewhere is not enough.
    [ -e /usr/bin/python3 ] || packages+=(python3)
    [ -e /usr/include/stdio.h ] || packages+=(libc6-dev)
    [ -e /usr/lib/x86_64-linux-gnu/libcrypto.so.3 ] || packages+=(openssl)
    # Other implementations: the tests that need them are skipped if the system has no such package.
    wants clang-14 clang-14
    wants go golang-go
    wants zsh zsh
    wants fish fish
    for header in libunwind:libunwind.h libdw:elfutils/libdwfl.h libjson-c:json-c/json.h; do
        [ -e "/usr/include/${header#*:}" ] || [ -e "/usr/include/x86_64-linux-gnu/${header#*:}" ] ||
            wants no-such-command "${header%%:*}-dev"
    done
    [ -e /usr/include/boost/context/fiber.hpp ] || wants no-such-command libboost-context-dev
    /usr/bin/python3 -c 'import jsonschema' 2>/dev/null || wants no-such-command python3-jsonschema
}

# NAME COMMAND..: adds a component to the toolchain unless the command works.
component() {
    local name=$1
    shift
    "$@" >/dev/null 2>&1 && return
    has rustup || fail "the component $name is missing, and there is no rustup to add it with"
    rustup component add "$name"
}

# The version of all packages.
version() { sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml; }
# The folder of a release.
dist() { printf '%s/dist' "$CARGO_TARGET_DIR"; }
# The time of the commit, seconds since 1970.
date_of_commit() { git log -1 --format=%ct; }

# PREFIX: prints the first line of README.md that starts with it.
readme() {
    local line
    line=$(grep -m 1 "^$1" README.md) || fail "README.md has no line that begins with: $1"
    printf '%s' "$line"
}

# COMMAND..: runs it and says what it cost. A change that costs more than 5 % more says so and why.
measured() {
    local TIMEFORMAT='cost: %U + %S s of processor, %R s of time'
    time "$@"
    printf 'disk: %s MB in %s\n' "$(du -sm "$CARGO_TARGET_DIR" | cut -f 1)" "$CARGO_TARGET_DIR"
}

# Runs the command of README.md that a new user runs first; it must end with the exit status stated
# after it as `# exit status 1`.
main_job() {
    local command status=0 stated
    command=$(readme "cargo run")
    printf '%s\n' "$command"
    bash -euc "$command" || status=$?
    stated=$(printf '%s' "$command" | sed -n 's/.*# exit status \([0-9]*\)$/\1/p')
    [ "$status" = "${stated:-0}" ] || fail "it ended with status $status"
}

# Fails if a test that wrote into $UNWIND_SIM_SKIPS was skipped for a reason that tests/skips.txt does
# not have, or for want of a tool that was installed.
check_skips() {
    UNWIND_SIM_ALL_TOOLS=1 cargo run --locked --quiet -p unwind-sim-tests-runner -- --skips "$UNWIND_SIM_SKIPS" ||
        fail "tests were skipped that should have run"
}
