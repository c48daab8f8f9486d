"""Functions whose form the current target chooses."""

from __future__ import annotations

import pytest

import tilewright as tvm
from tilewright.target import Target


def test_the_keys_of_a_target_choose():
    @tvm.target.generic_func
    def lanes(x):
        """Lanes of a vector."""
        return x + 1

    @lanes.register(["cuda", "gpu"])
    def on_gpus(x):
        return x + 2

    lanes.register("arm_cpu", lambda x: x + 10)
    assert lanes.__name__ == "lanes" and lanes.fdefault(1) == 2
    assert lanes(1) == 2
    for target, want in ((tvm.target.cuda(), 3), ("metal", 3), (tvm.target.arm_cpu(), 11), ("llvm", 2)):
        with Target(target):
            assert lanes(1) == lanes(x=1) == lanes.get_packed_func()(1) == want
    with pytest.raises(ValueError, match="has a form for 'gpu' already"):
        lanes.register("gpu", on_gpus)


def test_a_function_by_its_name():
    node = tvm.target.get_native_generic_func("tests.strategy")
    with pytest.raises(ValueError, match="has no default, and no form"):
        node(1)

    @tvm.target.override_native_generic_func("tests.strategy")
    def strategy(x):
        return x

    strategy.register("gpu", lambda x: -x)
    assert strategy.generic_func_node is node and node(4) == 4
    with Target("cuda"):
        assert node(4) == -4
        node.register(lambda x: 7, "cuda")
        assert strategy(4) == 7


# ---------------------------------------------------------------------------- hosts in text
@pytest.mark.parametrize("text", ["cuda --host llvm", "cuda -host=llvm", "cuda --host=llvm -arch=sm_80"])
def test_a_host_in_the_text(text):
    target = Target(text)
    assert target.kind.name == "cuda" and target.host == Target("llvm")
    assert Target(target, "llvm").host == Target("llvm")


def test_hosts_that_contradict():
    with pytest.raises(tvm.TVMError, match="-host is given twice"):
        Target("cuda --host llvm --host=c")
    with pytest.raises(tvm.TVMError, match="-host needs a value"):
        Target("cuda --host")
    with pytest.raises(tvm.TVMError, match="has the host"):
        Target(Target("cuda --host llvm"), "c")
    # the host of a tag is a suggestion
    assert Target("nvidia/jetson-nano", "llvm").host == Target("llvm")


def test_a_list_is_no_dict():
    with pytest.raises(ValueError, match="takes names separated by commas"):
        Target({"kind": "llvm", "libs": {"a": "b"}})


def test_features_of_a_target_are_there():
    features = Target("cuda").features
    assert features and not features.is_aarch64 and not features.has_avx2
    assert Target("llvm -mtriple=aarch64-linux-gnu").features.is_aarch64
