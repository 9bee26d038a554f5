#!/bin/sh
# Lists the ELF files in folders of a Debian system, each with a tab and the name of its package, as
# `unwind-sim tables check --files` reads them. The largest come first, which makes shards of similar
# size.
#
#   examples/sweep/list.sh /usr/bin /usr/lib/x86_64-linux-gnu > list.txt
set -eu
[ $# -gt 0 ] || { echo "usage: list.sh FOLDER.." >&2; exit 2; }
export LC_ALL=C

# What dpkg installed: path and package. Where /bin, /sbin and /lib are links into /usr, packages may
# name a file by either path.
owners() {
    for list in /var/lib/dpkg/info/*.list; do
        [ -e "$list" ] || continue
        package=${list##*/}
        package=${package%.list}
        sed -n "s#^/\(s\?bin\|lib[^/]*\)/#/usr/\1/#; s#\$#\t${package%:*}#p" "$list"
    done
}

# A path with a line break cannot be in the list.
files() {
    find "$@" -type f ! -path '*
*' -exec sh -c 'grep -HobaP -m1 "^\x7fELF" "$@" || true' sh {} + |
        sed -n 's/:0:.ELF$//p' | tr '\n' '\0' | xargs -0r stat -c '%s %n' |
        sort -k1,1nr -k2 | cut -d ' ' -f 2-
}

owners="$(mktemp)"
trap 'rm -f "$owners"' EXIT
owners > "$owners"
files "$@" | awk -F '\t' '
    FILENAME != "-" { package[$1] = $2; next }
    { print $0 "\t" package[$0] }
' "$owners" -
