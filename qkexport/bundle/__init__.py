"""`--bundle`: everything a server needs to run engines, in one folder."""

from qkexport.bundle.layout import BundleResult, write_bundle

__all__ = ["BundleResult", "write_bundle"]
