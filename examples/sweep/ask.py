#!/usr/bin/env python3
"""Runs the SQL of a page in DuckDB, on the parts of a sweep in this folder.

    pip install duckdb
    examples/sweep/ask.py docs/sweep.md [WORDS]

Blocks that select are printed as Markdown; with WORDS, only those whose first line has them.
"""

import re
import sys

import duckdb


def blocks(page):
    """The ```sql blocks."""
    return re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def cell(value):
    """A value as Markdown."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")


def main():
    page, words = sys.argv[1], " ".join(sys.argv[2:])
    connection = duckdb.connect()
    with open(page, encoding="utf-8") as file:
        for block in blocks(file.read()):
            asked = connection.execute(block)
            title = block.splitlines()[0].removeprefix("--").strip()
            is_view = re.search(r"^CREATE\b", block, re.MULTILINE)
            if is_view or words not in title:
                continue
            names = [column[0] for column in asked.description]
            print(f"{title}\n")
            print("|", " | ".join(names), "|")
            print("|", " | ".join("---" for _ in names), "|")
            for row in asked.fetchall():
                print("|", " | ".join(cell(value) for value in row), "|")
            print()


if __name__ == "__main__":
    main()
