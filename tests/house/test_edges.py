"""Who may know whom: includes of C and imports of Python follow one table each, and never lead around in a circle.

The two halves of the theorem, training and svm, know nothing of each other in either language; they meet in theory.
"""

import ast
import functools
import inspect
import re
from pathlib import Path

import attsvm
from places import CSRC

PACKAGE = Path(attsvm.__file__).parent

# A folder of csrc and what its files may include beside their own folder.  A file's own name stands for the file.
C_EDGES = {
    "base": "",
    "linalg": "base",
    "attention": "linalg base",
    "training": "attention linalg base",
    "svm": "attention/windows.h linalg base",
    "svm/systems": "svm attention/windows.h linalg base",
    "svm/frobenius": "svm/systems svm attention/windows.h linalg base",
    "svm/polish": "svm svm/systems attention/windows.h linalg base",
    "svm/nuclear": "svm svm/frobenius/auto.h svm/polish attention/windows.h linalg base",
    "svm/interior": "svm svm/frobenius/auto.h svm/systems svm/polish attention/windows.h linalg base",
    "binding": "training svm attention linalg base",
}
# A part of python/attsvm (a folder, or a module that lies flat) and the parts it may import.
HALVES = "common attention training svm"
BELOW_HEADS = f"{HALVES} theory plot sample"
PYTHON_EDGES = {
    "common": "_core",
    "attention": "_core common",
    "rules": "common",
    "training": "_core common attention rules",
    "svm": "_core common attention check",
    "check": "",
    "theory": f"_core {HALVES}",
    "sample": "common",
    "plot": f"{HALVES} theory",
    "claims": "common",
    "sklearn": f"{HALVES} theory",
    "heads": BELOW_HEADS,
    "torch": f"{BELOW_HEADS} heads",
    "face": f"{BELOW_HEADS} claims rules",
    "reproduce": f"{BELOW_HEADS} claims rules torch face",  # read by its command alone
    "cli": f"{BELOW_HEADS} heads torch reproduce",
}
C_EDGES, PYTHON_EDGES = (
    {name: set(words.split()) for name, words in table.items()} for table in (C_EDGES, PYTHON_EDGES)
)


def folder(path):
    return path.relative_to(CSRC).parent.as_posix()


def included(path):
    return re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), flags=re.MULTILINE)


SOURCES = sorted(CSRC.rglob("*.[ch]"))


def test_c_includes_follow_the_table():
    for path in SOURCES:
        own = folder(path)
        assert own in C_EDGES, f"{own} is no folder of csrc/README.md"
        for name in included(path):
            assert (CSRC / name).is_file(), f"{path.name} includes {name}: say the folder"
            target = Path(name).parent.as_posix()
            allowed = target == own or target in C_EDGES[own] or name in C_EDGES[own]
            assert allowed, f"{own} must not include {name}"


def test_the_map_names_every_folder():
    text = (CSRC / "README.md").read_text()
    for name in {folder(path) for path in SOURCES}:
        assert f"{name.split('/')[-1]}/" in text, f"csrc/README.md does not say what {name} is for"


FACE = {name for name in attsvm.__all__ if not inspect.ismodule(getattr(attsvm, name))}  # what the package offers


