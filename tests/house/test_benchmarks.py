"""The benchmarks' baseline computes what our models compute, the timing is fair, and each benchmark runs and writes."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks import __main__, harness, published_curves, roof, summary
from benchmarks.published.loop import NAMES, PublishedLoop, PublishedTraining
from benchmarks.published.matrix import PublishedMatrix
from benchmarks.scale import proc
from benchmarks.steps import matrix_step, peak, peers, peers_gated, product, step
from memsweep.config.schema.batch_loss import way_of
from memsweep.learning.training.optimizer import AdamW, clipped
from memsweep.recurrence.compiled import library
from memsweep.streams import TEST, Stream
from paths import ROOT

MODELS = [("diagonal_rnn", {}), ("dense_rnn", {"basis": "free"})]


@pytest.mark.parametrize("name", [*__main__.NAMES, *__main__.LONG])
def test_a_benchmark_that_is_named_is_there(name):
    assert callable(__main__.module_of(name).run)


def losses(config, weights, sequences=48):
    """Our loss of one model with these weights (they gather gradients), on the test sequences."""
    pack = product.Pack.of(config)
    model = product.model_class(config).ensemble_of([config.model], product.signature(config)).to(torch.float64)
    data = pack.task_loss.data(Stream(0, TEST), 0, sequences)
    return pack.task_loss.loss(model, weights, data, pack.task_loss.target(0).unsqueeze(0))


@pytest.mark.parametrize("activation", ["linear", "hardtanh", "tanh"])
@pytest.mark.parametrize(("model", "fields"), MODELS)
def test_the_baseline_is_our_model(model, fields, activation):
    config = product.trial_config(
        model, horizon=60, width=5, activation=activation, initialization="published", **fields
    )
    ours = product.first_model(config)
    loop = PublishedLoop.like(ours)
    published = loop.loss(*product.sequences(config, 48))
    published.backward()
    weights = {name: value.detach().unsqueeze(0).requires_grad_() for name, value in ours.named_parameters()}
    loss = losses(config, weights)
    loss.sum().backward()
    assert (weights["recurrent_weight"] < 0).any(), "a dead mode is part of what is compared"
    torch.testing.assert_close(loss[0], published, rtol=1e-10, atol=0.0)
    for theirs, parameter in loop.named_parameters():
        mine = weights[NAMES[theirs]].grad[0]
        torch.testing.assert_close(mine, parameter.grad, rtol=1e-8, atol=1e-8 * float(mine.norm()))


@pytest.mark.parametrize(
    ("width", "horizon", "way"), [(8, 100, "statistics"), (8, 600, "sequences"), (64, 600, "convolution")]
)
def test_a_convolution_by_transforms_has_our_loss_and_gradients(width, horizon, way):
    config = product.trial_config("diagonal_rnn", horizon=horizon, batch_size=16, width=width, activation="linear")
    assert way_of(config) == way
    peers.compare(product.Pack.of(config), peers.Convolution.like(product.first_model(config)))
    other = product.first_model(config)
    with torch.no_grad():
        other.encoder_bias[0] += 1e-6
    with pytest.raises(AssertionError, match="not close"):
        peers.compare(product.Pack.of(config), peers.Convolution.like(other))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_torchs_gated_layers_have_our_states_and_gradients(name, dtype):
    pair = peers_gated.Pair(name, 5, 9, 3, dtype)
    pair.compare()
    with torch.no_grad():
        pair.torchs.bias_hh_l0[-1] += 0.01
    with pytest.raises(AssertionError, match="not close"):
        pair.compare()


@pytest.mark.parametrize(("name", "layers"), [("gru", 2), ("lstm", 1), ("rnn", 2)])
def test_whole_models_have_the_losses_and_gradients_of_torchs(name, layers, monkeypatch):
    product._discovered()
    pack, training = peers_gated.training_of(name, 5, layers, 16, 4)
    torchs = sum(each.numel() for each in training.loop.parameters())
    ours = sum(each[0].numel() for each in pack.learners[0].ensemble.layout.named(pack.learners[0].weights).values())
    assert ours == torchs - {"gru": 2, "lstm": 4, "rnn": 0}[name] * 5 * layers
    pack.step()
    training.step()
    drawn = peers_gated.Plain.forward
    monkeypatch.setattr(peers_gated.Plain, "forward", lambda self, inputs: 1.01 * drawn(self, inputs))
    with pytest.raises(AssertionError, match="not close"):
        peers_gated.training_of(name, 5, layers, 16, 4)


@pytest.mark.parametrize(("model", "fields"), MODELS)
def test_ten_published_steps_are_ten_of_our_optimizer(model, fields):
    config = product.trial_config(model, horizon=30, width=4, activation="tanh", **fields)
    ours = product.first_model(config)
    training = PublishedTraining(PublishedLoop.like(ours), *product.sequences(config, 48))
    names = [name for name, _ in ours.named_parameters()]
    shapes = [value.shape for _, value in ours.named_parameters()]
    flat = torch.cat([value.detach().flatten() for _, value in ours.named_parameters()]).unsqueeze(0)
    state, moving = AdamW.like(flat), torch.ones_like(flat, dtype=torch.bool)
    for _ in range(10):
        flat = flat.detach().requires_grad_()
        parts = flat.split([shape.numel() for shape in shapes], 1)
        weights = {name: part.unflatten(1, shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        loss = losses(config, weights)
        (gradient,) = torch.autograd.grad(loss.sum(), flat)
        rate = torch.full((1,), config.training.learning_rate, dtype=torch.float64)
        flat = state.update(flat.detach(), clipped(gradient, config.training.clip), rate, 0.0, moving)
        # torch's clip adds 1e-6 to the norm, and ours does not
        torch.testing.assert_close(training.step(), loss.detach()[0], rtol=1e-7, atol=0.0)


@pytest.mark.parametrize("case", matrix_step.cases()[:-1], ids=str)
def test_the_plain_matrix_network_is_our_model(case):
    ours = matrix_step.MatrixTraining(case.config(2, True))
    plain = PublishedMatrix(ours.first())
    published = plain.loss(ours.data.inputs, ours.data.targets)
    published.backward()
    (learner,) = ours.learners
    loss, gradient = learner.gradients(ours.task_loss, ours.batch)
    torch.testing.assert_close(loss[0], published.detach(), rtol=1e-10, atol=0.0)
    for name, found in learner.ensemble.layout.named(gradient).items():
        # an orthogonal matrix has no one largest singular value: the power iteration takes the gradient of another
        if (case.model, name) != ("published_rnn_orth", "recurrent_weight"):
            wanted = getattr(plain, name).grad
            torch.testing.assert_close(found[0], wanted, rtol=1e-8, atol=1e-8 * float(wanted.norm()), msg=name)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("dense_rnn", {"basis": "orthogonal"}),
        ("diagonal_rnn", {"discretization": "exact"}),
        ("diagonal_rnn", {"normalize": True}),
        ("diagonal_rnn", {"dt": 0.5}),
    ],
)
def test_another_model_is_no_baseline(model, fields):
    with pytest.raises(ValueError, match="published loop"):
        PublishedLoop.like(product.first_model(product.trial_config(model, horizon=8, **fields)))


def test_a_packs_step_is_the_training_loops_step():
    """The benchmark times a sweep's work: the same weights after some steps as from the training loop, bit for bit."""
    from dataclasses import replace

    from memsweep.learning.loop import train

    for activation in ("linear", "tanh"):
        config = product.trial_config(
            "diagonal_rnn", horizon=20, seeds=3, batch_size=16, width=4, activation=activation
        )
        stepped, trained = product.Pack.of(config), product.Pack.of(config)
        for _ in range(3):
            stepped.step()
        # the one batch again and again, in another order of its sequences
        again = {"train_size": config.training.batch_size, "merge_redundant": False}
        whole = replace(config.training, steps=3, schedule="constant", validation_size=8, **again)
        (learner,) = train([one.ensemble for one in trained.learners], trained.task_loss, whole)
        torch.testing.assert_close(stepped.learners[0].weights[:3], learner.weights[:3], rtol=1e-9, atol=1e-12)
        assert not torch.equal(learner.weights[:3], learner.ensemble.initial[:3])


