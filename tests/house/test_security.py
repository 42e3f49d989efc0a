"""SECURITY.md on data and code: every sentence is advice, or has a test that would fail if it were not true."""

from __future__ import annotations

import re

from paths import ROOT, TESTS

GATE, DOORS, BOUNDED = "trust/test_gate.py", "trust/test_doors.py", "config/load/test_bounded.py"
OVERRIDES, REPORT = "config/load/test_config_overrides.py", "report/test_report.py"
HOSTILE, WEIGHTS = "config/load/test_hostile.py", "learning/state/test_weights_file.py"
REFUSED = f"{DOORS}::test_no_command_runs_what_a_foreign_document_names"
READING = f"{DOORS}::test_no_command_that_reads_imports_it"
TYPED = f"{GATE}::test_a_study_from_elsewhere_has_nothing_imported"
BROKEN = f"{HOSTILE}::test_a_broken_file_is_refused_in_words"
PLANNED = f"{DOORS}::test_who_planned_a_study_may_continue_it"
PLUGINS = "commands/test_plugins.py::test_parts_of_another_distribution_are_swept"
LISTED = "commands/test_plugins.py::test_the_parts_are_listed_and_described"
GROWS = f"{BOUNDED}::test_what_grows_without_bound_is_refused"

ADVICE = "advice"
FOREIGN_FILES = "studies/test_trained_model.py::test_no_code_of_a_file_runs"
SENTENCES = {
    "A study file is data": f"{GATE}::test_anything_else_is_refused_before_it_is_called",
    "YAML in `search_spaces/`": "config/load/test_hostile_anything.py::test_anything_loads_or_is_refused_in_words",
    "No tag constructs an object": BROKEN,
    "Names choose among registered parts": f"{GATE}::test_wherever_a_study_names_it",
    "Interpolations (`${...}`) refer": f"{HOSTILE}::test_anchors_and_interpolations_load",
    "The interpolation that reads environment": f"{OVERRIDES}::test_a_study_cannot_read_the_environment",
    "A study stays as small": GROWS,
    "A file, or one that it includes": f"{BOUNDED}::test_a_file_that_a_study_includes_is_held_to_the_same",
    "Aliases and interpolations may add": GROWS,
    "A study is nested at most": f"{BOUNDED}::test_an_override_that_takes_a_parser_minutes_is_not_parsed",
    "`tasks/` and plugins are code": PLUGINS,
    "Every `.py` file in the workspace's": PLUGINS,
    "This code runs with your rights": ADVICE,
    "Use only workspaces and plugins": ADVICE,
    "Results are data": READING,
    "Records and plans are JSON": "sweep/store/test_store.py::test_a_record_is_strict_json_for_any_reader",
    "Checkpoints and files of weights": f"{WEIGHTS}::test_what_is_no_state_dict_is_refused_and_no_code_of_a_file_runs",
    "Sequences and `npz` files": FOREIGN_FILES,
    "A Hugging Face model": FOREIGN_FILES,
    "To read results imports nothing": READING,
    "Names reach pages": "report/test_report_page.py::test_names_are_text_and_never_markup",
    "Reports escape every name": "report/test_report_page.py::test_the_page_needs_nothing_else",
    "CSV cells that begin": f"{REPORT}::test_csv_text_that_a_spreadsheet_would_run_is_quoted_and_numbers_are_not",
    "What you type is yours": TYPED,
    "A study of your workspace": f"{GATE}::test_a_study_of_the_workspace_may_name_what_its_files_define",
    "A stored plan may be continued": PLANNED,
    "Anything else ends with exit code 2": REFUSED,
    "That is a study from elsewhere": REFUSED,
    "Your word is kept": f"{GATE}::test_a_word_is_kept_for_this_study_and_these_files",
    "It is kept by a hash": f"{GATE}::test_a_word_is_kept_for_this_study_and_these_files",
    "When these change, you are asked": f"{GATE}::test_a_word_is_kept_for_this_study_and_these_files",
    "The workspace is the folder": f"{GATE}::test_anything_else_is_refused_before_it_is_called",
    "A link counts as the file or folder": f"{GATE}::test_anything_else_is_refused_before_it_is_called",
    "Packages that lie in it": f"{GATE}::test_packages_that_lie_in_the_workspace_are_packages",
    "Of a home folder": f"{GATE}::test_a_home_folder_is_no_workspace_for_what_lies_deep_in_it",
    "With `--json`, in a job": f"{DOORS}::test_nobody_is_asked_where_nobody_answers",
    "`memsweep submit` sends the hashes": f"{DOORS}::test_submit_carries_the_word_of_who_submits",
    "Remaining risks: to look": ADVICE,
    "A class of a package gets": ADVICE,
    "The hash of a file outside": ADVICE,
    "Only `results.model` builds": f"{DOORS}::test_python_refuses_like_the_command_line",
}
ROWS = {
    "`plan`, `sweep`": REFUSED,
    "`resume`, `retry`": f"{DOORS}::test_a_log_of_a_search_sets_nothing_that_is_not_searched",
    "`describe FILE:NAME`": "commands/test_audit.py::test_every_command_of_the_page_works",
    "`list`, `schema`": LISTED,
    "`status`, `report`": READING,
    "workers": "drills/closed/test_ports_drills.py::test_every_call_to_ray_without_its_token_is_refused",
    "`data fetch`": "project/test_data.py::test_another_checksum_is_refused_and_what_is_there_stays",
    "`init`": "project/test_init.py::test_ruff_finds_nothing_and_no_template_is_left",
    "`--runtime-env FILE`": f"{BOUNDED}::test_a_runtime_environment_is_read_in_the_same_way",
}


def section() -> str:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    return text.partition("## Data and code\n")[2].partition("## Assets")[0]


def sentences() -> list[str]:
    lines = [line for line in section().splitlines() if line and line[0] not in "#|"]
    plain = [re.sub(r"^(- |\d\. )", "", line).replace("**", "") for line in lines]
    return [text for line in plain for text in re.split(r"(?<=[.:]) (?=[A-Z`])", line) if len(text.split()) > 2]


def rows() -> list[str]:
    return [line for line in section().splitlines() if line.startswith("| ")][1:]


def test_every_sentence_has_a_test_that_is_there() -> None:
    for texts, known in ((sentences(), SENTENCES), ([row.removeprefix("| ") for row in rows()], ROWS)):
        found = {text: [test for begin, test in known.items() if text.startswith(begin)] for text in texts}
        assert {text for text, tests in found.items() if len(tests) != 1} == set()
        assert len(texts) == len(known)
    for test in {*SENTENCES.values(), *ROWS.values()} - {ADVICE}:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8"), test


def test_the_numbers_are_those_of_the_code() -> None:
    from memsweep.config.load import bounded

    text = section()
    assert f"at most {bounded.MOST_BYTES:,} bytes" in text
    assert f"at most {bounded.MOST_ADDED:,} characters" in text
    assert f"at most {bounded.MOST_LEVELS} levels" in text
    assert f"at most {bounded.MOST_PARTS:,} parts" in text
