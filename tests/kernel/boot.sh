#!/bin/sh
# Boots a kernel under QEMU, records it through the gdb stub, and compares: every single-stepped
# instruction with the truth, and the kernel's own unwinds with ours, state by state.
#
#   tests/kernel/boot.sh VMLINUZ FOLDER
#
# VMLINUZ comes from a distribution's package (Debian: linux-image-*-cloud-amd64-unsigned); it must
# have CONFIG_KALLSYMS_ALL and CONFIG_DEBUG_INFO_BTF. FOLDER gets the traces and the comparisons.
# Needs qemu-system-x86_64 and a static busybox. UNWIND_SIM is the program, STEPS the number of
# instructions to step, UNWINDS the number of the kernel's unwinds to record. KASLR=1 makes the
# kernel relocate itself and isolate its page tables (pti=on), SMP=N gives the machine N processors.
# The exit status is 0 if all of the kernel's unwinds equal ours.
set -eu

kernel=$1
folder=$2
sim=${UNWIND_SIM:-unwind-sim}
steps=${STEPS:-15000}
unwinds=${UNWINDS:-100}
smp=${SMP:-1}
case ${KASLR:-0} in
0) arguments=nokaslr ;;
*) arguments=pti=on ;;
esac
busybox=${BUSYBOX:-$(command -v busybox)}

mkdir -p "$folder/root/bin"
cp "$busybox" "$folder/root/bin/busybox"
# Causes system calls, page faults, timers, and unwinds: of all tasks at once, and one by one.
cat > "$folder/root/init" <<'INIT'
#!/bin/busybox sh
export PATH=/bin
busybox mkdir -p /proc /dev /tmp
busybox mount -t proc proc /proc
busybox mount -t devtmpfs dev /dev
echo ready > /dev/console
while :; do
    busybox cat /proc/self/stat /proc/self/maps > /dev/null
    busybox dd if=/dev/zero of=/tmp/f bs=64k count=4 2> /dev/null
    busybox usleep 2000
    echo t > /proc/sysrq-trigger
    for stack in /proc/[0-9]*/stack; do busybox cat "$stack" > /dev/null 2>&1; done
done
INIT
chmod +x "$folder/root/init"
(cd "$folder/root" && find . | "$busybox" cpio -o -H newc 2> /dev/null) > "$folder/initrd"

rm -f "$folder"/monitor.in "$folder"/monitor.out "$folder"/gdb
mkfifo "$folder/monitor.in" "$folder/monitor.out"
# With -icount, instructions advance the time, so that timers fire while a debugger steps.
qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -m 256M \
    -accel tcg -icount shift=6,sleep=off -smp "$smp" \
    -kernel "$kernel" -initrd "$folder/initrd" -append "$arguments console=ttyS0 panic=-1" \
    -serial "file:$folder/console" \
    -chardev "pipe,id=monitor,path=$folder/monitor" -mon chardev=monitor \
    -chardev "socket,id=gdb,path=$folder/gdb,server=on,wait=off" -gdb chardev:gdb &
qemu=$!
cat "$folder/monitor.out" > /dev/null &
reader=$!
nmis=
trap 'kill $qemu $reader $nmis 2> /dev/null || :' EXIT

left=300
until grep -q ready "$folder/console" 2> /dev/null; do
    left=$((left - 1))
    [ $left -gt 0 ] || { echo "the kernel has not booted" >&2; exit 2; }
    kill -0 $qemu
    sleep 1
done

record() { # NAME ARGUMENTS..
    name=$1
    shift
    "$sim" record --engine gdb "$folder/gdb" --kernel "$kernel" -o "$folder/$name.bin" "$@"
}

compare() { # NAME ARGUMENTS..; returns the status of the comparison
    name=$1
    shift
    "$sim" compare "$folder/$name.bin" "$@" > "$folder/$name.txt"
}

for entry in entry_SYSCALL_64 asm_exc_page_fault; do
    (for _ in 1 2 3 4 5 6; do sleep 1; echo nmi; done > "$folder/monitor.in") &
    nmis=$!
    record "$entry" --truth --from "$entry" --at every:1 --max-instructions "$steps"
    kill $nmis 2> /dev/null || :
    # Differences are the purpose: they show where the kernel's unwinders are wrong.
    compare "$entry" --unwinder orc:kernel,fp:kernel,guess:kernel --group-by insn || [ $? = 1 ]
    head -n 6 "$folder/$entry.txt"
done

record unwinds --at __unwind_start --max-samples "$unwinds"
status=0
compare unwinds --unwinder orc:kernel --against kernel || status=$?
head -n 4 "$folder/unwinds.txt"
exit $status
