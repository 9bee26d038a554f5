#!/usr/bin/env python3
"""Draws command lines from the EXAMPLES sections of the installed manual pages.

    draw.py --seed 20261125 --count 100 > drawn.txt
    draw.py --seed 20261129 --count 100 --new --root FOLDER > drawn-2.txt

A line of such a section is a command line if it starts with the name of its page, after a prompt or
not, if bash can parse it, and if it is not prose. At most two are taken of a page, and 14 of git. Left out are the
programs below, each with its reason. The result depends on the pages that are installed, so it is
kept in a file. With `--new`, no page is taken of a package that `packages.txt` names or that a program of
an existing list is in. With `--root`, the pages and programs are those of packages that were unpacked
into a folder (`apt-get download`, `dpkg-deb -x`), not those that are installed.
"""

import argparse
import pathlib
import random
import re
import shutil
import subprocess

# Only pages of user commands: those of section 8 administer the computer.
PAGES = "/usr/share/man/man1"
PER_PAGE_MAX = 2
# git has a page for each of its commands.
PER_PROGRAM_MAX = 14

LEFT_OUT = {
    "needs a network": "gcloud gsutil bq add-apt-repository apt-add-repository ssh scp sftp dig host "
    "nslookup wget lwp-request GET HEAD POST lwp-download lwp-mirror ssh-copy-id git-send-email "
    "git-imap-send git-svn git-p4 git-cvsimport git-cvsserver git-fetch-pack git-request-pull wget2 "
    "gpg-wks-client dirmngr dirmngr-client telnet ftp rcp pip pip3 rclone",
    "changes the computer": "chown chgrp systemctl loginctl hostnamectl timedatectl localectl shutdown "
    "mount umount chsh chfn passwd debconf debconf-communicate debconf-set-selections dpkg-divert "
    "debconf-copydb debconf-apt-progress fuser killall kill pkill skill renice fallocate "
    "debsign apt apt-get busctl dbus-update-activation-environment systemd-run npm cpan "
    "systemd-analyze coredumpctl update-alternatives ucf ucfr ucfq",
    "shows the computer, the time or what else runs": "ps pgrep top free uptime w who lscpu lsmem lsns "
    "lsipc lsof vmstat df uname nproc journalctl dbus-monitor pmap slabtop tload watch last pidof "
    "pstree prlimit pidstat sadf sar iostat mpstat cifsiostat tapestat niceload gdbus dbus-send",
    "needs a terminal or a display": "less more vi vim vimtutor nano mc tmux screen lynx w3m xterm gvim "
    "emacsclient emacs display import animate dialog whiptail gdbserver mcedit mcview xdg-open "
    "xdpyinfo xrandr gitk git-gui git-citool ffplay",
    "attaches to another process": "strace ltrace perf gdb gcore trace bpftrace",
}
NAMED = {name: reason for reason, names in LEFT_OUT.items() for name in names.split()}
# Words that a sentence has and a command line seldom.
PROSE = re.compile(r"(^|[^-\w\"'])(the|is|are|will|can|this|that|which|has|would|should|was|used|does|has)[ ,.]")


def section(page):
    """The EXAMPLES section of a page, as lines."""
    command = ["man", "--no-hyphenation", "--no-justification", "-Tascii", "-l", str(page)]
    environment = {"MANWIDTH": "300", "LC_ALL": "C", "PATH": "/usr/bin:/bin", "MAN_KEEP_FORMATTING": ""}
    shown = subprocess.run(command, capture_output=True, env=environment, timeout=60).stdout
    plain = re.sub(r"\x1b\[[0-9;]*m", "", re.sub(r".\x08", "", shown.decode("utf8", "replace")))
    inside, lines = False, []
    for line in plain.split("\n"):
        if line[:1].strip():
            inside = re.match(r"(USAGE )?EXAMPLES?\b", line) is not None
        elif inside:
            lines.append(line.strip())
    return lines


def commands(name, lines):
    """The command lines of a section: those that start with the page's name."""
    words = name.split("-", 1)
    names = [name, " ".join(words)] if words[0] == "git" else [name]
    text = ""
    for line in lines:
        text += line
        if text.endswith("\\"):
            text = text[:-1].rstrip() + " "
            continue
        command, text = re.sub(r"^([$#%>]|\w*[$#]) +", "", text), ""
        if not any(command == n or command.startswith(n + " ") for n in names):
            continue
        if PROSE.search(command) or command.endswith((".", ":")) or "..." in command:
            continue
        if any(ord(c) > 126 for c in command) or len(command.split()) < 2:
            continue
        if subprocess.run(["bash", "-n", "-c", command], capture_output=True).returncode == 0:
            yield command


def packages(paths):
    """The package of each path that one has."""
    found = {}
    shown = subprocess.run(["dpkg-query", "-S", *paths], capture_output=True, text=True).stdout
    for line in shown.splitlines():
        names, _, path = line.partition(": ")
        if path in paths:
            found[path] = names.split(",")[0].split(":")[0]
    return found


def used_packages(folder):
    """The packages that `packages.txt` names, and those of the programs of the existing lists."""
    named = set((folder / "packages.txt").read_text().split())
    programs = set()
    for name in ["chosen.txt", "drawn.txt"]:
        for line in (folder / name).read_text().splitlines():
            if line[:1].strip() and not line.startswith("#"):
                programs.update(line.split(":")[0].split(","))
    places = {f"{bin}/{program}" for program in programs for bin in ["/usr/bin", "/bin"]}
    pages = {f"{PAGES}/{program}.1.gz" for program in programs}
    return named | set(packages(places | pages).values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--new", action="store_true", help="only of packages that no list has yet")
    parser.add_argument("--root", type=pathlib.Path, help="a folder with unpacked packages")
    arguments = parser.parse_args()
    root = str(arguments.root or "")
    path = f"{root}/usr/bin:{root}/bin:{root}/usr/games" if root else None
    generator = random.Random(arguments.seed)
    pages = sorted(pathlib.Path(root + PAGES).glob("*.gz"))
    if arguments.new:
        used = used_packages(pathlib.Path(__file__).parent)
        owners = packages({str(page) for page in pages})
        unowned = set() if root else {""}
        pages = [page for page in pages if owners.get(str(page), "") not in used | unowned]
    generator.shuffle(pages)
    seen, drawn = set(), []
    for page in pages:
        name = page.name.split(".1")[0]
        program = "git" if name.startswith("git-") else name
        left_out = name in NAMED or name.split("_")[0] in NAMED
        if left_out or page.is_symlink() or not shutil.which(program, path=path):
            continue
        found = [c for c in dict.fromkeys(commands(name, section(page))) if c not in seen]
        generator.shuffle(found)
        seen.update(found)
        room = PER_PROGRAM_MAX - sum(drawn_program == program for drawn_program, _ in drawn)
        drawn += [(program, command) for command in found[: min(PER_PAGE_MAX, room)]]
        if len(drawn) >= arguments.count:
            break
    print(f"# Drawn by `draw.py --seed {arguments.seed} --count {arguments.count}{' --new' * arguments.new}{' --root FOLDER' * bool(root)}`. What the examples")
    print("# name is made before, as far as a script can guess it.")
    print("    prepare: bash examples.sh 2>/dev/null")
    for program, command in drawn[: arguments.count]:
        print(f"{program}: {command}")


main()
