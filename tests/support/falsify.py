"""Proofs made false: files of true proofs with a change that a forger or a fault could make."""

import copy

import numpy as np

FIELDS = "keys queries W dual start stop selected kept rhs basis dependent inverse".split()


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


def elements(proof, rng):
    """A number or an index changed, or an element of a list left out or repeated: of one field, or of several."""
    for _ in range(rng.integers(1, 4)):
        place = _one([part[name] for part in (proof, proof["witness"]) for name in FIELDS if part.get(name)], rng)
        while isinstance(inside := _one(place, rng), list) and inside and rng.random() < 0.8:
            place = inside
        k = rng.integers(len(place))
        if isinstance(place[k], str):
            place[k] = _number(place[k], rng)
        elif isinstance(place[k], int):
            place[k] += int(rng.choice([-3, -2, -1, 1, 2, 3]))
        elif rng.random() < 0.5:
            del place[k]
        else:
            place.append(copy.deepcopy(place[k]))


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


def factors(proof, rng):
    """Of a norm, shorter than what they are factors of."""
    for sides in filter(None, map(proof["witness"].get, ("W", "dual"))):
        side, shrunk = sides[rng.integers(2)], 1 - 10.0 ** rng.integers(-12, 0)
        side[:] = [[(shrunk * float.fromhex(x)).hex() for x in row] for row in side]


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


def better(proof, rng):
    """What would make the bounds slightly better than they are, if it were believed."""
    slightly = 10.0 ** rng.integers(-14, -2)
    if proof["claim"] == "infeasible" or rng.random() < 0.5:
        grow = rng.random(len(proof["dual"])) < 0.5
        for k, term in enumerate(proof["dual"]):
            term[2] = (float.fromhex(term[2]) * (1 + slightly * grow[k])).hex()
    else:
        proof["W"] = [[(float.fromhex(x) * (1 - slightly * rng.random())).hex() for x in row] for row in proof["W"]]


KINDS = {f.__name__: f for f in (elements, asked, factors, fewer_unknowns, better)}


def falsified(proof, rng):
    """(kind, a proof that differs)."""
    while True:
        changed = copy.deepcopy(proof)
        name = _one([*KINDS], rng)
        KINDS[name](changed, rng)
        if changed == proof:
            elements(changed, rng)
        if changed != proof:
            return name, changed
