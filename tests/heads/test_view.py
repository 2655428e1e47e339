"""The interactive view: its numbers are the head's, its text cannot break out, its size is bounded; and it works."""

import base64
import html
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from attsvm import heads
from attsvm.heads import view_data
from attsvm.heads.directions import name_directions
from attsvm.heads.faithful import Faithfulness, LostDirection
from attsvm.heads.view import as_images
from attsvm.heads.why import svm_weights
from compare import close
from made import briefly, make_heads
from numpy.testing import assert_allclose, assert_array_equal

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WORDS = ["the", "cat", "sat", "on", "</script><b>x</b>", "&amp;", '"quoted"', "\u2028", "@DATA@"]


def made_heads(rng, **options):
    return make_heads(rng, **{"n": 40, "lengths": (8, 12), "count": 2, "words": WORDS} | options)


def analysed(found):
    return heads.Reports(map(briefly, found))


@pytest.fixture
def reports(rng):
    return analysed(made_heads(rng))


def data_of(page):
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.html, re.DOTALL)
    return json.loads(found)


def shown(data, report):
    """(sequence, query, case) of what a head shows."""
    (head,) = [one for one in data["heads"] if one["name"] == report.head.label]
    for sentence, cases in zip(data["texts"][head["text"]]["sentences"], head["cases"], strict=True):
        for q, case in enumerate(cases):
            if case:
                yield sentence["index"], q, case


@pytest.mark.parametrize("causal", [False, True])
def test_numbers_are_those_of_the_head(rng, causal, monkeypatch):
    monkeypatch.setattr(view_data, "RIVALS", 1)  # and every support token
    reports = analysed(made_heads(rng, causal=causal))
    data, seen = data_of(heads.view(reports)), []
    for report in reports:
        own, counting = report.fit.rows, (heads.hard_queries(report.head, 0.7), report.train, report.test)
        roles = {(i, q): role for role, rows in enumerate(counting, 1) for i, q, _ in rows.tolist()}
        for i, q, (selected, role, flat, rivals, _, margin, decimals, shares) in shown(data, report):
            prob = report.head.sequence_attention(i)[q]
            assert selected == prob.argmax() and role == roles.get((i, q), 0)
            assert set(flat[::2]) == set(np.flatnonzero(prob >= 0.005))
            assert_allclose(1000 * prob[flat[::2]], flat[1::2], atol=0.5, rtol=0)
            if (prob > 0).sum() < 2:
                assert not rivals and margin is None
                continue
            seen.append(role)
            logits = report.head.sequence_logits(i)[q]
            ahead = logits[selected] - logits
            nearest = np.delete(ahead, selected).min()
            # Four digits are shown; shares have as many decimals as the largest of them needs.
            assert all(row[2] == pytest.approx(ahead[row[0]], rel=1e-3) for row in rivals)
            assert min(row[2] for row in rivals) == pytest.approx(nearest, rel=1e-3)
            assert margin == pytest.approx(nearest, abs=0.51 * 10**-decimals)
            reason = heads.why(report, i, q)
            assert sorted(shares[::3]) == [0, 1, 2]  # here all directions are shown: three roundings
            assert shares[1::3] == pytest.approx(reason.values[shares[::3]], rel=1e-3)
            assert shares[2::3] == pytest.approx(reason.shares[shares[::3]], abs=0.51 * 10**-decimals)
            assert sum(shares[2::3]) == pytest.approx(margin, abs=2.1 * 10**-decimals)
            support = {row[0] for row in rivals if row[3]}
            assert support == set(own[(own[:, :2] == (i, q)).all(axis=1), 3].tolist())
            assert all(row[1] == pytest.approx(1, abs=1e-3) for row in rivals if row[0] in support)
    assert len(seen) > 50 and {0, 2, 3} <= set(seen)


def test_sentences_hold_support_tokens_and_held_out_queries_the_same_for_all_heads(reports):
    data = data_of(heads.view(reports, sequences=5))
    assert len(data["texts"]) == 1
    *first, last = (sentence["index"] for sentence in data["texts"][0]["sentences"])
    fits = [report.fit for report in reports]
    held = sum(np.bincount(fit.rows[:, 0], fit.multipliers / fit.multipliers.sum(), 40) for fit in fits)
    assert first == np.argsort(-held)[:4].tolist()
    tests = np.bincount(np.concatenate([report.test[:, 0] for report in reports]), minlength=40)
    assert last not in first and tests[last] == np.delete(tests, first).max()


