"""What the site makes itself: formulas as MathML, the reference by topic, and the gallery of the quick figures."""

import importlib
import importlib.util
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import sphinx.ext.autosummary
from docutils import nodes
from latex2mathml.converter import convert

HERE = Path(__file__).parent
API = HERE / "api"
QUICK = HERE / "_gallery"  # what `attsvm reproduce --quick` leaves: pictures and claims.json
GALLERY = HERE / "gallery"  # a page for each figure

# Every public name, by topic.  A test sees to it that none is missing.
TOPICS = {
    "Data": (
        "Tokens, queries, and who sees what. All of attention, rectangular or ragged, is one object.",
        "cross_attention self_attention causal_attention prompt_attention Data",
    ),
    "Training": (
        "The loss, the head, and gradient descent on W or on its factors.",
        "Problem LinearHead QuadraticHead MLPHead SoftmaxHead CallableHead train Run",
    ),
    "Update rules": ("Records of what belongs to a rule: `train(rule=attsvm.rules.mirror(p=3))`.", "rules.*"),
    "The SVM": (
        "The least W that ranks the selected tokens first, with its certificate.",
        "solve_svm feasible Separation separable ConvergenceWarning",
    ),
    "What the theory says": (
        "Where training and SVM meet.",
        "correlation diagnose theory.Diagnosis theory.is_locally_optimal theory.margin_share regularization_path "
        "theory.Path theory.selected_sets theory.decompose theory.Decomposition theory.tokens_kept theory.label_svm "
        "theory.relaxed_margins theory.capacity",
    ),
    "Several layers": (
        "Layers of attention trained together, and the SVM of each.",
        "theory.train_stack theory.Stack theory.hierarchy",
    ),
    "Claims": ("A conjecture of your own, judged on random runs.", "claim Claim"),
    "Next tokens": (
        "Next-token prediction, with its graphs, and linear decoders with soft labels.",
        "theory.next_token theory.NextToken theory.identifiable theory.Identifiability theory.soft_labels "
        "theory.SoftLabels",
    ),
    "Heads of trained models": ("The attention heads of a transformer, read as support vector machines.", "heads.*"),
    "PyTorch": ("Needs PyTorch: `import attsvm.torch`.", "torch.*"),
    "scikit-learn": ("Needs scikit-learn: `import attsvm.sklearn`.", "sklearn.*"),
    "Many runs, files and threads": (
        "Experiments repeated on all cores, results as files, threads of one call.",
        "replicate load get_num_threads set_num_threads show_config",
    ),
    "Pictures": ("Each draws into `ax` and returns it. Needs matplotlib.", "plot.*"),
    "Random data": ("Draws of the paper's experiments.", "sample.*"),
}


def members(words):
    """Full names that a topic lists, those that this version has; ``module.*`` stands for all of a module."""
    found = []
    for word in words.split():
        module_name, _, last = f"attsvm.{word}".rpartition(".")
        try:
            module = importlib.import_module(module_name)
        except ImportError:  # torch or scikit-learn is not here, and neither are their pages
            continue
        names = module.__all__ if last == "*" else [last]
        found += [f"{module_name}.{name}" for name in names if hasattr(module, name)]
    return found


def slug(title):
    return re.sub(r"\W+", "_", title.lower()).strip("_")


def write_reference():
    """A page for each topic, which autosummary fills, and their index."""
    API.mkdir(exist_ok=True)
    shown = {}
    for title, (text, words) in TOPICS.items():
        if names := members(words):
            shown[title] = names
            listed = "\n".join(f"   {name}" for name in names)
            summary = f"```{{eval-rst}}\n.. autosummary::\n   :toctree: generated\n   :nosignatures:\n\n{listed}\n```\n"
            write(API / f"{slug(title)}.md", f"# {title}\n\n{text}\n\n{summary}")
    tree, parts = "\n".join(map(slug, shown)), []
    for title, names in shown.items():
        listed = "\n".join(f"   {name}" for name in names)
        summary = f"```{{eval-rst}}\n.. autosummary::\n   :nosignatures:\n\n{listed}\n```"
        parts.append(f"## [{title}]({slug(title)}.md)\n\n{TOPICS[title][0]}\n\n{summary}")
    whole = "\n\n".join(["# Reference", *parts, f"```{{toctree}}\n:hidden:\n\n{tree}\n```"])
    write(API / "index.md", whole + "\n")
    return shown


