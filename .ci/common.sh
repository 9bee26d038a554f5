# What .ci/run and .ci/full share; sourced by them. Callers set NAME, for messages.

step() { printf '\n== %s (after %d:%02d)\n' "$*" $((SECONDS / 60)) $((SECONDS % 60)); }
fail() { printf '\n%s: %s\n' "$NAME" "$*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif has sudo; then sudo "$@"
    else fail "this needs root or sudo: $*"
    fi
}

packages=()
# COMMAND PACKAGE: the package, unless the command is there.
needs() { has "$1" || packages+=("$2"); }
# The same for what a test can do without: nothing, where the system has no such package.
wants() {
    has "$1" && return
    has apt-get || return 0
    [ -n "${updated:-}" ] || { as_root apt-get update -qq; updated=yes; }
    apt-cache show "$2" >/dev/null 2>&1 && packages+=("$2")
    return 0
}
install_packages() {
    [ ${#packages[@]} -gt 0 ] || return 0
    has apt-get || fail "missing, and there is no apt-get to install it with: ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    [ -n "${updated:-}" ] || { as_root apt-get update -qq; updated=yes; }
    as_root apt-get install -y -qq --no-install-recommends "${packages[@]}"
    packages=()
}

# NAME COMMAND..: a component of the toolchain, unless the command works.
component() {
    local name=$1
    shift
    "$@" >/dev/null 2>&1 && return
    has rustup || fail "the component $name is missing, and there is no rustup to add it with"
    rustup component add "$name"
}

# FOLDER: fails if a test was skipped that tests/skips.txt does not list.
check_skips() {
    sort -u "$UNWIND_SIM_SKIPS" >"$1/skipped"
    grep -v '^#' tests/skips.txt | sort -u >"$1/listed" || true
    local new
    new=$(comm -23 "$1/skipped" "$1/listed")
    [ -z "$new" ] || fail "skipped, but not listed in tests/skips.txt:"$'\n'"$new"
    printf 'skipped: %s, listed: %s\n' "$(wc -l <"$1/skipped")" "$(wc -l <"$1/listed")"
}
