"""`qkexport --help` answers at once."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

# More than a bare interpreter that imports click needs, on any machine.
_ALLOWED_SECONDS = 0.3


def _median_seconds(code: str, arguments: tuple[str, ...] = ()) -> float:
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL, check=True
        )
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def test_help_takes_hardly_longer_than_an_interpreter_with_click() -> None:
    bare = _median_seconds("import click")
    ours = _median_seconds("from qkexport.cli import main; main()", ("--help",))
    assert ours - bare < _ALLOWED_SECONDS, f"{ours:.3f} s against {bare:.3f} s"


def test_help_of_no_command_imports_a_framework() -> None:
    heavy = ("torch", "onnx", "onnx_ir", "onnxruntime", "tensorrt_rtx", "transformers", "numpy")
    code = (
        "import sys\n"
        "from qkexport.cli.command import COMMANDS\n"
        "from qkexport.cli.run import run\n"
        "assert run(['--help']) == run(['--version']) == 0\n"
        "assert all(run([command, '--help']) == 0 for command in COMMANDS)\n"
        f"print(*(name for name in {heavy} if name in sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []
    assert done.stdout.count("Usage: qkexport") > 6
