"""Functions that importers outside of the package take from relay.frontend.common."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.frontend import common


def test_types_sizes_and_values() -> None:
    w, k = relay.var("w", shape=(4, 3, 2, 2)), relay.var("k", shape=(2,), dtype="int64")
    y = common.get_relay_op("conv2d")(common.new_var("x", shape=(1, 3, 5, 5)), w)
    assert common.infer_shape(y) == (1, 4, 4, 4) and common.infer_type(y).checked_type.dtype == "float32"
    assert (common.infer_channels(w), common.infer_channels(w, transpose=True)) == (4, 3)
    double = k * relay.const(2, "int64")
    got = common.infer_value(double, {"k": tvm.nd.array(np.array([1, 2], "int64"))})
    np.testing.assert_array_equal(got.numpy(), [2, 4])
    folded = common.fold_constant(relay.const(1.0) + relay.const(2.0))
    assert isinstance(folded, relay.Constant) and folded.numpy() == 3
    with pytest.raises(tvm.TVMError, match="infer_value: the value is not known"):
        common.infer_value(double, {})
    with pytest.raises(tvm.TVMError, match="there is no operator 'no_such' in relay"):
        common.get_relay_op("no_such")
