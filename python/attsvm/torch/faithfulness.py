"""What heads do in their model: the damage without them, and how much of it other things in their place undo."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from .candidates import Source, Weights, as_source, made, standing, torch_threads
from .damage import HeldOut
from .read import unchanged, unwrap
from .replacement import Replacement, as_replacement
from .substitute import substitution

ROWS = ("heads", "layers")
SAME = 1e-2  # of the largest output: those of a model on other threads or another machine differ by far less
LEADING = 4  # directions of each head
RANDOM = 3  # directions beside each
Plan = list[tuple[str, int, int]]  # column, number of choices, draw


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
    """Does a head matter, and what could stand in its place?

    The model runs on held-out batches with something else in the place of each head, and of all of them at once; its
    output is compared with the original one.  *Damage* is the mean difference; *importance* the damage of equal
    attention in the head's place; what a substitute *recovers* is ``1 - damage / importance``.

    Parameters
    ----------
    model : torch.nn.Module
    found : list of Head
        Of :func:`attsvm.torch.read` on other text of the same model: their hard queries there are the choices.
    batches : iterable
        Held-out inputs, as :func:`attsvm.torch.read` takes them.
    queries : list of int
        How many choices SVMs and regressions are made of; a head with fewer hard queries gives all it has.  The last
        row has what each number gives, others what the largest gives.
    seeds : int
        Draws of the choices, and of random and shuffled heads.
    directions : bool
        Also the damage without each of the leading singular directions of W, beside that without a random direction of
        the same size (in :attr:`Faithfulness.directions`).
    rows : {"heads", "layers"}
        "heads": each head in turn, and all at once.  "layers": all heads of the first layer, of the first two, and so
        on up to the last: how much of the output a hierarchy of SVMs keeps.
    forward : callable, optional
        Called with each batch in place of the model.
    metric : {"auto", "KL", "1 - cosine"}
        "KL": Kullback-Leibler divergence from the original distribution, of outputs that are logits over their last
        dimension; "1 - cosine" of the output vectors.  "auto": KL where what is returned has ``logits``.  Either is the
        mean over an input's places that are not padding.
    seed : int
    n_jobs : int, optional
        Workers that solve the SVMs and regressions, counted as joblib does; all cores by default, or what
        ``joblib.parallel_config`` says.  Changes no result but by rounding.
    file : path, optional
        What is found is written there as it is done, and what it holds of these heads and inputs is not made again: the
        SVMs and regressions of each head, and each run of the model.  ``rows="heads"`` and ``"layers"`` may share one.
    progress : bool, optional
        Whether to show a bar; by default at a terminal or in a notebook.

    Returns
    -------
    Faithfulness
        A table in a notebook; ``to_dataframe()`` and ``plot()``.  Its columns, each W of the head's rank, and scaled so
        that its mean largest attention on the recorded text is the head's own (but for the own W and its cuts):

        - "SVM": the SVM of the choices (equal attention where they cannot be separated, here and below);
        - "logistic": a weakly decayed logistic regression on the same;
        - "distilled": the regression on the head's whole probabilities at the same queries;
        - "rule": attention on the token of the best positional rule (the most frequent offset, or the first token),
          and "SVM of the rule": the SVM of its labels at the same queries;
        - "random head": Gaussian K and Q;  "shuffled": the own singular values and permuted singular vectors;
        - "cut" and "whitened cut": the own W cut to a quarter of its rank, so that W, or the logits on the recorded
          text, change least;  "own": the own W, which recovers 1 but for rounding.

    Raises
    ------
    TypeError, ValueError
        As :func:`attsvm.torch.substitute` for a model that is not the one read; for a head that is given twice; and for
        a file of another model, other inputs or options.
    ModuleNotFoundError
        Without joblib: ``pip install joblib``.

    Notes
    -----
    Of a head whose importance is not above what rounding does (ten times the damage of its own W), nothing is recovered
    or lost: nan.  Heads can be unimportant one by one and important together: see the last row.
    That a W made of choices recovers much says that the choices carry the function, not that its margin is the largest:
    hold it against "logistic" and "SVM of the rule".
    The model runs in this thread, one substitute after another, while workers solve for the heads to come.

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
    as_choice("rows", rows, ROWS)
    directions = as_flag("directions", directions)
    n_jobs = as_jobs(n_jobs)
    plan, asked = _plan(sizes, seeds), {"queries": sizes, "seeds": seeds, "seed": seed}
    if rows == "layers":
        found = sorted(found, key=lambda head: head.layer)
    labels = [head.label for head in found]
    if len(set(labels)) < len(labels):
        raise ValueError(f"found must hold every head once, got {' '.join(labels)}")
    sources = [as_source(head) for head in found]
    members, layers = _members(found, rows)
    plans = {row: [one for one in plan if row == ALL or one[1] in (0, sizes[-1])] for row in members}
    with unchanged(unwrap(model)), torch_threads(torch.get_num_threads()), substitution(model) as running:
        held_out = HeldOut(running, model, batches, forward, metric)
        kept = _kept(file, found, members, plan, asked | {"metric": held_out.metric}, held_out.sample())
        tasks = [(source, plan, seed) for source in sources if source.head.label not in kept.found]
        with on_workers(made, tasks, n_jobs, "faithfulness") as results:
            lost: list[LostDirection] = []

            def runs() -> Iterator[tuple[tuple[str, str, int], np.ndarray]]:
                """Row, column and number of choices, with the damage of each input; a row with its last head."""
                values: list[dict[tuple[str, int, int], Replacement]] = []
                for k, (source, label) in enumerate(zip(sources, labels, strict=True)):
                    weights = dict(zip(plan, _once(kept, label, "weights", results.__next__), strict=True))
                    del kept.found[label]
                    values.append({one: standing(source, one[0], pair) for one, pair in weights.items()})
                    if directions:
                        svm = weights["SVM", sizes[-1], 0]
                        names = functools.partial(without_directions, source, held_out.damage, seed, svm)
                        lost.extend(_once(kept, f"directions of {label}", "directions", names))
                    for row in (row for row, those in members.items() if those[-1] == k):
                        for one in plans[row]:
                            there = {sources[j].head: values[j][one] for j in members[row]}
                            run = functools.partial(held_out.damage, there)
                            yield (row, *one[:2]), _once(kept, _name(row, one), "damage", run)

            damages: dict[tuple[str, str, int], list[np.ndarray]] = {}
            for key, damage in counted(runs(), sum(map(len, plans.values())), "faithfulness", "run", progress):
                damages.setdefault(key, []).append(damage)
    arrays = {key: np.array(some) for key, some in damages.items()}
    return Faithfulness(
        labels, layers, held_out.metric, {s.head.label: (s.rule, s.follows) for s in sources},
        {s.head.label: len(s.rows) for s in sources}, arrays, lost,
    )  # fmt: skip


