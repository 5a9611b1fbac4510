"""Outputs are paired by name, and whatever cannot be paired fails unless declared."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from qkexport.compare import Comparison, Rules, Status, compare_outputs


def _outputs() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(3, 31, generator=generator, dtype=torch.float64)
        for name in ("logits", "hidden")
    }


def _statuses(result: Comparison) -> dict[str, Status]:
    return {output.name: output.status for output in result.outputs}


def _rounded(outputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.float() for name, value in outputs.items()}


def test_equal_outputs_match_in_any_order() -> None:
    oracle = _outputs()
    candidate = dict(reversed(_rounded(oracle).items()))
    result = compare_outputs(candidate, oracle)
    assert result
    assert [output.name for output in result.outputs] == ["logits", "hidden"]


def test_a_missing_output_fails() -> None:
    oracle = _outputs()
    candidate = _rounded(oracle)
    del candidate["hidden"]
    result = compare_outputs(candidate, oracle)
    assert not result
    assert _statuses(result) == {"logits": Status.MATCHED, "hidden": Status.MISSING}


def test_a_missing_output_may_be_declared() -> None:
    oracle = _outputs()
    candidate = _rounded(oracle)
    del candidate["hidden"]
    assert compare_outputs(candidate, oracle, rules=Rules(ignored_missing=frozenset(["hidden"])))


def test_a_renamed_output_fails_and_the_way_to_declare_it_is_told() -> None:
    oracle = _outputs()
    candidate = _rounded(oracle)
    candidate["hidden_states"] = candidate.pop("hidden")
    result = compare_outputs(candidate, oracle)
    assert _statuses(result) == {
        "logits": Status.MATCHED,
        "hidden": Status.MISSING,
        "hidden_states": Status.EXTRA,
    }
    assert result.outputs[1].detail.endswith("declare it: --map hidden_states=hidden")
    assert compare_outputs(candidate, oracle, rules=Rules(renamed={"hidden_states": "hidden"}))


def test_swapped_names_fail() -> None:
    oracle = _outputs()
    candidate = _rounded(oracle)
    candidate["logits"], candidate["hidden"] = candidate["hidden"], candidate["logits"]
    assert len(compare_outputs(candidate, oracle).failures) == 2


def test_an_extra_output_fails_unless_declared() -> None:
    oracle = _outputs()
    candidate = _rounded(oracle) | {"debug": torch.zeros(2)}
    result = compare_outputs(candidate, oracle)
    assert result.failures[0].status is Status.EXTRA
    assert compare_outputs(candidate, oracle, rules=Rules(ignored_extra=frozenset(["debug"])))


def test_an_empty_output_fails_where_the_reference_has_values() -> None:
    oracle = _outputs()
    candidate = _rounded(oracle) | {"hidden": torch.zeros(0, 31)}
    assert compare_outputs(candidate, oracle).failures[0].status is Status.WRONG_SHAPE


def test_no_outputs_at_all_fail() -> None:
    assert not compare_outputs({}, _outputs())
    assert not compare_outputs({}, {})


def test_a_constant_reference_may_be_declared() -> None:
    oracle = _outputs() | {"aux": torch.zeros(2, 3, dtype=torch.float64)}
    candidate = _rounded(oracle)
    assert compare_outputs(candidate, oracle).failures[0].status is Status.VACUOUS
    assert compare_outputs(candidate, oracle, rules=Rules(may_be_vacuous=frozenset(["aux"])))


def test_rows_that_amplify_rounding_are_told_from_wrong_ones_by_noise() -> None:
    oracle = _outputs()
    candidate = _rounded(oracle)
    candidate["hidden"][1] += 1e-4
    draws = 0

    def noise() -> Iterator[dict[str, torch.Tensor]]:
        nonlocal draws
        for sign in (1, -1, 1):
            draws += 1
            drawn = {name: value.clone() for name, value in oracle.items()}
            drawn["hidden"][1] += sign * 5e-5
            yield drawn

    assert not compare_outputs(candidate, oracle)
    result = compare_outputs(candidate, oracle, noise=noise)
    assert result
    assert draws == 2, "two draws leave no doubt"
    assert [output.noise_measured for output in result.outputs] == [False, True]

    candidate["hidden"][2] += 1e-4  # a row that noise does not move
    failure = compare_outputs(candidate, oracle, noise=noise).failures[0]
    assert (failure.name, failure.rows_failed) == ("hidden", 1)
    assert draws == 2 + 3


def test_what_few_draws_leave_in_doubt_is_judged_by_all() -> None:
    oracle = _outputs()
    candidate = _rounded(oracle)
    candidate["hidden"][1] += 1e-4
    sizes: list[float] = []

    def noise() -> Iterator[dict[str, torch.Tensor]]:
        for size in (2e-5, 2e-5, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6):
            sizes.append(size)
            drawn = {name: value.clone() for name, value in oracle.items()}
            drawn["hidden"][1] += size
            yield drawn

    # two draws allow 6 x 2e-5, all of them half as much
    result = compare_outputs(candidate, oracle, noise=noise)
    assert len(sizes) == 8
    assert not result
    assert result.failures[0].usage > 1


def test_noise_is_not_measured_when_everything_matches() -> None:
    oracle = _outputs()

    def noise() -> Iterator[dict[str, torch.Tensor]]:
        message = "noise costs evaluations of the oracle"
        raise AssertionError(message)

    assert compare_outputs(_rounded(oracle), oracle, noise=noise)
