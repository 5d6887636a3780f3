"""Images as states: one channel in grey, three in colour, with the numbers that the file has."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from hero.data.formats.arrays import FileArray, of_whole
from hero.data.formats.claims import check_unpacked

MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\0", b"MM\0*", b"BM")
"""First bytes of PNG, JPEG, TIFF and BMP."""
GREY = {"1": "u1", "L": "u1", "I;16": "u2", "I": "i4", "F": "f4"}
"""Types of numbers of the modes with one channel."""


def open_image(path: Path) -> dict[str, FileArray]:
    """The image, (row, column) or (row, column, colour); its header alone is read."""
    with Image.open(path) as image:
        grey, (width, height) = GREY.get(image.mode), image.size
    shape = (height, width) if grey else (height, width, 3)
    check_unpacked(path, "the image", int(np.prod(shape, dtype=np.int64)))
    return {"": FileArray(partial(of_whole, _pixels), path, "", shape, np.dtype(grey or "u1"))}


def _pixels(path: Path, name: str) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image if image.mode in GREY else image.convert("RGB"))
