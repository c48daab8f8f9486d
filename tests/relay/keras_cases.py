"""Layers of Keras, each with the shape of what it takes: name -> (shape without batch, layers)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

L = keras.layers
IMAGE, WORDS, VOLUME = (9, 8, 4), (6, 4), (5, 6, 7, 2)

Made = Callable[[], Any]

LAYERS: dict[str, tuple[tuple[int, ...], Made]] = {
    # dense
    "dense": ((5,), lambda: L.Dense(7, activation="tanh")),
    "dense_of_words": (WORDS, lambda: L.Dense(7)),
    "dense_without_bias": ((5,), lambda: L.Dense(7, use_bias=False)),
    "einsum_dense": (WORDS, lambda: L.EinsumDense("abc,cd->abd", output_shape=(None, 5), bias_axes="d")),
    # convolutions
    "conv2d": (IMAGE, lambda: L.Conv2D(6, 3, bias_initializer="random_normal")),
    "conv2d_same_strided": (IMAGE, lambda: L.Conv2D(6, 3, strides=2, padding="same")),
    "conv2d_dilated": (IMAGE, lambda: L.Conv2D(6, 3, dilation_rate=2)),
    "conv2d_dilated_same": (IMAGE, lambda: L.Conv2D(6, 3, dilation_rate=2, padding="same")),
    "conv2d_grouped": (IMAGE, lambda: L.Conv2D(6, 3, groups=2)),
    "conv1d_causal": (WORDS, lambda: L.Conv1D(6, 3, padding="causal")),
    "conv3d": (VOLUME, lambda: L.Conv3D(3, 2, strides=2)),
    "depthwise_conv2d": (IMAGE, lambda: L.DepthwiseConv2D(3, depth_multiplier=2, padding="same")),
    "depthwise_conv1d": (WORDS, lambda: L.DepthwiseConv1D(3)),
    "separable_conv2d": (IMAGE, lambda: L.SeparableConv2D(6, 3)),
    "separable_conv1d": (WORDS, lambda: L.SeparableConv1D(6, 3)),
    "conv2d_transpose": (IMAGE, lambda: L.Conv2DTranspose(6, 3, strides=2)),
    "conv2d_transpose_same": (IMAGE, lambda: L.Conv2DTranspose(6, 3, strides=2, padding="same")),
    "conv1d_transpose": (WORDS, lambda: L.Conv1DTranspose(6, 3, strides=2)),
    "conv3d_transpose": (VOLUME, lambda: L.Conv3DTranspose(3, 2, strides=2)),
    # pooling
    "max_pooling2d": (IMAGE, lambda: L.MaxPooling2D()),
    "max_pooling2d_same": (IMAGE, lambda: L.MaxPooling2D(3, 2, padding="same")),
    "average_pooling2d": (IMAGE, lambda: L.AveragePooling2D(2)),
    "average_pooling2d_same": (IMAGE, lambda: L.AveragePooling2D(3, 2, padding="same")),
    "global_average_pooling2d": (IMAGE, lambda: L.GlobalAveragePooling2D()),
    "global_max_pooling2d": (IMAGE, lambda: L.GlobalMaxPooling2D(keepdims=True)),
    "max_pooling1d": (WORDS, lambda: L.MaxPooling1D()),
    "average_pooling3d": (VOLUME, lambda: L.AveragePooling3D(2)),
    "global_average_pooling1d": (WORDS, lambda: L.GlobalAveragePooling1D()),
    # normalisation
    "batch_normalization": (IMAGE, lambda: L.BatchNormalization(**_random("beta", "gamma", "moving_mean"))),
    "batch_normalization_of_words": (WORDS, lambda: L.BatchNormalization(scale=False)),
    "layer_normalization": (WORDS, lambda: L.LayerNormalization(**_random("beta", "gamma"))),
    "layer_normalization_axes": (IMAGE, lambda: L.LayerNormalization(axis=(1, 2))),
    "group_normalization": (IMAGE, lambda: L.GroupNormalization(2)),
    "rms_normalization": (WORDS, lambda: L.RMSNormalization()),
    "unit_normalization": (WORDS, lambda: L.UnitNormalization()),
    "normalization": (IMAGE, lambda: L.Normalization(mean=[1.0, 2, 3, 4], variance=[1.0, 2, 3, 4])),
    "spectral_normalization": ((5,), lambda: L.SpectralNormalization(L.Dense(4))),
    # recurrent
    "lstm": (WORDS, lambda: L.LSTM(5, bias_initializer="random_normal")),
    "lstm_sequences": (WORDS, lambda: L.LSTM(5, return_sequences=True)),
    "lstm_backwards": (WORDS, lambda: L.LSTM(5, go_backwards=True)),
    "lstm_unrolled": (WORDS, lambda: L.LSTM(5, unroll=True)),
    "lstm_hard_sigmoid": (WORDS, lambda: L.LSTM(5, recurrent_activation="hard_sigmoid")),
    "gru": (WORDS, lambda: L.GRU(5, bias_initializer="random_normal")),
    "gru_sequences": (WORDS, lambda: L.GRU(5, return_sequences=True)),
    "gru_reset_before": (WORDS, lambda: L.GRU(5, reset_after=False)),
    "simple_rnn": (WORDS, lambda: L.SimpleRNN(5)),
    "bidirectional_lstm": (WORDS, lambda: L.Bidirectional(L.LSTM(5, return_sequences=True))),
    "bidirectional_gru_sum": (WORDS, lambda: L.Bidirectional(L.GRU(5), merge_mode="sum")),
    "stacked_cells": (WORDS, lambda: L.RNN([L.LSTMCell(5), L.GRUCell(3)])),
    "conv_lstm2d": ((3, 6, 6, 2), lambda: L.ConvLSTM2D(3, 3, padding="same")),
    "time_distributed": ((3, 6, 6, 2), lambda: L.TimeDistributed(L.Conv2D(3, 3))),
    # activations
    "relu6": (IMAGE, lambda: L.ReLU(6.0)),
    "relu_threshold": (IMAGE, lambda: L.ReLU(threshold=0.5, negative_slope=0.1)),
    "leaky_relu": (IMAGE, lambda: L.LeakyReLU(0.2)),
    "prelu": (IMAGE, lambda: L.PReLU("random_normal", shared_axes=[1, 2])),
    "elu": (IMAGE, lambda: L.ELU(0.7)),
    "softmax": (IMAGE, lambda: L.Softmax()),
    "softmax_axis": (IMAGE, lambda: L.Softmax(axis=1)),
    # shapes
    "up_sampling2d": (IMAGE, lambda: L.UpSampling2D((2, 3))),
    "up_sampling2d_bilinear": (IMAGE, lambda: L.UpSampling2D(2, interpolation="bilinear")),
    "up_sampling1d": (WORDS, lambda: L.UpSampling1D(3)),
    "up_sampling3d": (VOLUME, lambda: L.UpSampling3D(2)),
    "zero_padding2d": (IMAGE, lambda: L.ZeroPadding2D(((1, 2), (0, 3)))),
    "zero_padding1d": (WORDS, lambda: L.ZeroPadding1D(2)),
    "zero_padding3d": (VOLUME, lambda: L.ZeroPadding3D(1)),
    "cropping2d": (IMAGE, lambda: L.Cropping2D(((1, 0), (2, 1)))),
    "cropping1d": (WORDS, lambda: L.Cropping1D(1)),
    "cropping3d": (VOLUME, lambda: L.Cropping3D(1)),
    "center_crop": (IMAGE, lambda: L.CenterCrop(5, 5)),
    "resizing": (IMAGE, lambda: L.Resizing(5, 6)),
    "resizing_nearest": (IMAGE, lambda: L.Resizing(18, 16, interpolation="nearest")),
    "flatten": (IMAGE, lambda: L.Flatten()),
    "reshape": (IMAGE, lambda: L.Reshape((12, -1))),
    "permute": (IMAGE, lambda: L.Permute((2, 3, 1))),
    "repeat_vector": ((5,), lambda: L.RepeatVector(3)),
    "rescaling": (IMAGE, lambda: L.Rescaling(1 / 255.0, -1)),
    # nothing at inference
    "dropout": (IMAGE, lambda: L.Dropout(0.5)),
    "spatial_dropout2d": (IMAGE, lambda: L.SpatialDropout2D(0.5)),
    "gaussian_noise": (IMAGE, lambda: L.GaussianNoise(1.0)),
    "gaussian_dropout": (IMAGE, lambda: L.GaussianDropout(0.5)),
    "activity_regularization": (IMAGE, lambda: L.ActivityRegularization(0.1)),
}

ACTIVATIONS = (
    "relu sigmoid tanh softmax softplus softsign selu elu exponential leaky_relu relu6 silu gelu hard_sigmoid "
    "hard_silu linear mish log_softmax celu tanh_shrink hard_tanh hard_shrink soft_shrink squareplus sparse_plus "
    "log_sigmoid glu sparse_sigmoid"
).split()

MERGES: dict[str, Made] = {
    "add": lambda: L.Add(),
    "subtract": lambda: L.Subtract(),
    "multiply": lambda: L.Multiply(),
    "average": lambda: L.Average(),
    "maximum": lambda: L.Maximum(),
    "minimum": lambda: L.Minimum(),
    "concatenate": lambda: L.Concatenate(),
    "concatenate_axis": lambda: L.Concatenate(axis=1),
    "dot": lambda: L.Dot(axes=(2, 2)),
    "dot_normalized": lambda: L.Dot(axes=(2, 2), normalize=True),
    "attention": lambda: L.Attention(use_scale=True),
    "additive_attention": lambda: L.AdditiveAttention(),
    "multi_head_attention": lambda: _Pair(L.MultiHeadAttention(2, 3)),
    "group_query_attention": lambda: _Pair(L.GroupQueryAttention(4, 4, 2)),
}


class _Pair:
    """Attention of one on the other, called as merges are: with a list."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def __call__(self, pair: Any) -> Any:
        return self.layer(pair[0], pair[1])


def _random(*names: str) -> dict[str, Any]:
    """Initialisers that are not zeros and ones."""
    return {
        f"{n}_initializer": keras.initializers.RandomUniform(0.5, 1.5, seed=i) for i, n in enumerate(names)
    }
