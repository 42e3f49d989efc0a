"""Secrets stay out of messages, failures and commands; the sweeps are in test_secrets_drills.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memsweep.cli import main
from memsweep.redaction import REMOVED, is_secret_name, redacted, secrets_in, without_secrets
from memsweep.sweep.worker.failure import failure_of
from paths import ROOT
from processes import no_hang
from secret_words import PASSWORD, SECRETS, told
from sweeping import BASE

ADDRESSES = [
    f"http://ada:{PASSWORD}@host:5000",
    f"https://{PASSWORD}@host",
    f"postgresql://ada:{PASSWORD}@host:5432/mlflow",
    f"postgresql+psycopg2://ada:{PASSWORD}%2Fx%40y@host/mlflow?sslmode=require",
    f"postgresql://ada:{PASSWORD}/x?y#z@host/mlflow",  # SQLAlchemy takes all but "@" for the password
    f"postgresql://ada:x/{PASSWORD}@host/mlflow",
    f"mysql://ada:x?{PASSWORD}@host/mlflow",
    f"postgresql://host/mlflow?user=ada&password={PASSWORD}",
    f"s3://key:{PASSWORD}@bucket/prefix",
    f"s3://key:{PASSWORD}/x@bucket/prefix",
    f"https://ada:x@{PASSWORD}@host/a",
    f"ada:{PASSWORD}/x@host:6379",
]


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


def test_secret_names_are_told_from_harmless_ones() -> None:
    assert all(map(is_secret_name, [*SECRETS, "GITHUB_PAT", "SENTRY_DSN", "DB_PASSWD", "HF_TOKEN", "ssh_passphrase"]))
    harmless = "RAY_AUTH_MODE RAY_AUTH_TOKEN_PATH MLFLOW_AUTH_CONFIG_PATH GIT_AUTHOR_NAME XAUTHORITY SSH_AUTH_SOCK PATH"
    assert not any(map(is_secret_name, [*harmless.split(), "MLFLOW_TRACKING_URI", "AWS_REGION", "KEYBOARD"]))


def test_the_passwords_of_addresses_are_secrets_too() -> None:
    environment = {"MLFLOW_TRACKING_URI": ADDRESSES[2], "OTHER": ADDRESSES[4], "HOME": "/root", "SHORT_TOKEN": "yes"}
    assert secrets_in(environment) == {"MLFLOW_TRACKING_URI": PASSWORD, "OTHER": f"{PASSWORD}/x?y#z"}


@pytest.mark.parametrize("address", [address for address in ADDRESSES if "://" in address and "?user=" not in address])
def test_an_address_in_a_text_loses_its_credentials(address: str) -> None:
    text = f"cannot reach {address}: refused (see 'http://docs.example/a'), or mail ada@example.org"
    kept = without_secrets(text)
    assert PASSWORD not in kept
    assert REMOVED in kept
    assert kept.endswith(": refused (see 'http://docs.example/a'), or mail ada@example.org")


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_alone_loses_its_credentials(address: str) -> None:
    assert PASSWORD not in redacted(address)
    scheme = address.rpartition("://")[0]
    assert re.fullmatch(rf"{re.escape(scheme)}(://)?(host|bucket)(:\d+)?(/.*)?", redacted(address))


@pytest.mark.parametrize(
    "address", ["http://host:5000", "https://host/", "s3://bucket/a/b@c", "sqlite:////a/b@c.db", "host:6379", "auto"]
)
def test_an_address_without_credentials_is_shown_as_it_is(address: str) -> None:
    assert redacted(address) == address


TOKEN_URL = "https://host/api/7f3a9c0d/mlflow/"
"""A token that nothing but its place in the path shows."""


def test_no_path_of_a_web_address_is_shown_that_may_hold_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    assert redacted("https://host/mlflow?a=b") == "https://host/mlflow"
    assert redacted(TOKEN_URL) == redacted(f"{TOKEN_URL}?a=b#c") == "https://host/***"
    quoted = "HTTPSConnectionPool(host='host', port=443): refused with url: /api/7f3a9c0d/mlflow/api/2.0/runs/create"
    assert without_secrets(quoted) == quoted
    monkeypatch.setenv("MLFLOW_TRACKING_URI", TOKEN_URL)
    assert without_secrets(quoted) == quoted.replace("api/7f3a9c0d/mlflow", REMOVED)
    assert "7f3a9c0d" not in without_secrets(f"see {TOKEN_URL}#/experiments, or {TOKEN_URL.upper().lower()}")


def test_no_text_makes_the_search_quadratic(secrets: None) -> None:
    """A search that begins anew at each of a million characters would take hours."""
    with no_hang():
        for text in ("x" * 10**6, "://" * 10**4, "http://a:" * 10**4, "@" * 10**6, "a:/" * 10**4):
            without_secrets(text)


def test_an_innocent_text_stays_as_it_is(secrets: None) -> None:
    text = "ValueError: width 8 @ rate 0.1; s3://bucket/a@b, http://host:80/a?b=c@d, C:\\x"
    assert without_secrets(text) == text


def test_a_failure_is_kept_without_the_secrets_that_it_quotes(secrets: None) -> None:
    said = f"{dict(SECRETS)} {list(SECRETS.values())} {' '.join(SECRETS.values())}"
    try:
        try:
            raise ConnectionError(" ".join(ADDRESSES[:4]))
        except ConnectionError as error:
            raise RuntimeError(said) from error
    except RuntimeError as error:
        failure = failure_of(error, hint=said, stack="")
        stack = failure_of(error, stack=said)
    assert not told(repr(failure).encode() + repr(stack).encode())
    assert "RuntimeError" in failure["error"]
    assert "ConnectionError" in failure["traceback"]


def test_no_half_of_a_secret_is_left_where_a_long_text_is_cut(secrets: None) -> None:
    secret = SECRETS["PGPASSWORD"]
    failures = [failure_of(ValueError("x" * (1480 + shift) + secret + "y" * 600)) for shift in range(0, 30, 3)]
    assert not [failure for failure in failures if secret[:9] in failure["error"] or secret[-9:] in failure["error"]]


@pytest.mark.parametrize("address", ADDRESSES)
def test_why_tracking_failed_is_told_without_the_address_s_password(address: str) -> None:
    from memsweep.sweep.tracking.writer import reason

    for width in (0, 150, 180):  # a sentence that is cut may be cut within the address
        said = reason(ValueError(f"{'x' * width} could not open {address}/api"), address)
        assert PASSWORD[:12] not in said


def test_tune_is_kept_from_writing_credentials_into_runtime_environments() -> None:
    from ray.tune.execution import class_cache

    from memsweep.sweep.ray.callbacks import RunnerCallback

    RunnerCallback({}, None, lambda left: None).setup()  # type: ignore[arg-type]
    assert class_cache.ENV_VARS_TO_PROPAGATE
    assert not [name for name in class_cache.ENV_VARS_TO_PROPAGATE if is_secret_name(name)]


@pytest.mark.parametrize(
    "words",
    [
        ["--results", ADDRESSES[8]],
        ["--results", f"s3://ada:{PASSWORD}/x@bucket/x"],
        ["--results", f"https://ada:{PASSWORD}@host/x"],
        ["--address", f"http://ada:{PASSWORD}@host:8265"],
        ["--address", f"ray://ada:{PASSWORD}@host:10001"],
        ["--address", f"ada:{PASSWORD}@host:6379"],
    ],
)
@pytest.mark.parametrize("verb", ["sweep", "submit"])
def test_a_password_on_the_command_line_is_refused_and_not_repeated(
    verb: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(BASE)
    assert main([verb, str(study), *words, "--workspace", str(ROOT)]) != 0
    shown = "".join(capsys.readouterr())
    assert shown
    assert PASSWORD not in shown


@pytest.mark.parametrize(
    "address", ["redis://ada:{}@host/0", "file://ada:{}@host/mlruns", "ada:{}@host", "ada:{}/x@host"]
)
def test_a_tracking_address_that_is_refused_is_not_repeated(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address.format(PASSWORD))
    study = tmp_path / "study.yaml"
    study.write_text(BASE)
    assert main(["sweep", str(study), "--inline", "--results", str(tmp_path / "r"), "--workspace", str(ROOT)]) == 2
    assert PASSWORD not in "".join(capsys.readouterr())
    assert not (tmp_path / "r").exists()
