"""Texts of the command line as build options, and what they refuse."""

from __future__ import annotations

import pytest

from qkexport.engine.options import BuildOptions, ShapeRange, parse_shapes, parse_size
from qkexport.engine.targets import parse_targets, runs_on
from qkexport.errors import UsageError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1048576", 1 << 20),
        ("512M", 512 << 20),
        ("4GiB", 4 << 30),
        ("1.5k", 1536),
        ("2 TB", 2 << 40),
    ],
)
def test_sizes_take_units_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1G", "4X", "1G2"])
def test_a_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="Size must be a number with an optional unit"):
        parse_size(text)


def test_shapes_of_a_name_fall_into_consecutive_profiles() -> None:
    first, second = parse_shapes(["x=1x1,2x59,4x97", "y=3", "x=8x1"])
    assert first == {"x": ShapeRange((1, 1), (2, 59), (4, 97)), "y": ShapeRange((3,), (3,), (3,))}
    assert second == {"x": ShapeRange((8, 1), (8, 1), (8, 1))}


def test_names_may_hold_an_equals_sign_and_a_comma() -> None:
    assert list(parse_shapes(["a=b,c=1"])[0]) == ["a=b,c"]


@pytest.mark.parametrize("text", ["x", "=1x2", "x=", "x=1,2", "x=1,2,3,4", "x=axb", "x=1x-1"])
def test_a_malformed_shape_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_shapes([text])


@pytest.mark.parametrize("text", ["x=2,1,3", "x=1,3,2", "x=1,1x1,1"])
def test_shapes_out_of_order_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="must have one rank and rise from 0"):
        parse_shapes([text])


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("sm_89", ("sm_89",)),
        ("sm_120,sm_89,sm_89", ("sm_89", "sm_120")),
        ("8.9, compute_120", ("sm_89", "sm_120")),
        ("ALL", ("all",)),
    ],
)
def test_targets_are_sorted_and_unique(text: str, targets: tuple[str, ...]) -> None:
    assert parse_targets(text) == targets


@pytest.mark.parametrize("text", ["", "ada", "sm_89,", "sm_9", "sm_89+ptx"])
def test_a_text_that_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="Target must be a compute capability"):
        parse_targets(text)


@pytest.mark.parametrize(
    ("target", "targets", "runs"),
    [
        ("sm_89", ("sm_89", "sm_120"), True),
        ("sm_86", ("sm_89",), False),
        ("sm_75", ("sm_80+",), False),
        ("sm_80", ("sm_80+",), True),
        ("sm_121", ("sm_80+",), True),
    ],
)
def test_an_engine_runs_on_its_targets_alone(
    target: str, targets: tuple[str, ...], runs: bool
) -> None:
    assert runs_on(target, targets) is runs


@pytest.mark.parametrize("level", [-1, 6])
def test_an_optimization_level_out_of_range_is_refused(level: int) -> None:
    with pytest.raises(UsageError, match=f"must be 0 to 5, got {level}"):
        BuildOptions(opt_level=level)


def test_an_empty_workspace_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one byte, got 0"):
        BuildOptions(workspace=0)
