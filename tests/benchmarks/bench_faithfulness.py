"""What stands in the place of heads of three real models: the tables of notebooks/models.md.

    PYTHONPATH=tests/support python tests/benchmarks/bench_faithfulness.py rxnmapper      (or minilm, anarcii)
    PYTHONPATH=tests/support python tests/benchmarks/bench_faithfulness.py anarcii --layers

Eight heads at once, made of 300 choices each, in three draws (each of them alone: its importance only); then the damage
without each of the leading singular directions of the two that matter most.  With --layers all heads of the model, up
to each layer; choices are then queries that give one token more than half of their attention, so that soft heads have
some.  Writes results/faithfulness_NAME.json, or layers_NAME.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from typing import Any

import attsvm.torch
import numpy as np
import real_models
import torch
from attsvm.torch import candidates, directions
from attsvm.torch.held_out import HeldOut
from attsvm.torch.read import unchanged
from attsvm.torch.substitute import substitution
from machine import write

FIXED = ("uniform", "own", "rule", "cut", "whitened cut")
DRAWN = ("SVM", "SVM of the rule", "logistic", "distilled", "random head", "shuffled")
LAYERED = ("SVM", "SVM of the rule", "logistic", "random head", "shuffled")
SOFT = 0.5  # of its attention, more than which a query of --layers gives to the token that is its choice
MATTER = 2  # heads whose directions are taken away


class Table:
    """Damages by place and column, a list over draws of lists over inputs."""

    def __init__(self, name: str, about: dict[str, Any]):
        self.name, self.about, self.begin = name, about, time.process_time()
        self.damages: dict[tuple[str, str], list[np.ndarray]] = {}

    def add(self, place: str, column: str, damage: np.ndarray) -> None:
        self.damages.setdefault((place, column), []).append(damage)
        size = self.damages.get((place, "uniform"), [damage])[0].mean()
        print(f"{time.process_time() - self.begin:6.0f} s  {place:8} {column:16} {damage.mean():.5f}  "
              f"recovered {1 - damage.mean() / size:.3f}", flush=True)  # fmt: skip

    def write(self) -> None:
        rows = []
        for (place, column), found in self.damages.items():
            uniform, damage = self.damages[place, "uniform"][0], np.array(found)
            shares = 1 - damage.mean(axis=1) / uniform.mean()
            off = (damage.mean(axis=0) - damage.mean() / uniform.mean() * uniform) / uniform.mean()
            error = float(off.std(ddof=1) / np.sqrt(len(off)))
            rows.append({"place": place, "column": column, "damage": float(damage.mean()),
                         "recovered": shares.tolist(), "error_of_inputs": error})  # fmt: skip
        print(write(self.name, [{**self.about, "seconds": time.process_time() - self.begin, "table": rows}]))


def eight(name: str, choices: int, draws: int) -> None:
    real = real_models.MODELS[name]()
    sources = [candidates.as_source(head) for head in real.chosen()]
    about = {"model": name, "choices": choices, "heads": [
        {"head": s.head.label, "hard": len(s.rows), "rule": s.rule, "follows": s.follows} for s in sources
    ]}  # fmt: skip
    table = Table(f"faithfulness_{name}", about)
    with unchanged(real.model), substitution(real.model) as running:
        forward, metric = real.options.get("forward"), real.options.get("metric", "auto")
        held_out = HeldOut(running, real.model, real.held_out, forward, metric)
        for column, draw in [(c, 0) for c in FIXED] + [(c, k) for c in DRAWN for k in range(draws)]:
            values = {}
            for source in sources:
                (weights,) = candidates.made(source, [(column, choices, draw)], 0)
                values[source.head] = candidates.standing(source, column, weights)
            table.add("all", column, held_out.damage(values))
            if column in DRAWN:
                table.write()
        for source in sources:
            uniform = candidates.standing(source, "uniform", None)
            table.add(source.head.label, "uniform", held_out.damage({source.head: uniform}))
        alone = {s: float(table.damages[s.head.label, "uniform"][0].mean()) for s in sources}
        about["directions"] = []
        for source in sorted(sources, key=lambda s: -alone[s])[:MATTER]:
            for lost in directions.without_directions(source, held_out.damage, 0):
                print(lost, f"of {alone[source]:.5f}", flush=True)
                about["directions"].append({**dataclasses.asdict(lost), "importance": alone[source]})
        table.write()


def layers(name: str, choices: int, draws: int) -> None:
    real = real_models.MODELS[name]()
    forward, metric = real.options.get("forward"), real.options.get("metric", "auto")
    found = attsvm.torch.read(
        real.model, real.recorded, real.tokenizer, threshold=SOFT, forward=forward if name == "anarcii" else None
    )
    sources = [candidates.as_source(head) for head in found]
    fewer = sum(len(source.rows) < choices for source in sources)
    about = {"model": name, "heads": len(found), "choices": choices, "fewer": fewer, "threshold": SOFT}
    print(about, flush=True)
    table = Table(f"layers_{name}", about)
    with unchanged(real.model), substitution(real.model) as running:
        held_out = HeldOut(running, real.model, real.held_out, forward, metric)
        for column, draw in [(c, 0) for c in FIXED[:3]] + [(c, k) for k in range(draws) for c in LAYERED]:
            values = {}
            for source, after in zip(sources, [*sources[1:], None], strict=True):
                (weights,) = candidates.made(source, [(column, choices, draw)], 0)
                values[source.head] = candidates.standing(source, column, weights)
                if after is None or after.head.layer > source.head.layer:
                    table.add(f"to {source.head.layer}", column, held_out.damage(values))
            if column == LAYERED[-1]:
                table.write()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=tuple(real_models.MODELS))
    parser.add_argument("--layers", action="store_true")
    parser.add_argument("--choices", type=int, default=300)
    parser.add_argument("--draws", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.layers:
        layers(args.model, args.choices, args.draws)
    else:
        eight(args.model, args.choices, args.draws)


if __name__ == "__main__":
    main()
