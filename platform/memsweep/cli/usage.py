"""The words of ``memsweep --help`` and of each command's."""

from __future__ import annotations

from dataclasses import dataclass

STUDY_SCHEMA = "study"
"""Printed by ``memsweep schema`` where no command is named."""

MAIN = """\
Can a recurrent model, with this parameterization, hold this memory, and does it stay that way when its weights move?

A study, built in or a file of yours in search_spaces/, names a task, a model and a grid, and may search settings in
each cell of the grid and confirm the best on fresh seeds. memsweep trains every trial, perturbs the trained weights,
and answers stable, unstable or inconclusive, with the figures behind the answer."""

EXAMPLES = """\
examples:
  memsweep init my_project                      a folder to start from: a task, a module, a study
  memsweep list studies
  memsweep plan quickstart                      what would run, and how long; runs no trial
  memsweep sweep quickstart                     run it and print the verdicts
  memsweep sweep quickstart model.width=2,4,8   the same with another grid axis
  memsweep decide quickstart --max-core-hours 2  go on until every condition has a verdict
  memsweep describe diagonal_rnn                what can be set, with defaults and limits
  memsweep status quickstart                    the state of every trial
  memsweep resume quickstart                    finish what a crash or Ctrl-C left
  memsweep submit quickstart                    run it on a Ray cluster

'memsweep COMMAND --help' explains a command."""

OVERRIDES = """\
overrides (any number, in any place):
  training.steps=500               set a value; where the grid sweeps this path, only this value is left
  model.width=2,4,8                sweep a path (also range(2,9,2)); an axis of this path is replaced
  grid.task.horizon=[50,100]       the same, as a list
  ~grid.task.horizon               take an axis out of the grid
  task.kernel=shift                values that belonged to the old kernel fall away
  'name="another name"'            name the study; results go to a folder of that name"""

_MULTIRUN = "several values make a grid by themselves: memsweep sweep quickstart model.width=2,4,8"
_CONFIG_NAME = "the study is the word after the command: memsweep sweep quickstart"
_CONFIG_PATH = (
    "--workspace DIR names the folder that holds search_spaces/ and tasks/, or STUDY may be the path of a YAML file"
)
_CFG = "memsweep plan STUDY shows the trials of a study with all overrides, memsweep describe SECTION its fields"
HYDRA = {
    **dict.fromkeys(("-m", "--multirun"), _MULTIRUN),
    **dict.fromkeys(("-cn", "--config-name"), _CONFIG_NAME),
    **dict.fromkeys(("-cp", "--config-path", "-cd", "--config-dir"), _CONFIG_PATH),
    **dict.fromkeys(("-c", "--cfg", "--info", "--resolve", "-p", "--package"), _CFG),
}
"""Flags of Hydra's own programs, and how that is done here."""
PLUS = "Hydra's + and ++ are not needed: every field of a study can be set, whether its file names it or not"


@dataclass(frozen=True)
class Text:
    """A command's words: one line, what it does, and examples."""

    short: str
    long: str
    examples: str


