# What the `make` of each situation may use; `run` puts it in front. $S is tests/field/src.
set -euo pipefail
export DEBUGINFOD_URLS= LC_ALL=C.UTF-8
ulimit -c unlimited
# Situations are small; nothing of them may run for long.
ulimit -t 60

# Nothing goes into the cache of build ids (-N), where a file that is deleted would be found.
# COMMAND..: records it with perf's frame-pointer chains, stack copies of SIZE bytes, or more often.
fp() { perf record -q -N -e cpu-clock -F 499 --call-graph fp -o recording -- "$@" >output 2>&1 || recorded; }
dwarf() {
    local size=$1
    shift
    perf record -q -N -e cpu-clock -F 199 --call-graph "dwarf,$size" -o recording -- "$@" >output 2>&1 || recorded
}
fast() {
    local size=$1
    shift
    perf record -q -N -e cpu-clock -F 999 --call-graph "dwarf,$size" -o recording -- "$@" >output 2>&1 || recorded
}
# perf ends with the status of the program; only the recording counts.
recorded() { [ -s recording ] || { cat output >&2; exit 1; }; }

# COMMAND..: runs it until it crashes. $limited: the size of the core, in 1024 bytes.
crash() {
    (ulimit -c "${limited:-unlimited}" && exec "$@") >output 2>&1 || true
    mv core recording 2>/dev/null || mv core.* recording
}

# COMMAND: the program behind a shim.
real() { "$1" -c 'import sys; print(sys.executable)'; }

# NAME: whether a situation that needs NAME can be made. Says why not.
probe() {
    case $1 in
    core)
        case $(cat /proc/sys/kernel/core_pattern) in
        '' | '|'* | */*) echo "cores do not go into the working folder" ;;
        esac
        ;;
    perf)
        command -v perf >/dev/null || echo "perf is not installed"
        perf record -q -N -e cpu-clock -o probed true >/dev/null 2>&1 || echo "no perf events here"
        ;;
    lbr)
        perf record -q -N -e cycles:u --call-graph lbr -o probed true >/dev/null 2>&1 ||
            echo "no branch records on this processor"
        ;;
    root) [ "$(id -u)" = 0 ] || echo "root is needed" ;;
    gcore) command -v gcore >/dev/null || echo "gcore is not installed" ;;
    numba | wasmtime) "$FIELD_PYTHON" -c "import $1" 2>/dev/null || echo "Python has no module $1" ;;
    boost) [ -e /usr/include/boost/context/fiber.hpp ] || echo "boost.context is not installed" ;;
    php)
        php -d opcache.enable_cli=1 -d opcache.jit_buffer_size=1M -d opcache.jit=tracing \
            -r 'exit(opcache_get_status()["jit"]["on"] ? 0 : 1);' >/dev/null 2>&1 ||
            echo "PHP with a JIT is not installed"
        ;;
    ruby_yjit) ruby --yjit -e 1 >/dev/null 2>&1 || echo "Ruby with YJIT is not installed" ;;
    python3.*) "$1" -c 1 2>/dev/null || echo "$1 is not installed" ;;
    *) command -v "$1" >/dev/null || echo "$1 is not installed" ;;
    esac
}
