"""A campaign of a few rounds with a fixed seed: nothing is lost, and a round can be repeated by its number.

And what a campaign does where its own faults get in each other's way.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import pytest

from memsweep.sweep.store.journal import GIVE_UP_AFTER, Journal, State, TrialStatus
from memsweep.sweep.worker.limits import TimeLimitError, time_limit
from paths import ROOT
from tests.campaign import ledger, play
from tests.campaign.bench import Bench
from tests.campaign.expected import References, difference, failed_once, failures
from tests.campaign.faults import KINDS
from tests.campaign.faults.base import Fault
from tests.campaign.faults.tasks import Raises
from tests.campaign.faults.tracking import Locked
from tests.campaign.ledger import Entry, Injection
from tests.campaign.rounds import Deck, Round, Stage
from tests.campaign.scenarios import Scenario
from tests.campaign.site import STUDY, Command, Site

QUIET = Scenario("grid", "disk", "sqlite", ray=False)


@pytest.mark.long
@pytest.mark.drill
def test_rounds_of_a_fixed_seed_end_with_the_undisturbed_tables(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.campaign", "--seed", "11", "--rounds", "1"]
    words += ["--where", "grid, disk, inline", "--inputs", "0"]
    out = tmp_path / "rounds.jsonl"
    done = subprocess.run(
        [*words, "--out", str(out), "--keep", str(tmp_path / "kept")], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    entries = ledger.read([out])
    assert [entry.number for entry in entries] == [0]
    assert sum(len(entry.injections) for entry in entries) >= 4
    hostile = [sys.executable, "-m", "tests.campaign.hostile", "11", "40"]
    done = subprocess.run(hostile, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_seed_gives_the_same_rounds_again_and_every_kind_its_turn(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    first, again = ([deck.draw(3, number, {}) for number in range(60)] for deck in (Deck(bench), Deck(bench)))
    assert first == again
    assert [Round.of_json(json.loads(json.dumps(each.as_json()))) for each in first] == first
    drawn = {name for each in first for stage in each.stages for name in (*stage.live, *stage.rest)}
    here = {name for name, kind in KINDS.items() if any(kind.applies(one, bench) for one in bench.scenarios())}
    assert drawn == here


def test_a_table_is_read_again_and_added_to_other_campaigns(tmp_path: Path) -> None:
    one = Entry(1, 0, "", [Injection("a", recovered=2.0), Injection("a", recovered=4.0), Injection("b")])
    two = Entry(2, 0, "", [Injection("a", lost=1, rerun=2, recovered=9.0)], ["a difference"])
    document = tmp_path / "table.md"
    document.write_text(f"Words.\n\n{ledger.table([one])}\n\nMore words, and another table.\n\n| a | 7 |\n|---|---|\n")
    assert ledger.table([], [document]) == ledger.table([one])
    both = ledger.rows([two], [document])
    assert both["a"] == ledger.Row(3, 1, 2, 1, (3.0, 9.0), 9.0)  # the median of all three, 4, lies between
    assert ledger.counts([two], [document]) == {"a": 3, "b": 1, "all": 4}
    document.write_text(ledger.table([two], [document]))
    assert ledger.rows([], [document]) == both


def test_the_documented_table_leaves_no_round_out() -> None:
    found = ledger.rows([], [ROOT / "docs" / "evidence" / "durability.md"])
    summed = sum((row for kind, row in found.items() if kind != "all"), ledger.Row())
    assert replace(found["all"], median=None) == replace(summed, median=None)
    assert summed.unequal == found["rounds with a problem, kinds not kept"].injected


@pytest.mark.parametrize("content", [b"SQLite format 3\0" + bytes(4096), b"no database"])
def test_a_damaged_database_cannot_be_locked_and_that_is_no_problem(tmp_path: Path, content: bytes) -> None:
    with Site.make(tmp_path / "site", QUIET, Bench(tmp_path)) as site:
        results = Path(site.results)
        results.mkdir()
        (results / "mlflow.db").write_bytes(content)
        fault = Locked()
        assert not fault.inject(site, random.Random(0))
        fault.heal(site)


def test_a_trial_that_ends_by_the_time_limit_of_a_fault_may_say_so_with_its_traceback() -> None:
    def exceed() -> None:
        with time_limit(0.05, 1, lambda error, stack: None):
            while True:
                pass

    with pytest.raises(TimeLimitError) as ended:
        exceed()
    told = "".join(traceback.format_exception(ended.value))
    assert told.count("Traceback") > 1
    said = f"failed: 1d2248e44e60: TimeLimitError\n{told}\nfailed: f0221cea0a75: another error\n"
    limited = Command(("sweep", STUDY, "resources.time_limit=20"), 1, said)
    assert play.unexpected_tracebacks(limited) == []
    assert play.unexpected_tracebacks(limited._replace(words=("sweep", STUDY)))
    other = "Traceback (most recent call last):\n  File ...\nValueError: an error of memsweep"
    assert play.unexpected_tracebacks(limited._replace(said=said + other)) == [other]


class _Fails(Fault):
    """A fault that has an error of its own, while the command runs."""

    name = "fails"

    def inject(self, site: Site, luck: random.Random) -> bool:
        raise RuntimeError("an error of the campaign")


@pytest.mark.drill
def test_nothing_runs_any_more_when_a_round_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, _Fails.name, _Fails)
    left, keep = [], play._keep

    def kept(drawn: Round, one: play.Play, *rest: Path) -> None:
        left.append(one.site.processes())
        keep(drawn, one, *rest)

    monkeypatch.setattr(play, "_keep", kept)
    drawn = Round(1, 0, QUIET, (Stage((_Fails.name,)),))
    with Bench(tmp_path) as bench:
        references = References(tmp_path / "references", bench)
        entry = play.play(drawn, bench, references, tmp_path / "round", tmp_path / "kept")
    assert "an error of the campaign" in entry.problems[0]
    assert left == [[]]
    assert (tmp_path / "kept" / "problem.txt").is_file()


def _finish(site: Site, verb: str) -> None:
    site.start(verb)
    assert site.wait().code == 0, site.ended[-1].said


@pytest.mark.long
@pytest.mark.drill
def test_a_search_with_a_failed_suggestion_is_held_against_one_in_which_it_fails(tmp_path: Path) -> None:
    asha = Scenario("asha", "disk", "sqlite", ray=False)
    with Bench(tmp_path) as bench, Site.make(tmp_path / "site", asha, bench) as site:
        references = References(tmp_path / "references", bench)
        site.slow()
        site.start("sweep")
        for _ in range(2):  # in a pack, and then alone
            assert Raises().inject(site, random.Random(0))
        site.quick()
        assert site.wait().code == 1, site.ended[-1].said
        _finish(site, "retry")
        (failed,) = failures(site.location)
        assert difference(site, references) == ""
        assert site.whole().keys() != references.of("asha").names

        # without the round that said so, a later result counts, and trials of the other way are left
        site.location.delete(f"search/{failed.key}/{failed.round:06d}.json")
        _finish(site, "resume")
        assert not failures(site.location)
        assert failed_once(site)
        assert site.whole().keys() > references.of("asha").names
        assert difference(site, references) == ""

        site.store.set_aside(min(references.of("asha").names))
        assert "trials are stored, and not the" in difference(site, references)


@pytest.mark.long
@pytest.mark.drill
@pytest.mark.parametrize("state", [State.FAILED, State.QUEUED])  # QUEUED: their driver was killed meanwhile
def test_trials_that_faults_made_fail_too_often_are_forced(tmp_path: Path, state: State) -> None:
    with Bench(tmp_path) as bench, Site.make(tmp_path / "site", QUIET, bench) as site:
        references = References(tmp_path / "references", bench)
        name = min(references.of("grid").names)
        Journal(site.location, {name: TrialStatus(state, "", GIVE_UP_AFTER, "failed: it was killed")})
        one = play.Play(Round(1, 0, QUIET, ()), site, references, references.of("grid"), random.Random(0))
        one.run()
        assert one.problems == []
        assert site.ended[-1].words[:2] == ("retry", STUDY)
        assert "--force" in site.ended[-1].words
