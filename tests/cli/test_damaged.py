"""Whatever is handed to the commands: one line that says what is wrong, and exit code 2."""

import itertools
import struct
import zipfile

import numpy as np
import pytest
from commands import refused, run
from processes import python

pytest.importorskip("matplotlib")


NUMBER = "12345678901234567890"
COMMANDS = {
    "reproduce": ["--runs", "--seed", "--jobs"],
    "run": ["--steps", "--seed", "--lr"],
    "heads": ["--layers", "--heads", "--queries", "--nuclear", "--seed", "--jobs", "--threshold"],
}
VALUES = [NUMBER, f"-{NUMBER}", f"9-{NUMBER}", "0-99999999999", "1" * 5000, "٣" * 30, "½"]
VALUES += ["1e999", "nan", "", " ", "0x10"]


@pytest.mark.parametrize("command", COMMANDS)
def test_numbers_out_of_every_range(command):
    file = [] if command == "reproduce" else ["no-such-file"]
    for option, value in itertools.product(COMMANDS[command], VALUES):
        if option != "--lr" or not value.isdecimal() or len(value) > 300:  # else a learning rate, though a large one
            assert f"argument {option}: must be" in refused(command, *file, f"{option}={value}")


# ------------------------------------------------------------------------------------------------- archives


@pytest.fixture
def arrays(rng):
    return {"X": rng.standard_normal((6, 5, 4)), "Z": rng.standard_normal((6, 4)), "selected": rng.integers(5, size=6)}


def npy(header, body=b""):
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


SHAPES = ["(1000000000000,)", f"({'9' * 30},)", "(-1, 4)", "(4294967296, 4294967296, 2)", "'X'"]
HEADERS = [f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}" for shape in SHAPES]
for kind, shape in (("nothing", "(3,)"), ("|O", "(3,)"), ("|V8", "(1,)")):
    HEADERS.append(f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}")
HEADERS += ["{'descr': '<f8'}", "(((((", "[" * 9000, "{" * 3, "", "\x00"]


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: repr(header[-32:]))
def test_headers_of_arrays(header, tmp_path):
    np.savez(tmp_path / "bad.npz", Z=np.ones((1, 3)), selected=np.zeros(1, int))
    with zipfile.ZipFile(tmp_path / "bad.npz", "a") as archive:
        archive.writestr("X.npy", npy(header, bytes(8)))
    said = refused("run", tmp_path / "bad.npz", "--out", tmp_path / "out")
    assert said.startswith("attsvm run: X ") and not (tmp_path / "out").exists()


def test_every_truncation_and_many_flips_of_an_archive(tmp_path, arrays, no_picture):
    """A flip may be harmless (a date): then the command does its work.  Nothing else may come."""
    np.savez(tmp_path / "good.npz", **arrays)
    good, path = (tmp_path / "good.npz").read_bytes(), tmp_path / "bad.npz"
    rng = np.random.default_rng(7)
    for cut in [*range(0, len(good), 97), len(good) - 1]:
        path.write_bytes(good[:cut])
        refused("run", path, "--out", tmp_path / "out")
    counts = {0: 0, 2: 0}
    for at in rng.integers(len(good), size=120):
        content = bytearray(good)
        content[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
        code, _, messages = run("run", path, "--steps", 5, "--out", tmp_path / "out")
        assert code in (0, 2) and "Traceback" not in messages
        counts[code] += 1
    assert counts[2] > 60


@pytest.mark.parametrize("scale", [1e-320, 1e307])
def test_scales_of_arrays_are_named(tmp_path, arrays, scale):
    np.savez(tmp_path / "data.npz", **(arrays | {"X": arrays["X"] * scale, "Z": arrays["Z"] * scale}))
    assert "scale" in refused("run", tmp_path / "data.npz", "--out", tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["-O", "-OO"])
def test_without_assertions_and_docstrings(tmp_path, flag):
    done = python(flag, "-m", "attsvm", "reproduce", "local-convergence", "--runs", 2, "--out", tmp_path)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    assert (tmp_path / "index.html").exists()
