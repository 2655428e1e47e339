"""The documentation site: its code runs, its reference is complete, it builds without warnings."""

import importlib
import json
import re
from pathlib import Path

import attsvm
import pytest
import speed_pages
from places import ROOT
from processes import python

PAGES = [*sorted((ROOT / "notebooks").glob("*.md")), ROOT / "README.md"]
LINKED = [*PAGES, *(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / ".github").glob("*.md"), *ROOT.glob("*/README.md")]
pytestmark = pytest.mark.skipif(not all(map(Path.is_file, PAGES)), reason="the notebooks are not next to the tests")


def blocks(path):
    return (
        re.findall(r"^```python\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL) if path.exists() else []
    )


# A block that begins with "# needs:" asks for one of these packages, or for a cluster or a model that is not here.
PACKAGES = {"jax": "jax", "scikit-learn": "sklearn", "scipy": "scipy", "torch": "torch"}
MODEL = "# needs: a model of yours"
CODE = [
    pytest.param(block, id=f"{path.stem}-{number}")
    for path in PAGES
    for number, block in enumerate(blocks(path))
    if not block.startswith("# needs:") or block.split()[2] in PACKAGES
]


@pytest.mark.parametrize("code", CODE)
def test_code_on_the_pages_runs(code, tmp_path, monkeypatch):
    if code.startswith("# needs:"):
        pytest.importorskip(PACKAGES[code.split()[2]])
    if "replicate" in code:
        pytest.importorskip("joblib")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "page", "exec"), {"__name__": "page"})


@pytest.mark.slow
def test_code_that_needs_a_model_runs(tmp_path, monkeypatch):
    """That of README and of the page on models, one block after the other, on a small encoder with random weights."""
    torch = pytest.importorskip("torch")
    matplotlib = pytest.importorskip("matplotlib")

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(20, 8)
            layer = torch.nn.TransformerEncoderLayer(8, 2, 8, 0.0, batch_first=True)
            layer.self_attn.in_proj_weight.data *= 8  # hard choices
            self.layers = torch.nn.TransformerEncoder(layer, 3)

        def forward(self, input_ids):
            return self.layers(self.embed(input_ids))

    class Tokenizer:
        def __call__(self, texts, return_tensors, padding):
            return {"input_ids": torch.tensor([[ord(letter) % 20 for letter in text] for text in texts])}

        def decode(self, ids):
            return chr(97 + ids[0])

    torch.manual_seed(0)
    draw = "".join(map(chr, torch.randint(97, 117, (600,))))
    texts, tokenizer = [draw[k : k + 12] for k in range(0, 600, 12)], Tokenizer()
    batch = tokenizer(texts[40:], return_tensors="pt", padding=True)
    page = {"model": Encoder(), "tokenizer": tokenizer, "texts": texts[:40], "batch": batch}
    page |= {"held_out_batches": [batch], "probe_batches": [batch], "loader": [batch] * 2}
    monkeypatch.chdir(tmp_path)
    with matplotlib.rc_context({"backend": "agg"}):
        for path in (ROOT / "README.md", ROOT / "notebooks" / "models.md"):
            for code in blocks(path):
                if code.startswith(MODEL):
                    exec(compile(code, path.name, "exec"), page)
    assert len(page["reports"]) == 6 and (tmp_path / "heads.html").stat().st_size > 10_000
    assert (tmp_path / "heads.csv").exists() and "L2H1" in str(page["table"])


SITE_ONLY = ("gallery.md", "gallery/", "api/")  # pages that the site makes itself


@pytest.mark.parametrize("path", LINKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(path):
    """A code host and Jupyter follow a link only by the whole name of the file, and ``#`` by a heading of it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        name, _, heading = link.partition("#")
        if name.startswith(("http", *SITE_ONLY)):
            continue
        target = path.parent / name if name else path
        assert target.exists(), f"{path.name} links to {link}"
        if heading:
            titles = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, link


def test_lists_of_pages_name_every_page():
    """Every page and notebook stands in a list of the site, by its title."""
    listed = "".join((ROOT / "notebooks" / f"{name}.md").read_text() for name in ("learn", "use", "understand"))
    lists = {"index", "learn", "use", "understand"}
    for path in [*(ROOT / "notebooks").glob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")]:
        made = f"{path.stem}.md" in SITE_ONLY
        assert made or path.stem in lists or f"]({path.name})" in listed, f"{path.name} is in no list of pages"
    assert not re.search(r"\[\d+\]\(", listed), "a link has a title, not a bare number"


def test_reference_lists_every_public_name(monkeypatch):
    pytest.importorskip("sphinx")
    pytest.importorskip("latex2mathml")
    monkeypatch.syspath_prepend(str(ROOT / "notebooks"))
    site_parts = importlib.import_module("site_parts")
    listed = [name for _, words in site_parts.TOPICS.values() for name in site_parts.members(words)]
    modules = {"heads", "plot", "rules", "sample", "theory"}
    public = {f"attsvm.{name}" for name in attsvm.__all__ if name not in modules}
    public |= {f"attsvm.{module}.{name}" for module in modules for name in getattr(attsvm, module).__all__}
    assert public <= set(listed) and len(listed) == len(set(listed))


def test_the_speed_on_the_pages_is_that_of_the_stored_measurement():
    assert [str(path) for path, text in speed_pages.pages().items() if path.read_text() != text] == []


@pytest.mark.slow
def test_site_builds_without_warnings(tmp_path):
    for package in ("sphinx", "myst_nb", "numpydoc", "pydata_sphinx_theme", "sphinx_design", "latex2mathml"):
        pytest.importorskip(package)
    words = ["-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", tmp_path / "doctrees"]
    done = python(*words, ROOT / "notebooks", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "gallery.html").exists()
