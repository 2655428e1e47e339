"""Proofs made false: files of true proofs with a change that a forger or a fault could make."""

from __future__ import annotations

import copy

import numpy as np

ARRAYS = ("keys", "queries", "W")
LISTS = ("start", "stop", "selected")


def _one(items, rng):
    return items[rng.integers(len(items))]


def _number(x, rng):
    """Another double near or far from this one, as float.hex writes it."""
    value = float.fromhex(x)
    kinds = (
        lambda: np.nextafter(value, rng.choice([-np.inf, np.inf])),
        lambda: value * (1 + rng.choice([-1, 1]) * 10.0 ** rng.integers(-15, 0)),
        lambda: -value,
        lambda: 0.0,
        lambda: value * 2.0 ** rng.integers(-40, 40),
    )
    return float(_one(kinds, rng)()).hex()


def _in_table(table, rng):
    row = _one(table, rng)
    k = rng.integers(len(row))
    row[k] = _number(row[k], rng)


def numbers(proof, rng):
    """A number of an array, or of several."""
    names = [name for name in ARRAYS if proof[name]]
    for _ in range(rng.integers(1, 4)):
        _in_table(proof[_one(names, rng)], rng)


def multipliers(proof, rng):
    """A multiplier changed, moved to another row, doubled, or to a row that is not there."""
    dual, kind = proof["dual"], rng.integers(6)
    k = rng.integers(len(dual))
    if kind == 0:
        dual[k][2] = _number(dual[k][2], rng)
    elif kind == 1:
        dual[k][int(rng.integers(2))] = int(rng.integers(-2, 8))
    elif kind == 2:
        dual.append(copy.deepcopy(dual[k]))
    elif kind == 3:
        q = int(rng.integers(len(proof["selected"])))
        dual.append([q, proof["selected"][q], (1.0).hex()])
    elif kind == 4:
        del dual[k]
    else:
        dual[k][2] = (-abs(float.fromhex(dual[k][2])) - 1e-9).hex()


def indices(proof, rng):
    """An index of a window, a selected token, or what is kept."""
    if proof["kept"] is not None and rng.random() < 0.4:
        kept = _one(proof["kept"], rng)
        kept[rng.integers(len(kept))] = int(rng.integers(-2, 8))
        return
    values = proof[LISTS[rng.integers(3)]]
    values[rng.integers(len(values))] += int(rng.choice([-3, -2, -1, 1, 2, 3]))


def asked(proof, rng):
    """The norm, C, what is asked, the claim."""
    kind = rng.integers(4)
    if kind == 0:
        norms = ["frobenius", "nuclear", "max", "spectral", "sum", (1.5).hex(), (1.0).hex(), (0.5).hex(), "inf", "nan"]
        proof["norm"] = _one(norms, rng)
    elif kind == 1:
        proof["C"] = _one([None, (0.0).hex(), (-1.0).hex(), (2.0).hex(), "inf"], rng)
    elif kind == 2:
        lengths = [j - i for i, j in zip(proof["start"], proof["stop"], strict=True)]
        proof["rhs"] = [[float(x).hex() for x in rng.standard_normal(T)] for T in lengths]
    else:
        proof["claim"] = "optimal" if proof["claim"] == "infeasible" else "infeasible"
        proof["witness"] = {"lift": False, "basis": [], "dependent": [], "inverse": []} | proof["witness"]


def witnesses(proof, rng):
    """Factors, an inverse, a basis, dependence: made smaller, larger, empty or otherwise."""
    witness = proof["witness"]
    names = [name for name, value in witness.items() if isinstance(value, list) and value]
    if not names:
        return multipliers(proof, rng)
    name = _one(names, rng)
    value, kind = witness[name], rng.integers(4)
    if kind == 0:
        del value[rng.integers(len(value))]
    elif kind == 1:
        value.append(copy.deepcopy(value[0]))
    elif name in ("W", "dual"):
        shrunk = 1 - 10.0 ** rng.integers(-12, 0)
        side = value[rng.integers(2)]
        side[:] = [[(shrunk * float.fromhex(x)).hex() for x in row] for row in side]
    elif name == "inverse":
        _in_table(value, rng)
    elif name == "basis":
        value[rng.integers(len(value))] = [int(x) for x in rng.integers(-1, 6, 2)]
    else:
        term = _one(value, rng)
        _one(term, rng)[2] += int(rng.choice([-1, 1]))


def fewer_unknowns(proof, rng):
    """A basis of fewer unknowns than equations, with an inverse that fits it from the left."""
    witness = proof["witness"]
    if witness.get("basis"):
        cut = int(rng.integers(len(witness["basis"])))
        witness["basis"] = witness["basis"][:cut]
        if rng.random() < 0.5:
            witness["inverse"] = [row[:cut] for row in witness["inverse"]]
        if rng.random() < 0.5:
            witness["inverse"] = witness["inverse"][:cut]
    else:
        multipliers(proof, rng)


def better(proof, rng):
    """What would make the bounds slightly better than they are, if it were believed."""
    slightly = 10.0 ** rng.integers(-14, -2)
    if proof["claim"] == "infeasible" or rng.random() < 0.5:
        grow = rng.random(len(proof["dual"])) < 0.5
        for k, term in enumerate(proof["dual"]):
            term[2] = (float.fromhex(term[2]) * (1 + slightly * grow[k])).hex()
    else:
        proof["W"] = [[(float.fromhex(x) * (1 - slightly * rng.random())).hex() for x in row] for row in proof["W"]]


KINDS = {f.__name__: f for f in (numbers, multipliers, indices, asked, witnesses, fewer_unknowns, better)}


def falsified(proof, rng):
    """(kind, a proof that differs)."""
    while True:
        changed = copy.deepcopy(proof)
        name = _one([*KINDS], rng)
        KINDS[name](changed, rng)
        if changed != proof:
            return name, changed
