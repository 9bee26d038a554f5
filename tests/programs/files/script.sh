#!/bin/sh
# Traps, here-documents, functions, background jobs.
trap 'echo leaving with $?' EXIT
trap 'echo interrupted' USR1
total() {
    sum=0
    while read -r number rest; do sum=$((sum + number)); done
    echo "$sum"
}
total <<END
1 one
2 two
39 more
END
kill -USR1 $$
sleep 0.01 &
wait $!
(exit 4) || echo "status $?"
set -- a "b c" d
for word; do echo "[$word]"; done
exit 6
