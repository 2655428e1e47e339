"""The command line: what it writes, what it says, and how it fails."""

import re
import signal
import subprocess
import sys
import threading
import time
import zipfile

import attsvm
import numpy as np
import pytest
from attsvm.cli import main as cli
from attsvm.cli import run as cli_run
from attsvm.reproduce import FIGURES
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from processes import python


@pytest.fixture
def arrays():
    X, Z, y, v = attsvm.sample.unit_sphere(6, 5, 4, rng=1)
    return {"X": X, "Z": Z, "y": y, "v": v}


def run(tmp_path, arrays, *options):
    """`attsvm run` on these arrays: exit code, and what it saved."""
    path, out = tmp_path / "data.npz", tmp_path / "out"
    np.savez(path, **arrays)
    code = cli.main(["run", str(path), "--out", str(out), *options])
    saved = dict(np.load(out / "weights.npz")) if (out / "weights.npz").exists() else {}
    return code, saved


def test_run_trains_and_certifies(tmp_path, capsys, arrays):
    code, saved = run(tmp_path, arrays)
    text = capsys.readouterr().out
    assert code == 0
    assert len(re.findall(r"^(W|\(K, Q\)) +(frobenius|nuclear) +optimal", text, flags=re.MULTILINE)) == 4
    assert (tmp_path / "out" / "attention.png").read_bytes().startswith(b"\x89PNG")
    X, Z = arrays["X"], arrays["Z"]
    for trained, W in (("W", saved["W"]), ("KQ", saved["K"] @ saved["Q"].T)):
        selected = saved[f"selected_{trained}"]
        logits = np.einsum("ntd,nd->nt", X, Z @ W.T)
        assert (logits.argmax(axis=1) == selected).all()
        delta = X[np.arange(6), selected][:, None] - X
        for norm in ("frobenius", "nuclear"):
            margins = np.einsum("ntd,nd->nt", delta, Z @ saved[f"{norm}_{trained}"].T)
            margins[np.arange(6), selected] = 1
            assert margins.min() > 1 - 1e-8
        adjoint = np.einsum("nt,ntd,ne->de", saved[f"dual_frobenius_{trained}"], delta, Z)
        assert_allclose(adjoint, saved[f"frobenius_{trained}"], atol=1e-9)
        assert np.linalg.norm(saved[f"nuclear_{trained}"], "nuc") < np.linalg.norm(saved[f"frobenius_{trained}"], "nuc")


@pytest.mark.parametrize(
    ("options", "how"),
    [
        ([], {"steps": 2000, "lr": None, "record": 20}),
        (["--steps", "30", "--lr", "0.03", "--seed", "5"], {"steps": 30, "lr": 0.03, "record": 1}),
    ],
)
def test_run_trains_as_asked(tmp_path, monkeypatch, no_picture, arrays, options, how):
    """From uniform weights within 1 / sqrt(inputs) of each linear layer: W of dz, K of dk, Q of dz."""
    arrays["Z"] = arrays["Z"][:, :3]
    records = []
    monkeypatch.setattr(
        cli_run, "train", lambda *given, **how: records.append(how["record"]) or attsvm.train(*given, **how)
    )
    code, saved = run(tmp_path, arrays, *options)
    assert code == 0
    assert records == [how["record"]] * 2
    rng = np.random.default_rng(5 if options else 0)
    W, K, Q = (
        rng.uniform(-1 / np.sqrt(inputs), 1 / np.sqrt(inputs), shape)
        for inputs, shape in ((3, (4, 3)), (4, (4, 3)), (3, (3, 3)))
    )
    data = attsvm.cross_attention(arrays["X"], arrays["Z"])
    problem = attsvm.Problem(data, arrays["y"], attsvm.LinearHead(arrays["v"]))
    one, both = attsvm.train(problem, W, **how), attsvm.train(problem, K=K, Q=Q, **how)
    for name, expected in {"W": one.W, "K": both.K, "Q": both.Q}.items():
        assert_allclose(saved[name], expected, rtol=1e-6, atol=1e-9)


def test_run_without_queries_is_self_attention_of_the_first_token(tmp_path, arrays, no_picture):
    of_itself = run(tmp_path, {name: arrays[name] for name in "Xyv"}, "--steps", "50")[1]
    given = run(tmp_path, arrays | {"Z": arrays["X"][:, 0]}, "--steps", "50")[1]
    assert_array_equal(of_itself["W"], given["W"])


