"""Fixed square: the image is resized to size x size, whatever its shape (SigLIP, CLIP, and models built on them)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zephon_ft.errors import ConfigError
from zephon_ft.vision.geometry import CLIP_MEAN, CLIP_STD, HALF, Geometry, ImagePlan
from zephon_ft.vision.tiles import Tiles


@dataclass(frozen=True, kw_only=True)
class Square(Geometry):
    """Geometry of models with one fixed input size. The aspect ratio is not kept; nothing is cropped.

    A buffer row is a whole image, (size, size, 3); the model's row is (3, size, size).

    Attributes:
        size: side of the resized image in pixels.
        patch_size: side of a patch; a rest of the size is not covered (384 at 14: 27 x 27 patches).
        tokens: placeholder tokens of an image; None for one per patch. Give it where the model merges patches.
    """

    size: int = 384
    patch_size: int = 14
    tokens: int | None = None

    family: ClassVar[str] = "square"

    def __post_init__(self) -> None:
        if not 1 <= self.patch_size <= self.size:
            raise ConfigError(f"Square: patch_size={self.patch_size} must be between 1 and size={self.size}")
        if self.tokens is not None and self.tokens < 1:
            raise ConfigError(f"Square: tokens={self.tokens} must be at least 1, or None for one per patch")

    @property
    def row_shape(self) -> tuple[int, ...]:
        """(size, size, 3)."""
        return (self.size, self.size, 3)

    @property
    def model_shape(self) -> tuple[int, ...]:
        """(3, size, size)."""
        return (3, self.size, self.size)

    def plan(self, width: int, height: int) -> ImagePlan:
        """The same for every image."""
        side = self.size // self.patch_size
        return ImagePlan(self.size, self.size, (1, side, side), self.tokens or side * side, 1)

    def tiles(self, plan: ImagePlan) -> Tiles:
        """See `Geometry.tiles`: the image is its one tile."""
        return Tiles(self.size, self.size)


def siglip(size: int = 384, patch_size: int = 14, tokens: int | None = None) -> Square:
    """SigLIP (also of PaliGemma, nanoVLM): mean and deviation 0.5. 384 at 14: 729 tokens; 512 at 16: 1,024."""
    return Square(size=size, patch_size=patch_size, tokens=tokens, mean=HALF, std=HALF)


def clip(size: int = 336, patch_size: int = 14, tokens: int | None = None) -> Square:
    """CLIP ViT (also of LLaVA), without its class token. 336 at 14: 576 tokens; 224 at 14: 256."""
    return Square(size=size, patch_size=patch_size, tokens=tokens, mean=CLIP_MEAN, std=CLIP_STD)
