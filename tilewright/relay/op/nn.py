"""The classic namespace `relay.nn`: the operators whose names begin with `nn.`, each declared in its family."""

# ruff: noqa: F403
import sys

from .activation import *
from .attention import *
from .backward import *
from .bitserial import *
from .conv import *
from .image import upsampling as upsampling
from .image import upsampling3d as upsampling3d
from .loss import *
from .norm import *
from .pad import *
from .pool import *
from .product import *
from .rearrange import batch_flatten as batch_flatten
from .rearrange import batch_to_space_nd as batch_to_space_nd
from .rearrange import depth_to_space as depth_to_space
from .rearrange import fifo_buffer as fifo_buffer
from .rearrange import space_to_batch_nd as space_to_batch_nd
from .rearrange import space_to_depth as space_to_depth
from .recurrent import *
from .sparse import sparse_add as sparse_add
from .sparse import sparse_conv2d as sparse_conv2d
from .sparse import sparse_dense as sparse_dense
from .sparse import sparse_transpose as sparse_transpose
from .spatial import get_pad_tuple1d as get_pad_tuple1d
from .spatial import get_pad_tuple2d as get_pad_tuple2d
from .spatial import get_pad_tuple3d as get_pad_tuple3d

__path__: list[str] = []  # the classic had a package here
nn = sys.modules[__name__]
