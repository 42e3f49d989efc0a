"""Hostile text and secrets in every foreign field, and every output read: nothing is obeyed, nothing is told."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memsweep.cli import main
from memsweep.gate import Gate, display, each_text, gated
from memsweep.redaction import REMOVED, is_secret_name, secrets_in, without_secrets
from memsweep.sweep.store.lease import Holder
from paths import ROOT
from report_study import THEORY, write_study
from sweeping import FAST, ready, runs_of

HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\x1b[8m\r\u202e\u2066\u200f\x00\x7f"
"""Empties the screen, sets a title, hides what follows, goes back in the line, turns the direction of reading."""
SECRET_NAMES = (
    "DB_PASS MYSQL_PWD SMTP_PASS SSHPASS REDIS_PASS DBPASS PASS PGPASSWORD DB_PASSWD ssh_passphrase JWT "
    "MY_JWT JWT_KEY AZURE_STORAGE_CONNECTION_STRING SERVICE_CONNECTIONSTRING DB_CONN_STR BLOB_SAS "
    "SAS_URL_PART DATABASE_DSN DSN BASIC_AUTH AUTH NPM_AUTH GCP_CREDENTIALS AWS_CREDS PRIVATE_DATA "
    "SESSION_COOKIE COOKIES BEARER BW_SESSION OP_SESSION_me SESSION_ID FLASK_SECRET GITHUB_PAT HF_TOKEN "
    "SIGNING_KEY KEY ENCRYPTION_KEYS AWS_ACCESS_KEY_ID SLACK_WEBHOOK VAULT_PIN"
)
PLAIN_NAMES = (
    "PWD OLDPWD PATH HOME COMPASS PROXY_BYPASS KEYBOARD TOKENIZERS_PARALLELISM XDG_SESSION_ID "
    "XDG_SESSION_TYPE GDMSESSION DESKTOP_SESSION DBUS_SESSION_BUS_ADDRESS SSH_AUTH_SOCK XAUTHORITY "
    "GIT_AUTHOR_NAME RAY_AUTH_MODE PASSAGE SPIN PATTERN RAY_AUTH_TOKEN_PATH AWS_REGION MONKEY "
    "SSH_CONNECTION SESSION_MANAGER NUM_PASSES SAFE_PATH"
)
SECRETS = {name: f"Hidden+{number:04}/\"x'" for number, name in enumerate(SECRET_NAMES.split())}
ACCOUNT, SIGNATURE, LINE = "QWNjb3VudEtleTE=", "c2lnbmF0dXJl%2Bx", "MIIEvQIBADANBgkqhkiG9w0"
PARTS = {
    "AZURE": f"DefaultEndpointsProtocol=https;AccountName=memsweep;AccountKey={ACCOUNT};EndpointSuffix=core.net",
    "BLOB": f"sv=2022&sp=rw&sig={SIGNATURE}",
    "CA_PRIVATE_KEY": f"-----BEGIN PRIVATE KEY-----\n{LINE}\nxyz\n-----END PRIVATE KEY-----\n",
    "SERVICE": json.dumps({"type": "service_account", "private_key": "cHJpdmF0ZUtleQ"}),
    "REPOSITORY": "https://ghp_0123456789abcdef@git.example/x.git",
    "LIBPQ": "host=db user=ada password=Hidden-libpq",
    "BROKER": "amqp://ada:Hidden-broker@queue:5672//",
}
TOLD = [
    *SECRETS.values(),
    ACCOUNT,
    SIGNATURE,
    LINE,
    "cHJpdmF0ZUtleQ",
    "ghp_0123456789abcdef",
    "Hidden-libpq",
    "Hidden-broker",
]
TASK = f'''
import logging, os, sys, warnings
from dataclasses import dataclass
import torch
from memsweep.config.core.fields import setting
from memsweep.data.api import LinearFunctionalTask
from memsweep.registry import register_task

@register_task("hostile")
class Hostile(LinearFunctionalTask):
    """Says what it should not."""
    weight_power, variance = 0.0, 1.0
    @dataclass(frozen=True, kw_only=True)
    class Config:
        horizon: int = setting(8, "how long", at_least=2)
    @property
    def horizon(self):
        return self.config.horizon
    def kernel(self):
        return torch.ones(self.horizon, dtype=torch.float64)
    def white_noise(self, stream, index, size):
        text = {HOSTILE!r} + " ".join(os.environ[name] for name in {[*SECRETS, *PARTS]})
        print(text)
        print(text, file=sys.stderr)
        warnings.warn(text)
        logging.getLogger("memsweep.task").warning("%s", text)
        if self.horizon == 9:
            raise ValueError(text)
        return super().white_noise(stream, index, size)
'''

STUDY = f"task: {{name: hostile}}\nmodel: {{name: diagonal_rnn, width: 2}}\n{FAST}\ngrid: {{task.horizon: [8, 9]}}\n"
OWN = {"\xad", "\u200b"}
"""Signs of the page's own script, which break words and are not shown."""


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SECRETS, **PARTS}.items():
        monkeypatch.setenv(name, value)


