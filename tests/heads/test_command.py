"""attsvm heads: what it writes, what it says, and how it fails."""

import csv
import functools
import json
import re
import shutil

import commands
import numpy as np
import pytest
from attsvm import heads
from bert import tiny_sentences, write_folder

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(tiny_sentences(np.random.default_rng(4), 150)) + "\nthe cat\n")
    return path


run, refused = (functools.partial(function, "heads") for function in (commands.run, commands.refused))


@pytest.fixture(scope="module")
def written(model, text, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    return *run(model, text, "--threshold", 0.6, "--queries", 40, "--nuclear", 8, "--out", out), out


def test_it_prints_the_table_and_what_it_means(written):
    code, said, messages, _ = written
    assert code == 0, messages
    lines = said.splitlines()
    assert re.match(r"6 heads, \d+ of \d+ sentences \(10 to 16 tokens\), \d+ tokens; seed 0\.$", lines[0])
    assert [line.split()[0] for line in lines if line[:1] == "L"] == ["L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2"]
    assert re.search(r"^best rule +of six that need no SVM", said, re.MULTILINE)
    assert "read: " in messages and "solve: " in messages and "damage: " in messages


def test_it_writes_a_picture_numbers_and_a_page(written):
    _, said, _, out = written
    names = {path.name for path in out.iterdir()}
    assert names == {"heads.html", "heads.csv", "heads.png"} and all(name in said for name in names)
    assert (out / "heads.png").read_bytes().startswith(b"\x89PNG") and (out / "heads.png").stat().st_size > 10_000
    with open(out / "heads.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["norm"] for row in rows} == {"frobenius", "nuclear"}
    assert all(float(row["margin_bound"]) / float(row["margin"]) - 1 < 1e-8 for row in rows)
    assert all(float(row["damage"]) > 0 and row["metric"] == "1 - cosine" for row in rows)
    page = (out / "heads.html").read_text()
    assert '"name":"L1H2"' in page and "of six that need no SVM" in page and "Without the head the output" in page
    names = re.findall("<tr><td>(L.H.)</td>", page)  # of the table: those first that are predicted best
    found = {
        row["name"]: float(row["split_accuracy"]) - max(float(row["null_accuracy"]), float(row["shuffled_accuracy"]))
        for row in rows
    }
    assert sorted(names) == sorted(found) and [found[name] for name in names] == sorted(found.values(), reverse=True)


def test_some_heads_of_other_seeds(model, text, tmp_path, no_picture):
    """The seed changes the split, and the number of jobs nothing."""
    options = ("--layers", "1", "--heads", "0,2", "--queries", 60, "--nuclear", 0, "--out", tmp_path)
    tables = [
        run(model, text, *options, "--seed", seed, "--jobs", jobs)[1].splitlines()[:8]
        for seed, jobs in ((0, 1), (0, 2), (1, 1))
    ]
    assert tables[0][0].startswith("2 heads, ") and tables[0][1:] == tables[1][1:] != tables[2][1:]
    assert [line.split()[0] for line in tables[0] if line[:1] == "L"] == ["L1H0", "L1H2"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--layers", "2"), "layers must lie in 0 .. 1, got [2]"),
        (("--heads", "0-3"), "heads must name heads of the model's 2 layers, got [0, 1, 2, 3]"),
        (("--layers", "1-0"), "and ranges such as 0,2-4, got '1-0'"),
        (("--threshold", "1"), "must be a number between 0 and 1, got '1'"),
        (("--queries", "0"), "must be a whole number from 1 to 1000000000, got '0'"),
    ],
)
def test_options_that_do_not_fit(model, text, words, message):
    assert message in refused(model, text, *words)


def test_texts_that_do_not_fit(model, text, tmp_path):
    short, lines, zeros = (tmp_path / name for name in ("short.txt", "lines.txt", "zeros.txt"))
    short.write_text("the cat\n"), lines.write_text("\n" * 1000), zeros.write_bytes(b"\xff\xfe" * 50)
    for files, message in (
        ((text, text), "reads text: one file of it is taken, got 2"),
        ((tmp_path / "nothing.txt",), "nothing.txt"),
        ((short,), "has 0 sentences of 10 to 16 tokens, too few to learn from"),
        ((lines,), "too few to learn from"),
        ((zeros,), "is not UTF-8 text"),
    ):
        assert message in refused(model, *files)


def test_folders_that_do_not_fit(model, text, tmp_path):
    """No folder, no JSON, weights cut short: one line that names the folder."""
    names = ("config.json", "model.safetensors")
    whole = {name: (model / name).read_bytes() for name in names}
    folder = tmp_path / "model"
    for content in ({}, *({**whole, name: whole[name][:40]} for name in names)):
        folder.mkdir(exist_ok=True)
        for name, written in content.items():
            (folder / name).write_bytes(written)
        assert refused(folder, text).startswith(f"attsvm heads: transformers cannot load {folder}: ")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_trained_model_in_a_folder(tmp_path, kind):
    """Table and page, also as checkpoints of a run and as JSON."""
    pytest.importorskip("torch"), pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    import folders

    folder = folders.write_language_model(tmp_path / "checkpoint-20", kind)
    code, said, messages = run(folder, "--quick", "--nuclear", 0, "--json", "--out", tmp_path / "out")
    assert code == 0 and "read: " in messages and "solve: " in messages, messages
    columns = json.loads(said)["columns"]
    space = "residual" if kind == "gpt2" else "head"
    assert len(set(columns["name"])) == 8 and set(columns["space"]) == {space} and min(columns["damage"]) > 0
    assert {"heads.html", "heads.csv", "heads.png"} == {path.name for path in (tmp_path / "out").iterdir()}
    shutil.copytree(folder, tmp_path / "checkpoint-10")
    short = ("--layers", 0, "--heads", 1, "--training", "--no-null", "--out", tmp_path / "steps")
    code, said, messages = run(tmp_path, *short)
    assert code == 0, messages
    rows = heads.read_training(tmp_path / "steps" / "training.csv")
    assert [(row["step"], row["name"]) for row in rows] == [(10, "L0H1"), (20, "L0H1")]
    assert (tmp_path / "steps" / "training.png").stat().st_size > 10_000
    code, said, _ = run(tmp_path, *short, "--json")
    assert code == 0 and [row["name"] for row in json.loads(said)["rows"]] == ["L0H1"] * 2
    assert "has no folders checkpoint-STEP" in refused(tmp_path / "out", "--training")


@pytest.mark.slow
def test_images(tmp_path):
    """A model that takes images: digits, a folder of files, and what does not fit."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("sklearn")
    torch.manual_seed(0)
    sizes = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48)
    model = transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=32, patch_size=8))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 20 if parameter.ndim > 1 else 1
    model.save_pretrained(tmp_path / "vit")
    options = {"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    written = {"image_processor_type": "ViTImageProcessor", "do_resize": True, "do_normalize": True, **options}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(written))
    common = ("--quick", "--nuclear", 0, "--no-null", "--threshold", 0.5, "--out", tmp_path / "out")
    code, said, messages = run(tmp_path / "vit", *common)
    assert code == 0, messages
    assert "200 images (handwritten digits of scikit-learn, resized by the model's processor), 3400 tokens" in said
    page = (tmp_path / "out" / "heads.html").read_text()
    assert '"[CLS]","r0c0","r0c1"' in page and '"columns":4,"before":1' in page
    rng = np.random.default_rng(0)
    files = [tmp_path / "files" / f"{k}.png" for k in range(30)]
    files[0].parent.mkdir()
    for file in files:
        image.fromarray(rng.integers(0, 255, (20, 30, 3), dtype=np.uint8)).save(file)
    (tmp_path / "files" / "notes.txt").write_text("not an image")
    for given in ([files[0].parent], files):
        code, said, messages = run(tmp_path / "vit", *given, *common)
        assert code == 0 and "2 heads, 30 images, 510 tokens" in said, messages
    assert "has 1 images, too few to learn from" in refused(tmp_path / "vit", files[0])
    assert "notes.txt is not an image" in refused(tmp_path / "vit", files[0], tmp_path / "files" / "notes.txt")
