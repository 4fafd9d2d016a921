"""Pictures of every kind: right pixels, or a refusal that names the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug import Dataset
from fedplug.api.errors import DataError
from fedplug_std._pictures import Reader
from fedplug_std.datasets import ImageFolder
from PIL import Image

SHADES = np.arange(0, 256, dtype=np.uint8).reshape(16, 16)
"""A picture with each value of a byte once."""
Save = Callable[[Path, np.ndarray[Any, Any]], object]


def tree(root: Path, save: Save) -> None:
    for part in ("train", "test"):
        for name in ("a", "b"):
            (root / part / name).mkdir(parents=True)
            save(root / part / name / "0", SHADES)


def load(root: Path, **options: Any) -> Dataset:
    chosen = {"path": str(root), "image_size": 16, "grayscale": True} | options
    return ImageFolder(ImageFolder.Options(**chosen)).load(None)


def shades(data: Dataset) -> np.ndarray[Any, Any]:
    """The first picture, from 0 to 255."""
    inputs = data.train.inputs[0]
    return inputs if inputs.dtype == np.uint8 else inputs * 255


def transparent(shade: int) -> Save:
    def save(path: Path, pixels: np.ndarray[Any, Any]) -> None:
        flat = np.full_like(pixels, shade)
        Image.fromarray(np.dstack([flat, flat, flat, 255 - pixels])).save(f"{path}.png")

    return save


def turned(path: Path, pixels: np.ndarray[Any, Any]) -> None:
    exif = Image.Exif()
    exif[0x0112] = 3  # by half a turn
    Image.fromarray(pixels[::-1, ::-1]).save(f"{path}.png", exif=exif)


KINDS: dict[str, Save] = {
    "8 bits": lambda path, pixels: Image.fromarray(pixels).save(f"{path}.png"),
    "16 bits": lambda path, pixels: Image.fromarray(pixels.astype(np.uint16) * 257).save(f"{path}.png"),
    "16 bits, TIFF": lambda path, pixels: Image.fromarray(pixels.astype(np.uint16) * 257).save(f"{path}.tif"),
    "16 bits, JPEG 2000": lambda path, pixels: Image.fromarray(pixels.astype(np.uint16) * 257).save(f"{path}.jp2"),
    "floats": lambda path, pixels: Image.fromarray((pixels / 255).astype(np.float32)).save(f"{path}.tif"),
    "transparent": transparent(0),
    "palette": lambda path, pixels: Image.fromarray(pixels).convert("P").save(f"{path}.png"),
    "GIF": lambda path, pixels: Image.fromarray(pixels).save(f"{path}.gif"),
    "CMYK": lambda path, pixels: Image.fromarray(255 - pixels).convert("CMYK", dither=None).save(f"{path}.tif"),
    "turned": turned,
}


@pytest.mark.parametrize("kind", KINDS)
def test_right_values_of_every_kind(tmp_path: Path, kind: str) -> None:
    tree(tmp_path, KINDS[kind])
    pixels = shades(load(tmp_path))
    wanted = 255 - SHADES if kind == "CMYK" else SHADES
    assert np.abs(pixels[0].astype(float) - wanted).max() < 1.01, "JPEG 2000 and CMYK round"


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_tiff_is_turned_whole(tmp_path: Path, orientation: int, kind: Any) -> None:
    """Not packed, and not square."""
    pixels = (np.arange(24).reshape(4, 6) * 9).astype(kind)
    Image.fromarray(pixels).save(tmp_path / "a.tif", tiffinfo={0x0112: orientation})
    turned = {
        1: pixels, 2: pixels[:, ::-1], 3: pixels[::-1, ::-1], 4: pixels[::-1], 5: pixels.T, 6: np.rot90(pixels, -1),
        7: np.rot90(pixels, 2).T, 8: np.rot90(pixels),
    }  # fmt: skip
    found = Reader().file(tmp_path / "a.tif")[0]
    assert np.rint(found * (1 if kind is np.uint8 else 65535)).tolist() == turned[orientation].tolist()


def test_pictures_of_one_bit_are_black_and_white(tmp_path: Path) -> None:
    tree(tmp_path, lambda path, pixels: Image.fromarray(pixels > 99).save(f"{path}.png"))
    np.testing.assert_array_equal(shades(load(tmp_path))[0], np.where(SHADES > 99, 255, 0))


def test_what_black_and_white_are_is_asked_of_the_recipe(tmp_path: Path) -> None:
    tree(tmp_path, lambda path, pixels: Image.fromarray(pixels.astype(np.uint16) * 16 + 8).save(f"{path}.png"))
    found = load(tmp_path, pixel_range=[8, 4088])
    np.testing.assert_allclose(shades(found)[0], SHADES, atol=1e-4)
    assert load(tmp_path).train.inputs.max() < 1 / 15, "which is refused of every source before the first round"
    with pytest.raises(ValueError, match=r"must be \[BLACK, WHITE\]"):
        load(tmp_path, pixel_range=[9, 9])


def test_one_deep_picture_keeps_its_depth_among_others(tmp_path: Path) -> None:
    tree(tmp_path, KINDS["8 bits"])
    Image.fromarray(SHADES.astype(np.uint16) * 257 + 1).save(tmp_path / "test" / "b" / "0.png")
    found = load(tmp_path)
    assert found.train.inputs.dtype == found.test.inputs.dtype == np.float32
    assert found.test.inputs[1, 0, 0, 1] == np.float32(258 / 65535)


def damaged(path: Path, pixels: np.ndarray[Any, Any]) -> None:
    Image.fromarray(pixels).save(f"{path}.png")
    Path(f"{path}.png").write_bytes(Path(f"{path}.png").read_bytes()[:-60])


@pytest.mark.parametrize(
    ("save", "said"),
    [
        (transparent(255), r"0\.png is all white on a white background: .* write background: black"),
        (damaged, r"0\.png cannot be read: .*; replace it, or take it out"),
        (lambda path, _: Path(f"{path}.png").write_bytes(b""), r"0\.png cannot be read: cannot identify"),
        (lambda path, _: Path(f"{path}.nii.gz").write_bytes(b"x"), r"the file .*0\.nii\.gz is no image that can"),
        (lambda path, pixels: np.save(f"{path}.npy", pixels), r"the file .*0\.npy is no image that can be read here"),
        (
            lambda path, pixels: Image.fromarray(pixels.astype(np.float32)).save(f"{path}.tif"),
            r"0\.tif has values from 0 to 255, and nothing says .* pixel_range: \[BLACK, WHITE\]",
        ),
        (
            lambda path, pixels: Image.fromarray(pixels * np.float32(np.nan)).save(f"{path}.tif"),
            r"0\.tif holds values that are not numbers",
        ),
        (
            lambda path, pixels: Image.fromarray(pixels).save(
                f"{path}.gif", save_all=True, append_images=[Image.fromarray(255 - pixels)]
            ),
            r"0\.gif has 2 frames or pages",
        ),
    ],
)  # fmt: skip
def test_what_has_no_right_values_is_refused_by_name(tmp_path: Path, save: Save, said: str) -> None:
    tree(tmp_path, save)
    with pytest.raises(DataError, match=said):
        load(tmp_path)


def test_transparency_shows_the_background_of_the_recipe(tmp_path: Path) -> None:
    tree(tmp_path, transparent(255))
    np.testing.assert_array_equal(shades(load(tmp_path, background="black"))[0], 255 - SHADES)


def test_what_lies_among_pictures(tmp_path: Path) -> None:
    tree(tmp_path, KINDS["8 bits"])
    for hidden in ("._0.png", ".DS_Store", "Thumbs.db", "notes.txt"):
        (tmp_path / "train" / "a" / hidden).write_bytes(b"not a picture")
    (tmp_path / "train" / ".ipynb_checkpoints").mkdir()
    (tmp_path / "train" / "c").mkdir()
    found = load(tmp_path)
    assert (found.classes, len(found.train), len(found.test)) == (("a", "b", "c"), 2, 2), "an empty folder is a class"
    (tmp_path / "train" / "loose.png").write_bytes((tmp_path / "train" / "a" / "0.png").read_bytes())
    with pytest.raises(DataError, match=r"loose\.png is in no class folder"):
        load(tmp_path)


def test_folders_of_parts_are_no_classes(tmp_path: Path) -> None:
    tree(tmp_path, KINDS["8 bits"])
    (tmp_path / "train").rename(tmp_path / "Train")
    (tmp_path / "test").rename(tmp_path / "TEST")
    assert load(tmp_path).classes == ("a", "b")
    (tmp_path / "Train").rename(tmp_path / "Training")
    with pytest.raises(DataError, match="has the folders TEST and Training, which are parts of a data set"):
        load(tmp_path)


def dicom(path: Path, pixels: np.ndarray[Any, Any], **more: Any) -> None:
    pydicom = pytest.importorskip("pydicom")
    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = "1.2.840.10008.5.1.4.1.1.2", "1.2.3"
    made = pydicom.dataset.FileDataset(str(path), {}, file_meta=meta, preamble=bytes(128))
    made.Rows, made.Columns, made.SamplesPerPixel, made.PhotometricInterpretation = 16, 16, 1, "MONOCHROME2"
    made.BitsAllocated, made.BitsStored, made.HighBit, made.PixelRepresentation = 16, 12, 11, 0
    made.PixelData = (pixels.astype(np.uint16) * 16).tobytes()
    for name, value in more.items():
        setattr(made, name, value)
    made.save_as(path, enforce_file_format=True)


def test_dicom(tmp_path: Path) -> None:
    """By its stored bits, through its rescaling; a file without an ending is known by its first bytes."""
    tree(tmp_path / "plain", dicom)
    np.testing.assert_allclose(shades(load(tmp_path / "plain"))[0], SHADES * (16 * 255 / 4095), atol=1e-3)
    units = {"RescaleIntercept": -1024, "RescaleSlope": 1}
    tree(tmp_path / "units", lambda path, pixels: dicom(path, pixels, **units))
    np.testing.assert_allclose(
        shades(load(tmp_path / "units", pixel_range=[-1024, 3056]))[0], SHADES, atol=1e-3
    )
    tree(tmp_path / "light", lambda path, pixels: dicom(path, pixels, PhotometricInterpretation="MONOCHROME1"))
    np.testing.assert_allclose(shades(load(tmp_path / "light"))[0], 255 - SHADES * (16 * 255 / 4095), atol=1e-3)
    tree(tmp_path / "frames", lambda path, pixels: dicom(path, pixels, NumberOfFrames=2))
    with pytest.raises(DataError, match="has 2 frames"):
        load(tmp_path / "frames")


def test_dicom_without_its_library_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pydicom", None)
    tree(tmp_path, lambda path, _: Path(f"{path}.dcm").write_bytes(bytes(128) + b"DICM"))
    with pytest.raises(DataError, match=r"0\.dcm is DICOM, which pydicom reads; pip install 'fedplug-std\[dicom\]'"):
        load(tmp_path)
