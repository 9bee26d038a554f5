"""A table of what `tables check` says about files of many producers.

packages.tsv names packages of Debian suites, wheels and npm packages with their versions; files.tsv
has the checksum of each file that was measured. What cannot be had is named in the table.
"""

import argparse
import collections
import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
# Bytes of a file; of one where a package has no smaller; and seconds for a check.
SIZE_MIN, SIZE_MAX, SIZE_MAX_ALONE = 16 << 10, 6 << 20, 48 << 20
SECONDS_MAX = 600


def run(command, where=None, seconds=900):
    try:
        done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    return done.stdout if done.returncode == 0 else None, done.stderr


class Debian:
    """apt with three suites, beside the system's own."""

    def __init__(self, folder):
        self.options = None
        self.folder = folder
        listed, _ = run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL)"])
        mirrors = [l.split()[0] for l in (listed or "").splitlines() if l.endswith("Debian Debian")]
        if not mirrors:
            return
        for part in ("lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(folder, part), exist_ok=True)
        sources = os.path.join(folder, "sources.list")
        key = "/usr/share/keyrings/debian-archive-keyring.gpg"
        with open(sources, "w") as file:
            for suite in ("bookworm", "trixie", "sid"):
                file.write(f"deb [signed-by={key}] {mirrors[0]} {suite} main\n")
        open(os.path.join(folder, "status"), "a").close()
        options = {
            "Dir::Etc::SourceList": sources,
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State": folder,
            "Dir::State::Lists": os.path.join(folder, "lists"),
            "Dir::State::status": os.path.join(folder, "status"),
            "Dir::Cache": os.path.join(folder, "cache"),
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
        }
        self.options = [
            word for name, value in options.items() for word in ("-o", f"{name}={value}")
        ]
        run(["apt-get", "-qq", *self.options, "update"])

    def fetch(self, package, version, into):
        if self.options is None:
            return "there is no apt with a mirror of Debian"
        out, error = run(["apt-get", *self.options, "download", f"{package}={version}"], into)
        debs = glob.glob(os.path.join(into, "*.deb"))
        if out is None or not debs:
            return (error.strip().splitlines() or ["not downloaded"])[-1]
        if run(["dpkg-deb", "-x", debs[0], into])[0] is None:
            return "not unpacked"
        os.remove(debs[0])
        return None


def fetch_wheel(package, version, into):
    name = f"{package}=={version}" if version else package
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    out, error = run([*pip, "-d", into, name])
    wheels = glob.glob(os.path.join(into, "*.whl"))
    if out is None or not wheels:
        return (error.strip().splitlines() or ["not downloaded"])[-1]
    with zipfile.ZipFile(wheels[0]) as archive:
        archive.extractall(into)
    found = os.path.basename(wheels[0]).split("-")[1]
    os.remove(wheels[0])
    return found, None


def fetch_npm(package, version, into):
    name = f"{package}@{version}" if version else package
    out, error = run(["npm", "pack", "--silent", name], into)
    packed = glob.glob(os.path.join(into, "*.tgz"))
    if out is None or not packed:
        return (error.strip().splitlines() or ["not downloaded"])[-1]
    with tarfile.open(packed[0]) as archive:
        archive.extractall(into, filter="data")
    os.remove(packed[0])
    with open(os.path.join(into, "package", "package.json")) as file:
        return json.load(file)["version"], None


def elf_files(folder, least, most):
    """Programs and shared libraries for x86-64, the smallest first; one large one if there are no
    others."""
    found = []
    for root, _folders, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            size = os.path.getsize(path)
            if size > SIZE_MAX_ALONE or size < least:
                continue
            with open(path, "rb") as file:
                head = file.read(20)
            if head[:5] == b"\x7fELF\x02" and head[16:20] in (b"\2\0\x3e\0", b"\3\0\x3e\0"):
                found.append((size, path))
    found.sort()
    small = [path for size, path in found if size <= SIZE_MAX]
    return small[:most] or [path for _size, path in found[:1]]


def made(producer, into):
    """Programs of the mutation measure, linked or rewritten here; or why there are none."""
    sys.path.insert(0, os.path.join(HERE, "..", "mutation"))
    import programs

    linkers = {"GNU ld": "bfd", "gold": "gold", "mold": "mold", "lld": "lld"}
    if producer in linkers:
        linker = linkers[producer]
        name = shutil.which(f"ld.{linker}") or shutil.which(linker)
        if not name and linker == "lld":
            newest = sorted(glob.glob("/usr/bin/ld.lld-*"))
            name = newest and newest[-1]
        if not name:
            return "there is no " + linker
        os.makedirs(os.path.join(into, "bin"))
        os.symlink(name, os.path.join(into, "bin", f"ld.{linker}"))
        add = f" -B{into}/bin -fuse-ld={linker}"
    elif producer == "BOLT":
        bolts = sorted(glob.glob("/usr/lib/llvm-*/bin/llvm-bolt"))
        if not bolts:
            return "there is no llvm-bolt"
        add = " -Wl,--emit-relocs"
    else:
        return zig(into)
    for name, sources, compilers, options in programs.PROGRAMS:
        try:
            built = programs.build(name, sources, compilers, options + add, into)
        except subprocess.CalledProcessError:
            continue
        if producer == "BOLT" and built:
            out = built[0] + ".bolt"
            run(
                [
                    bolts[-1],
                    built[0],
                    "-o",
                    out,
                    "-reorder-blocks=ext-tsp",
                    "-split-functions",
                    "-split-all-cold",
                    "-split-eh",
                    "-frame-opt=all",
                ]
            )
            os.remove(built[0])
    return None


def zig(into):
    wheels = os.path.join(into, "wheel")
    os.makedirs(wheels)
    error = fetch_wheel("ziglang", "", wheels)
    if isinstance(error, str):
        return error
    compiler = os.path.join(wheels, "ziglang", "zig")
    os.chmod(compiler, 0o755)
    for name, text in ZIG.items():
        source = os.path.join(into, name + ".zig")
        with open(source, "w") as file:
            file.write(text)
        for mode in ("Debug", "ReleaseSafe"):
            own = "-fno-llvm" if mode == "Debug" else "-fllvm"
            os.environ["ZIG_GLOBAL_CACHE_DIR"] = os.path.join(into, "cache")
            run(
                [
                    compiler,
                    "build-exe",
                    "-O",
                    mode,
                    own,
                    f"-femit-bin={into}/{name}-{mode}",
                    "--cache-dir",
                    os.path.join(into, "cache"),
                    source,
                ],
                into,
            )
    shutil.rmtree(wheels)
    shutil.rmtree(os.path.join(into, "cache"), ignore_errors=True)
    return None


ZIG = {
    "hello": 'const std = @import("std");\npub fn main() void {\n'
    '    std.debug.print("{d}\\n", .{std.hash.Wyhash.hash(0, "text")});\n}\n'
}


def check(tool, path):
    """The sums of a file, or why there are none."""
    command = [tool, "tables", "check", "--json", path]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return f"took longer than {SECONDS_MAX} s"
    for line in done.stdout.splitlines():
        if line.startswith(b'{"type":"check"'):
            return json.loads(line)
    return done.stderr.decode(errors="replace").strip().splitlines()[-1:] or "nothing was said"


def percent(part, whole):
    return f"{part * 10000 // whole / 100:.2f}" if whole else "-"


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--tool", required=True)
    options.add_argument("--scratch", required=True)
    options.add_argument("--write", action="store_true", help="write files.tsv anew")
    options.add_argument("--only", help="producers whose name has this in it")
    options.add_argument("--json", metavar="FILE", help="the sums of each file")
    chosen = options.parse_args()

    known = {}
    listing = os.path.join(HERE, "files.tsv")
    if os.path.exists(listing):
        for line in open(listing):
            if not line.startswith("#"):
                digest, package, version, path = line.rstrip("\n").split("\t")
                known[package, version, path] = digest

    debian = None
    sums, missing, changed, rows = collections.OrderedDict(), [], [], []
    sizes = open(chosen.json, "w") if chosen.json else None
    for line in open(os.path.join(HERE, "packages.tsv")):
        if line.startswith("#"):
            continue
        producer, source, package, version, most = line.rstrip("\n").split("\t")
        if chosen.only and chosen.only not in producer:
            continue
        total = sums.setdefault(producer, collections.Counter())
        folder = os.path.join(
            chosen.scratch, f"{len(rows)}-{package.replace('/', '-')}-{producer.split()[0]}"
        )
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        if source.startswith("deb "):
            debian = debian or Debian(os.path.join(chosen.scratch, "apt"))
            error = debian.fetch(package, version, folder)
        elif source == "wheel":
            error = fetch_wheel(package, version or known_version(known, package), folder)
        elif source == "npm":
            error = fetch_npm(package, version or known_version(known, package), folder)
        elif source == "made":
            error, package = made(producer, folder), "(compiled here)"
        else:
            error = "no package that apt, pip or npm has is known here"
        if isinstance(error, tuple):
            version, error = error
        files = [] if error else elf_files(folder, 0 if source == "made" else SIZE_MIN, int(most))
        if not files:
            missing.append(f"{producer}: {package or source} {version}: {error or 'no ELF file'}")
        for path in files:
            place = os.path.relpath(path, folder)
            digest = hashlib.sha256(open(path, "rb").read()).hexdigest()
            if source != "made":
                rows.append((digest, package, version, place))
                if known.get((package, version, place), digest) != digest:
                    changed.append(f"{package} {version} {place}")
            found = check(chosen.tool, path)
            if isinstance(found, dict):
                total["files"] += 1
                for key in ("all", "proven", "contradicted", "unproven"):
                    total[key] += found[key]["functions"]
                for reason, count in found["doubts"].items():
                    total["because " + reason] += count
                if sizes:
                    found["file"], found["producer"], found["package"] = place, producer, package
                    print(json.dumps(found), file=sizes, flush=True)
            else:
                missing.append(f"{producer}: {package} {version} {place}: {found}")
        print(f"{producer}: {package} {version}: {len(files)} files", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    table(sums)
    for text in missing:
        print("- not measured: " + text)
    for text in changed:
        print("- not the file of the list: " + text)
    if chosen.write:
        again = {(package, version) for _digest, package, version, _path in rows}
        kept = [
            (digest, package, version, path)
            for (package, version, path), digest in known.items()
            if (package, version) not in again and chosen.only
        ]
        with open(listing, "w") as file:
            file.write("# SHA-256, package, version, path in the package.\n")
            file.writelines(
                "\t".join(row) + "\n" for row in sorted(kept + rows, key=lambda r: r[1:])
            )
    sys.exit(1 if changed else 0)


def known_version(known, package):
    return next((version for of, version, _path in known if of == package), "")


def table(sums):
    print("| producer | files | functions | proven, % | contradicted | unproven | most reasons |")
    print("|---|---|---|---|---|---|---|")
    whole = collections.Counter()
    for producer, total in [*sums.items(), ("all", whole)]:
        reasons = [(n, k[8:]) for k, n in total.items() if k.startswith("because ")]
        text = ", ".join(f"{name} {count}" for count, name in sorted(reasons, reverse=True)[:4])
        if not total["files"]:
            print(f"| {producer} | not measured | | | | | |")
            continue
        print(
            f"| {producer} | {total['files']} | {total['all']} | "
            f"{percent(total['proven'], total['all'])} | {total['contradicted']} | "
            f"{total['unproven']} | {text} |"
        )
        if producer != "all":
            whole.update(total)


if __name__ == "__main__":
    main()
