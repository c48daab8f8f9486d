"""The fitted figures of a CPU: what no data sheet says and the cost function needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CpuFit:
    """The figures of the cost function that were read off measured kernels.

    All of them are from a Zen 4 server (AVX-512, 32 KiB of L1 and 1 MiB of L2 cache for each core) and serve other
    CPUs as they are until somebody measures them there. Cycles are those of one core.
    """

    # -- a register tile
    tile_entry: float = 30.0  # cycles to enter a tile: addresses, the first loads, the loop
    tile_store: float = 2.0  # cycles to write an accumulator out
    lane_sum: float = 2.0  # cycles for each lane when the lanes of an accumulator are summed up
    lane_transpose: float = 1.0  # cycles for each lane when an accumulator is transposed before it is written
    partial_tile: float = 0.35  # least cost of a partial tile at the end of an axis, relative to a whole one
    spill: float = (
        10.0  # cycles in each step for each register too few: a store, and a load that waits for it
    )
    scalar_load: float = 0.5  # load of a broadcast element, relative to that of a vector
    load_beside: float = 0.25  # part of the multiply-adds that delays the loads of the same step
    broadcast: float = 0.01  # cycles for a broadcast beside its load
    split_load: float = 1.7  # load that may cross two cache lines, relative to one that does not
    pair_load: float = 5.0  # extra cycles of a vector load of every second element
    gather_lane: float = 2.0  # extra cycles for each lane of a vector load with a larger stride
    strided_lane: float = 0.6  # … if the elements are a few lines apart, in the L1 cache
    transposed_lane: float = 0.2  # cycles for each lane of a vector that is transposed in registers
    repeated_work: float = 0.03  # part of the time of a tile that may go into computing a producer again
    # -- rows and streams
    row_entry: float = 4.0  # cycles to enter a row of a reduction
    stream_entry: float = 10.0  # cycles to enter a few lines of a stream
    # Time of a stream relative to what is predicted, beside register tiles: tiles read an operand in strips, and the
    # pages of DRAM that these open and close are in no formula here.
    stream_gain: float = 0.9
    # -- memory
    overlap: float = 0.3  # part of the shorter of arithmetic and traffic that is not hidden
    cache_fill: float = 0.8  # part of a cache that operands can use before they evict each other
    l1_sets: int = 64  # sets of the L1 cache
    conflict: float = 0.8  # cycles in a step for each line that does not fit its set of the L1 cache
    conflict_square: float = 0.27  # … and for the square of their number
    near_page: int = 2048  # bytes of a stride from which the hardware prefetcher begins to lose the next line
    page: int = 4096  # bytes of a page, which the prefetcher does not leave
    page_waits: tuple[float, float, float] = (3.0, 0.9, 0.3)  # cycles lost for 1, 2 and more lines of a page
    near_page_wait: float = 0.1  # part of these for strides between `near_page` and `page`
    strip_wait: float = 0.4  # part of the L3 latency that a column of long rows waits for each element
    strip_hit: float = 0.5  # cycles for each element if the column stays in the L2 cache
    foreign_byte: float = 0.2  # cycles for a byte that another core has just written
    # -- threads
    # Serial time, in launches, from which threads pay for elementwise stages and rows: the measured launch is that of
    # threads that are awake, with nothing to fetch into their caches.
    parallel_margin: float = 4.0
    # -- Winograd's algorithm
    winograd_peak: float = 0.85  # part of the peak multiply-adds that its products reach
    winograd_gain: float = 0.78  # time relative to the plain convolution that is worth the rounding
    winograd_work: tuple[float, float] = (1.5, 2.5)  # operations for each element of tiles of 2 and of 4


ZEN4 = CpuFit()  # bench/RESULTS.md describes the machine
