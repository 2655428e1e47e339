"""Every public docstring is what numpydoc asks for, but for the listed checks, each with its reason; examples run."""

import doctest
import importlib
import inspect
import operator
import re
from pathlib import Path

import attsvm
import numpy as np
import pytest
from builders import paper

PACKAGE = Path(attsvm.__file__).parent
MODULES = sorted(
    ".".join(["attsvm", *path.relative_to(PACKAGE).with_suffix("").parts])
    for path in PACKAGE.rglob("*.py")
    if not path.name.startswith("_")
)
IGNORED = {
    "ES01": "one sentence is enough where it says all",
    "EX01": "of classes alone: results show themselves in the example of the function that makes them",
    "PR01": "classes made by functions list their attributes, not the arguments of their makers",
    "PR03": "arguments that belong together are explained together",
    "PR04": "as in another function, which is named",
    "PR06": "'integer array_like' says of what, 'int' one number",
    "PR07": "X, Z, y and the other letters are explained once, in the package",
    "RT01": "functions of one sentence say it there",
    "RT02": "several results come with their names",
    "RT03": "the first line says what comes back",
    "SA01": "the site adds the other names of the topic",
    "SA03": "a See Also is no sentence",
    "SS05": "nouns for what comes back, verbs where something happens; and Softmax is no third person",
}


def public():
    names = [f"attsvm.{name}" for name in attsvm.__all__ if not inspect.ismodule(getattr(attsvm, name))]
    for module in ("heads", "plot", "rules", "sample", "sklearn", "theory", "torch"):
        try:
            found = importlib.import_module(f"attsvm.{module}")
        except ImportError:  # an optional package is not here
            continue
        names += [f"attsvm.{module}.{name}" for name in found.__all__]
    return names


@pytest.mark.parametrize("name", public())
def test_numpydoc_finds_nothing_else(name):
    validate = pytest.importorskip("numpydoc.validate").validate
    found = validate(name)
    ignored = IGNORED if found["type"] == "type" else IGNORED.keys() - {"EX01"}
    assert [(code, text) for code, text in found["errors"] if code not in ignored] == []


@pytest.mark.parametrize("name", public())
def test_a_function_has_an_example_and_says_what_each_argument_is(name):
    thing = operator.attrgetter(name.removeprefix("attsvm."))(attsvm)
    text = inspect.getdoc(thing)
    assert text and text.strip().splitlines()[0].endswith((".", ":", "?"))
    if inspect.isfunction(thing):
        assert "Examples\n--------\n>>> " in text
        assert [
            argument for argument in inspect.signature(thing).parameters if not re.search(rf"\b{argument}\b", text)
        ] == []


@pytest.mark.parametrize(
    "name, condition",
    {
        "identifiable": "probabilities are positive",
        "next_token": "if some W meets this",
        "soft_labels": "if some W meets this",
    }.items(),
)
def test_what_holds_of_some_data_names_them(name, condition):
    assert condition in inspect.getdoc(getattr(attsvm.theory, name))


def shared():
    """What every example begins with, as the package's docstring says."""
    return {"attsvm": attsvm, "np": np, **vars(paper())}


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as missing:  # an optional dependency: matplotlib, tqdm
        pytest.skip(f"needs {missing.name}")
    if name in ("attsvm.heads.report", "attsvm.common.replicated"):
        pytest.importorskip("pandas")
    result = doctest.testmod(module, extraglobs=shared(), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
