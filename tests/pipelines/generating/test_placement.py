"""Where parameters are said to lie."""

from __future__ import annotations

from hangbisect.pipelines.loading_steps import (
    Parameter,
    format_placement,
    locate_parameters,
    locate_values,
    shorten_names,
)
from hypothesis import given
from hypothesis import strategies as st

PARAMETERS = st.lists(
    st.builds(
        Parameter,
        name=st.from_regex(r"\Amodel\.layers\.[0-9]\.(?:up|down)\.weight\Z"),
        bytes=st.integers(0, 1 << 40),
        device=st.sampled_from(["cpu", "cuda:0", "meta"]),
        kept=st.sampled_from(["cpu", "cuda:0", "disk"]),
    )
)


@given(PARAMETERS)
def test_no_byte_is_lost_and_none_counted_twice(parameters: list[Parameter]) -> None:
    found = locate_parameters(parameters)
    assert found.total == sum(one.bytes for one in parameters)
    assert found.parameters == len(parameters)
    assert all(found.offloaded[place] <= found.bytes[place] for place in found.offloaded)


@given(PARAMETERS)
def test_what_is_on_meta_and_nothing_else_is_offloaded(parameters: list[Parameter]) -> None:
    found = locate_parameters(parameters)
    on_meta = [one for one in parameters if one.device == "meta"]
    assert found.on_meta == found.offloaded_parameters == len(on_meta)
    assert sum(found.offloaded.values()) == sum(one.bytes for one in on_meta)


def test_the_innermost_module_of_the_device_map_says_where_values_are() -> None:
    device_map = {"": "cuda:0", "model.layers.1": "cpu", "model.layers.10": "disk"}
    assert locate_values("model.layers.1.up.weight", "meta", device_map) == "cpu"
    assert locate_values("model.layers.10.up.weight", "meta", device_map) == "disk"
    assert locate_values("lm_head.weight", "meta", device_map) == "cuda:0"


def test_a_parameter_that_is_somewhere_is_there_whatever_the_map_says() -> None:
    assert locate_values("lm_head.weight", "cuda:1", {"lm_head": "disk"}) == "cuda:1"


def test_without_a_map_what_is_on_meta_waits_on_the_cpu() -> None:
    assert locate_values("lm_head.weight", "meta", {}) == "cpu"


def test_offloaded_parameters_are_named_counted_and_called_no_error() -> None:
    two = [Parameter(f"model.layers.{n}.up.weight", 1 << 20, "meta", "disk") for n in (4, 5)]
    first, second = format_placement(
        locate_parameters([*two, Parameter("embed.weight", 1 << 21, "cpu", "cpu")])
    )
    assert first == "Parameters: 3, 4 MiB: 2 MiB on disk, 2 MiB on cpu"
    assert "Offloaded to disk: 2 parameters, 2 MiB (model.layers.4, model.layers.5)" in second
    assert "2 parameters on the device meta: expected with offload, no error" in second


def test_a_model_that_is_all_there_has_one_line() -> None:
    assert (
        len(format_placement(locate_parameters([Parameter("embed.weight", 8, "cpu", "cpu")]))) == 1
    )


def test_of_many_names_a_few_are_shown() -> None:
    assert shorten_names(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert shorten_names(["a"]) == "a"