def test_sides_alternate_and_ratios_are_taken_round_by_round():
    clock, calls = [0.0], []

    def side(name, seconds):
        def work():
            calls.append(name)
            clock[0] += next(seconds)

        return work

    # the machine slows down by ten in the middle: both sides suffer, the ratio does not
    slow = [1.0, 1.0, 10.0, 10.0]
    a, b = iter([3.0, *(3.0 * s for s in slow)]), iter([1.0, *slow])
    found = harness.alternate({"a": side("a", a), "b": side("b", b)}, pairs=4, shortest=0.05, clock=lambda: clock[0])
    assert calls == ["a", "b", *["a", "b"] * 4]
    assert found == {"a": [3.0, 3.0, 30.0, 30.0], "b": slow}
    assert harness.ratio(found["a"], found["b"]) == 3.0


def test_short_work_is_repeated():
    clock, calls = [0.0], []

    def work():
        calls.append(1)
        clock[0] += 0.125

    found = harness.alternate({"a": work}, pairs=2, shortest=1.0, clock=lambda: clock[0])
    assert found == {"a": [0.125, 0.125]}
    assert len(calls) == 2 + 2 * 8


def test_counted_work_agrees_with_torchs_own_counter(monkeypatch):
    from torch.utils.flop_counter import FlopCounterMode

    monkeypatch.setenv(library.KERNELS, "plain")  # the counter sees what torch computes, and no kernel

    with FlopCounterMode(display=False) as counter:
        peak.Gram.of_batch(peak.noise(24, 32), torch.ones(32, dtype=torch.float64))
    uncounted = 2 * 24 * 32**2  # the counter passes over a product that is added in place
    assert counter.get_total_flops() + uncounted == peak.gram_work(24, 32).operations
    models, width, horizon = 3, 16, 100
    layer = peak.random_layer(models, width, "linear", dense=True)
    columns = peak.noise(models, width, peak.CHANNELS)
    with FlopCounterMode(display=False) as counter:
        peak.pulled(peak.dense_response, (layer.readout, layer.matrix, columns), horizon)
    assert counter.get_total_flops() == peak.krylov_work(models, width, horizon).operations


