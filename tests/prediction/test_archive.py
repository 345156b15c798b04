"""Learned costs as bytes: the same predictions after reading, and no code in them."""

import hashlib
import io
import zipfile

import numpy as np
import pytest

from opcost.learners import grown
from opcost.prediction.learned_costs import Function, Smooth, from_bytes, signed, to_bytes


def test_a_function_predicts_the_same_after_reading() -> None:
    features = np.random.default_rng(0).uniform(0, 3, (60, 4))
    targets = features[:, 0] * features[:, 1] + features[:, 2]
    forest = grown(np.column_stack([features, targets]), targets, trees=5)
    function, kinds = (
        Function(forest, {"a": Smooth.of_each(features, targets[:, np.newaxis])[0]}, {"a": 1.0}),
        ["a", "b"] * 30,
    )
    read = from_bytes(to_bytes(function))
    np.testing.assert_array_equal(read.predict(features, kinds), function.predict(features, kinds))


def test_texts_numbers_and_unknown_values_stay_what_they_are() -> None:
    value = ({("time", "conv"): ("a",), None: 1.5}, True, None, float("inf"), "text")
    assert from_bytes(to_bytes(value)) == value


def test_other_objects_are_not_stored() -> None:
    with pytest.raises(TypeError, match="set cannot be stored"):
        to_bytes({1, 2})


def with_structure(text: str) -> bytes:
    file = io.BytesIO()
    np.savez(file, structure=np.frombuffer(text.encode(), np.uint8))
    return signed(file.getvalue())


def edited() -> bytes:
    """Return an archive whose first array is another of a wrong form."""
    size = hashlib.sha256().digest_size
    content = to_bytes((np.arange(3.0), 1))
    file = io.BytesIO()
    with np.load(io.BytesIO(content[size:])) as archive:
        np.savez(file, **{**archive, "0": np.zeros((2, 2))})
    return content[:size] + file.getvalue()


def pickled() -> bytes:
    file = io.BytesIO()
    np.savez(file, structure=np.array([print], dtype=object))
    return signed(file.getvalue())


def of_any_size() -> bytes:
    """Return a small archive of an array of 800 MB."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("0.npy", "w", force_zip64=True) as part,
    ):
        np.lib.format.write_array_header_1_0(part, {"descr": "|u1", "fortran_order": False, "shape": (8 * 10**8,)})
        for _ in range(800):
            part.write(bytes(10**6))
    return signed(file.getvalue())


def of_an_impossible_size() -> bytes:
    part, file = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(part, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)})
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("0.npy", part.getvalue())
    return signed(file.getvalue())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no archive",
        to_bytes((1, 2))[:-20],
        pickled(),
        edited(),
        of_any_size(),
        of_an_impossible_size(),
        with_structure('{"class": "Scaling", "fields": []}'),
        with_structure("{"),
        with_structure('{"array": 3}'),
        with_structure('{"class": "Popen", "fields": {}}'),
        with_structure('{"class": "Scaling", "fields": {"number": 1}}'),
        with_structure('{"items": [1]}'),
        with_structure("[" * 100_000),
    ],
    ids=[
        "empty",
        "text",
        "cut",
        "pickle",
        "edited",
        "compressed",
        "impossible",
        "no fields",
        "no JSON",
        "no array",
        "other class",
        "other field",
        "no pair",
        "deep",
    ],
)
def test_a_damaged_archive_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        from_bytes(content)