def _plan(sizes: list[int], seeds: int) -> Plan:
    drawn = [(n, column) for n in sizes for column in OF_CHOICES] + [(0, column) for column in DRAWN]
    fixed = [(column, 0, 0) for column in ("uniform", *FIXED)]
    return fixed + [(column, n, draw) for n, column in drawn for draw in range(seeds)]


def _members(found: list[Head], rows: str) -> tuple[dict[str, list[int]], dict[str, int]]:
    """Of each row the heads that are replaced, by their number; and of rows that are layers the last of these."""
    every = list(range(len(found)))
    if rows == "heads":
        return {head.label: [k] for k, head in enumerate(found)} | {ALL: every}, {}
    layers = sorted({head.layer for head in found})
    names = [f"layers to {layer}" for layer in layers[:-1]] + [ALL]
    members = [[k for k in every if found[k].layer <= layer] for layer in layers]
    return dict(zip(names, members, strict=True)), dict(zip(names, layers, strict=True))


def _once(kept: Kept, name: str, key: str, make: Callable[[], Any]) -> Any:
    """What is kept of this name, or made now."""
    if name not in kept.found:
        kept.add(name, {key: make()})
    return kept.found[name][key]


def _name(row: str, one: tuple[str, int, int]) -> str:
    return f"{row}, {one[0]}, {one[1]} choices, draw {one[2]}"


def _kept(
    file: Any, found: list[Head], members: dict[str, list[int]], plan: Plan, asked: dict[str, Any], sample: np.ndarray
) -> Kept:
    """The file, whose first record is a sample of the original outputs."""
    own = [digest(head, asked) for head in found]
    wanted = {"outputs": ""}
    for head, one in zip(found, own, strict=True):
        wanted |= {head.label: one, f"directions of {head.label}": one}
    for row, those in members.items():
        whole = hashlib.sha256("".join(sorted(own[k] for k in those)).encode()).hexdigest()
        wanted |= {_name(row, one): whole for one in plan}
    kept = Kept(file, wanted, "faithfulness")
    before = _once(kept, "outputs", "sample", lambda: sample)
    if before.shape != sample.shape or np.abs(before - sample).max() > SAME * np.abs(sample).max():
        raise ValueError(f"{file} holds runs of another model or other batches")
    return kept


def without_directions(
    source: Source, damage: Callable[[dict[Head, Replacement]], np.ndarray], seed: int, svm: Weights
) -> list[LostDirection]:
    """Of the leading directions; ``svm``: the W of the SVM, whose directions are named beside them.

    A random one ``s a b^T`` lies in the spans of W's own singular vectors.
    """
    head, found = source.head, []
    left, values, right = singular_directions(head)
    rng = np.random.default_rng([seed, head.layer, head.number])

    def of(W: np.ndarray) -> float:
        return float(damage({head: as_replacement(head, W, None)}).mean())

    beside = [] if svm is None else name_directions(head, source.rows, svm[0] @ svm[1].T, LEADING)
    for named in name_directions(head, source.rows, most=LEADING):
        k, value = named.number, named.value
        lost = of(head.W - value * np.outer(left[:, k], right[:, k]))
        others = []
        for _ in range(RANDOM):
            a, b = (side @ _unit(rng.standard_normal(len(values))) for side in (left, right))
            others.append(of(head.W - value * np.outer(a, b)))
        beside_it = str(beside[k]) if k < len(beside) else ""
        found.append(
            LostDirection(head.label, k, str(named), named.share, value, lost, float(np.mean(others)), beside_it)
        )
    return found


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x)
