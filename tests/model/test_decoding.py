"""Generation token by token: `Decoder`, KV caches that are written in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import relay
from tilewright.ir.errors import BuildError, TVMError
from tilewright.model.decoding import Decoder
from tilewright.relay.transform.cache_in_place import caches_in_place
from tilewright.relay.transform.infer_type import infer_module
from tilewright.runtime.errors import ArgumentValueError, OutOfBoundsError
from tilewright.runtime.vm_values import put_rows
from tilewright.tir import SizeVar


def step(axis: int = 2, heads: int = 2, groups: int = 1, returned: bool = True) -> Any:
    """One step of attention: queries, and keys that are joined with those of the past."""
    n = SizeVar("n", "int32")
    shape = [1, heads, n, 4] if axis == 2 else [1, n, heads, 4]
    past = relay.var("past", shape=shape)
    one = [1 if d is n else d for d in shape]
    q, k = relay.var("q", shape=(heads * groups, 1, 4)), relay.var("k", shape=one)
    keys = relay.concatenate([past, k], axis)
    read = keys if axis == 2 else relay.transpose(keys, (0, 2, 1, 3))
    read = relay.repeat(read, groups, 1) if groups > 1 else read
    scores = relay.nn.batch_matmul(q, relay.reshape(read, (heads * groups, -1, 4)))
    body = relay.Tuple([relay.nn.softmax(scores), keys]) if returned else scores
    return relay.Function([q, k, past], body)


def softmax(x: Any) -> Any:
    made = np.exp(x - x.max(-1, keepdims=True))
    return made / made.sum(-1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize(("axis", "groups"), [(2, 1), (1, 1), (2, 3)])
def test_a_step_writes_its_rows_into_the_cache(axis: int, groups: int, rng: Any) -> None:
    decoder = Decoder(relay.Function(*_parts(step(axis, groups=groups))), max_length=5)
    assert repr(decoder) == "Decoder(model: 1 caches, 0 of 5 rows)"
    assert decoder.buffers["past"].shape == (5, 1, 2, 4)
    shape = (1, 2, 1, 4) if axis == 2 else (1, 1, 2, 4)
    rows: list[Any] = []
    for count in range(1, 6):
        q = rng.standard_normal((2 * groups, 1, 4)).astype("float32")
        rows.append(rng.standard_normal(shape).astype("float32"))
        keys = np.concatenate(rows, axis)
        read = keys[0] if axis == 2 else keys[0].transpose(1, 0, 2)
        found = decoder(q, rows[-1]) if count % 2 else decoder(k=rows[-1], q=q)
        want = softmax(q @ np.repeat(read, groups, 0).transpose(0, 2, 1))
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
        assert decoder.past == count
        np.testing.assert_array_equal(decoder.cache("past"), keys)
    with pytest.raises(
        ArgumentValueError, match="the caches are full: 5 of 5 rows; give a larger max_length"
    ):
        decoder(q, rows[0])
    decoder.start([keys[:, :, :2] if axis == 2 else keys[:, :2]])
    assert decoder.past == 2 and decoder.cache("past").shape[axis] == 2
    decoder(q, rows[2])
    np.testing.assert_array_equal(decoder.cache("past"), np.concatenate(rows[:3], axis))
    # nothing but the row is written: a step leaves later rows as they are
    decoder.start()
    decoder.buffers["past"][1:] = 7
    decoder(q, rows[0])
    assert decoder.past == 1 and (decoder.buffers["past"][1:] == 7).all()


@pytest.fixture
def rng() -> Any:
    return np.random.default_rng(0)


def _parts(fn: Any) -> tuple[Any, Any]:
    return fn.params, fn.body


def typed(fn: Any) -> Any:
    from tilewright.ir.module import IRModule

    return infer_module(IRModule.from_expr(fn))["main"]


def test_the_program_takes_the_cache_with_room_for_new_rows() -> None:
    made, caches = caches_in_place(typed(step()))
    (cache,) = caches
    assert (cache.name, cache.row, cache.step, cache.order) == ("past", (1, 2, 4), 1, (2, 0, 1, 3))
    text = made.astext()
    assert "nn.cache_update(%past, " in text and "concatenate" not in text
    assert str(made.params[2].checked_type.shape[0]) == "n_1"
    assert str(made.body.checked_type) == "Tensor[(2, 1, n_1), float32]"


def test_a_program_without_a_cache_is_unchanged() -> None:
    fn = typed(step(returned=False))
    assert caches_in_place(fn) == (fn, [])
    with pytest.raises(ArgumentValueError, match="there is no KV cache in it"):
        Decoder(step(returned=False))


def test_refused_caches() -> None:
    fn = step()
    again = relay.Function(fn.params, relay.Tuple([*fn.body.fields, relay.exp(fn.params[2])]))
    with pytest.raises(BuildError, match="%past: a cache may only be joined with new rows, and is also used"):
        caches_in_place(typed(again))
    unread = relay.Function(fn.params, relay.Tuple([relay.exp(fn.params[0]), fn.body.fields[1]]))
    with pytest.raises(BuildError, match="%past: the extended cache is returned and never read"):
        caches_in_place(typed(unread))


@pytest.mark.slow
def test_bad_arguments_of_a_decoder() -> None:
    with pytest.raises(ArgumentValueError, match="max_length=0: a step of model has 1 rows"):
        Decoder(step(), max_length=0)
    decoder = Decoder(step(), max_length=4)
    with pytest.raises(ArgumentValueError, match="the caches are past, and keys are given"):
        decoder.start({"keys": np.zeros((1, 2, 3, 4), "float32")})
    with pytest.raises(
        ArgumentValueError, match=r"at most 4 of them; it was given 5 rows of shape \(1, 2, 4\)"
    ):
        decoder.start([np.zeros((1, 2, 5, 4), "float32")])
    with pytest.raises(ArgumentValueError, match="there is no cache 'keys'; there are past"):
        decoder.cache("keys")
    decoder.buffers["past"].flags.writeable = False
    with pytest.raises(
        ArgumentValueError, match="written in place: it must be a contiguous array that may be"
    ):
        decoder(np.zeros((2, 1, 4), "float32"), np.zeros((1, 2, 1, 4), "float32"))
    assert decoder.past == 0


@pytest.mark.slow
def test_a_network_of_torch() -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = torch.nn.Embedding(11, 8), torch.nn.Embedding(32, 8)
            self.qkv = torch.nn.Linear(8, 24)

        def forward(self, ids: Any, past: Any) -> Any:
            start = past[0].shape[2]
            x = self.tokens(ids) + self.positions(torch.arange(start, start + ids.shape[1]))
            q, k, v = (e.unflatten(-1, (2, 4)).transpose(1, 2) for e in self.qkv(x).chunk(3, -1))
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
            found = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            return found[:, -1] @ self.tokens.weight.T, (k, v)

    torch.manual_seed(0)
    net, ids = Net().eval(), torch.zeros(1, 1, dtype=torch.int64)
    n = torch.export.Dim("n", min=2, max=64)
    with torch.no_grad():
        example = ids, (torch.zeros(1, 2, 6, 4), torch.zeros(1, 2, 6, 4))
        program = torch.export.export(net, example, dynamic_shapes=(None, ({2: n}, {2: n})))
        decoder = Decoder(program, max_length=12)
        past = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4)
        decoder.start(past)
        for _ in range(8):
            want, past = net(ids, past)
            torch.testing.assert_close(decoder(ids), want, rtol=1e-4, atol=1e-5)
            ids = want.argmax(-1, keepdim=True)
    np.testing.assert_allclose(decoder.cache("past_1"), past[1].numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_network_of_onnx(rng: Any) -> None:
    onnx = pytest.importorskip("onnx")
    make, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    nodes = [
        onnx.helper.make_node("Concat", ["past", "k"], ["present"], axis=2),
        onnx.helper.make_node("Transpose", ["present"], ["turned"], perm=[0, 1, 3, 2]),
        onnx.helper.make_node("MatMul", ["q", "turned"], ["scores"]),
    ]
    one = [make(name, kind, [1, 2, 1, 4]) for name in "qk"]
    graph = onnx.helper.make_graph(
        nodes,
        "step",
        [*one, make("past", kind, [1, 2, "n", 4])],
        [make("scores", kind, [1, 2, 1, "all"]), make("present", kind, [1, 2, "all", 4])],
    )
    decoder = Decoder(onnx.helper.make_model(graph), max_length=8)
    assert [c.result for c in decoder.caches] == ["present"]
    keys = rng.standard_normal((1, 2, 3, 4)).astype("float32")
    decoder.start({"past": keys})
    q, k = (rng.standard_normal((1, 2, 1, 4)).astype("float32") for _ in "qk")
    keys = np.concatenate([keys, k], 2)
    np.testing.assert_allclose(decoder(q=q, k=k), q @ keys.transpose(0, 1, 3, 2), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(decoder.cache("past"), keys)


# ---------------------------------------------------------------------------- caches of fixed size
ROWS = 8


def written(torch: Any, how: str, cache: Any, at: Any, rows: Any) -> Any:
    """A cache with rows at positions, in the forms that networks have."""
    if how == "index_copy":
        return cache.index_copy(2, at, rows)
    if how == "index_put":
        made = cache.clone()
        made[:, :, at] = rows
        return made
    if how == "scatter":
        return cache.scatter(2, at.view(1, 1, -1, 1).expand(rows.shape), rows)
    return torch.ops.aten.index_put(cache.transpose(0, 2), [at], rows.transpose(0, 2)).transpose(0, 2)


FORMS = ("index_copy", "index_put", "scatter", "transposed")


def fixed_network(how: str, is_buffer: bool, counts: bool = False) -> Any:
    """A network whose cache of 8 rows is a buffer or an input; it may count its steps itself."""
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.qk = torch.nn.Embedding(11, 8), torch.nn.Linear(8, 16)
            self.register_buffer("keys", torch.zeros(1, 2, ROWS, 4))
            self.register_buffer("done", torch.zeros((), dtype=torch.int64))

        def forward(self, ids: Any, at: Any = None, keys: Any = None) -> Any:
            q, k = (e.unflatten(-1, (2, 4)).transpose(1, 2) for e in self.qk(self.tokens(ids)).chunk(2, -1))
            if counts:
                at = self.done + torch.arange(ids.shape[1])
                self.done.add_(ids.shape[1])
            made = written(torch, how, self.keys if is_buffer else keys, at, k)
            if is_buffer:
                self.keys.copy_(made)
            seen = torch.arange(ROWS) <= at[:, None]
            scores = (q @ made.transpose(-1, -2)).masked_fill(~seen, -1e9).softmax(-1)
            found = (scores @ made).transpose(1, 2).flatten(2)
            return found if is_buffer else (found, made)

    torch.manual_seed(0)
    return torch, Net().eval()


@pytest.mark.slow
@pytest.mark.parametrize("is_buffer", [True, False])
@pytest.mark.parametrize("how", FORMS)
def test_rows_at_positions_are_written_in_place(how: str, is_buffer: bool) -> None:
    torch, net = fixed_network(how, is_buffer)
    keys = torch.zeros(1, 2, ROWS, 4)
    ids, at = torch.tensor([[3]]), torch.tensor([0])
    with torch.no_grad():
        program = torch.export.export(net, (ids, at) if is_buffer else (ids, at, keys))
        decoder = Decoder(program)
        assert repr(decoder) == "Decoder(model: 1 caches, 0 of 8 rows)" and not decoder.states
        (buffer,) = decoder.buffers.values()
        buffer[5:] = 7  # rows that are masked, and not written
        for step in range(5):
            ids, at = torch.tensor([[step * 2]]), torch.tensor([step])
            want = net(ids, at) if is_buffer else net(ids, at, keys)
            want, keys = (want, net.keys) if is_buffer else want
            torch.testing.assert_close(decoder(ids, at), want, rtol=1e-4, atol=1e-5)
        assert decoder.buffers["keys"] is buffer and (buffer[5:] == 7).all()
        np.testing.assert_allclose(decoder.cache("keys"), keys[:, :, :5].numpy(), rtol=1e-4, atol=1e-5)
        with pytest.raises(OutOfBoundsError, match=r"index 9 at position \[0\] is out of bounds"):
            decoder(ids, torch.tensor([9]))
        decoder.start()
        assert decoder.past == 0 and not buffer.any()


@pytest.mark.slow
def test_a_network_that_counts_its_steps() -> None:
    torch, net = fixed_network("index_copy", is_buffer=True, counts=True)
    ids = torch.tensor([[3, 1]])
    with torch.no_grad():
        decoder = Decoder(torch.export.export(net, (ids,)))
        assert list(decoder.states) == ["done"] and decoder.step == 2
        for step in range(4):
            want = net(ids + step)
            torch.testing.assert_close(decoder(ids + step), want, rtol=1e-4, atol=1e-5)
        assert decoder.states["done"] == 8 and decoder.past == 8
        with pytest.raises(ArgumentValueError, match="the caches are full: 8 of 8 rows"):
            decoder(ids)
        past = net.keys[:, :, :2].numpy()
        decoder.start({"keys": past, "done": 2})
        assert decoder.past == 2 and decoder.states["done"] == 2
        net.keys[:, :, 2:] = 0
        net.done.fill_(2)
        torch.testing.assert_close(decoder(ids), net(ids), rtol=1e-4, atol=1e-5)
        with pytest.raises(ArgumentValueError, match=r"done has the shape \(\), not \(1,\)"):
            decoder.start({"keys": past, "done": [2]})
    with pytest.raises(ArgumentValueError, match="max_length=9: the caches of Net have 8 rows"):
        Decoder(net, (ids,), max_length=9)


@pytest.mark.parametrize("op", ["ScatterND", "ScatterElements", "TensorScatter"])
def test_onnx_writes_rows_at_positions(op: str, rng: Any) -> None:
    onnx = pytest.importorskip("onnx")
    make, kind, whole = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    node, tensor = onnx.helper.make_node, onnx.helper.make_tensor
    if op == "TensorScatter":
        nodes = [node(op, ["past", "k", "at"], ["present"], axis=2)]
    elif op == "ScatterND":
        nodes = [
            node("Transpose", ["past"], ["p"], perm=[2, 0, 1, 3]),
            node("Transpose", ["k"], ["rows"], perm=[2, 0, 1, 3]),
            node("Unsqueeze", ["at", "last"], ["index"]),
            node(op, ["p", "index", "rows"], ["made"]),
            node("Transpose", ["made"], ["present"], perm=[1, 2, 0, 3]),
        ]
    else:
        nodes = [
            node("Reshape", ["at", "column"], ["line"]),
            node("Expand", ["line", "shape"], ["index"]),
            node(op, ["past", "index", "k"], ["present"], axis=2),
        ]
    nodes += [
        node("Transpose", ["present"], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "turned"], ["scores"]),
    ]
    constants = [
        tensor("last", whole, [1], [1]),
        tensor("column", whole, [4], [1, 1, 1, 1]),
        tensor("shape", whole, [4], [1, 2, 1, 4]),
    ]
    inputs = [
        make("q", kind, [1, 2, 1, 4]),
        make("k", kind, [1, 2, 1, 4]),
        make("at", whole, [1]),
        make("past", kind, [1, 2, ROWS, 4]),
    ]
    outputs = [make("scores", kind, [1, 2, 1, ROWS]), make("present", kind, [1, 2, ROWS, 4])]
    graph = onnx.helper.make_graph(nodes, "step", inputs, outputs, constants)
    decoder = Decoder(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 24)]))
    assert [(c.name, c.result, c.rows) for c in decoder.caches] == [("past", "present", ROWS)]
    want = np.zeros((1, 2, ROWS, 4), "float32")
    for step in range(3):
        q, k = (rng.standard_normal((1, 2, 1, 4)).astype("float32") for _ in "qk")
        want[:, :, step : step + 1] = k
        found = decoder(q=q, k=k, at=np.array([step]))
        np.testing.assert_allclose(found, q @ want.transpose(0, 1, 3, 2), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(decoder.cache("past"), want[:, :, :3])


def test_a_parameter_with_other_uses_is_no_cache_at_positions() -> None:
    past, rows, at = (
        relay.var("past", shape=(8, 4)),
        relay.var("rows", shape=(1, 4)),
        relay.var("at", shape=(1, 1), dtype="int64"),
    )
    made = relay.scatter_nd(past, at, rows)
    read = relay.Function([past, rows, at], relay.Tuple([relay.exp(made), made]))
    assert [c.rows for c in caches_in_place(typed(read))[1]] == [8]
    for other in (relay.exp(past), relay.exp(rows)):  # the old rows are read too; the new ones are not
        fn = typed(relay.Function([past, rows, at], relay.Tuple([other, made])))
        assert caches_in_place(fn) == (fn, [])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Llama", "GPT2"])
def test_a_static_cache_of_transformers(kind: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.integrations import executorch

    sizes = {
        "Llama": {
            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2,
        },
        "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    }[kind]  # fmt: skip
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(vocab_size=50, **sizes)
    net = getattr(transformers, f"{kind}LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM")(
        config
    ).eval()
    net.generation_config = transformers.GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        cache_config={"batch_size": 1, "max_cache_len": 12},
    )
    decoder = Decoder(executorch.convert_and_export_with_cache(net))
    assert len(decoder.caches) == 4 and decoder.max_length == 12
    text = [3]
    for step in range(10):
        with torch.no_grad():
            want = net(torch.tensor([text])).logits[:, -1:]
        found = decoder(torch.tensor([text[-1:]]), torch.tensor([step]))
        torch.testing.assert_close(torch.as_tensor(np.asarray(found)), want, rtol=1e-3, atol=1e-4)
        text.append(int(want.argmax()))


def test_rows_are_put_only_where_there_are_rows() -> None:
    """The virtual machine checks it too: a saved program may be any."""
    held, rows = np.zeros((4, 3), "float32"), np.ones((2, 3), "float32")

    def tensor(a: Any, owner: Any = None) -> Any:
        return a.ctypes.data, a.shape, str(a.dtype), owner

    put_rows(tensor(held, (held,)), tensor(rows), tensor(np.array([-1, 1])))
    assert held.sum(1).tolist() == [0, 3, 0, 3]
    with pytest.raises(ArgumentValueError, match="a KV cache of 4 rows has no row 4"):
        put_rows(tensor(held, (held,)), tensor(rows), tensor(np.array([0, 4], "int32")))
    with pytest.raises(TVMError, match=r"cannot take rows \(2, 3\) at 1 positions of int64"):
        put_rows(tensor(held, (held,)), tensor(rows), tensor(np.array([0])))
    with pytest.raises(ArgumentValueError, match="written in place"):
        put_rows(tensor(held), tensor(rows), tensor(np.array([0, 1])))
    assert held.sum(1).tolist() == [0, 3, 0, 3]
