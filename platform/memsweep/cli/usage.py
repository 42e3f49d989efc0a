"""The words of ``memsweep --help`` and of each command's."""

from __future__ import annotations

from dataclasses import dataclass

MAIN = """\
Can a recurrent model, with this parameterization, hold this memory, and does it stay that way when its weights move?

A study file in search_spaces/ names a task, a model and a grid. memsweep trains every row of the grid, perturbs the
trained weights, and answers stable, unstable or inconclusive, with the figures behind the answer."""

EXAMPLES = """\
examples:
  memsweep list studies
  memsweep plan quickstart                      what would run; nothing is started
  memsweep sweep quickstart                     run it and print the verdicts
  memsweep sweep quickstart model.width=2,4,8   the same with another grid axis
  memsweep describe diagonal_rnn                what can be set, with defaults and limits

'memsweep COMMAND --help' explains a command."""

OVERRIDES = """\
overrides (any number, in any place):
  training.steps=500               set a value; where the grid sweeps this path, only this value is left
  model.width=2,4,8                sweep a path (also range(2,9,2)); an axis of this path is replaced
  grid.task.horizon=[50,100]       the same, as a list
  ~grid.task.horizon               take an axis out of the grid
  task.kernel=shift                values that belonged to the old kernel fall away
  'name="another name"'            name the study; results go to a folder of that name"""


@dataclass(frozen=True)
class Text:
    """A command's words: one line, what it does, and examples."""

    short: str
    long: str
    examples: str


COMMANDS = {
    "plan": Text(
        "show what a sweep would run; starts and writes nothing",
        "Check a study and list its rows: which are done, which share results with other studies, and how the "
        "rest is\npacked. Every mistake in the study file and the overrides is reported at once (exit code 2).",
        f"""\
examples:
  memsweep plan quickstart
  memsweep plan quickstart training.seeds=10 model.width=2,4
  memsweep plan drafts/mine.yaml --results /data/results

{OVERRIDES}""",
    ),
    "sweep": Text(
        "run a study and print its verdicts",
        "Run every row of a study that has no result yet, then write the report and print the verdict table.\n"
        "Ctrl-C keeps what is finished; the same command goes on from there.\n"
        "Exit code: 0 all rows done, 1 some failed, 2 the study or a resource request is wrong, 130 stopped.",
        f"""\
examples:
  memsweep sweep quickstart
  memsweep sweep quickstart training.seeds=10 'name="ten seeds"'
  memsweep sweep quickstart --inline model.width=4 task.horizon=50
  memsweep sweep quickstart --address auto --results /shared/results

{OVERRIDES}""",
    ),
    "report": Text(
        "write the report of a study again from its stored results",
        "Make the HTML page, the tables and the figures anew from what is stored, and print the verdict table.\n"
        "Works while a sweep is running and after a failure; missing rows are named.",
        """\
examples:
  memsweep report quickstart
  memsweep report results/quickstart
  memsweep report quickstart --results /shared/results""",
    ),
    "list": Text(
        "list tasks, models, parameterizations or studies",
        "List what a study may name, from the engine, from this workspace's tasks/ and search_spaces/, and\nfrom "
        "installed plugins.",
        """\
examples:
  memsweep list studies
  memsweep list parameterizations""",
    ),
    "describe": Text(
        "explain a task, model, parameterization, section or study",
        "Print what a name means and every field that can be set: type, default, meaning, and what is allowed.",
        """\
examples:
  memsweep describe linear_functional
  memsweep describe exp
  memsweep describe training
  memsweep describe quickstart""",
    ),
}
