"""A model of transformers reduced to the inputs and outputs of its task."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class TaskModel(nn.Module):
    """Base: runs the model and keeps the named outputs.

    Args:
        model: Of transformers.
        outputs: Fields of its result.
    """

    def __init__(self, model: nn.Module, outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.outputs = outputs

    def outputs_of(self, **inputs: Tensor | None) -> tuple[Tensor, ...]:
        given = {name: value for name, value in inputs.items() if value is not None}
        result: Any = self.model(**given)
        return tuple(getattr(result, name) for name in self.outputs)


class TextModel(TaskModel):
    """Reads tokens, [B,S] each."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        return self.outputs_of(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            token_type_ids=token_type_ids,
        )


class ImageModel(TaskModel):
    """Reads images, [B,channels,height,width]."""

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, ...]:
        return self.outputs_of(pixel_values=pixel_values)
