"""The folders of models: those that names, globs and paths mean, and names that two of them have."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from written_configs import SWEEP, SWEPT, VALID, error_lines, names, write

from opcost.errors import UserError
from opcost.storage.configs import ModelFolders
from opcost.storage.files import user_folders
from opcost.units import printable


@pytest.fixture
def three_models(tmp_path: Path) -> Path:
    for name in ("vgg16", "resnet34", "resnet18"):
        write(tmp_path, name, VALID)
    write(tmp_path, ".hidden", "broken")
    (tmp_path / "operator_whitelist.yml").write_text("not a folder")
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ((), ["resnet18", "resnet34", "vgg16"]),
        (("vgg16", "resnet18"), ["resnet18", "vgg16"]),
        (("resnet*", "*18"), ["resnet18", "resnet34"]),
        (("vgg16/",), ["vgg16"]),
    ],
)
def test_names_and_globs_choose_folders_in_order_of_name(
    three_models: Path, patterns: tuple[str, ...], expected: list[str]
) -> None:
    assert names(three_models, *patterns) == expected


NOT_SHOWN = ["a\x1b[31m", "a\u202eb", "a\nb", "a\tb", "a\xa0b", os.fsdecode(b"a\xff")]


@pytest.mark.parametrize("name", [*NOT_SHOWN, "-x", "--allow-code"])
def test_a_folder_whose_name_cannot_be_printed_or_is_an_option_is_a_mistake(three_models: Path, name: str) -> None:
    """It would colour a terminal, be no text in a table, or be an option in a command to copy."""
    shutil.copytree(three_models / "vgg16", three_models / name)
    shown = printable(f"{name}/summary.yml")
    what = "the folder's name begins with a dash or has characters that cannot be printed; rename the folder"
    assert error_lines(three_models, "*") == [f"{shown}: {what}"]
    assert names(three_models, "vgg16") == ["vgg16"]
    (line,) = error_lines(three_models, "qqq")
    assert line.isprintable()


def test_a_folder_whose_name_looks_like_a_glob_is_found_by_its_name(tmp_path: Path) -> None:
    write(tmp_path, "a[1]", VALID)
    assert names(tmp_path, "a[1]") == ["a[1]"]


def test_files_that_are_not_chosen_may_be_broken(three_models: Path) -> None:
    write(three_models, "broken", "done: [")
    assert names(three_models, "vgg16") == ["vgg16"]


def test_patterns_that_match_nothing_name_close_folders_or_all_of_them(three_models: Path) -> None:
    assert error_lines(three_models, "resnet1", "vgg16", "q*") == [
        f"{three_models}: no folder matches 'resnet1'; did you mean 'resnet1*'?",
        f"{three_models}: no folder matches 'q*'; there are resnet18, resnet34, vgg16",
    ]


def test_of_many_folders_some_are_named(tmp_path: Path) -> None:
    for number in range(12):
        write(tmp_path, f"resnet{number:02}", VALID)
    there_are = ", ".join(f"resnet{number:02}" for number in range(8))
    assert error_lines(tmp_path, "q*") == [f"{tmp_path}: no folder matches 'q*'; there are {there_are} and 4 more"]


@pytest.mark.parametrize(
    "pattern",
    [
        "m/vgg16",
        "m/vgg16/",
        "./m/vgg16",
        "m//vgg16/.",
        "m/vgg16/summary.yml",
        "./m/vgg16/summary.yml",
        "m/vgg*",
        "./m/vgg*/summary.yml",
        "m/../m/vgg16",
        "link/vgg16",
        "also_vgg16/",
        "{here}/m/vgg16",
        "vgg16/",
        "vgg16/summary.yml",
    ],
)
@pytest.mark.parametrize("measurements", ["m", "./m", "link", "{here}/m"])
def test_a_path_means_the_models_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measurements: str, pattern: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("vgg16", "resnet18"):
        write(tmp_path / "m", name, VALID)
    (tmp_path / "link").symlink_to("m")
    (tmp_path / "also_vgg16").symlink_to("m/vgg16")
    assert names(Path(measurements.format(here=tmp_path)), pattern.format(here=tmp_path)) == ["vgg16"]


def test_paths_are_those_seen_from_within_the_measurements_folder(
    three_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(three_models)
    assert names(Path(), "./vgg16", "resnet18/summary.yml") == ["resnet18", "vgg16"]
    monkeypatch.chdir(three_models / "vgg16")
    assert names(Path(".."), "./", "../resnet18/") == ["resnet18", "vgg16"]


def test_a_folder_that_is_a_link_is_chosen_by_its_own_name(three_models: Path) -> None:
    (three_models / "again").symlink_to("vgg16")
    assert names(three_models, f"{three_models}/again") == ["again"]


def test_a_folder_of_the_same_name_elsewhere_is_not_the_models(
    three_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "vgg16"
    elsewhere.mkdir()
    assert error_lines(three_models, f"{elsewhere}/") == [
        f"{three_models}: no folder matches '{elsewhere}/'; there are resnet18, resnet34, vgg16"
    ]


@pytest.mark.parametrize("pattern", ["/", "m/loop/x", "q" * 300 + "/", "q/" * 3000])
def test_a_path_that_leads_nowhere_is_one_line(
    three_models: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    monkeypatch.chdir(three_models)
    Path("m").mkdir()
    Path("m/loop").symlink_to("loop")
    (line,) = error_lines(three_models, pattern)
    assert line.startswith(f"{three_models}: no folder matches ")


def test_the_empty_pattern_is_refused(three_models: Path) -> None:
    assert error_lines(three_models, "", "vgg16") == [
        f"{three_models}: the model's name '' is empty; omit it for all models, or write a folder's name"
    ]


def test_a_missing_measurements_folder_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    assert error_lines(missing) == [f"{missing}: no such folder; name the folder with --measurements DIR"]


def test_a_measurements_folder_that_may_not_be_listed_is_one_line(
    three_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_models.chmod(0)
    if os.geteuid() == 0:  # who may list everything
        monkeypatch.setattr(Path, "iterdir", refuse)
    (line,) = error_lines(three_models, "vgg16")
    three_models.chmod(0o700)
    assert line.startswith(f"{three_models}: cannot be listed (Permission denied); make it readable, or name another")


def refuse(path: Path) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def test_a_measurements_folder_without_models_is_a_mistake(tmp_path: Path) -> None:
    (line,) = error_lines(tmp_path)
    assert "contains no model's folder; add one" in line


def test_paths_are_reported_as_the_user_gave_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "measurements", "x", "")
    monkeypatch.chdir(tmp_path)
    (line,) = error_lines(Path("measurements/../measurements"))
    assert line.startswith("x/summary.yml:1: the file is empty; ")


# Names on the command line


@pytest.fixture
def sweeps(tmp_path: Path) -> Path:
    write(tmp_path, "r", SWEEP)
    write(tmp_path, "vgg16_32x3x64x64", SWEEP.replace("batch: [1, 8]\n", ""))
    write(tmp_path, "s_8x3x64x64", "model_name: a\ninput_size: [8, 3, 64, 64]\n")
    return tmp_path


VGGS = ["vgg16_32x3x64x64_tf32", "vgg16_32x3x64x64_bf16"]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ((), [*SWEPT, "s_8x3x64x64", *VGGS]),
        (("r",), SWEPT),
        (("r_8x3x64x64_bf16",), SWEPT[3:]),
        (("r_8x3x64x64_bf16", "r_1x3x64x64_bf16"), [SWEPT[1], SWEPT[3]]),
        (("r_8*",), SWEPT[2:]),
        (("*bf16",), [SWEPT[1], SWEPT[3], VGGS[1]]),
        (("*8x3x64x64*",), [*SWEPT[2:], "s_8x3x64x64"]),
        (("vgg16",), VGGS),
        (("vgg16_32x3x64x64",), VGGS),
        (("vgg16_32x3x64x64_tf32", "s"), ["s_8x3x64x64", VGGS[0]]),
        (("r", "r_8x3x64x64_bf16"), SWEPT),
        (("{here}/r",), SWEPT),
        (("{here}/r/summary.yml",), SWEPT),
        (("{here}/r/r_8x3x64x64_bf16/",), SWEPT[3:]),
        (("{here}/*/*_bf16",), [SWEPT[1], SWEPT[3], VGGS[1]]),
    ],
)
def test_a_folders_name_means_all_its_cases_and_a_cases_name_that_case(
    sweeps: Path, patterns: tuple[str, ...], expected: list[str]
) -> None:
    assert names(sweeps, *(pattern.format(here=sweeps) for pattern in patterns)) == expected


def test_a_case_with_the_name_of_its_own_folder_is_named_by_its_path(tmp_path: Path) -> None:
    write(tmp_path, "r_8x3x64x64", SWEEP.replace("precision: [tf32, bf16]\n", ""))
    assert names(tmp_path, "r_8x3x64x64") == ["r_1x3x64x64", "r_8x3x64x64"]
    assert names(tmp_path, f"{tmp_path}/r_8x3x64x64/r_8x3x64x64") == ["r_8x3x64x64"]


def test_a_misspelt_case_is_a_mistake_that_names_close_ones(sweeps: Path) -> None:
    (line,) = error_lines(sweeps, "r_8x3x64x64_bf61")
    assert "'r_8x3x64x64_bf61'; did you mean r_8x3x64x64_bf16" in line


# Collisions


def test_a_case_must_not_have_the_name_of_another_folder(sweeps: Path) -> None:
    write(sweeps, "r_8x3x64x64_tf32", "model_name: a\ninput_size: [8, 3, 64, 64]\n")
    expected = (
        f"r/summary.yml:4: batch: {sweeps}/r_8x3x64x64_tf32/summary.yml also has the name of the case "
        "r_8x3x64x64_tf32; rename a folder"
    )
    assert error_lines(sweeps) == [expected]
    assert error_lines(sweeps, "r") == [expected]
    assert names(sweeps, "vgg16", "s") == ["s_8x3x64x64", *VGGS]
    assert [config.name for config in ModelFolders(sweeps).readable()] == ["r_8x3x64x64_tf32", "s_8x3x64x64", *VGGS]


def test_a_case_must_not_have_the_name_of_a_case_of_another_config(sweeps: Path) -> None:
    write(sweeps, "r_8x3x64x64", "model_name: a\ninput_size: [8, 3, 64, 64]\nprecision: [fp16, bf16]\n")
    line = "{}: {} also has the name of the case r_8x3x64x64_bf16; rename a folder"
    second = line.format("r_8x3x64x64/summary.yml:3: precision", f"{sweeps}/r/summary.yml")
    assert error_lines(sweeps) == [second]
    assert error_lines(sweeps, f"{sweeps}/r_8x3x64x64/*fp16") == [second]
    assert error_lines(sweeps, "r_1x3x64x64_tf32") == [
        line.format("r/summary.yml:4: batch", f"{sweeps}/r_8x3x64x64/summary.yml")
    ]


def test_a_case_may_have_the_name_of_its_own_folder(tmp_path: Path) -> None:
    write(tmp_path, "r_8x3x64x64", "model_name: a\ninput_size: [8, 3, 64, 64]\nbatch: [8]\n")
    assert names(tmp_path) == ["r_8x3x64x64"]


def test_a_users_case_must_not_have_the_name_of_a_shipped_model(tmp_path: Path) -> None:
    content = "model_name: resnet50\ninput_size: [32, 3, 224, 224]\nbatch: [8, 32]\n"
    write(tmp_path / "measurements", "resnet50", content)
    folders = ModelFolders.of(user_folders(home=tmp_path))
    with pytest.raises(UserError, match="also has the name of the case resnet50_32x3x224x224; rename a folder"):
        folders.configs(["resnet50"])
    (tmp_path / "measurements" / "resnet50").rename(tmp_path / "measurements" / "resnet50_32x3x224x224")
    assert [config.name for config in folders.configs(["resnet50"])] == [
        "resnet50_8x3x224x224",
        "resnet50_32x3x224x224",
    ]


def test_a_folder_whose_cases_could_have_no_folders_is_one_line(tmp_path: Path) -> None:
    write(tmp_path, "x" * 250, SWEEP)
    (line,) = error_lines(tmp_path)
    assert "batch: the folder's name" in line
    assert line.endswith("rename the folder")