def test_the_limits_of_the_core_are_those_of_loops_that_compute():
    """The loop of multiply-adds refuses a wrong sum itself."""
    for dtype, lanes in ((torch.float64, 2), (torch.float32, 4)):
        operations = roof.multiply_adds(dtype, 100)
        assert operations % (2 * 100 * roof.CHAINS * lanes) == 0
        assert operations == 100 * roof.multiply_adds(dtype, 1)
    source, target = peak.noise(1000), torch.zeros(1000, dtype=torch.float64)
    roof.copy(source, target)
    assert torch.equal(source, target)


def test_every_target_has_its_row():
    known = {(case.model, case.activation, case.width) for case in step.cases() if case.dtype == "float64"}
    assert set(step.TARGETS) <= known
    assert [name for name, _ in pairwise(step.PACKS)] == [1, 8]


@pytest.mark.long
@pytest.mark.more
def test_benchmarks_run_and_write(tmp_path):
    names = [
        "step",
        "peers",
        "units",
        "matrix_step",
        "perturbation",
        "peak",
        "horizon",
        "plain_module",
        "worst_push",
        "test_sets",
    ]
    command = [sys.executable, "-m", "benchmarks", *names, "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    results = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in names}
    for name, result in results.items():
        assert set(result) == {"machine", "versions", "settings", "rows"}
        assert set(result["machine"]) == {"cpu", "cores", "memory_gib"}
        assert result["rows"], name
    wanted = {"model", "activation", "width", "models", "dtype", "milliseconds_per_model", "ratio", "pairs"}
    for row in results["step"]["rows"]:
        assert wanted <= set(row)
        assert row["ratio"] > 0
        assert row["milliseconds_per_model"] > 0
    assert all(row["ratio"] > 0 for row in results["matrix_step"]["rows"])
    assert {row["model"] for row in results["matrix_step"]["rows"]} == {case.model for case in matrix_step.cases()}
    by_unit = {row["unit"]: row for row in results["units"]["rows"]}
    assert by_unit["lru"]["of_lru"] == by_unit["lru"]["of_lru_a_number"] == 1
    assert by_unit["lru"]["numbers_held"] == 2 * by_unit["min_gru"]["numbers_held"], "a complex number counts twice"
    assert by_unit["attention"]["numbers_held"] == 0, "its state grows"
    assert {row["copies"] for row in results["perturbation"]["rows"]} == {631}
    assert {row["horizon"] for row in results["horizon"]["rows"]} == {16, 32}
    *families, trial = results["worst_push"]["rows"]
    assert all(0 < row["found"] <= 1 for row in families), "a stronger search finds at least as much"
    assert trial["planned_over_taken"] > 0
    few, more = (row for row in results["test_sets"]["rows"] if row["threshold"] == 0.1)
    assert more["radius_sd_test_set"] < few["radius_sd_test_set"], "on twice as many sequences"
    told = (tmp_path / summary.FILE).read_text().splitlines()
    assert {f"×{harness.text_of(row['ratio'])}" for row in results["step"]["rows"]} <= {
        line.split(" | ")[-1].rstrip(" |").strip("*") for line in told
    }


def on_the_card(kind, name, **wanted):
    """The rows of a check on a GPU, as benchmarks/card/h200.json has them."""
    stored = json.loads((ROOT / "benchmarks" / "card" / "h200.json").read_text(encoding="utf-8"))
    checks = [check for check in stored[kind] if check["name"].startswith(name)]
    rows = [dict(zip(check["columns"], row, strict=True)) for check in checks for row in check["rows"]]
    return [row for row in rows if all(row.get(key) in np.atleast_1d(value) for key, value in wanted.items())]


def between(values, sign=""):
    ends = [f"{end:.2g}" if end < 100 else f"{end:,.0f}" for end in (min(values), max(values))]
    text = " to ".join(f"{sign}{end}" for end in dict.fromkeys(ends))
    return f"**{text}**" if sign and min(values) < 1 else text


def ratios(name, key, **wanted):
    """The cell of the page: the other's time by ours."""
    found = [row[key] for row in on_the_card("times", name, **wanted) if row.get(key) is not None]
    return between(found, "×") if found else "not measured"


def test_the_page_has_the_figures_of_the_gpu():
    page = (ROOT / "docs" / "evidence" / "speed.md").read_text(encoding="utf-8").partition("## On a GPU\n")[2]
    lines, kinds = page.partition("\n## ")[0].splitlines(), ("float64", "float32")
    for start, name, key, wanted in [
        ("a layer of `gru` or `lstm` | cuDNN", "time gated", "cudnn_by_ours", {"layer": ["gru", "lstm"]}),
        ("a layer of `gru`, 64 sequences | JAX, `lax.scan`", "time gated", "jax_by_ours", {}),
        ("a plain tanh RNN | cuDNN", "time gated", "cudnn_by_ours", {"layer": "rnn"}),
        ("a diagonal linear layer | Fourier transforms in torch", "time linear", "fft_by_ours", {}),
        ("a diagonal linear layer | JAX, `lax.associative_scan`", "time linear", "associative_by_ours", {}),
        ("a diagonal linear layer | JAX, `lax.scan`", "time linear", "scan_by_ours", {}),
        ("a diagonal scan, T = 1,000 | JAX, `lax.associative_scan`", "time scans", "associative_by_ours", {}),
    ]:
        cells = [ratios(name, key, dtype=dtype, **wanted) for dtype in kinds]
        assert f"| {start} | {' | '.join(cells)} |" in lines
    for model in ("linear", "tanh", "dense tanh", "lru", "gru"):
        steps = on_the_card("times", "time steps", model=model)
        by_size = [[row["milliseconds"] for row in steps if row["models"] == size] for size in (1, 8, 64)]
        launches = [row["launches"] for row in steps]
        shown = f"`{model}`" if model in ("lru", "gru") else model
        cells = [*(between(each) if each else "" for each in by_size), f"{min(launches):,} to {max(launches):,}"]
        assert "| " + " | ".join([shown, *cells]).replace("|  |", "| |") + " |" in lines
        for row in steps:
            if row["processor_ms"]:
                (line,) = (
                    line for line in lines if line.startswith(f"| a step of 8 {model} ") or f"of `{model}`, T" in line
                )
                assert between([row["processor_ms"] / row["milliseconds"]], "×") in line
    for unit in {row["unit"] for row in on_the_card("times", "time units")}:
        short, long = (on_the_card("times", "time units", unit=unit, horizon=horizon)[0] for horizon in (100, 1000))
        cells = [harness.text_of(row["milliseconds"]) for row in (short, long)]
        assert any(f"| `{unit}` | {' | '.join(cells)} |" in line for line in lines)


def test_the_page_says_how_far_a_gpu_is_from_the_processor():
    page = (ROOT / "docs" / "evidence" / "speed.md").read_text(encoding="utf-8")

    def worst(*names, dtype):
        rows = [row for name in names for row in on_the_card("numbers", name, dtype=dtype)]
        return f"{max(row['difference'] for row in rows if row.get('difference') is not None):.2g}"

    kernels, units = ("layer", "scan"), ("unit",)
    assert f"layers and scans lie within {worst(*kernels, dtype='float64')} of" in page
    assert f"All 25 units lie within {worst(*units, dtype='float64')} (`slstm`" in page
    assert f"it is {worst(*kernels, dtype='float32')} and {worst(*units, dtype='float32')} against" in page
    trials = [
        [worst(f"trial {name}", dtype=dtype) for name in ("linear", "tanh", "dense tanh", "lru")]
        for dtype in ("float64", "float32")
    ]
    assert "by {} (linear), {} (tanh), {} (dense tanh) and {} (`lru`) in float64".format(*trials[0]) in page
    assert "processor's float32 by {}, {}, {} and {}.".format(*trials[1]) in page
    same = [[row["pack"] for row in on_the_card("numbers", name)] for name in kernels]
    assert f"in all {len(same[0])} rows. Scans have them in {sum(same[1])} of {len(same[1])} rows" in page
    assert all(row["twice"] for name in (*kernels, *units) for row in on_the_card("numbers", name))
    stored = json.loads((ROOT / "benchmarks" / "card" / "h200.json").read_text(encoding="utf-8"))
    assert [each["equal_bits"] for each in stored["sweeps"]] == [False, True, True, False, True, True, True]
    for sweep, told in ((stored["sweeps"][0], "linear"), (stored["sweeps"][3], "tanh")):
        assert f"{told} trials differ by up to {max(sweep['worst_relative'].values()):.2g}" in page


@pytest.mark.more
def test_the_card_command_runs_on_a_processor(tmp_path):
    command = [
        sys.executable,
        "-m",
        "benchmarks.card",
        "--device",
        "cpu",
        "--quick",
        "--out",
        str(tmp_path / "card.json"),
    ]
    command += ["--only", "unit rnn", "machine", "--side-by-side", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    checks = {check["name"]: check for check in json.loads((tmp_path / "card.json").read_text())["checks"]}
    assert set(checks) == {"unit rnn", "machine"}
    assert checks["unit rnn"]["rows"][0]["right"]


def test_the_table_of_all_begins_with_commands_and_a_ratio_below_one_is_bold(tmp_path):
    loop = {"table": "loop", "module": "gru", "width": 8, "seeds": 3, "milliseconds": 1.0}
    layer = {"width": 8, "horizon": 100, "sequences": 64, "dtype": "float64", "ours_milliseconds": 2.0}
    harness.write("peers", {}, [layer | {"peer": "convolution", "ratio": 0.5}], tmp_path)
    harness.write("plain_module", {}, [loop | {"ratio": 0.5}, loop | {"table": "model", "ratio": 9.0}], tmp_path)
    harness.write("waiting", {}, [{"what": "help", "cpu_seconds": 0.07}], tmp_path)
    assert summary.table(tmp_path).splitlines()[2:] == [
        "| memsweep: help | 0.07 s of CPU |  |  |",
        "| a step of a user's gru, width 8, 3 seeds | 1 ms | a plain loop in torch | ×2 |",
        "| a step of one model or layer, 8 wide, 100 steps, 64 sequences, float64 | 2 ms | convolution | **×0.5** |",
    ]


def test_a_process_that_nobody_waited_for_counts():
    work = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ntime.sleep(600)"
    with proc.consumed() as cpu:
        child = subprocess.Popen([sys.executable, "-c", work], stdout=subprocess.PIPE)
        child.stdout.readline()
        found = cpu()
        child.kill()
        child.communicate()
        assert cpu() >= found >= 0.45


def test_an_unknown_benchmark_is_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "stepp"])
    with pytest.raises(SystemExit) as left:
        __main__.main()
    assert left.value.code == 2
    assert "no benchmark stepp; there are" in capsys.readouterr().err


