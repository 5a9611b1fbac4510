"""What `qkexport build` shows people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console

    from qkexport.engine.inspection import EngineInspection
    from qkexport.engine.matrix import MatrixResult
    from qkexport.engine.result import BuildResult
    from qkexport.manifest import Manifest

_WORDS: Final = {True: "passed", False: "FAILED", None: "not possible here"}
_MEGABYTE: Final = 1e6


def render_build(console: Console, result: BuildResult) -> None:
    """One engine: why it is as it is, and what was looked at."""
    manifest = result.manifest
    rows = {"runtime": f"{manifest.runtime} {manifest.version}: {result.runtime_reason}"}
    if result.attention_reason:
        rows["attention"] = f"{manifest.attention}: {result.attention_reason}"
    rows |= manifest_rows(manifest)
    for check in result.checks:
        rows[f"check of {check.name}"] = f"{_WORDS[check.passed]}: {check.detail}"
    print_rows(console, rows)
    if result.output is None:
        console.print("No engine was written.")
        return
    verb = "IN THE CACHE" if result.cached else "BUILT"
    size, seconds = result.engine_bytes / _MEGABYTE, sum(result.seconds.values())
    console.print(f"{verb} {result.output} ({size:.1f} MB) in {seconds:.1f} s")


def render_engine(console: Console, engine: EngineInspection) -> None:
    """An engine's manifest, and what is wrong with the engine."""
    manifest = engine.manifest
    rows = {
        "engine": f"{engine.path} {manifest.engine.sha256[:12]}",
        "built from": f"{manifest.onnx.path} {manifest.onnx.sha256[:12]}",
        "runtime": f"{manifest.runtime} {manifest.version}",
        "attention": manifest.attention or "no QKNormAttention",
    }
    if manifest.plugin is not None:
        rows["plugin"] = f"{manifest.plugin.path} {manifest.plugin.sha256[:12]}"
    rows |= manifest_rows(manifest)
    rows["parity"] = str(manifest.parity)
    if manifest.onnx_parity is not None:
        rows[f"parity of {manifest.onnx.path}"] = str(manifest.onnx_parity)
    rows["created by"] = manifest.created_by
    print_rows(console, rows)
    console.print(engine.problem or "The engine is as it was built.")


def manifest_rows(manifest: Manifest) -> dict[str, str]:
    """Targets, tensors and profiles of an engine."""
    rows = {"targets": ", ".join(manifest.targets)}
    for kind in ("inputs", "outputs"):
        tensors = getattr(manifest, kind)
        rows[kind] = ", ".join(f"{x.name} {x.dtype}{_shape(x.shape)}" for x in tensors)
    for number, profile in enumerate(manifest.profiles):
        texts = (
            f"{name} {' .. '.join('x'.join(map(str, shape)) for shape in shapes)}"
            for name, shapes in profile.items()
        )
        rows[f"profile {number}"] = "; ".join(texts)
    return rows


def print_rows(console: Console, rows: dict[str, str]) -> None:
    """A table of names and texts."""
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for name, text in rows.items():
        table.add_row(name, text)
    console.print(table)


def render_matrix(console: Console, result: MatrixResult) -> None:
    """Every cell of a matrix, and why those that failed did."""
    from rich.table import Table

    table = Table("model", "target", "result", "seconds", box=None)
    for item in result.cells:
        word = "FAILED" if not item.passed else "IN THE CACHE" if item.cached else "BUILT"
        table.add_row(item.cell.model.name, item.cell.target, word, f"{item.seconds:.1f}")
    console.print(table)
    for item in result.cells:
        if item.error:
            console.print(f"\n{item.cell.model.name} for {item.cell.target}: {item.error}")


def _shape(shape: tuple[int, ...]) -> str:
    return "[" + ",".join("?" if size < 0 else str(size) for size in shape) + "]"
