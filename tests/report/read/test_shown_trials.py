"""The trials that a report shows while a round replaces some of them."""

from __future__ import annotations

from typing import Any

from memsweep.report.read.rounds import StoredRound, shown_trials, unfinished


def config(width: int, starts: int, *, steps: int = 100) -> dict[str, Any]:
    return {
        "task": {"name": "linear_functional"},
        "model": {"name": "module", "width": width},
        "training": {"steps": steps, "seeds": 5},
        "perturbation": {"starts": starts, "norm": "inf"},
    }


OLD = {"old 4": config(4, 0), "old 8": config(8, 0)}
NEW = {"new 4": config(4, 4), "added": config(16, 0), "new 8": config(8, 4)}
ROUND = StoredRound((), (*OLD,), (*NEW.values(),))


def test_old_trials_are_shown_until_all_that_the_round_has_added_have_ended() -> None:
    for ended in ((), ("new 4",), ("new 8", "added")):
        new = unfinished(NEW, ROUND, ended)
        assert new == [*NEW]
        assert shown_trials(NEW, new, OLD) == {"old 4": OLD["old 4"], "added": NEW["added"], "old 8": OLD["old 8"]}
    assert unfinished(NEW, ROUND, [*NEW]) == []


def test_a_round_that_replaces_nothing_hides_nothing() -> None:
    assert unfinished(NEW, StoredRound((), (), (*NEW.values(),)), ()) == []


def test_trials_that_the_round_has_not_added_stay() -> None:
    """Of a grid over the effort, and of a later extend: they have the places of old trials, too."""
    rows = {"same place": config(4, 2), **NEW, "extended": config(8, 9)}
    shown = shown_trials(rows, unfinished(rows, ROUND, ()), OLD)
    assert [*shown] == ["same place", "old 4", "added", "old 8", "extended"]
    assert unfinished({"edited": config(4, 7)}, ROUND, ()) == []  # the plan has nothing of the round


def test_a_mix_is_never_shown() -> None:
    """A longer training of one condition that a grid has twice: two old trials have one place."""
    rows = {"longer": config(4, 0, steps=200)}
    assert shown_trials(rows, [*rows], {"short": config(4, 0)}) == {"short": config(4, 0)}
    assert shown_trials(rows, [*rows], {"short": config(4, 0), "shorter": config(4, 0, steps=50)}) == rows
    assert shown_trials(rows, [*rows], {"wider": config(8, 0)}) == rows


def test_old_trials_read_the_data_where_they_are_now() -> None:
    old, new = config(4, 0), config(4, 4)
    old["task"], new["task"] = {"name": "image", "folder": "/then"}, {"name": "image", "folder": "/now"}
    shown = shown_trials({"new": new}, ["new"], {"old": old})
    assert shown["old"]["task"]["folder"] == "/now"
    assert shown["old"]["perturbation"] == old["perturbation"]
