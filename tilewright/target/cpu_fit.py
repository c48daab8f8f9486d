"""The fitted figures of a CPU: what no data sheet says and the cost function needs.

A figure has a name, a meaning with its unit, and the kernels that it was fitted to, rows of `bench/cpu_kernels.py`
measured on a Zen 4 server (AVX-512, 32 KiB of L1 and 1 MiB of L2 cache for each core; bench/RESULTS.md describes it).
Other CPUs have the same figures until `tilewright calibrate` measures those that a pair of kernels shows
(`tune/cpu_calibrate.py`); the others give the reason why none does. Each can be given in a target:

    llvm -mcpu=haswell -machine=fit.row_entry:3,fit.gather_lane:1.2
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple

FIT: Final = "fit."  # the beginning of the names of these figures in targets and calibrations


class Fitted(NamedTuple):
    """What is known of a fitted figure. `unmeasured` says why `tilewright calibrate` does not measure it; it is empty
    if calibration does."""

    value: int | float
    meaning: str
    kernels: str  # that it was fitted to
    unmeasured: str


def _fitted(value: int | float, meaning: str, kernels: str, unmeasured: str = "") -> Any:
    return field(default=value, metadata={"fitted": Fitted(value, meaning, kernels, unmeasured)})


# Reasons why no pair of kernels shows a figure.
_HIDDEN: Final = "multiply-adds hide it in each tile that is fast enough to be chosen"
_TOGETHER: Final = "no two kernels differ in it alone: it was fitted to the order of many tiles"
_HARDWARE: Final = "it is a property of the hardware that data sheets give"
_JUDGEMENT: Final = "it is a judgement, and no time"
_NEIGHBOURS: Final = "it depends on what other programs and kernels leave in the caches"
_CONSTANT: Final = "the transform of the constant kernel cannot be timed apart"


@dataclass(frozen=True, slots=True)
class CpuFit:
    """The figures of the cost function that were read off measured kernels. Cycles are those of one core."""

    # -- a register tile
    tile_entry: float = _fitted(
        30.0, "cycles to enter a tile: addresses, the first loads, the loop", "matmul, conv", _TOGETHER
    )
    tile_store: float = _fitted(2.0, "cycles to write an accumulator out", "matmul 128 cubed, conv 1x1")
    lane_sum: float = _fitted(
        2.0,
        "cycles for each lane when the lanes of an accumulator are summed up",
        "dense 1x1000, row sums",
        "LLVM adds up the lanes of several accumulators at once where it can, and only there",
    )
    lane_transpose: float = _fitted(
        1.0,
        "cycles for each lane when an accumulator is transposed before it is written",
        "conv in NCHW",
        _TOGETHER,
    )
    partial_tile: float = _fitted(
        0.35,
        "least cost of a partial tile at the end of an axis, relative to a whole one",
        "matmul 197x768x3072",
        # With 0.16, the time of one row there, 9 of 70 benchmarks had other tiles, slower by 2% on average.
        "it also stands for the code of partial tiles, which one more row does not show",
    )
    spill: float = _fitted(
        10.0,
        "cycles in each step for each register too few: a store, and a load that waits for it",
        "matmul, tiles of 33 to 40 registers",
        "LLVM loads some operands again instead, so that it depends on the tile",
    )
    scalar_load: float = _fitted(
        0.5, "load of a broadcast element, relative to that of a vector", "matmul", _HIDDEN
    )
    load_beside: float = _fitted(
        0.25, "part of the multiply-adds that delays the loads of the same step", "matmul", _HIDDEN
    )
    broadcast: float = _fitted(0.01, "cycles for a broadcast beside its load", "matmul", _HIDDEN)
    split_load: float = _fitted(
        1.7, "load that may cross two cache lines, relative to one that does not", "depthwise 3x3", _TOGETHER
    )
    pair_load: float = _fitted(5.0, "extra cycles of a vector load of every second element", "conv 1x1/2")
    overlapping_words: float = _fitted(
        1.0,
        "extra cycles of a vector of words that overlap: a second load and a permutation",
        "depthwise int8",
        _HIDDEN,
    )
    gather_lane: float = _fitted(
        2.0, "extra cycles for each lane of a vector load with a larger stride", "conv 7x7/2, gathers"
    )
    strided_lane: float = _fitted(
        0.6,
        "extra cycles for each lane of a vector load of elements that are a few lines apart, in the L1 cache",
        "softmax 4096x10",
    )
    transposed_lane: float = _fitted(
        0.2, "cycles for each lane of a vector that is transposed in registers", "transpose 1024"
    )
    packed_vector: float = _fitted(
        2.0, "cycles to pack a vector of contiguous elements into a panel", "matmul", _TOGETHER
    )
    packed_element: float = _fitted(
        1.0, "cycles to pack an element into a transposed panel", "dense (weights transposed)", _TOGETHER
    )
    repeated_work: float = _fitted(
        0.03,
        "part of the time of a tile that may go into computing a producer again",
        "conv with padding",
        _JUDGEMENT,
    )
    repeated_copy: float = _fitted(
        4.0,
        "cost of an element of such a producer beside its arithmetic, in additions",
        "conv with padding",
        _TOGETHER,
    )
    unpacked_vector: float = _fitted(
        0.95,
        "cycles to make a vector of floats of packed integers: a shift, a mask, a conversion",
        "weights of 4 bits, 1 to 8 rows",
        _TOGETHER,
    )
    unpacked_beside: float = _fitted(
        0.18, "cycles of each multiply-add beside that", "weights of 4 bits, 1 to 8 rows", _TOGETHER
    )
    scaled_vector: float = _fitted(
        2.0, "cycles to scale a vector of sums of a block, and to add it up", "weights of 4 bits", _TOGETHER
    )
    narrow_gain: float = _fitted(
        0.9,
        "time of a product with packed weights relative to what is predicted, beside weights as floats, which take "
        "four to sixteen times the memory",
        "weights of 4 bits, hundreds of rows or a dynamic number",
        _JUDGEMENT,
    )
    # -- rows and streams
    row_entry: float = _fitted(4.0, "cycles to enter a row of a reduction", "row sums, softmax")
    stream_entry: float = _fitted(
        10.0, "cycles to enter a few lines of a stream", "matmul 1x4096x4096", _TOGETHER
    )
    # Tiles read an operand in strips, and the pages of DRAM that these open and close are in no formula.
    stream_gain: float = _fitted(
        0.9,
        "time of a stream relative to what is predicted, beside register tiles",
        "matmul 1x4096x4096",
        _NEIGHBOURS,
    )
    row_stream: float = _fitted(
        0.0,
        "time that each row adds that is read at once from beyond the L2 cache, relative to that of one row",
        "matmul 1x4096x11008",
        _NEIGHBOURS,
    )
    partial_result: float = _fitted(
        2.0,
        "cycles for a partial result of another thread, which one thread adds",
        "sums of 2^24 elements",
        _NEIGHBOURS,
    )
    # -- memory
    overlap: float = _fitted(
        0.3, "part of the shorter of arithmetic and traffic that is not hidden", "matmul, conv", _TOGETHER
    )
    cache_fill: float = _fitted(
        0.8, "part of a cache that operands can use before they evict each other", "matmul, conv", _NEIGHBOURS
    )
    l1_sets: int = _fitted(64, "sets of the L1 cache", "matmul 512 to 2048 cubed", _HARDWARE)
    conflict: float = _fitted(
        0.8,
        "cycles in a step for each line that does not fit its set of the L1 cache",
        "matmul 1024 cubed",
        _TOGETHER,
    )
    conflict_square: float = _fitted(
        0.27, "cycles in a step for the square of the number of such lines", "matmul 1024 cubed"
    )
    near_page: int = _fitted(
        2048,
        "bytes of a stride from which the hardware prefetcher begins to lose the next line",
        "matmul",
        _HARDWARE,
    )
    page: int = _fitted(4096, "bytes of a page, which the prefetcher does not leave", "matmul", _HARDWARE)
    page_wait_line: float = _fitted(
        3.0,
        "cycles that a step waits for the next page if it reads one line of it",
        "matmul, narrow tiles",
        _TOGETHER,
    )
    page_wait_pair: float = _fitted(
        0.9,
        "cycles that a step waits for the next page if it reads two lines of it",
        "matmul, narrow tiles",
        _TOGETHER,
    )
    page_wait_more: float = _fitted(
        0.3, "cycles that a step waits for the next page if it reads more lines of it", "matmul", _TOGETHER
    )
    near_page_wait: float = _fitted(
        0.1,
        "part of the waits for pages if the stride is between `near_page` and `page`",
        "matmul",
        _TOGETHER,
    )
    strip_wait: float = _fitted(
        0.4,
        "part of the L3 latency that a column of long rows waits for each element",
        "matmul, A transposed",
        _NEIGHBOURS,
    )
    strip_hit: float = _fitted(
        0.5, "cycles for each element if the column stays in the L2 cache", "matmul, A transposed", _TOGETHER
    )
    foreign_byte: float = _fitted(
        0.2, "cycles for a byte that another core has just written", "conv 3x3, two threads", _NEIGHBOURS
    )
    # -- threads
    # The measured launch is that of threads that are awake, with nothing to fetch into their caches.
    parallel_margin: float = _fitted(
        4.0,
        "serial time, in launches, from which threads pay for elementwise stages and rows",
        "models, two threads",
        "kernels that are timed one by one find the threads awake and their data in the caches",
    )
    # -- Winograd's algorithm
    winograd_peak: float = _fitted(
        0.85, "part of the peak multiply-adds that its products reach", "conv 3x3", _CONSTANT
    )
    winograd_gain: float = _fitted(
        0.78, "time relative to the plain convolution that is worth the rounding", "conv 3x3", _JUDGEMENT
    )
    winograd_work_2: float = _fitted(
        1.5, "operations of the transforms for each element, with tiles of 2", "conv 3x3", _CONSTANT
    )
    winograd_work_4: float = _fitted(
        2.5, "operations of the transforms for each element, with tiles of 4", "conv 3x3", _CONSTANT
    )


# All figures by their names.
FITTED: Final[dict[str, Fitted]] = {f.name: f.metadata["fitted"] for f in fields(CpuFit)}

ZEN4: Final = CpuFit()
# Loads are as wide as vectors, so that a broadcast takes as long as a vector. Measured on a Zen 5 server: products of
# 128 x 512 x 2048, and vectors by weights in memory, which are read at 36 GB/s in 13 rows at once, at 42 in 3.
ZEN5: Final = replace(ZEN4, scalar_load=1.0, row_stream=0.01)
# The sets of the L1 cache by the technical reference manuals; nothing else was measured there.
NEOVERSE: Final = replace(ZEN4, l1_sets=256)
