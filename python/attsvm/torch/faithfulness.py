"""Measures the importance of attention heads in their model, and the fraction of it that substitutes recover."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from ..common.check import as_choice, as_count, as_flag
from ..common.progress import counted
from ..common.threads import as_jobs, on_workers
from ..heads.directions import directions as singular_directions
from ..heads.directions import name_directions
from ..heads.faithful import ALL, DRAWN, FIXED, OF_CHOICES, Faithfulness, LostDirection
from ..heads.head import Head, as_heads
from ..heads.kept import Kept, digest
from .read import unchanged
from .replacement import Form, Replacement, Source, Weights, as_replacement, as_source, made, torch_threads
from .substitute import HeldOut, substitution

# Outputs that differ by at most this fraction of the largest output count as those of the same model.
SAME = 1e-2
LEADING = 4  # number of singular directions of each head that are removed in turn to measure the damage
RANDOM = 3  # number of random directions that are removed for comparison with each singular direction
Run = tuple[str, int, int]  # a run of the model: (column of the table, number of choices, draw)


def faithfulness(
    model: torch.nn.Module,
    found: Sequence[Head],
    batches: Iterable[Any],
    queries: Sequence[int] = (30, 100, 300, 1000),
    seeds: int = 3,
    directions: bool = False,
    *,
    rows: str = "heads",
    forward: Callable[..., Any] | None = None,
    metric: str = "auto",
    seed: int = 0,
    n_jobs: int | None = None,
    file: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Faithfulness:
    """A table of the importance of each head in its model, and of the fraction of it that each substitute recovers.

    The model runs on held-out batches with substitutes in place of each head, and of all heads at once.  Its output is
    compared with the original one.  The *damage* is the mean difference.  The *importance* of a head is the damage of
    equal attention in its place.  A substitute *recovers* ``1 - damage / importance``.

    Parameters
    ----------
    model : torch.nn.Module
    found : list of Head
        From :func:`attsvm.torch.read` of the same model on other text.  Their hard queries there are the choices.
    batches : iterable
        Held-out inputs, as :func:`attsvm.torch.read` takes them.
    queries : list of int
        Numbers of choices from which SVMs and regressions are made.  A head with fewer hard queries uses all of them.
        The last row of the table is measured for each number, the other rows for the largest number only.
    seeds : int
        Number of draws of the choices, and of random and shuffled heads.
    directions : bool
        Whether to measure the damage without each leading singular direction of W, and without random directions of the
        same size (in :attr:`Faithfulness.directions`).
    rows : {"heads", "layers"}
        "heads": each head is replaced in turn, then all at once.  "layers": all heads of the first layer are replaced,
        then those of the first two layers, and so on; this shows how much of the output a hierarchy of SVMs keeps.
    forward : callable, optional
        Called with each batch in place of the model.
    metric : {"auto", "KL", "1 - cosine"}
        "KL": Kullback-Leibler divergence from the original distribution, for outputs that are logits in the last
        dimension.  "1 - cosine": of the output vectors.  "auto": KL if the model's output has ``logits``.  Each is the
        mean over the positions of an input that are not padding.
    seed : int
    n_jobs : int, optional
        Number of workers that solve the SVMs and regressions, counted as joblib does.  By default all cores, or the
        number that ``joblib.parallel_config`` sets.  It changes results by rounding only.
    file : path, optional
        The SVMs and regressions of each head, and the damage of each run of the model, are appended to this file as
        they are done.  Results that it already holds for these heads and inputs are not computed again.
        ``rows="heads"`` and ``"layers"`` may share a file.
    progress : bool, optional
        Whether to show a bar; by default at a terminal or in a notebook.

    Returns
    -------
    Faithfulness
        A table, with ``to_dataframe()`` and ``plot()``.  Its columns are substitutes.  Each W has the head's rank.
        Each W except the own W and its cuts is scaled so that its mean largest attention on the recorded text is the
        head's own:

        - "SVM": the SVM of the choices (here and below: equal attention if the choices cannot be separated);
        - "logistic": a weakly decayed logistic regression on the same choices;
        - "distilled": the same regression on the head's probabilities at the same queries;
        - "rule": attention on the token of the best positional rule (the most frequent offset, or the first token);
        - "SVM of the rule": the SVM of the rule's tokens at the same queries;
        - "random head": Gaussian K and Q;
        - "shuffled": the own singular values and permuted singular vectors;
        - "cut" and "whitened cut": the own W cut to a quarter of its rank, so that W ("cut") or the logits on the
          recorded text ("whitened cut") change least;
        - "own": the own W, which recovers 1, up to rounding.

    Raises
    ------
    TypeError, ValueError
        If the model is not the one that was read, as in :func:`attsvm.torch.substitute`; if a head is given twice; if
        the file is of another model, other inputs or other options.
    ModuleNotFoundError
        If joblib is missing: ``pip install joblib``.

    Notes
    -----
    If the importance of a head is not above rounding (ten times the damage of its own W), the recovered share is nan.
    Heads can be unimportant one by one and important together: compare the last row.

    If a W made from choices recovers much, the choices carry the head's function.  This does not say that the largest
    margin matters: compare the columns "logistic" and "SVM of the rule".

    The model runs in the calling thread, with one substitute after another, while workers solve for the next heads.

    Examples
    --------
    >>> import attsvm.torch
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> with torch.no_grad():
    ...     _ = model.in_proj_weight.mul_(4)
    >>> xs = torch.randn(40, 2, 6, 8)
    >>> found = attsvm.torch.read(model, [(x, x, x) for x in xs[:20]])
    >>> held_out = [(x, x, x) for x in xs[20:]]
    >>> table = attsvm.torch.faithfulness(model, found, held_out, queries=[20], seeds=1, progress=False)
    >>> [round(table.recovered(row, "own"), 3) for row in table.rows]
    [1.0, 1.0, 1.0]
    """
    found = as_heads(found)
    if not found:
        raise ValueError("found must hold at least one head, got none")
    sizes = sorted({as_count("queries", n, 1) for n in queries})
    if not sizes:
        raise ValueError("queries must hold at least one number, got none")
    seeds, seed = as_count("seeds", seeds, 1), as_count("seed", seed)
    as_choice("rows", rows, ("heads", "layers"))
    directions = as_flag("directions", directions)
    n_jobs = as_jobs(n_jobs)
    drawn = [(n, column) for n in sizes for column in OF_CHOICES] + [(0, column) for column in DRAWN]
    plan: list[Run] = [(column, 0, 0) for column in ("uniform", *FIXED)]
    plan += [(column, n, draw) for n, column in drawn for draw in range(seeds)]
    if rows == "layers":
        found = sorted(found, key=lambda head: head.layer)
    labels = [head.label for head in found]
    if len(set(labels)) < len(labels):
        raise ValueError(f"found must hold every head once, got {' '.join(labels)}")
    sources = {head: as_source(head) for head in found}
    members, layers = _members(found, rows)
    # The rows first name the heads in the order of ``found``, in which the workers return the heads' substitutes.
    runs = {
        f"{row}, {one[0]}, {one[1]} choices, draw {one[2]}": (row, those, one)
        for row, those in members.items()
        for one in plan
        if row == ALL or one[1] in (0, sizes[-1])
    }
    values: dict[Head, dict[Run, Replacement]] = {}
    damages: defaultdict[tuple[str, str, int], list[np.ndarray]] = defaultdict(list)
    lost: list[LostDirection] = []
    with substitution(model) as running, unchanged(running.model), torch_threads(torch.get_num_threads()):
        held_out = HeldOut(running, batches, forward, metric)
        asked = {"queries": sizes, "seeds": seeds, "seed": seed, "metric": held_out.metric}
        kept = _kept(file, found, runs, asked, held_out)
        tasks = [(source, plan, seed) for head, source in sources.items() if head.label not in kept.found]
        with on_workers(made, tasks, n_jobs, "faithfulness") as results:
            for name, (row, those, one) in counted(runs.items(), len(runs), "faithfulness", "run", progress):
                for head in those:
                    if head in values:
                        continue
                    source = sources[head]
                    weights = dict(zip(plan, _once(kept, head.label, "weights", next, results), strict=True))
                    del kept.found[head.label]
                    values[head] = {
                        each: as_replacement(head, source.rule if each[0] == "rule" else "uniform")
                        if pair is None
                        else Form(*pair)
                        for each, pair in weights.items()
                    }
                    if directions:
                        lost += _once(
                            kept, f"directions of {head.label}", "directions", without_directions, source,
                            held_out.damage, seed, weights["SVM", sizes[-1], 0],
                        )  # fmt: skip
                there = {head: values[head][one] for head in those}
                damages[row, *one[:2]].append(_once(kept, name, "damage", held_out.damage, there))
    return Faithfulness(
        labels, layers, held_out.metric, {s.head.label: (s.rule, s.follows) for s in sources.values()},
        {s.head.label: len(s.rows) for s in sources.values()}, {key: np.array(some) for key, some in damages.items()},
        lost,
    )  # fmt: skip


def _members(found: list[Head], rows: str) -> tuple[dict[str, list[Head]], dict[str, int]]:
    """Returns for each row of the table: its replaced heads; and its last layer, if rows are layers."""
    if rows == "heads":
        return {head.label: [head] for head in found} | {ALL: found}, {}
    layers = sorted({head.layer for head in found})
    names = [f"layers to {layer}" for layer in layers[:-1]] + [ALL]
    last = dict(zip(names, layers, strict=True))
    return {name: [head for head in found if head.layer <= layer] for name, layer in last.items()}, last


def _once(kept: Kept, name: str, key: str, make: Callable[..., Any], *given: Any) -> Any:
    """The result kept under this name; if there is none, ``make(*given)`` computes the result, which is then kept."""
    if name not in kept.found:
        kept.add(name, {key: make(*given)})
    return kept.found[name][key]


def _kept(
    file: Any, found: list[Head], runs: dict[str, tuple[str, list[Head], Run]], asked: dict[str, Any], own: HeldOut
) -> Kept:
    """The results kept in the file, whose first record is a sample of the model's original outputs."""
    digests = {head: digest(head, asked) for head in found}
    wanted = {"outputs": ""}
    for head, one in digests.items():
        wanted |= {head.label: one, f"directions of {head.label}": one}
    for name, (_, those, _) in runs.items():
        whole = "".join(sorted(digests[head] for head in those))
        wanted[name] = hashlib.sha256(whole.encode()).hexdigest()
    kept, sample = Kept(file, wanted, "faithfulness"), own.sample()
    before = _once(kept, "outputs", "sample", own.sample)
    if before.shape != sample.shape or np.abs(before - sample).max() > SAME * np.abs(sample).max():
        raise ValueError(f"{file} holds runs of another model or other batches")
    return kept


