"""Changes of configs: a case is done, and names of the whitelist are replaced, and every other byte stays."""

import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from seeds import some_of
from written_configs import FOLDER_NAMES, SWEEP, SWEPT, VALID, write

from opcost.errors import UserError
from opcost.storage.configs import ModelFolders, clear_done, load_whitelist, replace_whitelist, set_done


def check_splice(before: bytes, token: bytes, after: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), "x", before + token + after)
        assert set_done(path, "x")
        assert path.read_bytes() == before + b"true" + after
        assert ModelFolders(Path(folder)).configs([])[0].done
        assert not set_done(path, "x")


@pytest.mark.parametrize(
    ("before", "token", "after"),
    [
        (
            b"# done: false\r\n" + VALID.partition("false")[0].replace("\n", "\r\n").encode(),
            b"false",
            b" # why\r\n\r\n",
        ),
        (
            "\ufeff# größer 𝄞 done: false\ninput_size: [1, 3]\nmodel_name: done\n'done' :   ".encode(),
            b"no",
            " # ü\nweights_name: ~".encode(),
        ),
        (b'{"done":', b"False", b',"model_name":"a","weights_name":"false","input_size":[1,3]}'),
        (b"model_name: a\nweights_name: b\ninput_size: [1, 3]\ndone:\n  # here\n  ", b"off", b""),
        (b"? done\n: ", b"NO", b"\nmodel_name: a\nweights_name: b\ninput_size: [1, 3]\n...\n# done: false"),
    ],
    ids=["crlf", "bom and non-ascii", "flow", "own line", "explicit key"],
)
def test_done_changes_one_token_and_no_other_byte(before: bytes, token: bytes, after: bytes) -> None:
    check_splice(before, token, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"model_name: a\ninput_size: [1, 3]\n", b"model_name: a\ninput_size: [1, 3]\ndone: true\n"),
        (b"model_name: a\ninput_size: [1, 3]", b"model_name: a\ninput_size: [1, 3]\ndone: true"),
        (b"model_name: a\r\ninput_size: [1, 3]\r\n", b"model_name: a\r\ninput_size: [1, 3]\r\ndone: true\r\n"),
        (
            b"model_name: a\ninput_size: # size\n- 1\n- 3 # three\n\n# end\n",
            b"model_name: a\ninput_size: # size\n- 1\n- 3 # three\ndone: true\n\n# end\n",
        ),
        (
            b"  model_name: a\n  input_size: [1,\n 3]\n...\n",
            b"  model_name: a\n  input_size: [1,\n 3]\n  done: true\n...\n",
        ),
        (b"{input_size: [1, 3], model_name: a }\n", b"{input_size: [1, 3], model_name: a, done: true }\n"),
        (
            b"input_size: [1, 3]\nmodel_name: a\nweights_name:\n",
            b"input_size: [1, 3]\nmodel_name: a\nweights_name:\ndone: true\n",
        ),
        (
            "\ufeffinput_size: [1, 3]\nmodel_name: a # ü\n".encode(),
            "\ufeffinput_size: [1, 3]\nmodel_name: a # ü\ndone: true\n".encode(),
        ),
    ],
    ids=["lines", "no newline", "crlf", "block list", "indented", "flow", "empty value", "bom"],
)
def test_done_is_added_to_a_file_without_it_and_every_other_byte_stays(
    tmp_path: Path, before: bytes, after: bytes
) -> None:
    path = write(tmp_path, "x", before)
    assert set_done(path, "x")
    assert path.read_bytes() == after
    (config,) = ModelFolders(tmp_path).configs([])
    assert (config.done, config.model_name, config.input_size) == (True, "a", (1, 3))
    assert not set_done(path, "x")


COMMENT = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters="\ufffe\uffff"), max_size=12
)
SPACES = st.integers(0, 3).map(" ".__mul__)
QUOTES = st.sampled_from(["", "'", '"'])
OTHER_LINES = ["model_name: done", 'weights_name: "false"', "input_size: [1, 3] # false", "precision: tf32"]


