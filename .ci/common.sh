# Shared by .ci/run and .ci/full, which source it at the top of the repository and set NAME for
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

packages=()
# COMMAND PACKAGE: marks the package for installation unless the command exists.
needs() { has "$1" || packages+=("$2"); }
# The same for an optional tool: does nothing if the system has no such package.
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

# NAME COMMAND..: adds a component to the toolchain unless the command works.
component() {
    local name=$1
    shift
    "$@" >/dev/null 2>&1 && return
    has rustup || fail "the component $name is missing, and there is no rustup to add it with"
    rustup component add "$name"
}

# PREFIX: prints the first line of README.md that starts with it.
readme() {
    local line
    line=$(grep -m 1 "^$1" README.md) || fail "README.md has no line that begins with: $1"
    printf '%s' "$line"
}

# Runs the command of README.md that a new user runs first; it must end with the exit status stated
# after it as `# exit status 1`.
main_job() {
    local command status=0 stated
    command=$(readme "cargo run --release")
    printf '%s\n' "$command"
    bash -euc "$command" || status=$?
    stated=$(printf '%s' "$command" | sed -n 's/.*# exit status \([0-9]*\)$/\1/p')
    [ "$status" = "${stated:-0}" ] || fail "it ended with status $status"
}

# FOLDER: fails if a skipped test is not listed in tests/skips.txt.
check_skips() {
    sort -u "$UNWIND_SIM_SKIPS" >"$1/skipped"
    grep -v '^#' tests/skips.txt | sort -u >"$1/listed" || true
    local new
    new=$(comm -23 "$1/skipped" "$1/listed")
    [ -z "$new" ] || fail "skipped, but not listed in tests/skips.txt:"$'\n'"$new"
    printf 'skipped: %s, listed: %s\n' "$(wc -l <"$1/skipped")" "$(wc -l <"$1/listed")"
}
