"""QKNormAttention spelled in standard ONNX operators, one concept a file.

`attention_body` writes the whole body onto a tape; the other modules write its steps in the order
of the operator's semantics: norm, rotary, cache, mask, attention. `projection` joins the first two.

Layouts in names: BSD [B,S,H*D], BSND [B,S,H,D], BNSD [B,H,S,D]; N counts heads.
"""

from qkexport.body.compose import attention_body
from qkexport.body.tape import BodyTape
from qkexport.body.target import Runtime, Target

__all__ = ["BodyTape", "Runtime", "Target", "attention_body"]