def test_a_published_curve_is_compared_with_one_more_seed():
    """Log errors -2 ... 2 of five seeds: mean 0, deviation 1.581, so that a sixth lies within 2.776 x 1.581 x 1.095."""
    radii = [0.0, 0.001, 0.002]
    curve = {"task": "LF", "activation": "tanh", "model": "diagonalrnn", "rho": "exp", "width": 8}
    ours = pd.DataFrame(
        [
            curve | {"activation": activation, "radius": radius, "error": np.exp(log)}
            for activation in ("tanh", "linear")
            for radius in radii
            for log in (-2.0, -1.0, 0.0, 1.0, 2.0)
        ]
    )
    published = pd.DataFrame(
        [curve | {"beta": beta, "error": np.exp(log)} for beta, log in zip(radii, (0.0, 4.7, 4.9), strict=True)]
    )
    points = published_curves.compared(published, ours)
    np.testing.assert_allclose(np.log(points["to"]), 2.7764 * np.sqrt(2.5 * 1.2), rtol=1e-4)
    row = published_curves.summary(points).iloc[0]
    assert row[["activation", "seeds", "points"]].tolist() == ["tanh", 5, 3]
    assert row[["within 5", "one more seed"]].tolist() == [0.33, 0.67]
    assert row[["farthest", "at"]].tolist() == [float(f"{np.exp(4.9):.2g}"), 0.002]
