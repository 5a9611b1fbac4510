"""Local Hugging Face folders as sources: config.json and weights, no code of theirs."""

from qkexport.hugging_face.folder import load_folder

__all__ = ["load_folder"]
