"""The middle of an attention, however it is written: what goes in and what it does to scores."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from qkexport.match import recipe as r
from qkexport.match.facts import View
from qkexport.spec import Causal


@dataclasses.dataclass(frozen=True)
class Mask:
    """One mask, in the order of the graph.

    Attributes:
        view: Over batch, head, row and column; what is absent is broadcast.
        keeps: True: bool, True means attend. False: bool, True means masked. None: added.
        fill: For bool masks the score of masked entries: minus infinity, or a finite number.
        factor: What the sum of scores and mask is multiplied with afterwards.
    """

    view: View
    keeps: bool | None = None
    fill: float = float("-inf")
    factor: float = 1.0


@dataclasses.dataclass(frozen=True)
class Core:
    """softmax(mask(softcap(scale * q . k))) . v with everything found about it.

    Attributes:
        node: The last node, after which the fused node takes its place.
        name: How reports call it.
        output: Result, over batch, head, row and channel.
        query: Over batch, head, row and channel, as multiplied.
        key: Likewise; its rows are the columns of the scores.
        value: Likewise.
        key_copies: Query heads that share a key head by broadcasting in the product itself.
        value_copies: Likewise for the values.
        scale: Constant factor of the scores.
        factors: Other factors of the scores: views without columns.
        masks: All masks.
        softcap: 0 is none.
        causal: As the operator names it.
        kv_lengths: Valid rows of the keys, by batch entry.
        past_key: Rows put in front inside the operator.
        past_value: Likewise.
        presents: The operator's present key and value.
    """

    node: ir.Node
    name: str
    output: View
    query: View
    key: View
    value: View
    key_copies: int = 1
    value_copies: int = 1
    scale: float = 1.0
    factors: tuple[View, ...] = ()
    masks: tuple[Mask, ...] = ()
    softcap: float = 0.0
    causal: Causal = Causal.NONE
    kv_lengths: r.Recipe | None = None
    past_key: View | None = None
    past_value: View | None = None
    presents: tuple[ir.Value, ir.Value] | None = None