def write(path, text):
    """Only when it changes, so that an unchanged page is not built again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def first_paragraph(doc, document):
    """autosummary ends a summary at the first full stop, which may stand within a formula."""
    text = "\n".join(doc).strip().partition("\n\n")[0]
    return " ".join(text.split())


def setup(app, shown):
    sphinx.ext.autosummary.extract_summary = first_paragraph
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.connect("builder-inited", lambda app: write(HERE / "gallery.md", gallery()))
    siblings = {name: names for names in shown.values() for name in names}
    app.connect(
        "autodoc-process-docstring",
        lambda app, what, name, thing, options, lines: see_also(siblings, name, lines),
        priority=400,  # before numpydoc reads the sections
    )


def inline(self, node):
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def block(self, node):
    self.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def see_also(siblings, name, lines):
    """The rest of its topic below every name that has no See Also of its own."""
    others = [other for other in siblings.get(name, ()) if other != name]
    if others and "See Also" not in lines:
        lines += ["", "See Also", "--------", *others[:8], ""]


def gallery():
    """A page for each quick figure, run unless they have been, and their grid."""
    if not (QUICK / "claims.json").exists():
        command = [sys.executable, "-m", "attsvm", "reproduce", "--quick", "--out", str(QUICK)]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)  # fails when a claim does, and shows it
    from attsvm import reproduce

    entries = json.loads((QUICK / "claims.json").read_text())
    made = {entry["figure"] for entry in entries}
    names = [name for name in (*reproduce.FIGURES, *reproduce.NAMED) if name in made]  # as the report has them
    GALLERY.mkdir(exist_ok=True)
    cards = []
    for name in names:
        module = reproduce.load(name)
        title, _, text = inspect.cleandoc(module.__doc__).partition("\n\n")
        title, text = plain(" ".join(title.split()).rstrip(".")), plain(text.strip())
        picture = f"../_gallery/{name}.png"
        short, _, line = title.partition(": ")
        line = line[:1].upper() + line[1:] or re.split(r"(?<=\.)\s", " ".join(text.split()))[0].rstrip(".")
        parts = [
            f"# {short}\n\n**{line}.**",
            f":::{{image}} {picture}\n:alt: {title}\n:class: figure\n:target: ../_images/{name}.png\n:::",
            plain(module.CAPTION),
            text,
            f"Source: {plain(module.PAPER)}. From a quick run, of few random problems; all of them:",
            f"```sh\nattsvm reproduce {name}\n```",
            claims([entry for entry in entries if entry["figure"] == name]),
        ]
        write(GALLERY / f"{name}.md", "\n\n".join(parts) + "\n")
        verdicts = [entry["verdict"] for entry in entries if entry["figure"] == name]
        told = f"{re.split('[:;]', module.PAPER)[0]}. {verdicts.count('holds')} of {len(verdicts)} claims hold."
        cards.append(f":::{{grid-item-card}} {short}\n:link: gallery/{name}\n:link-type: doc\n"
                     f":img-top: _gallery/{name}.png\n\n{line}.\n\n*{plain(told)}*\n:::")  # fmt: skip
    about = (
        "Every figure of the theory, redone. A page has the picture, what theory says, and what was measured against "
        "bounds that were set beforehand: a claim *holds*, *fails*, or is *undecided*, where its 95 % interval reaches "
        "beyond its bounds and more runs would tell."
    )
    grid = "\n\n".join(["::::{grid} 1 2 3 3\n:gutter: 3", *cards, "::::"])
    tree = "\n".join(f"gallery/{name}" for name in names)
    return f"# Gallery\n\n{about}\n\n{grid}\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"


def claims(entries):
    """Those that fail and the first three in the open, the rest folded."""
    first = [entry for entry in entries if entry["verdict"] == "fails"]
    first += [entry for entry in entries if entry["verdict"] != "fails"][: max(0, 3 - len(first))]
    rest = [entry for entry in entries if entry not in first]
    parts = [table([entry for entry in entries if entry in first])]
    if rest:
        parts.append(f":::{{dropdown}} {len(rest)} more claims\n{table(rest)}\n:::")
    return "\n\n".join(parts)


def table(entries):
    rows = ["| claim | bounds | measured, 95 % interval | verdict |", "| --- | --- | --- | --- |"]
    for entry in entries:
        low, high, measured, least, most = (
            "" if entry[key] is None else f"{entry[key]:.4g}"
            for key in ("low", "high", "measured", "measured_low", "measured_high")
        )
        bounds = low if low == high else f"{low} to {high}" if low and high else f"≥ {low}" if low else f"≤ {high}"
        interval = f" [{least}, {most}]" if (least, most) != (measured, measured) else ""
        rows.append(f"| {plain(entry['claim'])} | {bounds} | {measured}{plain(interval)} | {entry['verdict']} |")
    return "\n".join(rows)


def plain(text):
    """Words as they are: nothing in them is Markdown but what stands between backticks."""
    parts = re.split(r"(``?[^`]+``?)", text)
    return "".join(part if i % 2 else re.sub(r"([*_$|<>\[\]])", r"\\\1", part) for i, part in enumerate(parts))
