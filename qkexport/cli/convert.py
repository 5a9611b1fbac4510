"""`qkexport convert`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qkexport.cli.command import Command
from qkexport.cli.outcome import Outcome
from qkexport.input_options import DynamicDim, InputSpec, read_inputs

if TYPE_CHECKING:
    from rich.console import Console

    from qkexport.convert_result import ConvertResult


@click.command("convert", cls=Command)
@click.argument("source")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Model file.")
@click.option(
    "--input",
    "specs",
    multiple=True,
    metavar="NAME=SHAPE[:DTYPE]",
    help="An example input, as in ids=2,16:int64.",
)
@click.option(
    "--inputs", "file", type=click.Path(path_type=Path), help="Example inputs, .npz or .pt."
)
@click.option(
    "--dynamic",
    multiple=True,
    metavar="NAME:AXIS=SYM[:MIN:MAX]",
    help="An axis that may vary, as in ids:1=seq:1:512.",
)
@click.option("--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), help="Cast first.")
@click.option(
    "--form",
    type=click.Choice(["portable", "fused", "native"]),
    default="portable",
    show_default=True,
    help="With function bodies, without, or standard operators only.",
)
@click.option(
    "--runtime",
    type=click.Choice(["ort", "tensorrt"]),
    default="ort",
    show_default=True,
    help="Who reads a native or fused model.",
)
@click.option("--opset", type=click.IntRange(17, 25), help="ONNX opset; 24 for PyTorch sources.")
@click.option(
    "--kv-cache",
    type=click.Choice(["concat", "static"]),
    help="A causal LM takes and gives its keys and values: growing, or in buffers.",
)
@click.option("--require-fused", metavar="N|all", default="0", help="Fail if fewer were fused.")
@click.option("--no-verify", is_flag=True, help="Skip the numerical check.")
@click.option("--allow-pickle", is_flag=True, help="Unpickle SOURCE; this can run any code.")
@click.option("--trust-remote-code", is_flag=True, help="Run the code of a Hugging Face folder.")
def command(
    source: str,
    output: Path,
    specs: tuple[str, ...],
    file: Path | None,
    dynamic: tuple[str, ...],
    require_fused: str,
    no_verify: bool,
    **options: Any,
) -> Outcome:
    r"""Convert a model to ONNX with its QK-norm attentions fused.

    SOURCE is an .onnx or .pt2 file, a package.module:factory, a local Hugging Face folder, or with
    --allow-pickle a .pt/.pth that holds a whole nn.Module. The result is compared with the source
    before it is written.

    \b
    Examples:
    qkexport convert package.module:factory -o model.onnx --require-fused all
    qkexport convert model.pt2 -o model.onnx --dtype float16 --dynamic ids:1=seq:1:512
    qkexport convert plain.onnx -o native.onnx --form native --runtime tensorrt
    """
    given: dict[str, Any] = read_inputs(file) if file is not None else {}
    given |= {spec.name: spec for spec in map(InputSpec.parse, specs)}
    wanted = _required(require_fused)
    axes = tuple(map(DynamicDim.parse, dynamic))

    from qkexport.conversion import convert

    result = convert(
        source,
        output,
        inputs=given,
        dynamic=axes,
        require_fused=wanted,
        verify=not no_verify,
        **options,
    )
    return Outcome(bool(result), result.to_dict(), lambda console: render(result, console))


def _required(text: str) -> int | str:
    if text == "all":
        return text
    if not text.isdecimal():
        message = f"--require-fused must be a count or 'all', got {text!r}."
        raise click.BadParameter(message)
    return int(text)


def render(result: ConvertResult, console: Console) -> None:
    """Prints what was found, what was checked and what was written."""
    from qkexport.cli.attention_table import print_attentions
    from qkexport.cli.verification_table import print_verification

    print_attentions(result.attentions, console)
    summary = f"{result.fused} of {result.found} QK-norm attentions fused"
    if not result.enough_fused:
        summary += f", {result.required} required"
    console.print(summary)
    if result.verification is not None:
        print_verification(result.verification, console)
    elif result.enough_fused:
        console.print("not verified (--no-verify)")
    if result.output is None:
        console.print("NOT WRITTEN", style="bold red")
    else:
        kind = f"{result.form}, opset {result.opset}, for {result.runtime}"
        console.print(f"WRITTEN {result.output} ({kind})", style="bold green")
