"""Positional codes make copies of a word separable: how often, and with which margin, for each length of the code.

A word may occur twice in a sentence, and attention is to select one random word of each sentence.  Without a code of
the position, a copy of the selected word cannot be ranked below it, and no W separates them.  With sines and cosines of
any size added, some W separates the words of all draws if queries are random.  If the final word is the query, two
sentences with the same final word can still contradict each other.  Left: the share of draws that is separable.  Right:
the margin in units of the squared length of a token; it is largest where the code is about as long as the word.
"""

import numpy as np

from ... import cross_attention, sample, self_attention, solve_svm
from ...claims import exactly, share
from ..panels import finish, picture
from ..textbook import certificate, unit

N, T, WORDS, D = 6, 6, 8, 12
# length of the positional code, divided by the length of a word's embedding
SCALES = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)

PAPER = "{NOWHERE}: what positional encodings do to separability"
CAPTION = """Left: how many draws can be separated, against the length of the positional code. Right: how wide their
margin is."""
RUNS, QUICK = 200, 72
SETTINGS = f"""{N} sentences of {T} random words out of {WORDS}, embeddings uniform on the unit sphere, d = {D}; a
random word of each is selected; the sines and cosines of its position, of length 1, times the scale shown are
added."""


def experiment(rng):
    """Solves the SVM for each length of the positional code, with random queries and with the final word as query.
    Records the margins, NaN if no W separates the tokens, and the largest gap of the solutions."""
    words = unit(rng.standard_normal((WORDS, D)))
    sentences, selected = rng.integers(WORDS, size=(N, T)), rng.integers(T, size=N)
    Z = unit(rng.standard_normal((N, D)))
    code = unit(sample.positional_encoding(T, D))
    found = {
        "copies": ((sentences == sentences[np.arange(N), selected][:, None]).sum(axis=1) > 1).any(),
        "random": [],
        "last": [],
    }
    gaps = [0.0]
    for scale in SCALES:
        X = words[sentences] + scale * code
        for kind, data in (("random", cross_attention(X, Z)), ("last", self_attention(X, query=-1))):
            svm = solve_svm(data, selected)
            length = np.linalg.norm(data.keys, axis=1).mean() * np.linalg.norm(data.queries, axis=1).mean()
            found[kind].append(np.nan if svm.W is None else svm.margin / length)
            gaps.append(certificate(svm)["gap"])
    return found | {"gap": np.nanmax(gaps)}


def claims(results):
    """Claims that positional codes make copies of a word separable, and that the margin is largest if the code is as
    long as the word."""
    separable = np.isfinite(results["random"])
    tenth, one, ten = (results["random"][:, SCALES.index(scale)] for scale in (0.1, 1.0, 10.0))
    return {
        "Separable, random queries": [
            exactly("without a code: draws where it is not those without copies of a selected word",
                    (separable[:, 0] == results["copies"]).sum(), high=0),
            share("draws with a copy of a selected word", results["copies"], 0.8),
            share("with a code of any size: all of them", separable[:, 1:].all(axis=1), 0.95),
        ],
        "The margin, random queries": [
            share("scale 1 over scale 0.1", one > tenth, 0.9),
            share("scale 1 over scale 10", one > ten, 0.9),
            exactly("largest gap of margin and multipliers, in NumPy", results["gap"], high=1e-8),
        ],
    }  # fmt: skip


@picture((9, 3.8), 2)
def plot(results, *axes):
    """Draws, against the length of the positional code, the share of draws that are separable (left) and the median of
    their margins (right)."""
    for kind, label in (("random", "random queries"), ("last", "the final word queries")):
        margins = np.ma.masked_invalid(results[kind])  # without a margin where the draw is not separable
        numbers = 1 - margins.mask.mean(axis=0), np.ma.median(margins, axis=0)
        for ax, values in zip(axes, numbers, strict=True):
            ax.plot(SCALES, values, "o-", label=label, clip_on=False)
    titles = ("Separable", "Margin of those, median"), ("share of the draws", "margin / squared length")
    for ax, title, label in zip(axes, *titles, strict=True):
        ax.set_xscale("symlog", linthresh=SCALES[1])
        finish(ax, title, "length of the code over that of a word", label, xlim=(0, SCALES[-1]))
        ax.set_ylim(bottom=0)
    axes[0].set_ylim(top=1)
