"""Small data sets in the formats of the Long Range Arena: reviews, pairs of papers, images of paths."""

from __future__ import annotations

import csv
import zlib
from pathlib import Path

import numpy as np

from text_files import sentences

COUNT = 130  # of what trains, with what validates: a tenth of it fills two batches of six
REVIEW, PAPER = 240, 480  # characters of each: the length tells no class


def write_imdb(folder: Path, train: int = COUNT, test: int = 20) -> dict[str, str]:
    """Reviews as ``aclImdb_v1.tar.gz`` unpacks them, as many of each kind; gives texts by path below the folder."""
    lines = iter(sentences(6 * (train + test), seed=3))
    written = {}
    for part, count in (("train", train), ("test", test)):
        for place in range(count):
            kind, rating = ("neg", 2) if place % 2 else ("pos", 9)
            text = "<br /><br />".join(f"{next(lines).capitalize()} Voilà, no. {place}!" for _ in range(6))
            written[f"{part}/{kind}/{place // 2}_{rating}.txt"] = text[:REVIEW]
    for name, text in written.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    return written


def write_aan(folder: Path, counts: tuple[int, int, int] = (60, 15, 15)) -> dict[str, list[tuple[int, str, str]]]:
    """Pairs of 40 papers as ``tsv_data`` has them; gives classes and texts by ``train``, ``eval``, ``test``.

    The papers hold tabs, ends of lines and quotes, so that some fields stand between quotes.
    """
    rng = np.random.default_rng(4)
    lines = iter(sentences(40 * 12, seed=4))
    papers = [(f'"{number}"\tor\n'.join(next(lines) for _ in range(12)))[:PAPER] for number in range(40)]
    pairs = rng.permutation(40 * 40)[: sum(counts)]
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, list[tuple[int, str, str]]] = {}
    for part, chosen in zip(("train", "eval", "test"), np.split(pairs, np.cumsum(counts)[:-1]), strict=True):
        found = [(place % 2, *divmod(int(pair), 40)) for place, pair in enumerate(chosen)]
        with (folder / f"new_aan_pairs.{part}.tsv").open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, delimiter="\t", lineterminator="\n")
            rows.writerows((f"{label}.0", f"P{one}", f"P{two}", papers[one], papers[two]) for label, one, two in found)
        written[part] = [(label, papers[one], papers[two]) for label, one, two in found]
    return written


def png(grey: np.ndarray, kind: int = 0) -> bytes:
    """Bytes of grey ``[height, width]`` as a PNG file, by the format's specification.

    Args:
        grey: the pixels.
        kind: filter of all lines: 0 none, 1 the pixel to the left, 2 the pixel above, 3 the mean of both, 4 Paeth's.
    """
    height, width = grey.shape
    around = np.zeros((height + 1, width + 1), np.int64)
    around[1:, 1:] = grey
    left, above, corner = around[1:, :-1], around[:-1, 1:], around[:-1, :-1]
    away = [np.abs(left + above - corner - near) for near in (left, above, corner)]
    nearest = np.where((away[0] <= away[1]) & (away[0] <= away[2]), left, np.where(away[1] <= away[2], above, corner))
    guess = (np.zeros_like(left), left, above, (left + above) // 2, nearest)[kind]
    lines = ((grey - guess) % 256).astype(np.uint8)
    content = b"".join(bytes([kind]) + line.tobytes() for line in lines)
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 0, 0, 0, 0])
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(content, 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big") for name, data in chunks
    )


def write_pathfinder(folder: Path, size: int = 32, count: int = COUNT, files: int = 2) -> dict[str, np.ndarray]:
    """Random images as a folder of one difficulty holds them; gives the pixels by name. Odd ones have a path.

    Args:
        folder: of one difficulty: ``.../pathfinder32/curv_contour_length_14``.
        size: height and width.
        count: images.
        files: metadata files, and folders of images, over which they are spread.
    """
    rng = np.random.default_rng(5)
    pictures = {}
    (folder / "metadata").mkdir(parents=True, exist_ok=True)
    for number in range(files):
        (folder / "imgs" / str(number)).mkdir(parents=True, exist_ok=True)
        lines = []
        for place in range(number, count, files):
            name = f"imgs/{number}/sample_{place}.png"
            pictures[name] = rng.integers(0, 256, (size, size), dtype=np.uint8)
            (folder / name).write_bytes(png(pictures[name], kind=place % 5))
            lines.append(f"imgs/{number} sample_{place}.png {place} {place % 2} 1.8 6 5 64\n")
        (folder / "metadata" / f"{number}.npy").write_text("".join(lines))
    return pictures


def write_arena(folder: Path) -> None:
    """All of them, where the tasks look for them."""
    write_imdb(folder / "aclImdb")
    write_aan(folder / "aan")
    for size, difficulty in (
        (32, "curv_contour_length_14"),
        (32, "curv_contour_length_9"),
        (64, "curv_contour_length_14"),
    ):
        write_pathfinder(folder / f"pathfinder{size}" / difficulty, size)
