"""Engines for deployment: built, checked, and described by a manifest."""

from qkexport.engine.options import AttentionChoice, BuildOptions, ShapeRange
from qkexport.engine.pipeline import build
from qkexport.engine.result import BuildResult, Check

__all__ = ["AttentionChoice", "BuildOptions", "BuildResult", "Check", "ShapeRange", "build"]
