"""Operators of object detection."""

from . import nms, rcnn, ssd
from .nms import all_class_non_max_suppression, get_valid_counts, non_max_suppression
from .rcnn import proposal, roi_align_nchw, roi_align_nhwc, roi_pool_nchw, roi_pool_nhwc
from .reorg import reorg

__all__ = [
    "all_class_non_max_suppression",
    "get_valid_counts",
    "nms",
    "non_max_suppression",
    "proposal",
    "rcnn",
    "reorg",
    "roi_align_nchw",
    "roi_align_nhwc",
    "roi_pool_nchw",
    "roi_pool_nhwc",
    "ssd",
]
