"""The keys of what ``memsweep weights``, ``submit``, ``init`` and ``data`` print."""

from __future__ import annotations

from typing import Annotated, TypedDict

from memsweep.documents.keys.shared import Identity


class StoredWeightsItem(TypedDict):
    """A trial and its stored weights."""

    identity: Identity
    name: Annotated[str, "its varied fields in words"]
    first_seed: Annotated[int, "its seeds are first_seed, first_seed + 1, ..."]
    seeds: Annotated[int, "how many"]
    bytes: Annotated[int | None, "of its weights; null: none are stored"]


class WrittenTensorItem(TypedDict):
    """A tensor of a file."""

    name: Annotated[str, "as the module calls it"]
    shape: Annotated[list[int], "its sizes"]
    dtype: Annotated[str, "float64, ..."]


class WrittenItem(TypedDict):
    """A file of weights that was written."""

    file: Annotated[str, "its path"]
    identity: Identity
    seed: Annotated[int, "of the model"]
    weights: Annotated[int, "numbers in it"]
    tensors: Annotated[list[WrittenTensorItem], "in the module's order"]


class WeightsDocument(TypedDict):
    """``memsweep weights``."""

    study: Annotated[str, "name of its folder"]
    trials: Annotated[list[StoredWeightsItem], "without a file: the trials that the words fit"]
    written: Annotated[WrittenItem | None, "with a file: what was written"]


class UpgradedItem(TypedDict):
    """A study of which results were rewritten."""

    study: Annotated[str, "name of its folder"]
    results: Annotated[int, "stored results"]
    older: Annotated[int, "of them in an older form"]
    rewritten: Annotated[int, "of them that were rewritten"]
    unreadable: Annotated[dict[str, str], "identity -> why it stays as it is"]


class UpgradeDocument(TypedDict):
    """``memsweep upgrade``."""

    folder: Annotated[str, "of the results, as it was given"]
    dry_run: Annotated[bool, "nothing was written"]
    studies: Annotated[list[UpgradedItem], "by name"]


class InitDocument(TypedDict):
    """``memsweep init``."""

    folder: Annotated[str, "of the project, as it was given"]
    package: Annotated[str, "name of the project's Python package"]
    study: Annotated[str, "name of its study"]
    files: Annotated[list[str], "that were written, relative to the folder"]


class DataSetItem(TypedDict):
    """A published data set."""

    name: Annotated[str, "as memsweep data fetch takes it"]
    title: Annotated[str, "what it is"]
    there: Annotated[bool, "it is in the data folder"]
    bytes: Annotated[int, "of its downloads"]
    tasks: Annotated[list[str], "that read it, by default or where a field says so"]
    studies: Annotated[list[str], "built-in ones that read it"]
    places: Annotated[list[str], "where it is to be had: servers, and a package"]


class DataDocument(TypedDict):
    """``memsweep data``."""

    folder: Annotated[str, "the data folder"]
    sets: Annotated[list[DataSetItem], "the data sets that can be fetched"]
    groups: Annotated[dict[str, list[str]], "name -> the data sets that it stands for"]
    notes: Annotated[list[str], "what to know of some of them"]
    fetched: Annotated[dict[str, str], "data set -> what fetching it did, in words"]


class UploadItem(TypedDict):
    """The files that were uploaded with a job."""

    workspace: Annotated[str, "the folder of the files"]
    files: Annotated[list[str], "every file of the workspace that was uploaded, relative to it"]
    bytes: Annotated[int, "of these files"]
    engine_files: Annotated[int, "files of the engine, which goes along"]
    engine_bytes: Annotated[int, "of these files"]


class SubmitDocument(TypedDict):
    """``memsweep submit``."""

    job: Annotated[str, "its name on the cluster"]
    address: Annotated[str, "of the job server"]
    upload: Annotated[UploadItem, "the files that went along"]
    metadata: Annotated[dict[str, str], "study, verb, version, revision, trials"]
    status: Annotated[str, "SUBMITTED (detached), SUCCEEDED, FAILED or STOPPED"]
    message: Annotated[str | None, "of the job server"]
