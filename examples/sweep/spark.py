#!/usr/bin/env python3
"""Checks the unwind tables of many files with Apache Spark.

    spark-submit examples/sweep/spark.py UNWIND_SIM LIST OUT

Every partition of LIST (PATH, a tab and the package, one file a line) is a run of UNWIND_SIM, which
must be at that path on every worker, as must be the files. OUT is a folder of Parquet files.
"""

import subprocess
import sys
import tempfile

from pyspark.sql import SparkSession

FILES_A_PARTITION = 20
SCHEMA = """type string, file string, build_id string, package string, function string,
    start string, length bigint, code_section string, entry string, `table` string, verdict string,
    reason string, rests_on array<string>, rows bigint, rows_proven bigint, address string,
    function_start string, code string, register string, instruction string, before string,
    cause string, error string"""


def check(program, entries):
    """The rows of some files, as JSON."""
    with tempfile.NamedTemporaryFile() as files:
        files.writelines(entry.encode() + b"\n" for entry in entries)
        files.flush()
        options = ["--threads", "1", "--files", files.name, "--out", "-"]
        run = subprocess.Popen([program, "tables", "check", *options], stdout=subprocess.PIPE)
        yield from (line.decode() for line in run.stdout)
        if run.wait() not in (0, 1, 3):
            raise RuntimeError(f"{program} ended with status {run.returncode}")


def main():
    program, files, out = sys.argv[1:]
    spark = SparkSession.builder.appName("unwind tables").getOrCreate()
    with open(files, encoding="utf-8", errors="surrogateescape") as file:
        entries = file.read().split("\n")
    parts = max(1, len(entries) // FILES_A_PARTITION)
    rows = spark.sparkContext.parallelize(entries, parts)
    rows = rows.mapPartitions(lambda part: check(program, part))
    spark.read.schema(SCHEMA).json(rows).write.mode("overwrite").parquet(out)
    done = spark.read.parquet(out).where("type = 'function'")
    done.groupBy("verdict").count().orderBy("verdict").show()
    spark.stop()


if __name__ == "__main__":
    main()