def without_directions(
    source: Source, damage: Callable[[dict[Head, Replacement]], np.ndarray], seed: int, svm: Weights
) -> list[LostDirection]:
    """The damage without each leading singular direction of a head's W, and without random directions.

    ``svm`` has the factors of the SVM's W, whose directions are named too.  A random direction ``s a b^T`` lies in the
    spans of W's own singular vectors.
    """
    head, found = source.head, []
    left, values, right = singular_directions(head)
    rng = np.random.default_rng([seed, head.layer, head.number])

    def without(size: float, a: np.ndarray, b: np.ndarray) -> float:
        direction = np.outer(a, b)
        return float(damage({head: as_replacement(head, head.W - size * direction / np.linalg.norm(direction))}).mean())

    beside = [] if svm is None else name_directions(head, source.rows, svm[0] @ svm[1].T, LEADING)
    for named in name_directions(head, source.rows, most=LEADING):
        k, value = named.number, named.value
        others = [
            without(value, *(side @ rng.standard_normal(len(values)) for side in (left, right))) for _ in range(RANDOM)
        ]
        found.append(
            LostDirection(
                head.label, k, str(named), named.share, value, without(value, left[:, k], right[:, k]),
                float(np.mean(others)), str(beside[k]) if k < len(beside) else "",
            )
        )  # fmt: skip
    return found
