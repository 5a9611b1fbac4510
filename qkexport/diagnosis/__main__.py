"""The doctor's subprocess: tries the named capabilities and prints answers, a line of JSON each."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import warnings
from collections.abc import Sequence

from qkexport.diagnosis.capability import CAPABILITIES
from qkexport.diagnosis.trial import try_probes


def main(names: Sequence[str]) -> None:
    """Prints what the probes of capabilities found, as it is found."""
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    chosen = [capability for capability in CAPABILITIES if capability.name in names]
    with answers:
        for answer in try_probes(chosen):
            answers.write(f"{json.dumps(dataclasses.asdict(answer))}\n")
            answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