def test_the_weights_of_the_svm_are_made_again_of_its_support_tokens(reports):
    without = replace(reports[0], curve=[replace(reports[0].fit, W=None)])
    W = reports[0].fit.W  # a gap of 1e-9 fixes it to about its root
    close(svm_weights(without), W, 1e-4)


def test_text_cannot_leave_the_script_it_stands_in_and_nothing_is_fetched(reports, tmp_path):
    title = "<i>@DATA@ & co</i>"
    view = heads.view(reports, title=title)
    view.save(tmp_path / "view.html")
    page = (tmp_path / "view.html").read_text(encoding="utf-8")
    assert page == view.html and not any(part in page for part in ("<b>x", "<i>", "\u2028"))
    assert page.count("<script") == page.count("</script") == 2 and f"<title>{html.escape(title)}</title>" in page
    words = {word for sentence in data_of(view)["texts"][0]["sentences"] for word in sentence["keys"]}
    assert set(WORDS) - words <= {"the", "cat", "sat", "on", "\u2028"} and r"\u2028" in words  # written out
    (inner,) = re.findall(r'srcdoc="([^"]*)"', view._repr_html_())
    assert html.unescape(inner) == page and view._repr_html_().count("<") == 2
    assert "default-src 'none'" in page
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|img|iframe|script)[^>]*(src|href)=|@import|url\(|fetch\(|innerHTML", page)


def test_size_is_bounded_by_sentences_and_then_by_heads(reports, monkeypatch):
    whole = len(heads.view(reports)._repr_html_())
    monkeypatch.setattr(view_data, "MOST", 15_000)
    page = heads.view(reports)
    data = data_of(page)
    assert page.left_out == 0 and 2 <= len(data["texts"][0]["sentences"]) < 8
    assert sum(len(json.dumps(one["cases"], separators=(",", ":"))) for one in data["heads"]) <= 15_000 < whole
    monkeypatch.setattr(view_data, "MOST", 100)
    page = heads.view(reports)
    most = max(reports, key=lambda report: report.hard)
    assert page.left_out == 1 and "1 head left out" in repr(page) and "1 head had no room" in page.html
    data = data_of(page)
    (head,) = data["heads"]
    assert sorted(cell[3] for cell in data["map"]["cells"]) == [-1, 0]
    assert head["name"] == most.head.label and len(head["cases"]) == 2


def test_of_a_long_sequence_some_queries_are_shown(rng):
    report = analysed(made_heads(rng, n=6, lengths=(80, 90), count=1, words=None))[0]
    data = data_of(heads.view([report]))
    for sentence, cases in zip(data["texts"][0]["sentences"], data["heads"][0]["cases"], strict=True):
        assert sentence["kind"] == "Sequence" and len(cases) == len(sentence["keys"]) > 48
        held = set(report.fit.rows[report.fit.rows[:, 0] == sentence["index"], 1].tolist())
        assert sum(case != 0 for case in cases) == max(48, len(held)) and all(cases[q] for q in held)


def test_heads_are_analysed_first_and_may_select_nothing(rng):
    head = made_heads(rng)[0]
    assert data_of(heads.view(head))["heads"][0]["name"] == "L2H0"
    idle = replace(head, K=np.zeros_like(head.K))
    for _, _, case in shown(data_of(heads.view([idle])), heads.analyze_head(idle)):
        assert case[1] == 0 and all(row[1] is None for row in case[3])


def test_the_table_has_no_rows_of_dashes(reports):
    idle = replace(reports[0], hard=3)
    page = heads.view([idle, reports[1]]).html
    assert re.findall("<tr><td>(L.H.)</td>", page) == ["L2H1"]
    assert "Nothing can be said of 1 head, of which fewer than 30 queries count: L2H0 (3)." in page


@pytest.mark.parametrize(
    ("message", "given", "options"),
    [
        ("must be a Head, from attsvm.torch.read", "L1H0", {}),
        ("heads must hold at least one head", [], {}),
        ("sequences must be", None, {"sequences": 0}),
        ("title must be a string", None, {"title": None}),
        (r"text must be a list of Head, from attsvm.torch.read\(model, \[token", None, {"text": "The cat sat."}),
        ("faithfulness must be a Faithfulness", None, {"faithfulness": "all"}),
        (r"images\[0\] must be \(height, width, 3\) uint8 or \(3", None, {"images": np.zeros((1, 4, 4))}),
    ],
)
def test_arguments_that_do_not_fit(reports, message, given, options):
    with pytest.raises((TypeError, ValueError), match=message):
        heads.view(reports if given is None else given, **options)


# ------------------------------------------------------------------------------------- in a browser


def dom(path, fragment="", script="", **flags):
    """The page's elements after its script, and one more, have run."""
    if script:
        page = path.read_text(encoding="utf-8")
        path = path.with_name("scripted.html")
        path.write_text(page.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={path.parent / 'profile'}"]
    ran = subprocess.run(
        [*command, "--dump-dom", f"file://{path}{fragment}"], capture_output=True, text=True, timeout=240, check=True
    )
    return re.sub(r"<script.*?</script>", "", ran.stdout, flags=re.DOTALL)


def text_of(page, name):
    """The text of an element."""
    found = re.search(rf'<(\w+)[^>]* id="{name}"[^>]*>(.*?)</\1>', page, re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", " ", found[2])).split()


def rivals_of(page):
    table = re.search(r'<table id="rivals">(.*?)</table>', page, re.DOTALL)[1]
    return [int(t) for t in re.findall(r'<tr data-token="(\d+)"', table)]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_it_works_in_a_browser(reports, tmp_path):
    path = tmp_path / "view.html"
    page = heads.view(reports)
    page.save(path)
    report, data = reports[1], data_of(page)
    i, q, case = next(row for row in shown(data, report) if row[2][1] == 2 and len(row[2][3]) > 2 and row[1] > 0)
    selected, rivals = case[0], case[3]
    fragment = f"#head=L2H1&sentence={i}&query={q}"
    found = dom(path, fragment)
    said = text_of(found, "says")
    assert f"({q})" in said and f"({selected})" in said and "selects" in said
    assert text_of(found, "role") == "It trained the SVM.".split()
    assert text_of(found, "by-what")[:9] == "A row is a layer, a column a head;".split()
    assert re.findall(r"<span[^>]*>([LH]\d)</span>", found) == ["L2", "H0", "H1"]
    assert rivals_of(found) == [row[0] for row in sorted(rivals, key=lambda row: row[1])]
    assert re.search(rf'<button[^>]*data-query="{q}"[^>]*aria-pressed="true"', found)
    assert re.search(rf'<li data-token="{selected}"><span class="token selected"', found)
    drawn = re.findall(r'<line[^>]*class="active"[^>]*stroke-opacity="([\d.]+)"', found)
    assert [float(p) for p in drawn] == [p / 1000 for p in case[2][1::2]]
    assert len(re.findall(r'<line[^>]*class="support"', found)) == sum(row[3] > 0 for row in rivals)
    shares = re.findall(r"<td>([+−][\d.]+)</td>", found.partition('id="shares"')[2])
    numbers = [float(share.replace("−", "-")) for share in shares]
    assert sum(numbers[:-1]) == pytest.approx(numbers[-1], abs=1e-9) and numbers[-1] == case[5]
    assert "<b>x" not in found and "alert" not in found

    own = dom(path, fragment + "&order=own")
    assert rivals_of(own) == [row[0] for row in sorted(rivals, key=lambda row: row[2])]

    usable = [k for j, k, _ in shown(data, report) if j == i]
    after = usable[usable.index(q) - 1]
    keys = 'for (const key of ["k", "ArrowLeft"]) document.dispatchEvent(new KeyboardEvent("keydown", {key}));'
    moved = dom(path, fragment, keys)
    assert f"({after})" in text_of(moved, "says") and text_of(moved, "about")[0] == "L2H0:"
    assert moved.partition("<body>")[2].partition("<footer>")[0].count(f">{reports[0].summary}") == 1
    pointed = f"""document.querySelector('[data-query="{after}"]').dispatchEvent(
        new PointerEvent("pointerover", {{bubbles: true}}));
        const select = document.getElementById("sentence"); select.title = location.hash;"""
    moved = dom(path, fragment, pointed)
    assert f"({after})" in text_of(moved, "says") and f"sentence={i}&amp;query={after}" in moved


def measured(reports, importances=(0.02, 0.08)):
    """The SVM recovers three quarters, the rule half; random heads do as much damage again."""
    labels, damages = [report.head.label for report in reports], {}
    for label, size in [*zip(labels, importances, strict=True), ("all of these", sum(importances))]:
        parts = {"uniform": 1, "own": 0, "SVM": 0.25, "rule": 0.5, "random head": 2}
        damages |= {(label, name, 30 * (name == "SVM")): np.full((1, 4), part * size) for name, part in parts.items()}
    lost = LostDirection(labels[0], 1, "", 0.2, 9.0, 0.031, 0.002, "")
    return Faithfulness(labels, {}, "KL", dict.fromkeys(labels, ("offset +1", 0.5)), {}, damages, [lost])


def test_the_map_has_every_head_by_what_is_known_of_it(reports):
    found = measured(reports)
    data = data_of(heads.view(reports, faithfulness=found))
    assert data["map"]["by"] == "importance (KL)" and data["start"] == 1
    for place, (cell, report, size) in enumerate(zip(data["map"]["cells"], reports, (0.02, 0.08), strict=True)):
        assert cell[:6] == [2, place, report.head.label, place, round(1000 * size / 0.08), report.sinks >= 0.5]
        said = "its SVM recovers 75 %, the rule “offset +1” recovers 50 %, a random head recovers -100 %."
        assert cell[6] == f"{report.summary}  Importance {size:.2g}, {said}"
    first, second = data["heads"]
    assert first["directions"][1][2:] == [0.031, 0.002] and first["directions"][0][2:] == [None, None]
    assert all(row[2:] == [None, None] for row in second["directions"])
    W = svm_weights(reports[0])
    assert [row[0] for row in first["svm"]] == [str(d) for d in name_directions(reports[0].head, reports[0].train, W)]
    damaged = [replace(report, damage=d, metric="KL") for report, d in zip(reports, (0.1, 0.05), strict=True)]
    for shown, by, sizes in (
        (reports, "accuracy above that of untrained heads", [report.ahead for report in reports]),
        (damaged, "damage without the head (KL)", [0.1, 0.05]),
    ):
        data = data_of(heads.view(shown))
        assert data["map"]["by"] == by
        assert [cell[4] for cell in data["map"]["cells"]] == [round(1000 * size / max(sizes)) for size in sizes]


def test_an_image_lies_under_its_patches(rng):
    image = pytest.importorskip("matplotlib.image")
    found = made_heads(rng, lengths=(5, 6))
    text = replace(found[0].text, words=[["[CLS]", "r0c0", "r0c1", "r1c0", "r1c1"]] * 40)
    reports = analysed(replace(head, text=text) for head in found)

    def pixels(address):
        kind, _, held = address.partition(",")
        assert kind == "data:image/png;base64"
        return np.round(255 * image.imread(io.BytesIO(base64.b64decode(held))))

    colours = rng.integers(0, 256, (40, 6, 4, 3), dtype=np.uint8)
    data = data_of(heads.view(reports, images=colours))
    for sentence in data["texts"][0]["sentences"]:
        assert sentence["columns"] == 2 and sentence["before"] == 1
        assert_array_equal(pixels(sentence["image"]), colours[sentence["index"]])
    floats = as_images([np.stack([np.full((4, 4), -1.0), np.full((4, 4), 1.0), np.zeros((4, 4))])])
    assert_array_equal(pixels(floats[0])[0, 0], [0, 255, 128])
    (address,) = as_images([np.zeros((500, 300, 3), np.uint8)])
    assert pixels(address).shape == (224, 134, 3)


def test_sentences_of_one_s_own(rng):
    """The SVM of the reports ranks the tokens of another text; what is said of the head is of the recorded one."""
    Wq, Wk = 3 * rng.standard_normal((2, 6, 8))
    recorded, other = (rng.standard_normal((n, 6, 8)) for n in (60, 3))
    first, own = (heads.from_arrays(x, Wq, None, Wk, None, heads=2) for x in (recorded, other))
    reports = heads.analyze_model(first, queries=40, null=False, nuclear_queries=0)
    data = data_of(heads.view(reports, text=own[1:]))
    (head,) = data["heads"]
    assert head["name"] == "L0H1" and data["map"]["cells"][0][6] == reports[1].summary
    assert head["support"].startswith(f"  The SVM of {reports[1].fit.queries} of its queries has ")
    assert [sentence["index"] for sentence in data["texts"][0]["sentences"]] == [0, 1, 2]
    W = svm_weights(reports[1])
    for i, cases in enumerate(head["cases"]):
        for q, (selected, _, _, rivals, *_) in enumerate(cases):
            keys = own[1].keys[6 * i : 6 * i + 6]
            for t, margin, *_ in rivals:
                assert margin == pytest.approx((keys[selected] - keys[t]) @ W @ keys[q], rel=1e-2, abs=1e-3)
    with pytest.raises(ValueError, match="text must hold heads of the same model, got another W of L0H0"):
        heads.view(reports, text=heads.from_arrays(other, 2 * Wq, None, Wk, None, heads=2))
    with pytest.raises(ValueError, match="text must hold one of the heads of the reports"):
        heads.view(reports[:1], text=own[1:])
