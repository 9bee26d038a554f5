#!/bin/sh
# Dumps a machine with some two hundred tasks, for the bench `vmcore`.
#
#   benches/programs/vmcore.sh VMLINUZ FOLDER [MODULE.ko..]
#
# VMLINUZ comes from a distribution's package. The modules are inserted in this order:
# qemu_fw_cfg.ko lets the dump say where the kernel is, and in fuse.ko some tasks wait. FOLDER gets
# `vmcore`. Needs qemu-system-x86_64, a static busybox, cpio and cc. TASKS is the number of
# processes that wait (96), SECONDS_MAX the longest time to boot (150).
set -eu

kernel=$1
folder=$2
shift 2
seconds_max=${SECONDS_MAX:-150}
here=$(dirname "$0")
root=$folder/root

mkdir -p "$root/bin" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/lib"
cp "${BUSYBOX:-$(command -v busybox)}" "$root/bin/busybox"
cc -O1 -w -static -pthread -o "$root/bin/tasks" "$here/vmcore_tasks.c"
{
    echo '#!/bin/busybox sh'
    echo 'export PATH=/bin'
    for of in proc sysfs:sys devtmpfs:dev; do
        echo "busybox mount -t ${of%:*} none /${of#*:}"
    done
    for module in "$@"; do
        cp "$module" "$root/lib/"
        echo "busybox insmod /lib/$(basename "$module")"
    done
    echo "tasks ${TASKS:-96} &"
    echo 'busybox sleep 4'
    echo 'echo READY'
    echo 'busybox sleep 100000'
} > "$root/init"
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc) 2> "$folder/cpio.log" | gzip -1 > "$folder/initrd.gz"

rm -f "$folder/vmcore" "$folder/monitor" "$folder/console.log"
mkfifo "$folder/monitor"
qemu-system-x86_64 -cpu max -accel tcg,thread=multi -smp 2 -m 512M -display none -no-reboot \
    -device vmcoreinfo -kernel "$kernel" -initrd "$folder/initrd.gz" -append "console=ttyS0 quiet" \
    -serial "file:$folder/console.log" -monitor stdio < "$folder/monitor" > "$folder/monitor.log" &
qemu=$!
exec 3> "$folder/monitor"
trap 'kill $qemu 2> /dev/null || true' EXIT
waited=0
until grep -q READY "$folder/console.log" 2> /dev/null; do
    waited=$((waited + 1))
    if [ "$waited" -gt "$seconds_max" ]; then
        echo "the kernel has not booted in $seconds_max seconds: see $folder/console.log" >&2
        exit 1
    fi
    sleep 1
done
echo "dump-guest-memory $folder/vmcore" >&3
echo quit >&3
wait "$qemu"
ls -l "$folder/vmcore"
