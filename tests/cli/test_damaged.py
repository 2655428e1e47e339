"""Whatever is handed to the commands: one line that says what is wrong, and exit code 2."""

from __future__ import annotations

import contextlib
import io
import json
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from attsvm.cli import heads as cli_heads
from attsvm.cli import main as cli
from attsvm.cli.arguments import UsageError
from attsvm.heads.wordpiece import WordPiece
from bert import CONFIG, SPECIAL, WORDS, tiny_sentences, tiny_weights, write_folder, write_safetensors

pytest.importorskip("matplotlib")
DEEP = "[" * 100_000


def run(*words):
    """Exit code, and what is said on stderr besides progress."""
    messages = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(messages):
        try:
            code = cli.main(list(map(str, words)))
        except SystemExit as stop:
            code = stop.code
    return code, messages.getvalue()


def refused(*words):
    code, messages = run(*words)
    last = messages.splitlines()[-1]
    assert code == 2 and "Traceback" not in messages and len(last) < 500, messages
    return last


NUMBER = "12345678901234567890"
COMMANDS = {
    "reproduce": ["--runs", "--seed", "--jobs"],
    "run": ["--steps", "--seed", "--lr"],
    "heads": ["--layers", "--heads", "--queries", "--nuclear", "--seed", "--jobs", "--threshold"],
}
VALUES = [NUMBER, f"-{NUMBER}", f"9-{NUMBER}", "0-99999999999", "1" * 5000, "٣" * 30, "½"]
VALUES += ["1e999", "nan", "", " ", "0x10"]


@pytest.mark.parametrize(
    ("command", "option"), [(command, option) for command, options in COMMANDS.items() for option in options]
)
def test_numbers_out_of_every_range(command, option):
    for value in VALUES:
        if option == "--lr" and value.isdecimal() and len(value) < 300:
            continue  # a learning rate, though a large one
        file = [] if command == "reproduce" else ["no-such-file"]
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
        code, messages = run("run", path, "--steps", 5, "--out", tmp_path / "out")
        assert code in (0, 2) and "Traceback" not in messages
        counts[code] += 1
    assert counts[2] > 60


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e200, 1e307])
def test_scales_of_arrays_are_named(tmp_path, arrays, scale):
    np.savez(tmp_path / "data.npz", **(arrays | {"X": arrays["X"] * scale, "Z": arrays["Z"] * scale}))
    assert "scale" in refused("run", tmp_path / "data.npz", "--out", tmp_path / "out")


# -------------------------------------------------------------------------------------------------- models


@pytest.fixture
def folder(tmp_path, rng):
    folder = tmp_path / "model"
    folder.mkdir()
    return write_folder(folder, tiny_weights(rng))


@pytest.fixture
def text(tmp_path, rng):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(tiny_sentences(rng, 20)))
    return path


@pytest.fixture(autouse=True)
def reads_only(monkeypatch):
    """What follows the reading of the model and the text is not asked here."""

    def stop(*_, **__):
        raise UsageError("it was read")

    monkeypatch.setattr(cli_heads, "analyze_model", stop)


def test_what_is_sound_is_read(folder, text):
    assert "it was read" in refused("heads", folder, text)


CONFIGS = [
    *({"num_hidden_layers": value} for value in (10**9, 10**30, 0, -1, 2.0, None, "2", True and 3)),
    *({"num_attention_heads": value} for value in (0, 5, 10**9, None, -3)),
    *({"hidden_size": value} for value in (0, 24, 10**12, [])),
    *({"max_position_embeddings": value} for value in (0, 10**9, 10**20, {}, -16)),
    *({"intermediate_size": value} for value in (0, 10**9, 7)),
    *({"layer_norm_eps": value} for value in (None, "small", -1.0, 2, [], True, 10**400)),
    {"model_type": DEEP[:50]},
    {"hidden_act": None},
]


@pytest.mark.parametrize("change", CONFIGS, ids=str)
def test_configurations(folder, text, change):
    (folder / "config.json").write_text(json.dumps(CONFIG | change))
    assert refused("heads", folder, text).startswith("attsvm heads: ")


JSONS = ["", "{", "[]", "[1]", "3", "null", DEEP, '{"a":' * 100_000, '{"a": ' + "9" * 5000 + "}", '"' + "x" * 10**6]


@pytest.mark.parametrize("content", [*(j.encode() for j in JSONS), b"\xff\xfe", bytes(100)], ids=lambda c: repr(c[:12]))
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_files_of_options(folder, text, name, content):
    (folder / name).write_bytes(content)
    said = refused("heads", folder, text)
    assert name in said or ("it was read" in said and name != "config.json" and content in (b"[]",))


