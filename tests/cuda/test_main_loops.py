"""Loops found in a disassembly."""

from __future__ import annotations

import pytest
from main_loops import count_main_loop, main_loop

CODE = """
        /*0000*/                   MOV R1, c[0x0][0x28] ;
        /*0010*/                   LDGSTS.E.BYPASS.128 [R2], [R4.64] ;
        /*0020*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0030*/                   LDSM.16.M88.4 R4, [R2] ;
        /*0040*/                   HMMA.16816.F32 R8, R4, R6, R8 ;
        /*0050*/               @P1 LDGSTS.E.BYPASS.128 [R2], [R4.64] ;
        /*0060*/                   HMMA.16816.F32 R8, R4, R6, R8 ;
        /*0070*/              @!P0 BRA 0x20 ;
        /*0080*/               @P0 BRA 0x0 ;
        /*0090*/                   EXIT ;
"""


def test_the_innermost_loop_around_all_products_is_the_main_loop() -> None:
    assert main_loop(CODE) == (0x20, 0x70)
    assert count_main_loop(CODE) == {"HMMA": 2, "LDSM": 1, "LDGSTS": 1, "BAR": 1}


def test_code_without_a_loop_around_its_products_is_refused() -> None:
    with pytest.raises(ValueError, match="a loop around"):
        main_loop(CODE.replace("BRA", "NOP"))
