"""CUDA graphs of an engine: the launches of one run, recorded once and replayed as one."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from qkexport.run.cuda_runtime import Cudart, checked


class GraphCache:
    """One graph for each combination of addresses and shapes.

    TensorRT may allocate in the first run after shapes changed, which cannot be recorded: that run
    is a plain one, the second is recorded, and from then on the recording is replayed.
    """

    def __init__(self, cudart: Cudart, stream: Any) -> None:
        self._cudart, self._stream = cudart, stream
        self._graphs: dict[Hashable, Any] = {}
        self._latest: Hashable = None

    def launch(self, key: Hashable, enqueue: Callable[[], None]) -> None:
        """Runs what `enqueue` puts on the stream."""
        if key in self._graphs and key == self._latest:
            checked(self._cudart.cudaGraphLaunch(self._graphs[key], self._stream))
            return
        if key == self._latest:
            self._graphs[key] = self._record(enqueue)
            checked(self._cudart.cudaGraphLaunch(self._graphs[key], self._stream))
            return
        self.clear()  # a graph holds the shapes that the context had when it was recorded
        enqueue()
        self._latest = key

    def _record(self, enqueue: Callable[[], None]) -> Any:
        mode = self._cudart.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        checked(self._cudart.cudaStreamBeginCapture(self._stream, mode))
        try:
            enqueue()
        finally:
            graph = checked(self._cudart.cudaStreamEndCapture(self._stream))
        executable = checked(self._cudart.cudaGraphInstantiate(graph, 0))
        checked(self._cudart.cudaGraphDestroy(graph))
        return executable

    def clear(self) -> None:
        """Forgets all recordings."""
        for executable in self._graphs.values():
            checked(self._cudart.cudaGraphExecDestroy(executable))
        self._graphs.clear()
        self._latest = None
