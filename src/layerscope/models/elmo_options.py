"""What `options.json` of an ELMo says of its network."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class CharacterOptions(_Options):
    """`char_cnn` of the published options."""

    activation: Literal["relu", "tanh"] = "relu"
    filters: tuple[tuple[int, int], ...]  # width and number of each
    n_highway: int = Field(ge=0)
    embedding: dict[str, int]
    max_characters_per_token: int = Field(default=50, ge=3, le=1000)
    layer_norm: bool = False  # after the projection, as in the transformer variant


class StackOptions(_Options):
    """`lstm` of the published options; a transformer has attention heads and no clipping."""

    projection_dim: int = Field(ge=1)  # the width of one direction
    dim: int = Field(ge=1)  # of the memory cell, or of the feed-forward part
    n_layers: int = Field(ge=1)
    cell_clip: float | None = None
    proj_clip: float | None = None
    use_skip_connections: bool = True
    attention_heads: int | None = None  # set for the transformer variant


class ElmoOptions(_Options):
    """What `options.json` says of a network."""

    char_cnn: CharacterOptions
    lstm: StackOptions

    @property
    def width(self) -> int:
        """Of a layer: both directions."""
        return 2 * self.lstm.projection_dim