def obeyed(text: str) -> list[str]:
    """The signs in a text that are not shown as they are."""
    return sorted({sign for sign in text if not sign.isprintable() and sign not in "\n\t"} - OWN)


def told(text: str | bytes) -> list[str]:
    return [secret for secret in TOLD if (secret if isinstance(text, str) else secret.encode()) in text]


def test_names_of_secrets_are_told_from_harmless_ones() -> None:
    assert [name for name in SECRET_NAMES.split() if not is_secret_name(name)] == []
    assert [name for name in PLAIN_NAMES.split() if is_secret_name(name)] == []


def test_where_a_secret_lies_is_no_secret(tmp_path: Path) -> None:
    assert secrets_in({"DB_PASS": str(tmp_path), "SMTP_PASS": f"{tmp_path}/none"}) == {"SMTP_PASS": f"{tmp_path}/none"}


def test_parts_of_secrets_are_removed_as_well(secrets: None) -> None:
    """A library quotes the key of a connection string alone, and a log one line of a private key."""
    for secret in TOLD:
        assert told(without_secrets(f"refused: {secret}, {json.dumps(secret)}")) == []
    innocent = "DefaultEndpointsProtocol, AccountName, host=db, service_account, git.example, https://host/a"
    assert without_secrets(innocent) == innocent


def test_a_text_and_plain_data_pass_the_gate(secrets: None) -> None:
    assert gated(f"a{HOSTILE}{SECRETS['DB_PASS']}b\n") == (
        rf"a\x1b[2J\x1b]0;title\x07\x9b31m\x1b[8m\r\u202e\u2066\u200f\x00\x7f{REMOVED}b" + "\n"
    )
    assert each_text({"\x1b": [("\x1b", 1.5), None, {"a": True}]}) == {r"\x1b": [[r"\x1b", 1.5], None, {"a": True}]}


def test_a_terminal_gets_colours_and_nothing_else_that_it_obeys(secrets: None) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    colours = "\x1b[1;31mred\x1b[0m \x1b[2mdim\x1b[m"
    for stream, kept in ((Terminal(), True), (io.StringIO(), False)):
        print(colours, HOSTILE, SECRETS["JWT"], file=Gate(stream))
        shown = stream.getvalue()
        assert (colours in shown) == kept
        assert obeyed(shown.replace(colours, "")) == []
        assert told(shown) == []
    screen = Terminal()
    display(Gate(screen)).write(f"\x1b[1A\x1b[2K{SECRETS['JWT']}")  # a progress bar moves the cursor and tells nothing
    assert screen.getvalue() == f"\x1b[1A\x1b[2K{REMOVED}"


