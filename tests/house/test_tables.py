"""Losses, heads, update rules and balls are listed once, in C; whatever else must know a member is checked here."""

import ast
import inspect
import re
from decimal import Decimal
from pathlib import Path

import attsvm
import numpy as np
import pytest
import reference
from attsvm import _core, rules
from attsvm.common.check import NORMS
from attsvm.svm.methods import METHODS
from attsvm.training import output_head
from builders import paper
from places import CSRC

# The dict that the extension exports, the list that it is made from, and where its members are documented.
TABLES = {
    "LOSS": ("training/loss.h", "LOSS_LIST", attsvm.Problem),
    "HEAD": ("training/head.h", "HEAD_LIST", None),
    "UPDATE_RULE": ("training/update.h", "UPDATE_RULE_LIST", attsvm.train),
    "BALL": ("training/projection.h", "BALL_LIST", attsvm.train),
}


def listed(header, macro):
    text = (CSRC / header).read_text()
    body = re.search(rf"#define {macro}\((\w+)\) *\\\n((?:.*\\\n)*.*\n)", text)
    return re.findall(rf"\b{body[1]}\((\w+), \"([^\"]+)\"\)", body[2])


@pytest.mark.parametrize("name", TABLES)
def test_the_exported_table_is_the_list_of_the_header(name):
    header, macro, _ = TABLES[name]
    words = [word for _, word in listed(header, macro)]
    assert words and getattr(_core, name) == {word: code for code, word in enumerate(words)}


def test_the_stub_and_this_file_name_every_table():
    stub = ast.parse(Path(attsvm.__file__).with_name("_core.pyi").read_text())
    annotated = {node.target.id for node in stub.body if isinstance(node, ast.AnnAssign) and node.target.id.isupper()}
    exported = {name for name, value in vars(_core).items() if isinstance(value, dict) and name.isupper()}
    assert annotated == exported == {*TABLES, "STATUS", "METHOD", "NORM"}


@pytest.mark.parametrize("name", [name for name, (*_, where) in TABLES.items() if where is not None])
def test_every_member_is_documented(name):
    text = inspect.getdoc(TABLES[name][2])
    for word in getattr(_core, name):
        assert f'"{word}"' in text, f"{TABLES[name][2].__name__} does not say what {word!r} is"


def test_every_rule_has_its_maker():
    assert list(rules.__all__) == sorted(["UpdateRule", *(make.__name__ for make in rules.MAKERS)])


def test_every_head_has_its_class():
    classes = {thing.kind for thing in vars(output_head).values() if isinstance(thing, type) and hasattr(thing, "kind")}
    assert classes == set(_core.HEAD)


@pytest.mark.parametrize("loss", _core.LOSS)
def test_every_loss_has_its_twins(loss):
    """In double precision and in decimals; each raises for a loss that it does not know."""
    for u in (0.01, 0.5, 3.0, 20.0):
        value, slope = map(float, reference.decimal_loss(loss, Decimal(u)))
        assert _core.loss_values(_core.LOSS[loss], np.array([u]))[0] == pytest.approx(value, rel=1e-14)
        assert reference.loss_value(loss, u, np.log(u)) == pytest.approx((value, np.log(slope)), rel=1e-14, abs=1e-15)
    for twin in (lambda: reference.decimal_loss("new", Decimal(1)), lambda: reference.loss_value("new", 1.0, 0.0)):
        with pytest.raises(ValueError, match="no twin .*'new'"):
            twin()


@pytest.mark.parametrize("loss", _core.LOSS)
@pytest.mark.parametrize("least", [-8.0, -2.0, 0.125])
def test_every_loss_is_decreasing_and_bounded_as_said(loss, least):
    """By differences of its values: bounds of the slope and the curvature hold, and are within a factor of 3."""
    if loss == "log" and least < 0:
        pytest.skip("the log loss is that of positive outputs")
    step = 2.0**-10
    values = _core.loss_values(_core.LOSS[loss], least + step * np.arange(20_000))
    slopes = np.diff(values) / step
    assert (slopes < 0).all()
    curvature, slope = _core.loss_bounds(_core.LOSS[loss], least)
    rounding = 8 * np.finfo(float).eps * np.abs(values).max()
    for bound, found, noise in (
        (slope, -slopes, rounding / step),
        (curvature, np.diff(slopes) / step, rounding / step**2),
    ):
        assert np.abs(found).max() <= bound + noise and bound <= 3 * np.abs(found).max() + noise


@pytest.mark.parametrize("norm", NORMS)
def test_every_norm_is_solved_and_measured(norm):
    assert METHODS["hard"].get(norm), f"csrc/svm/norms.h has no line of {norm}"
    data = paper(3, 3, 4).data
    found = attsvm.solve_svm(data, [0, 1, 2], norm)
    assert found.status == "optimal" and found.unique in (True, False, None)
    low, high = attsvm.theory.margin_share(data, [0, 1, 2], found.W, norm)
    assert low == pytest.approx(1, rel=1e-8) and high == pytest.approx(1, rel=1e-8)  # the solution's own certificate
