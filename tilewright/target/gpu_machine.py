"""The figures of a GPU: what its data sheet says, and what cost models were fitted to.

    field                        where it comes from
    GpuMachine's own, `limits`   the data sheet of the GPU, or the device itself (`Target.from_device`)
    wgmma, simt, tma_simt, …     fitted to measurements on an H200 (sm_90a); other GPUs inherit them until
                                 `tilewright calibrate` has measured them there

Times are in cycles of an SM, rates in bytes or multiply-adds in a cycle of an SM, unless the name says otherwise. A
fraction is relative to the peak that the data sheet promises. Scheduling rules read these fields; they have no numbers
of their own that depend on the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final

from ..ir.errors import TargetError, near_matches


@dataclass(frozen=True, slots=True)
class SmLimits:
    """What an SM holds at once (from the data sheet)."""

    threads: int = 2048
    blocks: int = 32
    registers: int = 65536  # of 32 bits
    shared_memory: int = 228 * 1024  # bytes that all thread blocks of an SM have together
    reserved_shared: int = 1024  # bytes of it that the driver takes of each thread block
    registers_per_thread: int = 255

    def blocks_by_shared(self, size: Any) -> Any:
        """The thread blocks that an SM has shared memory for, if each needs `size` bytes."""
        return self.shared_memory // (size + self.reserved_shared)


@dataclass(frozen=True, slots=True)
class KernelFigures:
    """What every kernel for products pays beside its steps. Launches were fitted to kernels that follow each other in a
    graph, as those of a network do (`bench/gpu_fit.py`); one that the host launches alone takes longer."""

    launch: float  # from the launch to the first step, and from the last result to the end
    dram_launch: float  # the same for a kernel that only reads its operands from DRAM
    dram_rate: float  # fraction of the DRAM bandwidth at which operands are read once
    l2_ratio: float  # bandwidth of the L2 cache relative to that of DRAM
    split_launch: float  # the second kernel of split-K
    split_rate: (
        float  # fraction of the DRAM bandwidth for partial sums: above 1, because most stay in the L2 cache
    )


@dataclass(frozen=True, slots=True)
class WgmmaFigures:
    """Products by `wgmma` with TMA copies (tune/rules/gpu/wgmma.py); fitted on an H200."""

    kernel: KernelFigures = KernelFigures(600, 2500, 0.85, 3.5, 4000, 1.0)
    cycles_per_column: float = 0.5  # of a `wgmma` of 64 rows and 32 bytes along the reduction
    operand_cycles: float = 16  # until the rows of the left operand are out of shared memory …
    operand_cycles_per_column: float = 0.25  # … and a column of the right one
    rate: float = 0.75  # fraction of the peak that a sequence of them reaches
    tma_bytes: float = 64  # bytes that TMA writes to shared memory in a cycle
    latency: float = 2000  # of a TMA copy while all SMs copy
    store_column: float = 10  # to store a column of 64 rows eight results at a time
    store_column_by_four: float = 16  # … four at a time under predicates, in partial tiles
    store_column_by_one: float = 38  # … one at a time
    store: float = 1000  # to begin with the results of a tile
    hidden_epilogue: float = 4  # work of an epilogue, in additions, that storing a result hides
    # fraction of the DRAM bandwidth for rows of fewer than `long_row` columns
    short_row_dram_rate: float = 0.7
    long_row: int = 128
    busy_sms: float = 0.8  # fraction of the SMs that must load to reach the DRAM bandwidth
    reserved_shared: int = 2048  # bytes of shared memory for mbarriers and for the driver


@dataclass(frozen=True, slots=True)
class MmaFigures:
    """Products by `mma`, whose warps copy by themselves (tune/rules/gpu/mma.py); fitted on an H200."""

    kernel: KernelFigures = KernelFigures(400, 1900, 0.8, 3.0, 5000, 1.5)
    product: float = 0.94  # of the time that the tensor cores need at their peak
    # of the time that shared memory needs at its peak, which does not overlap with products
    shared: float = 0.24
    step: float = 30  # barriers and counters of a step
    hiding: float = 3600  # results that an SM works on when its tensor cores are busy for 1 - 1/e of the time
    latency: float = 1400  # until a load from global memory arrives while all SMs load
    # times the traffic of shared memory: float32 is rounded on the way to the registers
    tf32_shared: float = 1.9
    # … and loaded element by element if it is not contiguous along the reduction
    tf32_strided_shared: float = 3.2
    # pieces of 16 bytes whose addresses in an im2col window are computed in a cycle
    pieces_per_cycle: float = 50
    # Elements that an SM loads to registers and stores to shared memory in a cycle: of rows, about six instructions
    # each, and of im2col windows, with their addresses about 25. Counted in the code, not measured yet.
    elements_per_cycle: float = 20
    gathered_per_cycle: float = 5
    # copies of less than 16 bytes that an SM starts in a cycle; counted, not measured yet
    short_copies_per_cycle: float = 40
    few_rounds: float = 8  # with fewer tiles for each SM, the last round counts as a whole one
    store_rate: float = 7.5  # results of 16 bits that are stored in a cycle, from whole tiles
    partial_store_rate: float = 3.8  # … from partial tiles, under predicates
    store: float = 500  # to begin with the results of a tile
    hidden_epilogue: float = 4  # work of an epilogue, in additions, that storing a result hides
    other_registers: int = 50  # registers of a thread for addresses and counters
    registers_per_thread: int = 262  # a few more than a thread can have: their spills cost little
    stages: int = 6  # of the pipeline, at most


@dataclass(frozen=True, slots=True)
class SimtFigures:
    """float32 products whose threads copy operands ahead (tune/rules/gpu/simt.py); fitted on an H200."""

    kernel: KernelFigures = KernelFigures(2500, 3000, 0.7, 1.5, 4500, 1.5)
    rate: float = 0.7  # fraction of the peak multiply-adds that is reached at best
    hiding: float = 2.4  # warps with 8 x 8 results for each thread, at which 1 - 1/e of `rate` is reached
    hiding_results: int = 96  # results of a thread beyond which more hide nothing
    few_results: int = 4096  # results for each SM, below which there are few tiles
    few_rate: float = 0.45  # with few tiles: the fraction of the peak that is reached without warps …
    few_rate_per_warp: float = 0.07  # … and that each warp adds
    load_cost: float = 0.3  # a load from shared memory relative to a multiply-add
    step: float = 40  # barriers and counters of a step
    store_rate: float = 32  # results that are stored in a cycle
    store: float = 1500  # to begin with the results of a tile
    least_results: int = 512  # of a product that is worth register tiles
    least_side: int = 8  # rows, and columns, of such a product
    least_depth: int = 8  # steps of its reduction
    long_depth: int = 256  # … that are worth register tiles with fewer results too
    large_tile: int = 128 * 128  # results of a tile from which `stages_of_large` is better than `stages`
    stages: int = 3
    stages_of_large: int = 4
    # Time with which it competes where TMA could copy the operands, relative to the predicted one. Measured on an H200:
    # of 16 products, 64 x 64 x 64 to 1024 x 1024 x 1024, it takes 1.0 to 2.2 times as long as with TMA, and less only
    # for 128x768x768 (0.70), 256 cubed and 1024x256x64 (0.98).
    prior: float = 1.67


@dataclass(frozen=True, slots=True)
class TileRate:
    """The fraction of the peak multiply-adds that tiles of a shape reach: `rate` if all operands are contiguous along
    the results, `slower` if one is contiguous along the reduction."""

    rows: int
    columns: int
    blocks: int  # thread blocks of an SM at the same time
    rate: float
    slower: float


@dataclass(frozen=True, slots=True)
class TmaSimtFigures:
    """float32 products whose operands TMA copies (tune/rules/gpu/simt_tma.py); measured on an H200."""

    tiles: tuple[TileRate, ...] = (
        TileRate(256, 128, 1, 0.85, 0.75),
        TileRate(128, 64, 3, 0.82, 0.69),
        TileRate(64, 128, 3, 0.82, 0.69),
        TileRate(64, 64, 4, 0.70, 0.60),
    )
    # of the rate of a tile that is reached without warps that hide the latency of shared memory …
    rate: float = 0.35
    rate_per_warp: float = 0.08  # … and that each warp adds
    # time of a tile that runs alone on an SM at the end, relative to one beside others
    lone_tile: float = 1.5
    reserved_shared: int = 1024  # bytes of shared memory for mbarriers
    least_side: int = 32  # a product needs more rows and columns than this: most of a tile would be padding


@dataclass(frozen=True, slots=True)
class Dp4aFigures:
    """int8 products by `dp4a` (tune/rules/gpu/dp4a.py)."""

    # over float32: `dp4a` does four multiply-adds; measured on 23 products of up to 3200 x 2880 on an H200, other
    # instructions take as long as three of them
    speedup: float = 1.0


@dataclass(frozen=True, slots=True)
class SharedTileFigures:
    """Tiles in shared memory (tune/rules/gpu/shared_tile.py), and figures of kernels in general; fitted on an H200."""

    launch_seconds: float = 1e-6  # that a kernel takes at least
    shared_bytes: float = 128  # bytes that an SM reads from shared memory in a cycle
    l2_ratio: float = 3.0  # bandwidth of the L2 cache relative to that of DRAM
    latency: float = 600  # of DRAM
    block: float = 1000  # to begin and to end a wave of thread blocks
    issue: float = 1.5  # instructions beside multiply-adds, as a factor of time
    enough_warps: float = 8  # warps of an SM, below which the latency of instructions is not hidden
    exposed: float = 1.6  # exponent of that factor
    serial_shared: float = 0.5  # of shared memory's time that a thread block alone does not overlap
    rolled: float = 1.15  # a step that is not unrolled
    strided: float = 1.15  # reads of registers' worth of neighbours from shared memory
    # more time for copies of single elements, divided by the width of their vectors
    element_fetch: float = 0.2
    store: float = 16  # to store a result
    other_registers: int = 24  # registers of a thread for addresses and counters
    product_other_registers: int = 32  # the same in kernels for products
    product_store_rate: float = 16  # results of products that are stored in a cycle
    busy_blocks: float = 2  # thread blocks for each SM that reach the DRAM bandwidth
    busy_exponent: float = 0.5  # of the fraction that fewer reach
    copy_rate: float = 0.9  # fraction of the DRAM bandwidth of the data sheet that a long copy reaches
    scalar_rate: float = 0.8  # fraction of the DRAM bandwidth that loads of single elements reach
    rival: float = 1.02  # candidates as good as the choice of the rules come after it by this factor
    float32_rate: float = 0.8  # fraction of the float32 peak that a product without tensor cores reaches
    transpose_rate: float = 0.8  # fraction of the DRAM bandwidth of a kernel that transposes
    kernel_launch: float = 4000  # of a kernel that is added
    least_side: int = 4  # rows, and columns, of a product that is worth tiles
    # Cycles that tiles in shared memory, `dp4a` and single results must save before they take the place of a kernel
    # with large tiles: the fixed costs of the two groups were fitted apart from each other. Measured on an H200: of 14
    # small products, tiles in shared memory are faster for 64 and 96 cubed, 96 of 32 cubed and a convolution of 37 to
    # 113 channels (0.75 to 0.85 of the time), and slower for the others (1.0 to 1.6).
    margin: float = 12000


@dataclass(frozen=True, slots=True)
class RowFigures:
    """Rows in registers (tune/rules/gpu/rows.py); measured on an H200."""

    vectors: int = 4  # vectors of a row that a thread should have, all in flight at once
    held_registers: int = 64  # registers of a thread for its part of a row
    # registers of a thread block for its rows: others of the SM's are for the rest
    block_registers: int = 40 * 1024
    other_registers: int = 32  # registers of a thread for all but its part of a row
    # threads of a block at least, if there are enough rows: thread blocks are launched one by one
    block: int = 256
    many_threads: int = 512  # threads of a block that are better than half as many, with two vectors for each
    elements: int = 8  # elements of a row that a thread should have, if it takes them one by one
    few_rows: int = 256  # fewer rows than this do not keep all SMs busy
    long_row: int = 1 << 14  # elements of a row that is worth a second kernel
    cluster_threads: int = 128  # threads of a thread block of a cluster, at least
    # bytes of shared memory of a thread block for the intermediate stages of a row
    shared_memory: int = 46 * 1024
    # Time with which rows in shared memory compete, relative to the predicted one, which counts no barriers between
    # stages. Measured on an H200, softmax and layernorm of 77x80 to 4096x4096: 1.03 to 1.7 of the time of rows in
    # registers, but 0.93 and 0.81 for 128x1024.
    shared_prior: float = 2.0
    # Time with which parts of any length (tune/rules/gpu/row_parts.py) compete, relative to the predicted one. Not
    # measured yet: where less than a fifth would be gained, the kernels of other rules stay, which were measured.
    parts_prior: float = 1.2


ROWS: Final = RowFigures()


@dataclass(frozen=True, slots=True)
class ColumnFigures:
    """Reductions along a dimension that is not contiguous (tune/rules/gpu/columns.py); measured on an H200."""

    threads: int = 256  # of a thread block
    rows_in_flight: int = 8  # rows whose loads a thread has in flight at once
    busy_blocks: int = 1024  # thread blocks that keep all SMs busy, with an even distribution
    enough_blocks: int = 384  # with as many, a second kernel for a split reduction costs more than it gains
    short: int = 16  # rows at most that one thread reduces alone


@dataclass(frozen=True, slots=True)
class ScanFigures:
    """Running sums and products (tune/rules/gpu/scan.py); estimated for an H200 from the throughput of its units."""

    elements: int = 16  # of a chunk that a thread keeps, at most
    short: int = 64  # elements of a row at most that one thread may have
    parts: int = 1024  # of a row, at most: each warp reads the combinations of all parts before its own
    latency: float = 1500  # cycles of a chunk from its loads to its stores
    barrier: float = 300  # cycles of a chunk that warps wait for each other
    instructions: float = (
        26  # of a warp for one vector of its lanes, without those for each element of the vector
    )
    column_instructions: float = 8  # of a warp for one element of each column
    issued: float = 4  # instructions that an SM issues in a cycle
    registers: int = 28  # of a thread, without its elements
    rate: float = 0.9  # fraction of the bandwidth that is reached


@dataclass(frozen=True, slots=True)
class ElementwiseFigures:
    """Elementwise stages (tune/rules/gpu/elementwise.py) and stages without a better rule; measured on an H200."""

    threads: int = 128  # of a block
    plain_threads: int = 256  # of a block of other stages
    busy_blocks: int = 2048  # thread blocks that keep the GPU busy: some are always waiting for their turn
    thread_bytes: int = 32  # that a thread should process in all
    vectors: int = 8  # of a thread, at most: each is a copy of its code
    near: int = 4  # stride in elements between the lanes of a vector that is read, at most
    light_work: int = 8  # a stage with this work at most, in additions, is computed again …
    light_times: int = 64  # … by a stage with so many times its elements, at least
    parallel_iterations: int = 8  # of a parallel loop that is worth a thread for each
    # Cycles of an access to memory in a body that is not analyzed, by one thread and by one of many. Running sums take
    # 234 us for 128x113 elements and 6261 for 856x325 in one thread, 166 for 1024x1701 with a thread for each row.
    serial_access: float = 20
    parallel_access: float = 85
    parallel_rate: float = 0.1  # fraction of the bandwidth that they reach, as for 12032x547 running sums
    loads_per_cycle: float = 32  # loads of single elements by an SM, from the L1 cache
    # until a load from the L1 or the L2 cache arrives, if nothing else is in flight
    load_latency: float = 200
    # Time with which a thread for each result competes for a product, relative to the predicted one. Measured on an
    # H200 beside tiles in shared memory: 1000 products of 13x5x17 take 1.43 us (2.90 in tiles), 1000x13x5 1.05 (1.61),
    # 4096x7x64 1.66 (1.31); 1.3 gives the first to threads, and the last to tiles.
    plain_prior: float = 1.3


@dataclass(frozen=True, slots=True)
class WindowFigures:
    """Pooling and depthwise convolutions (tune/rules/gpu/windows.py); measured on an H200."""

    busy_threads: int = 512  # threads of an SM that hide the latency of memory
    results: int = 32  # of a thread, at most
    pixels: int = 8  # of a thread, at most: along the axis before the last


@dataclass(frozen=True, slots=True)
class TransposeFigures:
    """Transposes through shared memory (tune/rules/gpu/transpose.py); measured on an H200."""

    busy_tiles: int = 1024  # that keep the SMs busy


@dataclass(frozen=True, slots=True)
class AttentionFigures:
    """Attention in one kernel (tune/rules/gpu/attention.py); measured on an H200."""

    four_warpgroups: float = 0.88  # time for each row with four warpgroups, relative to the time with two
    l2_fraction: float = 0.75  # of the L2 cache that keys and values of heads may take
    # Time with which it competes with three kernels, relative to the predicted one: their estimate assumes that all SMs
    # have the same work. Not measured yet: about the largest with which one kernel keeps a single head of 1024 x 256.
    prior: float = 0.55
    # Cycles for each key of the product of a few queries' weights and the values by itself, whose keys are not split:
    # what its own estimate comes to.
    apart_key: float = 70
    # Parts of the keys (tune/rules/gpu/attention_parts.py); estimated, not measured yet.
    part_cycles: float = 2500  # of a thread block between its loads: latencies, barriers, sums
    part_loads: int = 4  # vectors that a thread has in flight, however many are unrolled
    part_flight: int = (
        49152  # bytes that the threads of an SM have in flight where DRAM reaches its full bandwidth
    )
    part_rate: float = 0.3  # of the multiply-adds of an SM: 16-bit values are converted first
    combine_cycles: float = 1500  # of the kernel that combines the parts
    # Time with which parts compete, relative to the predicted one. The other forms take 1.6 (one kernel) to 2 times
    # (three kernels) as long as estimated where a query reads a long past.
    parts_prior: float = 0.75


@dataclass(frozen=True, slots=True)
class GpuMachine:
    """A GPU in numbers. Sizes are in bytes, `bandwidth` in GB/s, `clock` in GHz."""

    arch: str
    warp_size: int
    max_threads_per_block: int
    shared_memory_per_block: int
    dynamic_shared_memory_per_block: int
    registers_per_block: int
    multiprocessors: int
    l2_cache: int
    bandwidth: float
    clock: float
    fma_per_cycle: int  # float32, of one SM
    # multiply-adds of 16-bit floats by `mma`, of one SM; 0 if it has no tensor cores
    mma_per_cycle: float = 0.0
    # thread blocks that may see each other's shared memory; 1: there are no clusters
    blocks_per_cluster: int = 1
    sector: int = 32  # bytes of the shortest access to DRAM
    limits: SmLimits = SmLimits()
    wgmma: WgmmaFigures = WgmmaFigures()
    mma: MmaFigures = MmaFigures()
    simt: SimtFigures = SimtFigures()
    tma_simt: TmaSimtFigures = TmaSimtFigures()
    dp4a: Dp4aFigures = Dp4aFigures()
    tile: SharedTileFigures = SharedTileFigures()
    rows: RowFigures = RowFigures()
    columns: ColumnFigures = ColumnFigures()
    scans: ScanFigures = ScanFigures()
    elementwise: ElementwiseFigures = ElementwiseFigures()
    windows: WindowFigures = WindowFigures()
    transpose: TransposeFigures = TransposeFigures()
    attention: AttentionFigures = AttentionFigures()
    source: str = "table"  # where the figures come from: "table", "given" or "calibrated"

    @property
    def peak_flops(self) -> float:
        """float32 operations in a second, without tensor cores."""
        return 2e9 * self.clock * self.fma_per_cycle * self.multiprocessors

    @property
    def dram_bytes(self) -> float:
        """Bytes of DRAM in a cycle, for one SM if all of them read."""
        return self.bandwidth / self.clock / self.multiprocessors


# Registers of a thread that copies and of one that computes, by the number of warpgroups that compute and of thread
# blocks of an SM: `setmaxnreg` moves them. The sum over all threads is at most the 65,536 registers of an SM.
_SPLIT: Final = {
    (2, 1): (40, 232),
    (3, 1): (32, 160),
    (4, 1): (32, 112),
    (1, 2): (24, 232),
    (1, 3): (24, 136),
    (1, 4): (24, 104),
}


def register_split(warpgroups: int, blocks: int) -> tuple[int, int]:
    """The registers of a thread that copies and of one that computes, in a kernel with a warpgroup for TMA copies;
    (0, 0) if the kernel moves none."""
    return _SPLIT.get((warpgroups, blocks), (0, 0))


# ---------------------------------------------------------------------------- figures by name
# Fields of the machine itself that may be given; the others are limits that code generation relies on.
_OWN: Final = ("multiprocessors", "l2_cache", "bandwidth", "clock", "fma_per_cycle", "mma_per_cycle")
_APART: Final = 1000  # a figure is within this factor of the one in the table


def gpu_figures(machine: GpuMachine) -> dict[str, int | float]:
    """All figures that may be given or measured, by name: `clock`, `mma.latency`, `tma_simt.tiles.64x64.rate`."""
    own = {name: getattr(machine, name) for name in _OWN}
    groups = [f.name for f in fields(machine) if is_dataclass(getattr(machine, f.name))]
    return {**own, **{k: v for name in groups for k, v in _leaves(getattr(machine, name), f"{name}.")}}


def _leaves(group: Any, prefix: str) -> Iterator[tuple[str, int | float]]:
    for f in fields(group):
        value = getattr(group, f.name)
        if is_dataclass(value):
            yield from _leaves(value, f"{prefix}{f.name}.")
        elif isinstance(value, tuple):
            for tile in value:
                yield from _leaves(tile, f"{prefix}{f.name}.{_shape(tile)}.")
        elif not (isinstance(group, TileRate) and f.name in ("rows", "columns")):
            yield prefix + f.name, value


def _shape(tile: TileRate) -> str:
    return f"{tile.rows}x{tile.columns}"


def checked_figure(
    name: str, value: Any, kind: type[int] | type[float], low: float, high: float, what: str
) -> int | float:
    """A figure in its type and in sensible bounds."""
    try:
        number = kind(value)
    except (TypeError, ValueError, OverflowError):
        number = kind(-1)
    if isinstance(value, bool) or not low <= number <= high:
        wanted = "a whole number" if kind is int else "a number"
        raise TargetError(f"{what}: {name} takes {wanted} from {low:g} to {high:g}, not {value!r}")
    return number


def checked_gpu_figures(machine: GpuMachine, given: Mapping[str, Any], what: str) -> dict[str, int | float]:
    """Figures by name, each a number of the type of the machine's own, and within a factor of a thousand of it."""
    known = gpu_figures(machine)
    out: dict[str, int | float] = {}
    for name, value in given.items():
        if name not in known:
            raise TargetError(f"{what}: {name!r} is not a figure of a GPU{near_matches(name, known)}")
        own = known[name]
        low, high = (own / _APART, own * _APART) if own else (0, _APART)
        out[name] = checked_figure(name, value, type(own), low, high, what)
    return out


def with_gpu_figures(machine: GpuMachine, figures: Mapping[str, int | float], source: str) -> GpuMachine:
    """The machine with some figures replaced."""
    made: GpuMachine = _replaced(machine, figures, "")
    return replace(made, source=source)


def _replaced(group: Any, figures: Mapping[str, int | float], prefix: str) -> Any:
    changed: dict[str, Any] = {}
    for f in fields(group):
        name, value = prefix + f.name, getattr(group, f.name)
        inside = any(given.startswith(f"{name}.") for given in figures)
        if name in figures:
            changed[f.name] = figures[name]
        elif inside and isinstance(value, tuple):
            changed[f.name] = tuple(_replaced(t, figures, f"{name}.{_shape(t)}.") for t in value)
        elif inside:
            changed[f.name] = _replaced(value, figures, f"{name}.")
    return replace(group, **changed) if changed else group