def test_run_never_looks_at_padding(tmp_path, arrays, no_picture):
    lengths = np.array([5, 2, 3, 1, 4, 2])
    saved = []
    for filler in (np.nan, 1e3):
        X = arrays["X"].copy()
        for tokens, length in zip(X, lengths, strict=True):
            tokens[length:] = filler
        saved.append(run(tmp_path, arrays | {"X": X, "lengths": lengths}, "--steps", "50")[1])
    assert_equal(*saved)
    assert (saved[0]["selected_W"] < lengths).all()
    padding = np.arange(5) >= lengths[:, None]
    assert saved[0]["dual_frobenius_W"].shape == (6, 5) and not saved[0]["dual_frobenius_W"][padding].any()


def test_run_says_when_attention_has_not_saturated(tmp_path, capsys, arrays, no_picture):
    assert run(tmp_path, arrays, "--steps", "3")[0] == 0
    assert "W: attention has not saturated: 6 of 6 queries have no softmax above 0.99" in capsys.readouterr().out


def test_run_solves_the_svms_of_given_tokens(tmp_path, capsys, arrays):
    selected = np.array([0, 1, 2, 3, 4, 0])
    code, saved = run(tmp_path, {"X": arrays["X"], "Z": arrays["Z"], "selected": selected})
    text = capsys.readouterr().out
    assert code == 0 and not (tmp_path / "out" / "attention.png").exists()
    data = attsvm.cross_attention(arrays["X"], arrays["Z"])
    for norm in ("frobenius", "nuclear"):
        solution = attsvm.solve_svm(data, selected, norm)
        assert re.search(rf"^{norm} +optimal +{solution.margin:.9g} ", text, flags=re.MULTILINE)
        assert_array_equal(saved[norm], solution.W)
        assert_array_equal(saved[f"dual_{norm}"], solution.dual)


def test_run_solves_several_tokens_within_their_lengths(tmp_path, capsys, arrays):
    lengths = np.array([5, 2, 3, 3, 4, 2])
    kept = np.zeros((6, 5), dtype=bool)
    kept[:, 1], kept[0, 3] = True, True
    given = {"X": arrays["X"], "Z": arrays["Z"], "lengths": lengths, "selected": kept}
    code, saved = run(tmp_path, given)
    assert code == 0 and saved["dual_frobenius"].shape == (6, 5)
    kept[1, 2] = True
    assert run(tmp_path, given)[0] == 2
    assert "selected must not hold a token beyond its sequence's length" in capsys.readouterr().err


def test_run_says_that_no_weights_separate(tmp_path, capsys, arrays):
    arrays["X"][3, 2] = arrays["X"][3, 0]
    given = {"X": arrays["X"], "Z": arrays["Z"], "selected": np.zeros(6, dtype=int)}
    code, saved = run(tmp_path, given)
    text = capsys.readouterr().out
    assert code == 0
    for norm in ("frobenius", "nuclear"):
        assert f"{norm}: infeasible: in the window of query 3, token 2 equals the selected token 0" in text
    assert sorted(saved) == ["certificate_frobenius", "certificate_nuclear", "selected"]
    rows = arrays["X"][:, :1] - arrays["X"]
    certificate = saved["certificate_frobenius"]
    assert certificate.min() >= 0 and certificate.sum() > 0
    assert np.abs(np.einsum("nt,ntd,ne->de", certificate, rows, arrays["Z"])).max() < 1e-9 * certificate.sum()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"X": None}, "has no X"),
        ({"v": None}, "has y without v"),
        ({"y": None}, "has v without y"),
        ({"y": None, "v": None}, "has neither y nor v"),
        ({"selected": np.zeros(6, int)}, "leave out either selected or y and v"),
        ({"W": np.eye(4)}, "holds the unknown W; known are X, Z, y, v, lengths, selected"),
        ({"X": np.array([[1], [1, 2]], dtype=object)}, "X cannot be read .* pickled objects are refused"),
        ({"X": np.full((6, 5, 4), 1e-200)}, "problem must be of a scale at which"),
        ({"Z": np.ones((6, 2, 4))}, r"Z must have shape \(n, dz\)"),
        ({"lengths": np.full(5, 3)}, r"lengths must have shape \(n,\)"),
        ({"lengths": np.full(6, 6)}, "lengths must be whole numbers from 1 to T = 5"),
        ({"lengths": np.zeros(6, int)}, "lengths must be whole numbers from 1 to T = 5"),
        ({"lengths": np.full(6, 2.5)}, "lengths must be whole numbers"),
        ({"lengths": np.full(6, 3), "X": np.ones((6, 5))}, r"X must have shape \(n, T, d\)"),
        ({"y": None, "v": None, "selected": np.full(6, 5)}, "selected must be token indices"),
    ],
)
def test_run_names_what_is_wrong(tmp_path, capsys, arrays, change, message):
    given = {name: array for name, array in (arrays | change).items() if array is not None}
    assert run(tmp_path, given)[0] == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.match("attsvm run: ", error) and re.search(message, error), error
    assert not (tmp_path / "out").exists()


