#!/bin/sh
# The first process of .ci/console: commands that use processes, pipes, signals, files, modules and what
# a kernel says of itself. What they print may depend on nothing but the kernel and the processor. Whether
# a shell says that a job was killed depends on when it looks.
export PATH=/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /tmp

echo "== the kernel"
uname -a
cat /proc/version
cat /proc/cmdline
id
echo $$
cat /proc/self/stack
cat /proc/1/stack
cat /proc/cpuinfo
cat /proc/iomem
cat /proc/ioports
cat /proc/interrupts
cat /proc/self/maps | tail -4 | cut -c26-
cat /proc/filesystems | head -5
grep -c . /proc/kallsyms
ls /
ls /bin | wc -l
ls /sys/devices/system/cpu
cat /sys/devices/system/clocksource/clocksource0/current_clocksource
head -20 /sys/devices/system/cpu/vulnerabilities/*
free | cut -c1-18

echo "== files"
dd if=/dev/zero of=/tmp/zero bs=4096 count=64 2>/dev/null
md5sum /tmp/zero
echo abc | tr a-c A-C | sed 's/B/-/'
mkdir -p /tmp/a/b/c && find /tmp | sort
ln -s /tmp/zero /tmp/link && readlink /tmp/link
cp /tmp/zero /tmp/copy && cmp /tmp/zero /tmp/copy && echo same
head -c 100000 /bin/busybox | gzip | gunzip | md5sum
tar -c /tmp 2>/dev/null | tar -t | sort
mkfifo /tmp/fifo; (echo through a fifo >/tmp/fifo &); cat /tmp/fifo

echo "== processes"
seq 1 1000 | sort -r | md5sum
seq 1 100 | awk '{ s += $1 } END { print "sum", s }'
yes | head -1000 | wc -l
sleep 1000 &
sleeper=$!
sleep 1
kill -0 $sleeper && echo alive
cat /proc/$sleeper/stack
kill $sleeper; wait $sleeper 2>/dev/null; echo "status $?"
sh -c 'kill -SEGV $$'; echo "status $?"
trap 'echo caught USR1' USR1; kill -USR1 $$
i=0; while [ $i -lt 20 ]; do (exit $i) || true; i=$((i + 1)); done; echo "forked $i"
(ulimit -v 20000; sh -c 'a=x; while true; do a=$a$a; done') 2>&1 | tail -1
(while true; do true; done) & sleep 0.1; kill -9 $!; wait $! 2>/dev/null; echo "status $?"
ps -o pid,ppid,stat,comm | grep -v kworker | head -8
date

echo "== modules"
for module in /modules/*; do
    insmod $module
    echo "${module##*/}: $?"
done
cut -d ' ' -f 1-5 /proc/modules
dd if=/dev/zero of=/tmp/disk bs=1024 count=4096 2>/dev/null
mkdosfs /tmp/disk
mkdir /mnt /tmp/lower /tmp/upper /tmp/work /tmp/both; cp /init /tmp/lower
mount -t vfat -o loop /tmp/disk /mnt; echo "mount $?"
cp /init /mnt && cmp /init /mnt/init && echo same
mount -t overlay -o lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work overlay /tmp/both; echo "mount $?"
echo more >>/tmp/both/init && wc -l /tmp/both/init /tmp/lower/init
umount /tmp/both; umount /mnt; echo "umount $?"
ifconfig lo 127.0.0.1 up
ifconfig dummy0 10.0.0.1 up; ifconfig dummy0 | grep 'inet addr'
ping -c 2 10.0.0.1 | grep -v time=
rmmod dummy overlay; echo "rmmod $?"
sync
echo "== done"
reboot -f