def test_prints_logs_warnings_threads_and_uncaught_exceptions_pass_the_gate() -> None:
    program = f"""
import logging, os, sys, threading, warnings
from memsweep.gate import streams
text = {HOSTILE!r} + " ".join(os.environ[name] for name in {[*SECRETS, *PARTS]})
def fail():
    raise ValueError(text)
with streams():
    print(text)
    sys.stderr.writelines([text, "\\n"])
    logging.getLogger("elsewhere").warning("no handler %s", text)
    logging.basicConfig()
    logging.getLogger("elsewhere").warning("a handler %s", text)
    warnings.warn(text)
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    fail()
"""
    env = {**os.environ, **SECRETS, **PARTS, "PYTHONPATH": str(ROOT / "platform")}
    ended = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.count(r"\x1b[2J") == 6
    assert ended.stdout.count(r"\x1b[2J") == 1
    assert obeyed(ended.stdout + ended.stderr) == []
    assert told(ended.stdout + ended.stderr) == []


def test_a_lease_of_a_hostile_host_is_shown_and_logged_without_its_escapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    who = Holder(f"host{HOSTILE}", 1, "", "", HOSTILE, f"memsweep {HOSTILE}")
    logging.getLogger("memsweep").warning("%s has a lease file", who)
    assert r"host\x1b[2J" in caplog.text
    assert obeyed(caplog.text) == []


@pytest.mark.more
@pytest.mark.filterwarnings("default")  # the task warns, and its warning is to be shown
def test_a_sweep_of_hostile_parts_tells_nothing_and_obeys_nothing(
    secrets: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output and error, every file of the results, MLflow's database among them, and its texts."""
    workspace, results = tmp_path / "work", ready(tmp_path / "results")
    for name, text in (
        ("tasks/hostile.py", TASK),
        ("tasks/broken\x1b[2J\u202e.py", f"import os\nraise ValueError({HOSTILE!r} + os.environ['DB_PASS'])"),
        ("search_spaces/hostile.yaml", f"# {HOSTILE[-5:-2]}\n" + STUDY),
    ):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text)
    place = ["--workspace", str(workspace), "--results", str(results)]
    assert main(["-v", "sweep", "hostile", *place, "--inline"]) == 1
    shown = "".join(capsys.readouterr())
    assert "1 failed" in shown
    assert shown.count(r"\x1b[2J") > 10
    assert (obeyed(shown), told(shown)) == ([], [])
    files = [path for path in results.rglob("*") if path.is_file()]
    assert [(path, found) for path in files if (found := told(path.read_bytes()))] == []
    texts = [path for path in files if path.suffix in (".html", ".csv", ".json")]
    assert {path.suffix for path in texts} == {".html", ".csv", ".json"}
    assert [(path, found) for path in texts if (found := obeyed(path.read_text("utf-8")))] == []
    _, parents, children = runs_of(results)
    for run in (*parents, *children):
        assert obeyed("".join([*run.data.tags.values(), *run.data.params.values(), run.info.run_name])) == []
    assert main(["status", "hostile", *place[2:], "--json"]) == 0
    document = capsys.readouterr().out
    assert told(document) == []
    assert json.loads(document)["verb"] == "status"


def test_results_of_others_are_shown_without_what_a_page_or_a_spreadsheet_would_obey(
    secrets: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = f"ValueError: {HOSTILE}{SECRETS['DB_PASS']}"
    small = {"widths": (2, 3), "horizons": (50, 100), "memory": False}
    write_study(tmp_path / "foreign", THEORY[:1], failed={1: said}, **small)
    (failure,) = (tmp_path / "foreign" / "failures").iterdir()
    failure.write_text(json.dumps({**json.loads(failure.read_text()), "error": said}))
    assert main(["report", "foreign", "--results", str(tmp_path)]) == 0
    report = tmp_path / "foreign" / "report"
    page = (report / "index.html").read_text("utf-8")
    assert r"\x1b[2J" in page
    for text in ("".join(capsys.readouterr()), page, *(path.read_text("utf-8") for path in report.glob("*.csv"))):
        assert (obeyed(text), told(text)) == ([], [])
