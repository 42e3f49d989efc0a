"""The common slips of a command line: each is answered by what was meant, and none by the words of a parser."""

from __future__ import annotations

from pathlib import Path

import pytest

from memsweep.cli import main
from memsweep.config.load.slips import given_twice, put_together
from memsweep.config.load.study import load_study
from memsweep.errors import ConfigError, did_you_mean

SLIPS = {
    "a space after the comma": ("model.width=2, 4", "Write model.width=2,4."),
    "several of them": ("model.width=2, 4, 8 task.horizon=20", "Write model.width=2,4,8."),
    "spaces in place of commas": ("model.width=2 4", "Write model.width=2,4."),
    "a space before the comma": ("model.width=2 ,4", "Write model.width=2,4."),
    "spaces around =": ("model.width = 8", "Write model.width=8."),
    "a space before =": ("model.width =8", "Write model.width=8."),
    "a space after =": ("model.width= 8", "Write model.width=8."),
    "a name of two words": ("name=my study", "Write 'name=\"my study\"'."),
    "a space in place of =": ("model.width 8", "Write model.width=8."),
    "a list with spaces": ("grid.model.width=[2, 4]", "Write 'grid.model.width=[2, 4]'."),
    "a value behind values": ("model.width=2,8 model.width=4", "is given several values ([2, 8]), and then one (4)."),
    "a colon": ("model.width:8", "has a colon where = belongs. Write model.width=8."),
    "no value": ("training.steps", "it has no =. Write training.steps=VALUE"),
    "nothing behind =": ("training.seeds=", 'must be a whole number, got "" (nothing stands after the =)'),
    "a comma at the end": ("model.width=8,", "nothing stands on one side of a comma. Write model.width=8."),
    "round brackets": ("model.width=(2,4)", "Write model.width=2,4."),
    "semicolons": ("model.width=2;4", "Write model.width=2,4."),
    "dots": ("model.width=2..8", "several values stand between commas: model.width=2,4,8"),
    "colons of a slice": ("task.horizon=20:100:20", "several values stand between commas"),
    "zeros in front": ("model.width=010", 'got "010" (leave out the zeros in front; decimals stand behind a point)'),
    "a fraction": ("training.learning_rate=1/4", 'got "1/4" (write 0.25)'),
    "a fraction that is whole": ("model.width=8/2", 'got "8/2" (write 4)'),
    "two whole numbers": ("model.width=2/4", "several values stand between commas: model.width=2,4,8"),
    "a whole number in another base": ("model.width=0x10", 'got "0x10" (write 16)'),
    "a list for a field of one value": ("model.width=[2,4]", "write model.width=2,4 or grid.model.width=[2,4]"),
    "a list of names": ("model=[lru,rnn]", "write model=lru,rnn or grid.model=[lru,rnn]"),
    "a list for a field of another model": ("model.unit=[lstm,gru]", "grid.model.unit=[lstm,gru]"),
    "a field of another model": ("model.unit=lstm", "It is a field of the model residual_stack."),
    "a bracket that is not closed": ("model.width=[8", "it has a [ without its ]. Write 'model.width=[8]'."),
    "a bracket too many": ("model.width=8]", "it has a ] without its [. Write model.width=8."),
    "a quote that is not closed": ("task.kernel='exponential", "a quote is not closed"),
    "a whole number as a float": ("training.steps=1e3", "must be a whole number, got 1000.0 (write 1000)"),
    "a field without its section": ("width=8", "Did you mean model.width?"),
    "a field of the task": ("horizon=100", "Did you mean task.horizon?"),
    "a field that is misspelt, without its section": ("batchsize=8", "Did you mean training.batch_size?"),
    "another program's word": ("lr=0.1", "Did you mean training.learning_rate?"),
    "another program's word in its section": ("training.lr=0.1", "Did you mean training.learning_rate?"),
    "a field of another section": ("training.gpus=1", "Did you mean resources.gpus?"),
    "an axis without its section": ("grid.width=[2,4]", "Did you mean grid.model.width?"),
    "a misspelt section": ("modle.width=8", "Did you mean 'model'?"),
    "a misspelt section of an axis": ("modle.width=4,8", "Did you mean 'model'?"),
    "a misspelt field": ("model.with=8", "Did you mean 'width'?"),
    "a capital": ("Model.width=8", "Did you mean 'model'?"),
    "a flag": ("results=elsewhere", "It is a flag: --results DIR."),
}
FOREIGN = ("EOF", "expecting", "viable", "token", "mismatched", "extraneous", "Hydra", "ANTLR")