WEIGHTS = [
    b"",
    bytes(7),
    bytes(8),
    b"\xff" * 8,
    b"\xff" * 200,
    *(struct.pack("<Q", len(t)) + t.encode() for t in (DEEP, "{}", "[]", "null", '{"a": 3}', '{"a": {}}')),
]


@pytest.mark.parametrize("content", WEIGHTS, ids=lambda c: repr(c[:24]))
def test_files_of_weights(folder, text, content):
    (folder / "model.safetensors").write_bytes(content)
    assert "model.safetensors" in refused("heads", folder, text)


@pytest.mark.parametrize("entry", [
    {"dtype": "F32", "shape": [10**30], "data_offsets": [0, 8]},
    {"dtype": "F32", "shape": [2], "data_offsets": [0, 10**30]},
    {"dtype": "F32", "shape": [-1], "data_offsets": [0, 7]},
    {"dtype": "F32", "shape": 2, "data_offsets": 3},
    {"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]},
    {"dtype": "F32", "shape": [2], "data_offsets": [0.0, 8.0]},
    {"dtype": "F32", "shape": [[2]], "data_offsets": [0, 8]},
    {"dtype": "F8", "shape": [2], "data_offsets": [0, 8]},
    {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], "more": 1},
    None,
    [],
])  # fmt: skip
def test_entries_of_weights(folder, text, entry):
    header = json.dumps({"a": entry}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    assert "model.safetensors is not a safetensors file this reader knows" in refused("heads", folder, text)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e38])
def test_weights_that_are_no_numbers(folder, text, bad):
    weights = tiny_weights(np.random.default_rng(3))
    weights["encoder.layer.0.attention.self.key.weight"][0, 0] = bad
    weights["embeddings.word_embeddings.weight"][:] = bad
    write_safetensors(folder / "model.safetensors", weights)
    code, messages = run("heads", folder, text)
    assert code == 2 and "Warning" not in messages


def test_truncations_and_flips_of_a_model(folder, text):
    rng = np.random.default_rng(8)
    for name in ("config.json", "vocab.txt", "model.safetensors"):
        path = folder / name
        good = path.read_bytes()
        head = min(len(good), 5000)
        for cut in np.unique(rng.integers(head, size=15)):
            path.write_bytes(good[:cut])
            refused("heads", folder, text)
        for at in rng.integers(head, size=20):
            content = bytearray(good)
            content[at] ^= 1 << int(rng.integers(8))
            path.write_bytes(content)
            refused("heads", folder, text)  # or read: both end with one line
        path.unlink()
        assert name in refused("heads", folder, text)
        path.mkdir()
        assert name in refused("heads", folder, text)
        path.rmdir()
        path.write_bytes(good)


# --------------------------------------------------------------------------------------------------- texts


@pytest.mark.parametrize(
    "content",
    [b"", b"\n" * 1000, bytes(5000), b"\xff\xfe" * 50, b"the cat sees " * 800_000, b"a" * 10**7, b"word. " * 10**6],
    ids=["empty", "newlines", "zeros", "utf-16", "a long line", "a long word", "a long line of sentences"],
)
def test_texts(folder, tmp_path, content):
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    said = refused("heads", folder, path)
    assert "too few to learn from" in said or "is not UTF-8 text" in said


def test_the_tables_of_characters_are_the_rule(tmp_path):
    """Every character of the basic plane, between letters: as the rule says, one at a time."""
    from attsvm.heads import wordpiece

    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]))
    tokenizer = WordPiece(tmp_path / "vocab.txt")
    characters = [chr(point) for point in range(1, 0x10000) if not 0xD800 <= point < 0xE000]
    sentence = "a".join(characters)
    spaced = "".join(map(wordpiece._spaced, sentence))
    decomposed = wordpiece.unicodedata.normalize("NFD", spaced)
    plain = "".join(c for c in decomposed if wordpiece.unicodedata.category(c) != "Mn").lower()
    assert tokenizer.words(sentence) == "".join(f" {c} " if wordpiece._is_punctuation(c) else c for c in plain).split()


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["-O", "-OO"])
def test_without_assertions_and_docstrings(tmp_path, flag):
    command = [sys.executable, flag, "-m", "attsvm", "reproduce", "local-convergence", "--runs", "2"]
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    assert (tmp_path / "index.html").exists()
