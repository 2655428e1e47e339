"""The command line: what it writes, what it says, and how it fails."""

from __future__ import annotations

import contextlib
import io
import pickle
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
from attsvm.figures import FIGURES, soft_margins
from attsvm.report.claims import VERDICTS, exactly, read_claims, share

RUNS, ONE = 8, "local-convergence"
SMALL = "soft-margins"  # the quickest, where any will do


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    """Exit code, output and directory of one small `attsvm reproduce`."""
    out = tmp_path_factory.mktemp("report")
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        code = cli.main(["reproduce", ONE, "--runs", str(RUNS), "--jobs", "2", "--out", str(out)])
    return code, text.getvalue(), out


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


def test_reproduce_finds_no_claim_to_fail(reproduced):
    code, text, out = reproduced
    assert code == 0, text
    verdicts = re.findall(r"  (holds|undecided|FAILS)$", text, flags=re.MULTILINE)
    assert len(verdicts) > 20 and "FAILS" not in verdicts
    counts = f"{verdicts.count('holds')} hold, 0 fail, {verdicts.count('undecided')} undecided"
    assert f"{len(verdicts)} claims: {counts}" in text
    assert re.search(rf"local-convergence: {RUNS} runs in [\d.]+ s\n", text)
    assert f"wrote {out / 'index.html'}, claims.json, pictures and numbers beside it, in" in text


def test_reproduce_writes_a_page(reproduced):
    _, text, out = reproduced
    page = (out / "index.html").read_text()
    assert '<img src="local-convergence.png"' in page and '<a href="local-convergence.svg">' in page
    assert re.findall(r"\d+ claims: [^\n:]*", text)[-1] in page
    assert page.count('<td class="holds">holds</td>') == len(re.findall(r" holds$", text, flags=re.MULTILINE))
    for words in (attsvm.__version__, np.__version__, "seed 0", f"{RUNS} random instances", "learning rate 0.1"):
        assert words in page


def test_reproduce_writes_the_claims(reproduced):
    _, text, out = reproduced
    entries = read_claims(out / "claims.json")
    assert len(entries) == len(re.findall(r"  (?:holds|undecided)$", text, flags=re.MULTILINE))
    assert len({entry["claim"] for entry in entries}) == len(entries)
    for entry in entries:
        assert entry["figure"] == ONE and entry["verdict"] in VERDICTS
        low, high = (-np.inf if entry["low"] is None else entry["low"], entry["high"])
        high = np.inf if high is None else high
        assert -np.inf < low or high < np.inf
        if entry["verdict"] == "holds":
            assert low <= entry["measured_low"] <= entry["measured"] <= entry["measured_high"] <= high