@st.composite
def noise(draw: st.DrawFn, line_end: str) -> str:
    """Comments and blank lines, which may themselves look like the line that is to change."""
    lines = draw(
        st.lists(st.tuples(SPACES, st.just("") | COMMENT.map("#".__add__) | st.just("# done: false")), max_size=2)
    )
    return "".join(indent + text + line_end for indent, text in lines)


@st.composite
def file_around_done(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    line_end = draw(st.sampled_from(["\n", "\r\n"]))
    others = [line + line_end + draw(noise(line_end)) for line in draw(st.permutations(OTHER_LINES))]
    place = draw(st.integers(0, len(others)))
    quote = draw(QUOTES)
    key = f"{quote}done{quote}{draw(SPACES)}: {draw(SPACES)}"
    rest = draw(SPACES) + draw(st.just("") | COMMENT.map(" #".__add__)) + line_end + draw(noise(line_end))
    before = draw(st.sampled_from(["", "\ufeff"])) + draw(noise(line_end)) + "".join(others[:place]) + key
    token = draw(st.sampled_from(["false", "False", "FALSE", "no", "Off"]))
    return before.encode(), token.encode(), (rest + "".join(others[place:])).encode()


@settings(max_examples=100, deadline=None)
@given(file_around_done())
def test_done_changes_one_token_whatever_stands_around_it(parts: tuple[bytes, bytes, bytes]) -> None:
    check_splice(*parts)


@pytest.mark.parametrize(
    ("done", "after"),
    [
        ("done: true # by hand", "done: false # by hand"),
        ("done: [x_2x3, x_4x3] # two", "done: false # two"),
        ("done:\n- x_2x3\n- x_4x3 # two", "done:\n false # two"),
        ("? done\n: yes", "? done\n: false"),
        ("done: false", "done: false"),
        ("seed: 0", "seed: 0"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_done_is_cleared_for_all_cases(tmp_path: Path, done: str, after: str, end: str) -> None:
    text = "model_name: a\n{}\ninput_size: [1, 3]\nbatch: [2, 4]\n"
    path = write(tmp_path, "x", text.format(done).replace("\n", end).encode())
    clear_done(path)
    assert path.read_bytes() == text.format(after).replace("\n", end).encode()
    assert [config.done for config in ModelFolders(tmp_path).configs([])] == [False, False]


def test_a_done_model_leaves_the_file_untouched(tmp_path: Path) -> None:
    path = write(tmp_path, "x", VALID.replace("false", "yes"))
    before = path.stat()
    assert set_done(path, "x") is False
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_the_mode_is_kept_and_nothing_else_is_left_in_the_folder(tmp_path: Path) -> None:
    path = write(tmp_path, "x", VALID)
    path.chmod(0o640)
    assert set_done(path, "x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(path.parent.iterdir()) == [path]


def test_a_link_stays_a_link_and_its_file_is_changed(tmp_path: Path) -> None:
    path = write(tmp_path, "x", VALID)
    (tmp_path / "y").mkdir()
    link = tmp_path / "y" / "summary.yml"
    link.symlink_to(path)
    assert set_done(link, "y")
    assert link.is_symlink()
    assert path.read_text() == VALID.replace("false", "true")


def test_a_file_that_became_invalid_meanwhile_is_not_touched(tmp_path: Path) -> None:
    path = write(tmp_path, "x", VALID + "done: false\n")
    with pytest.raises(UserError, match=r"summary\.yml:6: done: given twice, in lines 5 and 6"):
        set_done(path, "x")
    assert path.read_text() == VALID + "done: false\n"


def done_in(path: Path) -> list[str]:
    return [config.name for config in ModelFolders(path.parents[1]).configs([path.parent.name]) if config.done]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SWEEP, SWEEP.replace("false", "[r_8x3x64x64_tf32]")),
        (SWEEP.replace("done: false # yet\n", ""), SWEEP.replace("done: false # yet", "done: [r_8x3x64x64_tf32]")),
        (SWEEP.replace("false", "[r_1x3x64x64_bf16]"), SWEEP.replace("false", "[r_1x3x64x64_bf16, r_8x3x64x64_tf32]")),
        (SWEEP.replace("false", "[]"), SWEEP.replace("false", "[r_8x3x64x64_tf32]")),
        (SWEEP.replace("false", "[# none\n ]"), SWEEP.replace("false", "[r_8x3x64x64_tf32 # none\n ]")),
        (
            SWEEP.replace("false", "[\n  'former'# case\n , ]"),
            SWEEP.replace("false", "[\n  'former', r_8x3x64x64_tf32 # case\n , ]"),
        ),
        (
            SWEEP.replace("done: false # yet", "done: # these\n  - r_1x3x64x64_bf16 # first\n  # end"),
            SWEEP.replace(
                "done: false # yet", "done: # these\n  - r_1x3x64x64_bf16 # first\n  - r_8x3x64x64_tf32\n  # end"
            ),
        ),
        (SWEEP.replace("false # yet\n", "\n- former"), SWEEP.replace("false # yet", "\n- former\n- r_8x3x64x64_tf32")),
        (
            "done:\n- >-\n  former\n\n" + SWEEP.replace("done: false # yet\n", ""),
            "done:\n- >-\n  former\n- r_8x3x64x64_tf32\n\n" + SWEEP.replace("done: false # yet\n", ""),
        ),
        (
            "{done: no, model_name: a, input_size: [[8, 3, 64, 64]], precision: [tf32]}",
            "{done: [r_8x3x64x64_tf32], model_name: a, input_size: [[8, 3, 64, 64]], precision: [tf32]}",
        ),
        (SWEEP.replace("\n", "\r\n"), SWEEP.replace("false", "[r_8x3x64x64_tf32]").replace("\n", "\r\n")),
    ],
    ids=[
        "false",
        "absent",
        "list",
        "empty",
        "comment in brackets",
        "comment behind a quote",
        "block",
        "no newline",
        "folded",
        "flow",
        "crlf",
    ],
)
def test_a_finished_case_is_added_and_every_other_byte_stays(tmp_path: Path, before: str, after: str) -> None:
    path = write(tmp_path, "r", before)
    former = done_in(path)
    assert set_done(path, "r_8x3x64x64_tf32")
    assert path.read_bytes().decode() == after.removesuffix("\n") + ("\n" if before.endswith("\n") else "")
    assert set(done_in(path)) == {*former, "r_8x3x64x64_tf32"}
    assert not set_done(path, "r_8x3x64x64_tf32")


def test_true_means_all_cases_and_stays(tmp_path: Path) -> None:
    path = write(tmp_path, "r", SWEEP.replace("false", "true"))
    assert done_in(path) == SWEPT
    assert not any(set_done(path, name) for name in SWEPT)


def test_done_of_a_case_that_the_file_does_not_have_any_more_is_a_mistake(tmp_path: Path) -> None:
    path = write(tmp_path, "r", SWEEP)
    with pytest.raises(UserError, match="no case r_9x3x64x64_tf32 any more"):
        set_done(path, "r_9x3x64x64_tf32")
    assert path.read_text() == SWEEP


LINE_ENDS = st.sampled_from(["\n", "\r\n"])
COMMENTS = st.sampled_from(["", " # done: [a]", " # größer 𝄞"])


@st.composite
def files_with_lists(draw: st.DrawFn) -> tuple[str, str]:
    """The name of a folder, and a config with lists and some way to write ``done``, among comments."""
    folder = draw(st.sampled_from(FOLDER_NAMES))
    indent, comment = draw(st.sampled_from(["", "  "])), draw(COMMENTS)
    quotes = draw(st.sampled_from(["'{}'", '"{}"']))
    former = [quotes.format(name) for name in draw(st.lists(st.sampled_from(["a", "b_fp32", "c d"]), max_size=3))]
    done = draw(
        st.sampled_from(
            [
                [],
                [f"done: false{comment}"],
                [f"'done' :   no{comment}"],
                [f"done: [{', '.join(former)}]{comment}"],
                ["done: [", *(f"  {name},{comment}" for name in former), f" ]{comment}"],
                [f"done:{comment}", *(f"{indent}- {name}{comment}" for name in former or ["a"])],
                [f"done:{comment}", *(f"{indent}-   # here\n{indent}   {name}{comment}" for name in former or ["a"])],
            ]
        )
    )
    others = ["model_name: a", f"input_size: [1, 3, 8, 8]{comment}", "batch: [1, 8]", "precision:\n- fp32\n- bf16"]
    blocks = draw(st.permutations([*others, "\n".join(done)] if done else others))
    text = draw(st.sampled_from(["", "# top\n"])) + "\n".join(blocks) + draw(st.sampled_from(["", "\n", "\n\n# end\n"]))
    return folder, text.replace("\n", draw(LINE_ENDS))


@settings(max_examples=some_of(200, 60))
@given(files_with_lists(), st.randoms(use_true_random=False))
def test_cases_are_done_one_by_one_and_every_other_byte_stays(file: tuple[str, str], random: Any) -> None:
    folder, text = file
    with tempfile.TemporaryDirectory() as measurements:
        path = write(Path(measurements), folder, text)
        order = [config.name for config in ModelFolders(Path(measurements)).configs([])]
        random.shuffle(order)
        for number, name in enumerate(order, 1):
            before = path.read_bytes()
            assert set_done(path, name)
            after = path.read_bytes()
            assert set(done_in(path)) == set(order[:number])
            assert inserted(before, after, b"false", b"no").replace(b"''", b"'").count(name.encode()) == 1
            # Other programs read the same.
            assert name in yaml.safe_load(after)["done"]


def inserted(before: bytes, after: bytes, *replaced: bytes) -> bytes:
    """Return the bytes that were inserted at one position, where at most one of some words was; all others are kept."""
    begin = next((i for i, (one, two) in enumerate(zip(before, after, strict=False)) if one != two), len(before))
    for gone in (b"", *replaced):
        if before.startswith(gone, begin) and after[begin:].endswith(before[begin + len(gone) :]):
            return after[begin : len(after) - (len(before) - begin - len(gone))]
    raise AssertionError(f"{before!r} became {after!r}")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# ours\noperators: # these\n  - ReLU\n  - Conv2d\n", "# ours\noperators: # these\n  - add_\n  - GELU\n"),
        ("operators: [ReLU, Conv2d] # few\n# end\n", "operators: [add_, GELU] # few\n# end\n"),
        ("operators:\n  - ReLU # old\n\n# end\n", "operators:\n  - add_\n  - GELU\n\n# end\n"),
        ("# a\r\noperators:\r\n- ReLU\r\n# b\r\n", "# a\r\noperators:\r\n- add_\r\n- GELU\r\n# b\r\n"),
        ("operators:\n- ReLU", "operators:\n- add_\n- GELU\n"),
    ],
)
def test_other_names_take_the_place_of_a_whitelists_own(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "operator_whitelist.yml"
    path.write_bytes(before.encode())
    replace_whitelist(path, ["add_", "GELU"])
    assert path.read_bytes() == after.encode()
    assert load_whitelist(path) == ("add_", "GELU")


def test_a_whitelist_with_a_mistake_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "operator_whitelist.yml"
    path.write_text("operators: []\n")
    with pytest.raises(UserError, match="a list of 0"):
        replace_whitelist(path, ["add_"])
    assert path.read_text() == "operators: []\n"
