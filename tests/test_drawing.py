"""Pictures of attentions: what is drawn is what the graph holds, and no box covers another."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import warnings
from pathlib import Path
from xml.etree import ElementTree as ET

import onnx_ir as ir
import pytest
import torch
from qk_norm_models import WIDTH, VisionAttention
from torch import nn

from qkexport.cli.run import run
from qkexport.diagnosis.known_answer import known_model
from qkexport.drawing import draw_attentions, draw_file
from qkexport.drawing.diagram import BoxKind, Diagram
from qkexport.drawing.layout import lay_out
from qkexport.errors import QkexportError
from qkexport.export import to_form
from qkexport.infer_types import complete_types
from qkexport.match import find_attention

SAMPLE = Path(__file__).parents[1] / "samples" / "01_convert_a_model" / "before_after.svg"
_TEXT = "{http://www.w3.org/2000/svg}text"


def _texts(path: Path) -> list[str]:
    return [element.text or "" for element in ET.parse(path).iter(_TEXT)]


def _labels(diagram: Diagram, *kinds: BoxKind) -> list[str]:
    return [box.label for box in diagram.boxes if box.kind in kinds]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_plain(tmp_path_factory.mktemp("plain") / "plain.onnx")


def save_plain(path: Path) -> Path:
    """Two equal attentions one after the other, norms of queries and keys as primitives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about its own future
        model = torch.onnx.export(
            nn.Sequential(VisionAttention(), VisionAttention()).eval(),
            (torch.zeros(2, 5, WIDTH),),
            opset_version=23,
            verbose=False,
        )
    assert model is not None
    model.save(path)
    return path


def test_equal_attentions_are_drawn_once_before_and_after(plain: Path, tmp_path: Path) -> None:
    (drawing,) = draw_file(plain, tmp_path / "a.svg")
    assert drawing.copies == 2
    assert drawing.before is not None
    operators = _labels(drawing.before, BoxKind.OPERATOR)
    assert operators.count("LayerNormalization") == 2
    assert "Attention" in operators
    assert _labels(drawing.after, BoxKind.FUSED) == ["QKNormAttention"]
    weights = _labels(drawing.after, BoxKind.WEIGHT)
    assert {"0.q_norm.weight", "0.k_norm.weight"} <= set(weights)
    assert not [name for name in weights if name.startswith("1.")]


def test_every_node_of_the_match_is_drawn_or_counted(plain: Path) -> None:
    model = ir.load(plain)
    complete_types(model)
    nodes = find_attention(model).matches[0].nodes
    before = draw_attentions(model)[0].before
    assert before is not None
    assert before.num_nodes + before.num_shape_nodes == len(nodes)
    assert before.num_nodes == len(_labels(before, BoxKind.OPERATOR))


def test_boxes_do_not_overlap_and_lines_go_down(plain: Path) -> None:
    model = ir.load(plain)
    complete_types(model)
    (drawing,) = draw_attentions(model)
    for diagram in filter(None, (drawing.before, drawing.after)):
        layout = lay_out(diagram)
        for a, b in itertools.combinations(layout.places, 2):
            apart_x = abs(a.x - b.x) >= (a.width + b.width) / 2
            assert apart_x or a.bottom <= b.top or b.bottom <= a.top
        for source, target in diagram.lines:
            assert layout.places[source].bottom < layout.places[target].top
        for place in layout.places:
            assert 0 <= place.top <= place.bottom <= layout.height + 1e-6
            assert -1e-6 <= place.x - place.width / 2 <= layout.width


@pytest.mark.parametrize(("form", "has_body"), [("portable", True), ("fused", False)])
def test_a_fused_file_shows_its_body_where_it_has_one(
    tmp_path: Path, form: str, has_body: bool
) -> None:
    path = tmp_path / "known.onnx"
    ir.save(to_form(known_model(), form), path)
    (drawing,) = draw_file(path, tmp_path / "known.svg")
    assert (drawing.before is not None) is has_body
    assert "QKNormAttention" in _texts(tmp_path / "known.svg")


@pytest.mark.parametrize("suffix", [".svg", ".html"])
def test_the_command_draws_and_says_so(
    plain: Path, tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / f"graph{suffix}"
    assert run(["inspect", str(plain), "--graph", str(picture), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document["graph"]["attentions"].values()) == [2]
    text = picture.read_text()
    assert "QKNormAttention" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_names_in_a_file_are_text_in_the_picture(tmp_path: Path) -> None:
    model = known_model()
    model.graph.inputs[0].name = "</text><script>x</script>"
    ir.save(to_form(model, "fused"), tmp_path / "a.onnx")
    draw_file(tmp_path / "a.onnx", tmp_path / "a.svg")
    assert not list(ET.parse(tmp_path / "a.svg").iter("{http://www.w3.org/2000/svg}script"))


@pytest.mark.parametrize(
    ("name", "message"),
    [("a.png", "must be an .svg or .html file"), ("a.svg", "must have an attention that is fused")],
)
def test_what_cannot_be_drawn_is_refused(tmp_path: Path, name: str, message: str) -> None:
    model = known_model()
    model.graph.remove(model.graph[0])
    model.graph.outputs[:] = model.graph.inputs[:1]
    ir.save(model, tmp_path / "a.onnx")
    with pytest.raises(QkexportError, match=message):
        draw_file(tmp_path / "a.onnx", tmp_path / name)
    assert not (tmp_path / name).exists()


@pytest.mark.skipif(not SAMPLE.exists(), reason="the samples are not beside the tests")
def test_the_picture_of_the_readme_is_the_one_that_its_sample_draws(
    tmp_path: Path,
) -> None:
    plain = tmp_path / "plain.onnx"
    subprocess.run(
        [sys.executable, "export_plain.py", str(plain)],
        cwd=SAMPLE.parent, check=True, capture_output=True,
    )  # fmt: skip
    draw_file(plain, tmp_path / SAMPLE.name)
    assert sorted(_texts(tmp_path / SAMPLE.name)) == sorted(_texts(SAMPLE))
