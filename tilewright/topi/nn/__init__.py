"""Neural-network operators."""

# ruff: noqa: F403
from .activation import *
from .attention import *
from .backward import *
from .bitserial import *
from .conv import *
from .conv1d import *
from .conv2d import *
from .conv3d import *
from .conv_transpose import *
from .correlation import *
from .deformable_conv2d import *
from .dense import *
from .depthwise_conv2d import *
from .dilate import *
from .loss import *
from .normalization import *
from .padding import *
from .pooling import *
from .qnn import *
from .rnn import *
from .shuffle import *
from .softmax import *
from .sparse import *
from .utils import *
from .winograd import *
