"""The vision path: header -> token count -> packing decision -> batch layout -> decode into place."""

from zephon_ft.vision.geometry import Geometry, ImagePlan
from zephon_ft.vision.policy import ImageLimits
from zephon_ft.vision.qwen2_5_vl import Qwen2_5_VL
from zephon_ft.vision.square import Square, clip, siglip
from zephon_ft.vision.tiles import Tiles

__all__ = ["Geometry", "ImageLimits", "ImagePlan", "Qwen2_5_VL", "Square", "Tiles", "clip", "siglip"]
