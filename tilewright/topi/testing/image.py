"""NumPy references of operators on images."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..utils import nchw_pack_layout
from .convolution import between


# ---------------------------------------------------------------------------- resize
def get_inx(x: Any, image_width: int, target_width: int, coordinate_transformation_mode: str) -> Any:
    """Where a pixel of the result is in the image."""
    scale = image_width / target_width
    if coordinate_transformation_mode == "half_pixel":
        return (x + 0.5) * scale - 0.5
    if coordinate_transformation_mode == "align_corners":
        return x * ((image_width - 1) / (target_width - 1) if target_width > 1 else 0.0)
    if coordinate_transformation_mode == "asymmetric":
        return x * scale
    raise ValueError(f"coordinate_transformation_mode {coordinate_transformation_mode!r} is not known")


def _nearest(at: Any, mode: str) -> list[tuple[Any, Any]]:
    return [(np.floor(at + 0.5 if mode == "align_corners" else at).astype(int), np.ones_like(at))]


def _linear(at: Any, mode: str) -> list[tuple[Any, Any]]:
    low = np.floor(at).astype(int)
    return [(low, 1 - (at - low)), (low + 1, at - low)]


def _cubic(at: Any, mode: str, alpha: float = -0.5) -> list[tuple[Any, Any]]:
    low = np.floor(at).astype(int)
    t = at - low
    weights = [
        alpha * (t**3 - 2 * t**2 + t),
        (alpha + 2) * t**3 - (3 + alpha) * t**2 + 1,
        -(alpha + 2) * t**3 + (3 + 2 * alpha) * t**2 - alpha * t,
        -alpha * t**3 + alpha * t**2,
    ]
    return [(low + move, w) for move, w in zip(range(-1, 3), weights)]


_METHODS: dict[str, Callable[..., list[tuple[Any, Any]]]] = {
    "nearest_neighbor": _nearest,
    "linear": _linear,
    "cubic": _cubic,
}


def _resized(data: Any, scale: Any, method: str, mode: str) -> Any:
    """(batch, channels, …) with the spatial dimensions resized one after the other."""
    if method not in _METHODS:
        raise ValueError(f"method {method!r} is not known: {', '.join(_METHODS)}")
    out = data if method == "nearest_neighbor" else data.astype(np.float64)
    for axis, factor in enumerate(scale, 2):
        size = data.shape[axis]
        wanted = round(size * factor)
        at = get_inx(np.arange(wanted), size, wanted, mode)
        along = [-1 if d == axis else 1 for d in range(data.ndim)]
        taps = _METHODS[method](at, mode)
        parts = [np.take(out, i.clip(0, size - 1), axis) for i, _ in taps]
        if method == "nearest_neighbor":
            (out,) = parts
        else:
            out = sum(p * w.reshape(along) for p, (_, w) in zip(parts, taps))
    return out.astype(data.dtype)


def resize1d_python(
    data: Any,
    scale: Any,
    layout: str = "NCW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "align_corners",
) -> Any:
    """A signal at another size."""
    last = layout == "NWC"
    made = _resized(np.moveaxis(data, -1, 1) if last else data, scale, method, coordinate_transformation_mode)
    return np.moveaxis(made, 1, -1) if last else made


def resize2d_python(
    data: Any,
    scale: Any,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "align_corners",
) -> Any:
    """An image at another size; channels and batches may lie in blocks (NCHW4n16c)."""
    if layout == "NHWC" or not nchw_pack_layout(layout):
        return resize1d_python(
            data,
            scale,
            "NWC" if layout == "NHWC" else "NCW",
            method,
            coordinate_transformation_mode,
        )
    moved = data.transpose(0, 4, 1, 5, 2, 3)
    n, m, c, d, h, w = moved.shape
    made = _resized(moved.reshape(n * m, c * d, h, w), scale, method, coordinate_transformation_mode)
    return made.reshape(n, m, c, d, *made.shape[2:]).transpose(0, 2, 4, 5, 1, 3)


def resize3d_python(
    data: Any,
    scale: Any,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "align_corners",
) -> Any:
    """A volume at another size."""
    form = "NWC" if layout == "NDHWC" else "NCW"
    return resize1d_python(data, scale, form, method, coordinate_transformation_mode)


def crop_and_resize_python(
    image: Any,
    boxes: Any,
    box_indices: Any,
    crop_size: Any,
    layout: str,
    method: str = "bilinear",
    extrapolation_value: float = 0,
) -> Any:
    """Boxes (top, left, bottom, right, in parts of the image) at one size; a value stands for what is outside."""
    planes = np.moveaxis(image, -1, 1) if layout == "NHWC" else image
    height, width = planes.shape[2:]
    out = []
    for (top, left, bottom, right), source in zip(boxes, box_indices):
        steps = [
            np.float32((size - 1) * (end - start)) / np.float32(many - 1)
            for size, start, end, many in (
                (height, top, bottom, crop_size[0]),
                (width, left, right, crop_size[1]),
            )
        ]
        y = top * (height - 1) + steps[0] * np.arange(crop_size[0], dtype="float32")
        x = left * (width - 1) + steps[1] * np.arange(crop_size[1], dtype="float32")
        y, x = np.meshgrid(y, x, indexing="ij")
        inside = (y >= 0) & (y <= height - 1) & (x >= 0) & (x <= width - 1)
        plane = planes[int(source)]
        if method == "nearest_neighbor":
            rows, columns = np.round(y).astype(int), np.round(x).astype(int)
            found = plane[:, rows.clip(0, height - 1), columns.clip(0, width - 1)]
        else:
            found = between(plane, y, x)
        out.append(np.where(inside, found, extrapolation_value))
    made = np.stack(out).astype(np.float64)
    return np.moveaxis(made, 1, -1) if layout == "NHWC" else made


# ---------------------------------------------------------------------------- grids
def affine_grid_python(data: Any, target_shape: Any) -> Any:
    """The places (x, y) from -1 to 1 of each pixel after an affine map of two rows and three columns."""
    rows, columns = (np.arange(n) * 2 / (n - 1) - 1 for n in target_shape)
    y, x = np.meshgrid(rows, columns, indexing="ij")
    places = np.stack([x, y, np.ones_like(x)]).reshape(3, -1)
    return (data.reshape(-1, 3) @ places).reshape(data.shape[0], 2, *target_shape)


def _folded(at: Any, size: int, align_corners: bool) -> Any:
    """Places reflected at the borders until they are inside."""
    start, length = (0.0, size - 1) if align_corners else (-0.5, size)
    far = abs(at - start)
    times = far // length
    rest = far - times * length
    folded = np.where(times % 2 == 0, rest, length - rest) + start
    return np.where((at >= start) & (at <= start + length), at, folded)


def grid_sample_python(
    data: Any,
    grid: Any,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Any:
    """Pixels at places from -1 to 1, x first: between the nearest, or the nearest, or of a cubic curve."""
    sizes = data.shape[2:]
    places = []
    for size, at in zip(sizes, np.flip(grid, 1).transpose(1, 0, *range(2, grid.ndim))):
        places.append((at + 1) * (size - 1) / 2 if align_corners else (at + 1) * size / 2 - 0.5)

    def kept(at: Any, size: int) -> Any:
        if padding_mode == "reflection":
            at = _folded(at, size, align_corners)
        return at if padding_mode == "zeros" else at.clip(0, size - 1)

    if method != "bicubic":
        places = [kept(at, size) for at, size in zip(places, sizes)]
    if method == "nearest":
        taps = [[(np.trunc(at + np.where(at > 0, 0.5, -0.5)), np.ones_like(at))] for at in places]
    elif method == "bilinear":
        taps = [_linear(at, "") for at in places]
    else:
        taps = [[(kept(i, size), w) for i, w in _cubic(at, "", -0.75)] for at, size in zip(places, sizes)]
    out = np.zeros((*data.shape[:2], *grid.shape[2:]))
    for chosen in itertools.product(*taps):
        index = [i.astype(int) for i, _ in chosen]
        inside = np.logical_and.reduce([(i >= 0) & (i < n) for i, n in zip(index, sizes)])
        weight = math.prod(w for _, w in chosen) * inside
        clipped = [i.clip(0, n - 1) for i, n in zip(index, sizes)]
        for n in range(data.shape[0]):
            out[n] += data[n][(slice(None), *(i[n] for i in clipped))] * weight[n]
    return out


# ---------------------------------------------------------------------------- regions
def roi_align_nchw_python(
    a_np: Any, rois_np: Any, pooled_size: Any, spatial_scale: float, sample_ratio: int, mode: Any = b"avg"
) -> Any:
    """The mean or the maximum of samples in each bin of a region: rows (image, left, top, right, bottom)."""
    if mode not in (b"avg", "avg", 0, b"max", "max", 1):
        raise ValueError(f"mode is {mode!r} and must be 'avg' or 'max'")
    rows, columns = (pooled_size, pooled_size) if isinstance(pooled_size, int) else pooled_size
    height, width = a_np.shape[2:]
    out = np.zeros((len(rois_np), a_np.shape[1], rows, columns), a_np.dtype)
    for r, roi in enumerate(rois_np):
        left, top, right, bottom = roi[1:] * spatial_scale
        tall, wide = max(bottom - top, 1.0), max(right - left, 1.0)
        many = [
            int(sample_ratio) if sample_ratio > 0 else math.ceil(size / bins)
            for size, bins in ((tall, rows), (wide, columns))
        ]
        y = top + (np.arange(rows * many[0]) + 0.5) * (tall / rows / many[0])
        x = left + (np.arange(columns * many[1]) + 0.5) * (wide / columns / many[1])
        y, x = np.meshgrid(y, x, indexing="ij")
        inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
        found = between(a_np[int(roi[0])], y.clip(0, height - 1), x.clip(0, width - 1)) * inside
        bins = found.reshape(-1, rows, many[0], columns, many[1])
        out[r] = bins.mean((2, 4)) if mode in (b"avg", "avg", 0) else bins.max((2, 4))
    return out


def roi_align_nhwc_python(
    a_np: Any, rois_np: Any, pooled_size: Any, spatial_scale: float, sample_ratio: int, mode: Any = b"avg"
) -> Any:
    """`roi_align_nchw_python` of NHWC."""
    planes = np.moveaxis(a_np, -1, 1)
    made = roi_align_nchw_python(planes, rois_np, pooled_size, spatial_scale, sample_ratio, mode)
    return np.moveaxis(made, 1, -1)


def roi_pool_nchw_python(a_np: Any, rois_np: Any, pooled_size: Any, spatial_scale: float) -> Any:
    """The maximum of each bin of a region, in whole pixels; 0 of an empty bin."""
    bins = (pooled_size, pooled_size) if isinstance(pooled_size, int) else tuple(pooled_size)
    out = np.zeros((len(rois_np), a_np.shape[1], *bins), a_np.dtype)
    for r, roi in enumerate(rois_np):
        left, top, right, bottom = (round(float(v) * spatial_scale) for v in roi[1:])
        starts, sizes = (top, left), (max(bottom - top + 1, 1), max(right - left + 1, 1))
        for at in np.ndindex(*bins):
            part = []
            for p, start, size, many, limit in zip(at, starts, sizes, bins, a_np.shape[2:]):
                low, high = start + math.floor(p * size / many), start + math.ceil((p + 1) * size / many)
                part.append(slice(min(max(low, 0), limit), min(max(high, 0), limit)))
            found = a_np[(int(roi[0]), slice(None), *part)]
            out[(r, slice(None), *at)] = found.max((1, 2)) if found.size else 0
    return out
