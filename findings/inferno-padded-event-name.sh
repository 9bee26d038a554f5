#!/usr/bin/env bash
# inferno-collapse-perf adds up periods if perf printed one space before the event's name, and
# counts samples if it printed more.
#
# perf pads the names to the length of the longest event of the file. So of two events of one
# recording, one is counted in nanoseconds or cycles and the other in samples; and the same event
# changes its unit, here by a factor of 1,001,001, when another one is recorded beside it. No report
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

command -v cargo >/dev/null || unavailable "cargo"
cargo install --quiet --locked --root "$dir" --target-dir "$dir/target" inferno --version 0.12.8 ||
    unavailable "cargo install inferno --version 0.12.8"

# As perf 6.1 writes `-e cpu-clock,context-switches`: "%*s: " with the longest name's length.
cat >"$dir/two" <<'END'
sh 11533 41222.567064:    1001001        cpu-clock: 
	          401000 work+0x10 (/bin/sh)
	          402000 main+0x10 (/bin/sh)

sh 11533 41222.568052:    1001001        cpu-clock: 
	          401000 work+0x10 (/bin/sh)
	          402000 main+0x10 (/bin/sh)

sh 11533 41222.568432:          1 context-switches: 
	          403000 pause+0x10 (/bin/sh)
	          402000 main+0x10 (/bin/sh)

END
# As perf writes `-e cpu-clock` alone.
sed '/context/,$d;s/       cpu-clock/cpu-clock/' "$dir/two" >"$dir/one"
grep -q '1001001 cpu-clock: $' "$dir/one"

echo "inferno-collapse-perf 0.12.8"
cat <<'END'
expected: the same two samples of cpu-clock have the same weight in both. The padding is only
layout: see name_width in process_event() of
https://github.com/torvalds/linux/blob/v6.1/tools/perf/builtin-script.c
END
echo "recorded alone:"
"$dir/bin/inferno-collapse-perf" "$dir/one" | tee "$dir/alone" | sed 's/^/  /'
echo "recorded with context-switches, --event-filter cpu-clock:"
"$dir/bin/inferno-collapse-perf" --event-filter cpu-clock "$dir/two" | tee "$dir/beside" |
    sed 's/^/  /'
if [ "$(cat "$dir/alone" "$dir/beside" | awk '{ print $NF }' | xargs)" = "2002002 2" ]; then
    echo "still so: 2002002 is the sum of the periods, 2 the number of samples"
else
    echo "changed: 2002002 and 2 were expected here"
    exit 1
fi