def _no_array(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X", b"hello")


@pytest.mark.parametrize(
    "write, message",
    [
        (lambda path: None, "No such file or directory: .*bad.npz"),
        (lambda path: np.save(open(path, "wb"), np.ones(3)), "is not an .npz archive"),
        (_no_array, "X is not an array"),
    ],
    ids=["missing", "npy", "no_array"],
)
def test_run_refuses_what_is_no_archive(tmp_path, capsys, write, message):
    path = tmp_path / "bad.npz"
    write(path)
    assert cli.main(["run", str(path), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert re.match(f"attsvm run: .*{message}", error), error


def test_overflow_is_one_sentence(tmp_path, capsys, arrays):
    assert run(tmp_path, arrays, "--lr", "1e308", "--steps", "50")[0] == 2
    assert re.search("^attsvm run: weights or logits left the range .* at step", capsys.readouterr().err, re.MULTILINE)


def test_an_output_directory_that_cannot_be_made(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["reproduce", "gd-paths", "--out", str(tmp_path / "file" / "out")]) == 2
    assert re.match("attsvm reproduce: Not a directory: ", capsys.readouterr().err)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["reproduce", "moon"], f"must be one of {', '.join(FIGURES)}, got 'moon'"),
        (["reproduce", "--jobs", "0"], "argument --jobs: must be a whole number from 1 to 10000"),
        (["run"], "DATA.npz"),
        (["run", "a.npz", "--lr", "x"], "argument --lr: must be a positive number"),
        (["heads"], "required: MODEL\n"),
        (["fly"], "invalid choice: 'fly'"),
    ],
)
def test_wrong_arguments(capsys, arguments, message):
    with pytest.raises(SystemExit) as leave:
        cli.main(arguments)
    assert leave.value.code == 2 and message in capsys.readouterr().err


def test_help_and_version(capsys):
    assert cli.main([]) == 0
    assert "reproduce" in capsys.readouterr().out
    for option, shown in (("--help", "usage: attsvm"), ("--version", f"attsvm {attsvm.__version__}")):
        with pytest.raises(SystemExit) as leave:
            cli.main([option])
        assert leave.value.code == 0 and shown in capsys.readouterr().out


def test_run_names_a_missing_extra(tmp_path, capsys, monkeypatch, arrays):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run(tmp_path, arrays)[0] == 2
    assert "attsvm run: matplotlib is not installed: in a clone, pip install '.[reproduce]'" in capsys.readouterr().err


def test_ctrl_c_ends_a_long_run_with_one_line(tmp_path, arrays):
    np.savez(tmp_path / "data.npz", **arrays)
    command = [sys.executable, "-u", "-m", "attsvm", "run", str(tmp_path / "data.npz"), "--steps", str(10**9)]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where the tests run under nohup
    )
    watchdog = threading.Timer(120, process.kill)
    watchdog.start()
    try:
        seen = ""
        while not seen.endswith("step/s]"):  # training, of many minutes, has begun when its bar appears
            character = process.stderr.read(1)
            assert character, seen
            seen += character
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate()
    finally:
        watchdog.cancel()
        process.kill()
    assert process.returncode == 130
    assert error.endswith("\nattsvm run: interrupted\n") and "Traceback" not in error


def test_prove_writes_what_the_checker_takes(tmp_path, arrays, capsys):
    data, out = tmp_path / "data.npz", tmp_path / "proof.json.gz"
    np.savez(data, X=arrays["X"], Z=arrays["Z"], selected=[0, 1, 2, 3, 4, 0])
    assert cli.main(["prove", str(data), str(out), "--norm", "nuclear"]) == 0
    said = re.search(r"^PROVED: .*", capsys.readouterr().out, flags=re.MULTILINE)[0]
    checked = python("-m", "attsvm.check", out)
    assert checked.returncode == 0 and checked.stdout == f"{said}\n" and "nuclear norm" in said
    np.savez(data, X=arrays["X"], Z=arrays["Z"], selected=np.ones((6, 5), dtype=bool))
    assert cli.main(["prove", str(data), str(tmp_path / "none.json")]) == 1
    assert "NOT PROVED" in capsys.readouterr().out and not (tmp_path / "none.json").exists()
    np.savez(data, **arrays)
    assert cli.main(["prove", str(data), str(out)]) == 2