COMMANDS = {
    "plan": Text(
        "show what a sweep would run, and how long it would take",
        "Check a study and list its trials: which are done, which share results with other studies, and how the "
        "rest is\npacked. Every mistake in the study file and the overrides is reported at once (exit code 2).\n\n"
        "Then a probe runs a few steps of the costliest programs, outside of any results, for at most 20 s of a\n"
        "processor (longer by the clock where other programs use it, too), and says how many hours, how much memory\n"
        "and how much disk the study will take on this machine, and how sure that is.",
        f"""\
examples:
  memsweep plan quickstart
  memsweep plan quickstart --no-probe
  memsweep plan quickstart --node cpus=16,price=0.68
  memsweep plan quickstart training.seeds=10 model.width=2,4
  memsweep plan drafts/mine.yaml --results /data/results

{OVERRIDES}""",
    ),
    "sweep": Text(
        "run a study and print its verdicts",
        "Run every trial of a study that has no result yet, then write the report and print the verdict table.\n"
        "The first line is the address of the study's page, for browsers of this machine while the sweep runs.\n"
        "Ctrl-C keeps what is finished; the same command, or memsweep resume, goes on from there.\n"
        "A short study of memsweep's own code runs in this process, any other on Ray (see plan, --ray, --inline).\n"
        "In a Ray job (memsweep submit) it joins the job's cluster by itself; RAY_ADDRESS alone is not used.\n"
        "--max-hours, --max-cost and the other limits stop this run as Ctrl-C does; they change no result.\n"
        "--share lets several drivers divide a study: give the same command on each machine or cluster, with the\n"
        "same --results. The first one leads and writes the report, and each pack runs once. What a driver that\n"
        "dies had not stored, the others run. They may start and end at any time.\n"
        "Exit code: 0 all trials done, 1 some failed, 2 the study or a resource request is wrong, 3 stopped at a\n"
        "limit with work left, 4 a disk, a cluster or another process is in the way, 130 stopped.",
        f"""\
examples:
  memsweep sweep quickstart
  memsweep sweep quickstart training.seeds=10 'name="ten seeds"'
  memsweep sweep quickstart --inline model.width=4 task.horizon=50
  memsweep sweep quickstart --max-hours 2 --max-failures 5
  memsweep sweep quickstart --address auto --results /shared/results
  memsweep sweep quickstart --share --results /shared/results

{OVERRIDES}""",
    ),
    "decide": Text(
        "go on with a study, round by round, until it is decided",
        """\
Begin with what is stored of a study (with its own plan, where nothing is), and add trials round by round until every
condition has a verdict: more seeds, a longer or a middle horizon, another width, smaller or larger radii, a stronger
search, a longer training. A round adds to each open condition what costs least in core seconds for its chance of a
verdict, and says that chance where it has a forecast. It is written down before it runs: stopped in the middle, the
same command goes on. Other settings of training or search begin the study anew; after a round memsweep refuses them.

STUDY may be a module of yours: its study is then made of the module and --kernel alone, with horizons from two time
scales of that memory on, widths 4 to 32 and five seeds. Overrides change it.

A condition is hopeless where too few seeds learn the memory, after a longer training where they are near, or where more
would be needed than the limit of core hours: then the command says how much. That is an answer (exit code 0). At most
10 rounds are made, for which the error rates of docs/evidence/decide.md hold. memsweep status, report, resume and
extend know the trials of the rounds. Exit code: as of memsweep sweep; 3 where a limit left a question open.""",
        f"""\
examples:
  memsweep decide quickstart --max-core-hours 2
  memsweep decide quickstart --plan
  memsweep decide my_nets:MinGRU --kernel polynomial --max-hours 0.3
  memsweep decide quickstart --max-hours 0.5 --json

{OVERRIDES}""",
    ),
    "atlas": Text(
        "train a layer of yours by the atlas's protocol, and show its row among twelve",
        "Put a torch layer of yours, [batch, time, features] -> the same shape, into a residual stack, and train it\n"
        "as the study atlas_small trained its twelve layers: six memories, two layers, the largest size of at most\n"
        "5,000 parameters, 1,200 steps, four learning rates of two seeds, then eight fresh seeds at the best.\n"
        "Its row is shown among the twelve, which come with memsweep. LAYER is my_nets:MyMixer for the class\n"
        "(or any callable) MyMixer in my_nets.py. Its arguments are written as model.unit.arguments.heads=2.\n"
        "A layer of 30 lines with a loop over time in Python takes about an hour of one core. Fewer seeds or tasks\n"
        "make it quicker, and the table says so. It is a study of its own: interrupted, the same command goes on.\n\n"
        "--export FILE writes the row for others. --add FILE shows theirs, without LAYER, too: the identity of each\n"
        "trial is made again. A file that does not agree with itself is refused. + marks a row that follows from its\n"
        "configuration, this version's code and the author's file here, ? one that was not checked, and says why.\n"
        "The results folder keeps added rows, and each later table has them until their files are deleted there.\n"
        "Exit code: as of memsweep sweep.",
        """\
examples:
  memsweep atlas my_nets:MyMixer
  memsweep atlas my_nets:MyMixer --max-hours 0.5
  memsweep atlas my_nets:MyMixer confirm.seeds=4 'search.training.learning_rate={choice:[0.01]}' search.trials=1
  memsweep atlas my_nets:MyMixer 'grid.task=[{name:parity,horizon:32}]'
  memsweep atlas my_nets:MyMixer --export my_mixer.json
  memsweep atlas --add my_mixer.json theirs.json
  memsweep atlas""",
    ),
    "resume": Text(
        "finish the plan of a study",
        "Run every trial of a study's stored plan that has no result: queued, running when its driver died (from its\n"
        "checkpoint), or damaged. Needs no study file. Trials that failed three times in the same way are not run\n"
        "again (see retry). Refused while another process runs the study, and where the code has changed.\n"
        "With --share it runs beside others that say so, too (see sweep).",
        """\
examples:
  memsweep resume quickstart
  memsweep resume results/quickstart --inline
  memsweep resume quickstart --results s3://bucket/results --address auto""",
    ),
    "extend": Text(
        "add trials to a study: more widths, more seeds",
        "Add the trials of a study file, with overrides, to the study's stored plan, and run those without a result.\n"
        "A study that was given overrides and a name of its own is extended by the same words: its file, these\n"
        "overrides, its name.\n"
        "More seeds train only the seeds that are missing; the report pools them with the others.\n"
        "A search is prolonged by search.trials, and by more cells, fresh seeds or winners. Later extensions keep\n"
        "what earlier ones added. A confirmation is one trial: confirm.seeds=20 trains all 20 fresh seeds of each\n"
        "winner, also those that it has.\n"
        "A training that ended early (training.steps=5000 training.until=2500) keeps its state: training.until=0 goes\n"
        "on from there, with the numbers of an uninterrupted training. A larger training.steps trains from the\n"
        "beginning, because the learning rate and the history depend on it.\n"
        "A later memsweep sweep that lacks what was added is refused, unless it has --drop-extended.",
        f"""\
examples:
  memsweep extend quickstart model.width=2,3,4,6,8,12,16
  memsweep extend quickstart training.seeds=10
  memsweep extend my_study training.until=0

{OVERRIDES}""",
    ),
    "retry": Text(
        "run the trials of a study that failed",
        "Run the trials that failed or ran out of memory, and no others. A trial that has failed three times in the\n"
        "same way runs only with --force.",
        """\
examples:
  memsweep retry quickstart
  memsweep retry quickstart --force""",
    ),
    "status": Text(
        "show the state of every trial of a study, and which process runs it",
        "Count the trials that are queued, running, done, diverged, stopped early, out of memory, failed, preempted\n"
        "or cancelled, say why trials failed, and name the process that runs the study. Reads the results folder\n"
        "alone: works from any machine that sees it, while the sweep runs.",
        """\
examples:
  memsweep status quickstart
  memsweep status quickstart --watch
  memsweep status quickstart --results s3://bucket/results""",
    ),
    "sync": Text(
        "write to MLflow every stored result that it lacks",
        "Write every run, metric and artifact that MLflow lacks after an outage of its server: the same state as\n"
        "without the outage, and no run twice. Exit code 1 where something is still missing. "
        "\nMLFLOW_TRACKING_URI names the server, as in a sweep.",
        """\
examples:
  memsweep sync quickstart
  memsweep sync quickstart --results s3://bucket/results""",
    ),
    "report": Text(
        "write the report of a study again, by other criteria, as a table; compare studies",
        """\
Write the HTML page, the tables and the figures again from the stored results, and print the verdict table. Works while
a sweep is running and after a failure; missing trials are named. Nothing is trained.

With --thresholds or --slope-limit the stored results are judged again by these criteria. That report goes to a folder
of its own, judged/, beside the study's report, which stays as it is.

With several studies: their verdicts side by side, with the difference of the slopes from the first study and its 95 %
interval, final losses, conditions that one study alone has, and settings that differ. --out writes it to a folder.

--table prints one table for a paper and writes nothing. LaTeX needs the packages booktabs and amssymb.""",
        """\
examples:
  memsweep report quickstart
  memsweep report quickstart --results /shared/results
  memsweep report quickstart --figures pdf,svg
  memsweep report quickstart --thresholds 0.01,0.1 --slope-limit -0.3
  memsweep report quickstart --table verdicts --format latex
  memsweep report first second third
  memsweep report first second --out comparison --figures pdf""",
    ),
    "measure": Text(
        "measure trained weights, of a study again or of a file; trains nothing",
        """\
Take the trained weights of a study and measure them with other settings of the perturbation: other radii, balls, norms,
more starts. The results are a study of their own, named after the overrides or by name=..., with its own report.
With the same settings the numbers are those of the sweep, bit for bit. Only perturbation.* and name can be set; several
values make a grid axis. Trials without stored weights are left out and counted. A sweep with other perturbation
settings finds stored weights as well, and trains what has none.

With --factory, --weights and --task: measure a checkpoint of your own module, as it is: error, perturbation error,
memory function, gradients. All settings of a study can be given; a checkpoint is one seed, and training.seeds=5
measures it on five test sets. The content of the file is part of the trial's identity: another file under the same
name is another trial. A pickle's code is never run (torch.load with weights_only).

With --factory and --sequences, and no task: a trained model of others (docs/trained_model.md). The reference is the
model itself: what is measured is how far its outputs on these sequences move when its weights move, or are rounded to
few bits, and how far back its memory reaches. The weights of --weights are found wherever they lie in the file. hf:NAME
is a Hugging Face model of the local cache, or a folder. It takes minutes in this process; it takes no limits, no nodes
and no Ray, and stores nothing.
Exit code: as of memsweep sweep.""",
        """\
examples:
  memsweep measure quickstart perturbation.norm=entrywise
  memsweep measure --factory my_nets:MinGRU --weights ckpt.pt --task copying_memory model.width=16 task.delay=100
  memsweep measure --factory my_nets:encoder --weights ckpt.pt --sequences x.npy --reference self
  memsweep measure quickstart perturbation.starts=16 perturbation.ascent_steps=64 'name="more effort"'
  memsweep measure quickstart 'perturbation.balls=[weights]' perturbation.radii.to=10""",
    ),
    "weights": Text(
        "write the trained weights of a model to a safetensors file",
        """\
Every trial keeps its trained weights, those of the best validation, for each of its seeds (a study says keep: none to
keep none). This command writes those of one model to a file, under the module's own names: torch's load_state_dict
takes them as they are. Without a file it lists the trials.

TRIAL is the beginning of a trial's identity, or values of its fields (model.width=8); it may be left out where the
study has one trial. For a model with a parameterization the raw weights are stored, from which it makes its rates.
A file that is there already is not overwritten. In Python:

  from safetensors.torch import load_file
  my_module.load_state_dict(load_file("out.safetensors"))

complex128, which the format lacks, stands in a file as [..., 2]: docs/weights.md shows how to load it.""",
        """\
examples:
  memsweep weights quickstart
  memsweep weights quickstart model.width=8 task.kernel=exponential
  memsweep weights quickstart 1a2b3c --seed 0 out.safetensors
  memsweep weights quickstart --results s3://bucket/results 1a2b3c --seed 0 out.safetensors""",
    ),
    "upgrade": Text(
        "rewrite stored results in the form of this version",
        """\
Rewrite what an earlier version stored, in a folder of results or in a bucket, once. It is never needed: this version
reads the older form, too. A result is rewritten whole or not at all, no number changes, and no identity. Interrupted,
the same command goes on. A memsweep that does not know the new form then refuses these results in a sentence.
Exit code: 0 all is in the form of this version, 1 some results cannot be read, and stay as they are.""",
        """\
examples:
  memsweep upgrade results --dry-run
  memsweep upgrade results
  memsweep upgrade s3://bucket/results""",
    ),
    "submit": Text(
        "run a study as a job of a Ray cluster, and follow it",
        """\
Check the study, upload this engine and what the study needs of this workspace, start memsweep there, and follow its
log. The study, tasks, modules that they import and declared data files go along, and what .memsweepinclude names (one
pattern in a line); the list is printed before. Nothing is uploaded where the study is wrong.

The engine that checked the study here is the one that runs there, so that what memsweep plan says holds. The nodes
need its libraries: an image of memsweep has them; any other Ray cluster installs them with --runtime-env
deploy/runtime_env.yaml. The nodes' own environment says where results go (MEMSWEEP_RESULTS), with which keys, and
where MLflow is: submit forwards no variable, because a job's environment can be read by all who reach the job server.

Ctrl-C leaves the job running and says how to come back. ray job stop ID ends it; what is finished is kept, and
--do resume goes on. --nodes auto (or a number) asks the cluster's autoscaler for nodes until the study ends; the job's
first lines say how many, the hours and the cost. A cluster with token authentication wants its token in RAY_AUTH_TOKEN.
Exit code: the job's own (as of memsweep sweep); 2 where it could not be handed in, 130 detached or stopped.""",
        f"""\
examples:
  memsweep submit quickstart
  memsweep submit quickstart training.seeds=10 --results s3://bucket/results
  memsweep submit quickstart --address http://127.0.0.1:8265 --detach
  memsweep submit quickstart --nodes auto --node cpus=16,price=0.68
  memsweep submit quickstart --do resume
  memsweep submit quickstart --do measure perturbation.norm=entrywise
  memsweep submit quickstart --runtime-env deploy/runtime_env.yaml

{OVERRIDES}""",
    ),
    "audit": Text(
        "check any recurrent module without training it: memory, causality, precision",
        "Look at a module [B, T, inputs] -> [B, T, outputs] for about a minute, without training: shapes,\n"
        "determinism, causality, independence within the batch, weights without gradient, derivatives against\n"
        "differences, values that are not finite, memory function and gradient by lag, decay, step form against\n"
        "parallel form, pieces, padding, precision, time and memory by length.\n"
        "MODULE is my_nets:MinGRU for the class (or any callable) MinGRU in my_nets.py, or a registered\n"
        "model. --width, --horizon, --inputs and --outputs go to its arguments of these names. Fields of the model\n"
        "are written as in a study: arguments.layers=2 is another argument, width_argument=d_model the callable's\n"
        "name for the width, width_argument=null leaves it out.\n\n"
        "A module may declare, as methods: decay(x) -> [B, T, channels] or decay() -> [channels], the factors by\n"
        "which its states shrink at each step; step(x_t, state) -> (y_t, state), its step form (the first state is\n"
        "None, or initial_state(batch)). torch's own form, forward(x, state) -> (y, state), is found by itself.\n"
        "--effort says what is looked at, and --seconds how long at most: what it cut off is said, and is not\n"
        "enough. Exit code: 0 no fault, 1 a fault was found, 2 the module cannot be made, gives no outputs, or the\n"
        "page cannot be written (this is looked at first), 3 no fault so far and not enough was looked at within\n"
        "--seconds, 4 the page could not be written at the end; the findings are printed.",
        """\
examples:
  memsweep audit my_nets:MinGRU --width 64 --horizon 4096
  memsweep audit my_nets:MinGRU --width 64 arguments.layers=2 --json
  memsweep audit my_nets:Block --inputs 64 --width 64 width_argument=d_model
  memsweep audit my_nets:LanguageModel --tokens --inputs 256 --outputs 256
  memsweep audit lru --width 64""",
    ),
    "schema": Text(
        "print the JSON Schema of the study file, or of what a command prints with --json",
        "Print a JSON Schema (draft-07). That of the study file knows the tasks and models of this workspace.\n"
        "An editor with a YAML language server completes, explains and checks the fields of a study by it. VS Code\n"
        "finds the file study.schema.json by .vscode/settings.json, which init writes.",
        """\
examples:
  memsweep schema > study.schema.json
  memsweep schema plan""",
    ),
    "init": Text(
        "make a project: a folder with a task, a torch module, a study and a test of them",
        "Make a folder in which every command of memsweep works at once: a task in tasks/, a plain torch module, a\n"
        "study in search_spaces/ that ends in a verdict after about a minute, a test that runs the conformance "
        "suites,\na pyproject.toml that makes the task available in other folders, and a README.md that says what to "
        "run.\nA folder that is not empty is refused.",
        """\
examples:
  memsweep init my_project""",
    ),
    "data": Text(
        "list and fetch the published data sets that tasks read",
        "Fetch MNIST, Fashion-MNIST, CIFAR-10, the Penn Treebank, reviews of IMDB or the Long Range Arena into the "
        "data\nfolder, in the layout that the tasks expect. Each file is compared with its published checksum; where "
        "none\nis known, the hash of the first download is printed, kept, and compared at the next one. A download "
        "that was\ncut off goes on where it stopped. What is there already is left alone, unless --force is given.",
        """\
examples:
  memsweep data list
  memsweep data fetch mnist ptb
  memsweep data fetch cifar10 --folder /data/sets
  memsweep data fetch mnist --from ~/downloads""",
    ),
    "list": Text(
        "list tasks, models, parameterizations, units, rules, measures or studies",
        "List what a study may name: what is built in, what this workspace's tasks/ and search_spaces/ add to it or\n"
        "put in its place, and installed plugins.",
        """\
examples:
  memsweep list studies
  memsweep list parameterizations
  memsweep list rules""",
    ),
    "describe": Text(
        "explain a task, model, parameterization, unit, rule, section or study",
        "Print what a name means and every field that can be set: type, default, meaning, and what is allowed.",
        """\
examples:
  memsweep describe linear_functional
  memsweep describe exp
  memsweep describe my_nets:MinGRU --width 16 arguments.layers=2
  memsweep describe training
  memsweep describe search
  memsweep describe quickstart""",
    ),
}
