# What .ci/run and .ci/full share; sourced by them, at the top of the
# repository. Callers set NAME, for messages.

export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-always}
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
# Backtraces need lines; nothing here needs types and variables, which cost time to compile and link.
export CARGO_PROFILE_DEV_DEBUG=${CARGO_PROFILE_DEV_DEBUG:-line-tables-only}
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

# PREFIX: the first command line of README.md that begins so, as it stands there.
readme() {
    local line
    line=$(grep -m 1 "^$1" README.md) || fail "README.md has no line that begins with: $1"
    printf '%s' "$line"
}

# The command of README.md that a new user runs first, with the exit status that stands behind it
# as `# exit status 1`.
main_job() {
    local command status=0 stated
    command=$(readme "cargo run --release")
    printf '%s\n' "$command"
    bash -euc "$command" || status=$?
    stated=$(printf '%s' "$command" | sed -n 's/.*# exit status \([0-9]*\)$/\1/p')
    [ "$status" = "${stated:-0}" ] || fail "it ended with status $status"
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
