"""Drawings of schedules."""

from __future__ import annotations

import sys

import pytest

from tilewright import te
from tilewright.contrib import tedd


@pytest.fixture
def schedule():
    A = te.placeholder((8, 8), name="A")
    B = te.compute((8, 8), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((8, 8), lambda i, j: B[i, j] * 2, name="C")
    s = te.create_schedule(C.op)
    fused = s[C].fuse(*C.op.axis)
    outer, inner = s[C].split(fused, factor=4)
    s[C].vectorize(inner)
    s[C].bind(outer, te.thread_axis("blockIdx.x"))
    s[B].compute_at(s[C], outer)
    return s


def test_data_flows(schedule):
    text = tedd.viz_dataflow_graph(schedule, output_dot_string=True)
    assert 'Stage_0 -> Stage_1 [label="A[8, 8] float32"];' in text
    assert 'Stage_1 -> Stage_2 [label="B[8, 8] float32"];' in text


def test_axes_come_from_others(schedule, tmp_path):
    assert tedd.viz_itervar_relationship_graph(schedule, dot_file_path=str(tmp_path / "axes.dot")) is None
    text = (tmp_path / "axes.dot").read_text()
    assert text.startswith("digraph {") and 'label="Fuse"' in text and 'label="Split"' in text
    assert "Stage_2_0 -> Stage_2_fuse_0;" in text and "Stage_2_split_1 -> Stage_2_4;" in text
    assert "blockIdx.x" in text and "Vectorized" in text


def test_a_stage_hangs_on_its_loop(schedule):
    text = tedd.viz_schedule_tree(schedule, output_dot_string=True)
    assert "Stage_2_3 -> Stage_1;" in text and "Stage_2 -> ROOT;" in text


def test_drawing_says_what_to_install(schedule, monkeypatch):
    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(ImportError, match="pip install graphviz ipython"):
        tedd.viz_dataflow_graph(schedule, show_svg=True)