@pytest.mark.parametrize(("line", "said"), SLIPS.values(), ids=SLIPS)
def test_a_slip_is_answered_by_what_was_meant(line: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_study("quickstart", line.split(" ") if "[2, 4]" not in line else ["grid.model.width=[2,", "4]"])
    assert said in str(error.value)
    assert "?." not in str(error.value)
    assert len(error.value.problems) == 1
    assert not [word for word in FOREIGN if word in str(error.value)]


@pytest.mark.parametrize("line", ["model.width=2,4", "'name=my study'", "~search a.b=1", "x=[1, 2] y=2", "+a.b=1 c=2"])
def test_what_is_no_slip_stays(line: str) -> None:
    words = ["x=[1, 2]", "y=2"] if line.startswith("x=[") else line.split(" ") if "'" not in line else [line]
    assert put_together(words) == (words, [])


def test_all_slips_of_a_line_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        load_study("quickstart", ["model.width=2,", "4", "training.steps:9", "task.horizon=(20,40)"])
    assert len(error.value.problems) == 3


def test_a_setting_with_dashes_is_told_without_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "quickstart", "--model.width=8", "--results", str(tmp_path)])
    assert "write model.width=8" in capsys.readouterr().err


def test_of_two_values_the_last_counts_and_a_note_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["training.steps=4", "model.width=4", "training.steps=9", "model.width=4"]
    assert load_study("quickstart", words, tmp_path).rows[0].training.steps == 9
    assert main(["plan", "quickstart", *words, "--no-probe", "--workspace", str(tmp_path)]) == 0
    told = capsys.readouterr().err
    assert "note: training.steps is given 2 times: 9 counts." in told
    assert told.count("given 2 times") == 1, "the same value twice is no slip"


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (["model.width=4", "model.width=2,4"], ["model.width is given 2 times: 2,4 counts"]),
        (["model.width=2,3", "grid.model.width=[2,4]"], ["model.width is given 2 times: [2,4] counts"]),
        (["model.width=2,3", "model.width=4"], []),
    ],
)
def test_of_two_axes_the_last_counts_and_a_value_behind_one_is_refused(words: list[str], note: list[str]) -> None:
    assert given_twice(words) == note
    if note:
        assert {row.model.width for row in load_study("quickstart", words).rows} == {2, 4}
    else:
        with pytest.raises(ConfigError):
            load_study("quickstart", words)


def test_a_name_that_is_far_off_is_not_suggested() -> None:
    tables = ("verdicts", "slopes", "differences")
    assert did_you_mean("nope", tables) == ""
    assert did_you_mean("slope", tables) == " Did you mean 'slopes'?"


@pytest.mark.parametrize("text", ["", "# to be written\n"])
def test_a_file_that_says_nothing_is_told_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "empty.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"the file says nothing\. A study names a task and a model at least"):
        load_study("empty.yaml", workspace=tmp_path)
    with pytest.raises(ConfigError, match="say which model"):
        load_study("empty.yaml", ["task.name=copying_memory"], tmp_path)


def test_problems_name_the_files_that_were_skipped(tmp_path: Path) -> None:
    """A field that is not there may be one of theirs."""
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "broken.py").write_text("raise ValueError('x')\n")
    (tmp_path / "study.yaml").write_text("task: {name: linear_functional, gap: 2}\nmodel: lru\n")
    with pytest.raises(ConfigError, match=r"study.yaml\), read without what was skipped: task file .*broken.py:\n"):
        load_study(str(tmp_path / "study.yaml"), (), tmp_path)
