"""Templates of the package's pages and drawings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


def template_environment(package: str) -> jinja2.Environment:
    """Templates in the folder `templates` of a package: escaped, and no name may be missing."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
