"""Prefetches that the sources ask for are in the machine code of the CPU kernels.

A compiler may take a function that does nothing but prefetch for one without effects and delete
its calls: nothing but time tells. Arguments: objdump, then the object files. Exit code 77: not
checked.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

SKIPPED = 77
# Who asks, by the functions that its code may have been inlined into, and for which cache.
QUERIES = ("queries", r"load_query_row|prepare_block|attend_row_tile|attend_item", "prefetcht0")
KEYS = ("keys that are packed", r"RowReader::read|pack_keys|pack_item", "prefetcht0")
VALUES = ("values that are packed", r"RowReader::read|pack_values|pack_item", "prefetcht0")
MASKS = ("the first mask", r"attend_block|attend_tile|scores_of", "prefetcht0")
NEXT_MASKS = ("the next mask", r"attend_block|attend_tile|finish_row|weigh|sight_of", "prefetcht1")
STREAMED_KEYS = (
    "streamed keys",
    r"score_rows_by_4|score_stream|Streamed\w+::score",
    "prefetcht1",
)
STREAMED_VALUES = ("streamed values", r"value_stream|StreamedProducts::accumulate", "prefetcht1")
SCORE_PANELS = (
    "panels of keys",
    r"score_block|score_packed|score_split|PackedProducts::score|attend_tile_pipelined",
    "prefetcht0",
)
VALUE_PANELS = (
    "panels of values",
    r"value_block|value_packed|value_split|PackedProducts::accum|Weighing",
    "prefetcht0",
)
NEXT_KEYS = ("the next tile of keys", SCORE_PANELS[1], "prefetcht1")
NEXT_VALUES = ("the next tile of values", VALUE_PANELS[1], "prefetcht1")
EVERYWHERE = [QUERIES, KEYS, VALUES, MASKS, NEXT_MASKS, STREAMED_KEYS, STREAMED_VALUES]
PANELS = [SCORE_PANELS, VALUE_PANELS, NEXT_KEYS, NEXT_VALUES]
EXPECTED = {
    "kernels_avx2": [*EVERYWHERE, *PANELS],
    "kernels_avx512": [*EVERYWHERE, *PANELS],
    "kernels_amx": EVERYWHERE,  # its panels are registers, loaded whole
    "kernels_amx_split": [*EVERYWHERE, VALUE_PANELS, NEXT_KEYS, NEXT_VALUES],
}


def count_prefetches(objdump: str, path: Path) -> Counter[tuple[str, str]]:
    """Prefetch instructions by (function, mnemonic)."""
    command = [objdump, "--disassemble", "--demangle", "--no-show-raw-insn", str(path)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    counts: Counter[tuple[str, str]] = Counter()
    function = ""
    for line in listing.splitlines():
        if line.endswith(">:"):
            function = line
        elif found := re.search(r"\sprefetch\w+", line):
            counts[function, found[0].strip()] += 1
    return counts


def missing(objdump: str, path: Path) -> list[str]:
    counts = count_prefetches(objdump, path)
    return [
        f"{path.name}: no {mnemonic} for {what} (in {functions})"
        for what, functions, mnemonic in EXPECTED[path.name.split(".")[0]]
        if not any(mnemonic == kind and re.search(functions, function) for function, kind in counts)
    ]


def main() -> int:
    objdump, *paths = sys.argv[1:]
    objects = [Path(path) for path in paths if Path(path).name.split(".")[0] in EXPECTED]
    if not Path(objdump).is_file() or not objects:
        sys.stdout.write(
            f"NOT CHECKED: needs objdump (binutils), got {objdump!r}, and x86 kernels\n"
        )
        return SKIPPED
    faults = [fault for path in objects for fault in missing(objdump, path)]
    sys.stdout.write("\n".join(faults) or f"{len(objects)} kernel objects ask for what they read")
    sys.stdout.write("\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