def imported(path, node):
    """Dotted names of the modules that an import reads; "attsvm.face" stands for what the package offers itself."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    package = ("attsvm", *path.relative_to(PACKAGE).parent.parts)
    base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
    stem = ".".join(filter(None, [base, node.module]))
    names = [alias.name for alias in node.names]
    if stem == "attsvm":
        return [f"attsvm.{'face' if name in FACE else name}" for name in names]
    below = PACKAGE.joinpath(*stem.split(".")[1:])
    return [f"{stem}.{name}" if (below / f"{name}.py").is_file() else stem for name in names]


@functools.cache
def tree(path):
    return ast.parse(path.read_text())


@functools.cache
def nodes_of(path):
    return list(ast.walk(tree(path)))


def imports(path):
    """Parts of the package that a module imports, wherever in it."""
    nodes = (node for node in nodes_of(path) if isinstance(node, (ast.Import, ast.ImportFrom)))
    names = (name for node in nodes for name in imported(path, node))
    return {name.split(".")[1] for name in names if name.startswith("attsvm.")}


MODULES = sorted(
    path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem not in ("__init__", "__main__")
)


def part(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_python_imports_follow_the_table():
    for path in MODULES:
        assert part(path) in PYTHON_EDGES, f"{part(path)} is not in PYTHON_EDGES"
        for name in imports(path) - {part(path), "__version__"}:
            assert name in PYTHON_EDGES[part(path)], f"{part(path)} must not import {name}"


def circle(below):
    """Some of the nodes that lead back to themselves; empty where none does."""
    left = {node: set(needs) for node, needs in below.items()}
    while left:
        free = {node for node, needs in left.items() if not needs & left.keys()}
        if not free:
            return sorted(left)
        for node in free:
            del left[node]
    return []


def test_the_tables_have_no_circle():
    folders = {name: {re.sub(r"/\w+\.h$", "", need) for need in needs} for name, needs in C_EDGES.items()}
    assert not circle(folders)
    assert not circle(PYTHON_EDGES)
    for edges in (C_EDGES, PYTHON_EDGES):
        assert "svm" not in edges["training"] and "training" not in edges["svm"]


def test_headers_do_not_include_each_other_in_circles():
    headers = [path for path in SOURCES if path.suffix == ".h"]
    assert not circle({path.relative_to(CSRC).as_posix(): set(included(path)) for path in headers})


def at_import(tree):
    """The imports that run when the module is read: neither those inside functions nor those for annotations alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif not isinstance(node, (ast.FunctionDef, ast.expr)) and not (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ):
            yield from at_import(node)


def test_modules_do_not_import_each_other_in_circles():
    below = {}
    for path in MODULES:
        found = [name for node in at_import(tree(path)) for name in imported(path, node)]
        places = [PACKAGE.joinpath(*name.split(".")[1:]) for name in found if name.startswith("attsvm.")]
        below[path] = {p for place in places for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file()}
    assert not circle(below)


# What is not always installed, and what importing attsvm does not wait for; the package does without its checker.
EXTRAS = """PIL jinja2 joblib lightning markupsafe matplotlib pandas pytorch_lightning scipy sklearn threadpoolctl tqdm
transformers attsvm.torch""".split()
SLOW = """multiprocessing zipfile secrets attsvm.svm.proof attsvm.svm.influence
attsvm.svm.derivative""".split()


def test_imports_inside_functions_are_of_extras():
    """What is not always installed, or slow to load; never what would go around in a circle otherwise."""
    for path in MODULES:
        inside = [n for n in nodes_of(path) if isinstance(n, (ast.FunctionDef, ast.Lambda))]
        nodes = [n for one in inside for n in ast.walk(one) if isinstance(n, (ast.Import, ast.ImportFrom))]
        for name in (name for node in nodes for name in imported(path, node)):
            stem = ".".join(name.split(".")[: 1 + name.startswith("attsvm.")])
            assert {name, stem} & {*EXTRAS, *SLOW}, f"{path} imports {name} inside a function"


NAMED_TUPLES = {"_make", "_replace", "_asdict", "_fields"}
# What Data and Problem are to the package, which users need not see: their private names are used in all of it.
SHARED = [PACKAGE / name for name in ("attention/data.py", "training/problem.py")]


def made_in(path):
    """Names that a module gives to functions, classes, attributes and variables."""
    nodes = nodes_of(path)
    made = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    made |= {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    return made | {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def test_private_names_stay_in_their_module():
    """An attribute with an underscore is used only where it is made; what other modules need has a name without."""
    for path in MODULES:
        nodes = nodes_of(path)
        made = made_in(path).union(*map(made_in, SHARED))
        made |= {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}  # for getattr
        used = {n.attr for n in nodes if isinstance(n, ast.Attribute)}
        taken = {a.name for n in nodes if isinstance(n, ast.ImportFrom) and n.level for a in n.names}
        taken -= {other.stem for other in path.parent.glob("_*.py")} | {"_core"}
        private = {name for name in used | taken if re.match("_[^_]", name)} - NAMED_TUPLES
        assert private <= made - taken, f"{path} uses {private - (made - taken)} of another module"


def test_pages_use_no_private_name():
    root = Path(__file__).parents[2]
    for path in [root / "README.md", *(root / "notebooks").glob("*.md"), *(root / "notebooks").glob("*.ipynb")]:
        found = re.findall(r"(?<=[\w)\]])\._[a-z]\w*", path.read_text(encoding="utf-8"))
        assert not set(found) - {"._core"}, f"{path.name} uses {found}"