def test_reproduce_writes_a_picture(reproduced):
    _, _, out = reproduced
    picture = (out / "local-convergence.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 20_000


def test_reproduce_does_not_depend_on_jobs(tmp_path, capfd):
    """Two figures: one after the other, on two processes, on two threads of each process; one bar at a time."""
    said = []
    for jobs in ("1", "2", "4"):
        names = [SMALL, "positional-encoding", SMALL]
        cli.main(["reproduce", *names, "--runs", "3", "--seed", "7", "--jobs", jobs, "--out", str(tmp_path / jobs)])
        text, shown = capfd.readouterr()
        said.append(sorted(re.sub(r"[\d.]+ s\n|wrote .*", "", text).splitlines()))  # tables come as they are done
        assert len(re.findall("^claim  ", text, flags=re.MULTILINE)) == 2
        assert ("reproduce:" in shown, f"{SMALL}:" in shown) == (jobs != "1", jobs == "1"), shown
        assert jobs == "1" or re.search(r"\d(/| of )2\b", shown)  # figures, though one is named twice
    assert said[0] == said[1] == said[2]
    for file in (f"{SMALL}.csv", "positional-encoding.csv", "claims.json", f"{SMALL}.png"):
        assert len({(tmp_path / jobs / file).read_bytes() for jobs in ("1", "2", "4")}) == 1


def only(monkeypatch, *claims):
    monkeypatch.setattr(soft_margins, "claims", lambda results: {"Moon": list(claims)})
    return ["reproduce", SMALL, "--runs", "2", "--out"]


def test_a_failed_claim_is_printed_and_ends_with_code_1(tmp_path, capsys, monkeypatch, no_picture):
    assert cli.main([*only(monkeypatch, exactly("made of cheese", 0, low=1)), str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert re.search(r"made of cheese +at least 1 +0 +FAILS\n", text)
    assert "2 claims: 1 hold, 1 fail, 0 undecided: exit code 1" in text  # the other: answers are proved


def test_what_is_undecided_is_no_failure(tmp_path, capsys, monkeypatch, no_picture):
    assert cli.main([*only(monkeypatch, share("round", [True], low=0.5)), str(tmp_path)]) == 0
    assert "about 6 runs would decide" in capsys.readouterr().out


def test_other_figures_stay(tmp_path, monkeypatch, no_picture):
    assert cli.main(["reproduce", "basin", "--runs", "2", "--out", str(tmp_path)]) == 0
    before = read_claims(tmp_path / "claims.json")
    command = only(monkeypatch, exactly("made of cheese", 0, low=1))
    assert cli.main([*command, str(tmp_path)]) == cli.main([*command, str(tmp_path)]) == 1
    entries = read_claims(tmp_path / "claims.json")
    assert [entry for entry in entries if entry["figure"] == "basin"] == before
    moon, proofs = (entry["claim"] for entry in entries if entry["figure"] == SMALL)
    assert moon == "Moon: made of cheese" and proofs.startswith("Proofs: answers proved exactly")
    page = (tmp_path / "index.html").read_text()
    assert page.index('<section id="basin"') < page.index(f'<section id="{SMALL}"')
    assert page.count("<section") == 2 and f"{len(entries)} claims: " in page


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
        np.testing.assert_allclose(adjoint, saved[f"frobenius_{trained}"], atol=1e-9)


def test_run_seed_changes_the_start_alone(tmp_path, arrays, no_picture):
    first, again, other = (run(tmp_path, arrays, "--steps", "5", "--seed", seed)[1]["W"] for seed in ("0", "0", "1"))
    assert (first == again).all() and not np.allclose(first, other)


def test_run_without_queries_is_self_attention_of_the_first_token(tmp_path, arrays, no_picture):
    of_itself = run(tmp_path, {name: arrays[name] for name in "Xyv"}, "--steps", "50")[1]
    given = run(tmp_path, arrays | {"Z": arrays["X"][:, 0]}, "--steps", "50")[1]
    np.testing.assert_array_equal(of_itself["W"], given["W"])


def test_run_never_looks_at_padding(tmp_path, arrays, no_picture):
    lengths = np.array([5, 2, 3, 1, 4, 2])
    saved = []
    for filler in (np.nan, 1e3):
        X = arrays["X"].copy()
        for tokens, length in zip(X, lengths, strict=True):
            tokens[length:] = filler
        saved.append(run(tmp_path, arrays | {"X": X, "lengths": lengths}, "--steps", "50")[1])
    for name, array in saved[0].items():
        np.testing.assert_array_equal(array, saved[1][name], err_msg=name)
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
        np.testing.assert_array_equal(saved[norm], solution.W)
        np.testing.assert_array_equal(saved[f"dual_{norm}"], solution.dual)


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
    assert "frobenius, nuclear: infeasible: in the window of query 3, token 2 equals the selected token 0" in text
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
        ({"X": np.ones((6, 5))}, r"X must have shape \(n, T, d\)"),
        ({"X": np.full((6, 5, 4), np.nan)}, "X must be finite"),
        ({"X": np.full((6, 5, 4), "a")}, "X must be an array of numbers"),
        ({"X": np.full((6, 5, 4), 1e300), "v": np.full(4, 1e300)}, "must be finite"),
        ({"Z": np.ones((5, 4))}, r"Z must have shape \(n, dz\)"),
        ({"Z": np.ones((6, 2, 4))}, r"Z must have shape \(n, dz\)"),
        ({"y": np.arange(6)}, "y must hold labels -1 and "),
        ({"y": np.ones(5)}, "y must have shape"),
        ({"v": np.ones(3)}, "v must have shape"),
        ({"lengths": np.full(5, 3)}, r"lengths must have shape \(n,\)"),
        ({"lengths": np.full(6, 6)}, "lengths must be whole numbers from 1 to T = 5"),
        ({"lengths": np.zeros(6, int)}, "lengths must be whole numbers from 1 to T = 5"),
        ({"lengths": np.full(6, 2.5)}, "lengths must be whole numbers"),
        ({"lengths": np.full(6, 3), "X": np.ones((6, 5))}, r"X must have shape \(n, T, d\)"),
        ({"y": None, "v": None, "selected": np.full(6, 5)}, "selected must be token indices"),
        ({"y": None, "v": None, "selected": np.zeros((6, 5), bool)}, "selected must hold a token"),
    ],
)
def test_run_names_what_is_wrong(tmp_path, capsys, arrays, change, message):
    given = {name: array for name, array in (arrays | change).items() if array is not None}
    assert run(tmp_path, given)[0] == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.match("attsvm run: ", error) and re.search(message, error), error
    assert not (tmp_path / "out").exists()


def _truncated(path):
    np.savez(path, X=np.ones((6, 5, 4)))
    path.write_bytes(path.read_bytes()[200:])


def _damaged(path):
    np.savez(path, X=np.ones((6, 5, 4)))
    content = bytearray(path.read_bytes())
    content[300:400] = bytes(100)
    path.write_bytes(content)


def _no_array(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X", b"hello")


@pytest.mark.parametrize(
    "write, message",
    [
        (lambda path: None, "No such file or directory: .*bad.npz"),
        (lambda path: path.mkdir(), "Is a directory: .*bad.npz"),
        (lambda path: path.write_bytes(b""), "is not an .npz archive"),
        (lambda path: path.write_text("hello"), "is not an .npz archive"),
        (lambda path: path.write_bytes(pickle.dumps({"X": 1})), "is not an .npz archive"),
        (lambda path: np.save(open(path, "wb"), np.ones(3)), "is not an .npz archive"),
        (_truncated, "cannot be read"),
        (_damaged, "X cannot be read as an array of numbers"),
        (_no_array, "X is not an array"),
    ],
    ids=["missing", "directory", "empty", "text", "pickle", "npy", "truncated", "damaged", "no_array"],
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


@pytest.mark.parametrize("command", [["reproduce", ONE, "--runs", "2"], ["run"]], ids=["reproduce", "run"])
def test_an_output_directory_that_cannot_be_made(tmp_path, capsys, arrays, command):
    (tmp_path / "file").write_text("")
    if command == ["run"]:
        np.savez(tmp_path / "data.npz", **arrays)
        command = ["run", str(tmp_path / "data.npz")]
    assert cli.main([*command, "--out", str(tmp_path / "file" / "out")]) == 2
    assert re.match(f"attsvm {command[0]}: Not a directory: ", capsys.readouterr().err)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["reproduce", "moon"], f"must be one of {', '.join(FIGURES)}, got 'moon'"),
        (["reproduce", "--runs", "1"], "argument --runs: must be a whole number from 2 to 1000000000"),
        (["reproduce", "--jobs", "0"], "argument --jobs: must be a whole number from 1 to 10000"),
        (["reproduce", "--seed", "-1"], "argument --seed"),
        (["run"], "DATA.npz"),
        (["run", "a.npz", "--lr", "nan"], "argument --lr: must be a positive number"),
        (["run", "a.npz", "--lr", "x"], "argument --lr: must be a positive number"),
        (["run", "a.npz", "--steps", "0"], "argument --steps: must be a whole number from 1 to 1000000000"),
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


@pytest.mark.parametrize("module", ["matplotlib.figure", "joblib"])
def test_reproduce_names_a_missing_extra(tmp_path, capsys, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "attsvm.figures.local_convergence", raising=False)
    assert cli.main(["reproduce", ONE, "--runs", "2", "--out", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()
    name = module.partition(".")[0]
    expected = f"attsvm reproduce: {name} is not installed: in a clone, pip install '.[reproduce]'\n"
    assert capsys.readouterr().err == expected


def test_run_names_a_missing_extra(tmp_path, capsys, monkeypatch, arrays):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run(tmp_path, arrays)[0] == 2
    assert "attsvm run: matplotlib is not installed: in a clone, pip install '.[reproduce]'" in capsys.readouterr().err


def test_progress_without_tqdm_is_plain_lines(tmp_path, capsys, monkeypatch, no_picture):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    cli.main(["reproduce", SMALL, "--runs", "2", "--out", str(tmp_path)])
    assert capsys.readouterr().err == f"{SMALL}: 1 of 2 runs\n{SMALL}: 2 of 2 runs\n"


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


@pytest.mark.slow
def test_reproduce_quickly(tmp_path, capsys):
    code = cli.main(["reproduce", "--quick", "--out", str(tmp_path)])
    assert code == 0, capsys.readouterr().out


@pytest.mark.long
def test_reproduce_at_full_settings(tmp_path, capsys):
    code = cli.main(["reproduce", "--out", str(tmp_path)])
    assert code == 0, capsys.readouterr().out


def test_prove_writes_what_the_checker_takes(tmp_path, arrays, capsys):
    data, out = tmp_path / "data.npz", tmp_path / "proof.json.gz"
    np.savez(data, X=arrays["X"], Z=arrays["Z"], selected=[0, 1, 2, 3, 4, 0])
    assert cli.main(["prove", str(data), str(out), "--norm", "nuclear"]) == 0
    said = re.search(r"^PROVED: .*", capsys.readouterr().out, flags=re.MULTILINE)[0]
    checked = subprocess.run([sys.executable, "-m", "attsvm.check", str(out)], capture_output=True, text=True)
    assert checked.returncode == 0 and checked.stdout == f"{said}\n" and "nuclear norm" in said
    np.savez(data, X=arrays["X"], Z=arrays["Z"], selected=np.ones((6, 5), dtype=bool))
    assert cli.main(["prove", str(data), str(tmp_path / "none.json")]) == 1
    assert "NOT PROVED" in capsys.readouterr().out and not (tmp_path / "none.json").exists()
    np.savez(data, **arrays)
    assert cli.main(["prove", str(data), str(out)]) == 2


def test_reproduce_proves_its_answers(tmp_path, capsys, no_picture):
    for option, words in (([], "answers proved exactly, of 10 out of"), (["--prove"], "answers proved exactly, of")):
        assert cli.main(["reproduce", SMALL, "--runs", "2", "--out", str(tmp_path), *option]) in (0, 1)
        line = next(line for line in capsys.readouterr().out.splitlines() if "proved exactly" in line)
        assert words in line and line.endswith("holds") and ("out of" in line) == (not option)
