#!/bin/sh
#SBATCH --job-name=unwind-tables
#SBATCH --array=1-16
#SBATCH --cpus-per-task=4
#SBATCH --requeue
# One shard of a sweep, as a task of an array job of Slurm:
#
#   sbatch examples/sweep/slurm.sh list.txt FOLDER
#
# A task that was interrupted and is queued again goes on where it was.
set -eu
shard=$SLURM_ARRAY_TASK_ID
status=0
unwind-sim tables check --files "$1" --shard "$shard/$SLURM_ARRAY_TASK_COUNT" \
    --threads "${SLURM_CPUS_PER_TASK:-1}" --out "$2/part-$shard.jsonl" || status=$?
# 1 says that wrong rows were found, 3 that there was nothing to check.
case $status in 0 | 1 | 3) ;; *) exit "$status" ;; esac
