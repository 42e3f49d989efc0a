"""Parts of the page: others' scripts as they were published, a policy of hashes, data that stay small."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from memsweep import report
from memsweep.report.page import data
from memsweep.report.page.environment import templates
from memsweep.report.page.render import HERE, SCRIPTS, about
from report_study import THEORY, write_study


def test_the_vendored_scripts_are_those_of_their_versions_with_their_licences() -> None:
    known = json.loads((HERE / "vendor" / "versions.json").read_text())
    assert {f"vendor/{name}" for name in known} == {name for name in SCRIPTS if name.startswith("vendor/")}
    for name, facts in known.items():
        data = (HERE / "vendor" / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == facts["sha256"], name
        assert f"v{facts['version']}".encode() in data[:100]
        assert "Permission to use, copy, modify" in (HERE / "vendor" / facts["license_file"]).read_text()


def test_our_own_script_stays_short() -> None:
    assert len((HERE / "page.js").read_text().splitlines()) < 800


def test_nothing_but_the_scripts_of_the_page_may_run_and_few_trials_have_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "_TRIALS", 10_000)
    monkeypatch.setattr(data, "_POINTS", 3_000)
    write_study(tmp_path, THEORY[:3], balls=["recurrent"], name="small", horizons=(50, 100), widths=(2, 3), seeds=2)
    page = report.build(tmp_path).page.read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    texts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
    allowed = " ".join(f"&#39;sha256-{one}&#39;" for one in hashes)
    assert policy[1] == (
        f"default-src &#39;none&#39;; script-src {allowed}; style-src &#39;unsafe-inline&#39;; img-src data:"
    )
    found = re.search(r'id="data">(.*?)</script>', page)
    assert found is not None
    told = json.loads(found[1])
    shown = [trial for trial in told["trials"] if trial]
    assert 0 < len(shown) < len(told["trials"]) == 12
    assert told["without_room"] == 12 - len(shown)
    assert len(json.dumps(shown)) < 14_000
    assert 0 < len(told["findings"]) == 3 - told["unshown"] < 3


def test_the_description_is_shown_without_the_counts_of_the_study_file() -> None:
    text = "Which holds?\nExpected: both.\nmemsweep sweep x: 120 trials.\n5 trials of 8 seeds; minutes."
    assert about(text) == ["Which holds?", "Expected: both."]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no faster than T^−0.2 as", "no faster than T<sup>−0.2</sup> as"),
        ("m^(+0.31 [+0.18, +0.40]) under", "m<sup>+0.31 [+0.18, +0.40]</sup> under"),
        ("rate ~ m^– T^(0.1)", "rate ~ m<sup>–</sup> T<sup>0.1</sup>"),
        ("a^(<script>) & ^", "a<sup>&lt;script&gt;</sup> &amp; ^"),
    ],
)
def test_exponents_are_raised_and_everything_else_is_escaped(text: str, shown: str) -> None:
    assert templates().from_string("{{ text | powers }}").render(text=text) == shown
