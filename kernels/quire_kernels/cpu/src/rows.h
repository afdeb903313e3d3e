// Operations on single rows of activations.
#pragma once

#include "quantize.h"

namespace quire {

// x / sqrt(mean(x^2) + epsilon) * weight; `out` may be `x`.
inline void rms_norm(const float* x, const float* weight, float epsilon, int64_t size, float* out) {
    f8 squares{};
    float rest = 0.0f;
    int64_t i = 0;
    for (; i + 8 <= size; i += 8) squares = multiply_add(load(x + i), load(x + i), squares);
    for (; i < size; ++i) rest += x[i] * x[i];
    const float mean = (sum(squares) + rest) / static_cast<float>(size);
    const float scale = 1.0f / std::sqrt(mean + epsilon);
    for (i = 0; i + 8 <= size; i += 8) store(out + i, load(x + i) * scale * load(weight + i));
    for (; i < size; ++i) out[i] = x[i] * scale * weight[i];
}

// Rotate the pairs (i, i + size / 2) of one head by the position's angles.
inline void rotate(float* head, const float* cosines, const float* sines, int64_t size) {
    float* other = head + size / 2;
    for (int64_t i = 0; i < size / 2; ++i) {
        const float a = head[i], b = other[i];
        head[i] = a * cosines[i] - b * sines[i];
        other[i] = b * cosines[i] + a * sines[i];
    }
}

inline f8 activate(f8 gate, int32_t activation) {
    if (activation == QUIRE_SILU) return gate / (1.0f + exponential(-gate));
    const f8 inner = 0.7978845608f * (gate + 0.044715f * gate * gate * gate);
    return 0.5f * gate * (1.0f + hyperbolic_tangent(inner));
}

// The first of the greatest, or -1 if one is NaN or the greatest is not finite.
inline int32_t argmax(const float* x, int64_t size) {
    f8 best = splat(-INFINITY);
    auto is_nan = best != best;
    int64_t i = 0;
    for (; i + 8 <= size; i += 8) {
        const f8 values = load(x + i);
        best = maximum(best, values);
        is_nan |= values != values;
    }
    float peak = largest(best);
    bool any_nan = false;
    for (int lane = 0; lane < 8; ++lane) any_nan |= is_nan[lane] != 0;
    for (; i < size; ++i) {
        peak = x[i] > peak ? x[i] : peak;
        any_nan |= x[i] != x[i];
    }
    if (any_nan || !(std::fabs(peak) < INFINITY)) return -1;
    for (i = 0; i < size; ++i)
        if (x[i] == peak) return static_cast<int32_t>(i);
    return -1;
}

// One weight of a packed matrix, as a float.
inline float element(const QuireMatrix& matrix, int64_t row, int64_t col) {
    const int64_t lane = row % kGroupRows, bytes = tile_bytes(matrix.format);
    const uint8_t* group =
        matrix.tiles + row / kGroupRows * group_bytes(matrix.format, matrix.cols);
    if (is_dense(matrix.format)) {
        const uint8_t* tile = group + col * bytes;
        if (matrix.format == QUIRE_F32) return reinterpret_cast<const float*>(tile)[lane];
        const uint16_t raw = reinterpret_cast<const uint16_t*>(tile)[lane];
        if (matrix.format == QUIRE_F16) return half_to_float(raw);
        const uint32_t bits = static_cast<uint32_t>(raw) << 16;
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
    const uint8_t* tile = group + col / kBlockColumns * bytes;
    const int64_t within = col % kBlockColumns;
    const bool nibbles = matrix.format == QUIRE_Q4;
    const auto* scales = reinterpret_cast<const uint16_t*>(tile + (nibbles ? 128 : 256));
    const bool in_second_half = matrix.format == QUIRE_Q8H && within >= kBlockColumns / 2;
    const float scale = half_to_float(scales[lane + (in_second_half ? kGroupRows : 0)]);
    const bool has_minimum = matrix.format == QUIRE_Q4 || matrix.format == QUIRE_Q8M;
    const float minimum = has_minimum ? half_to_float(scales[kGroupRows + lane]) : 0.0f;
    const int64_t four = nibbles ? within % 16 : within;
    const uint8_t byte = tile[four / 4 * 32 + lane * 4 + four % 4];
    if (!nibbles) return scale * static_cast<int8_t>(byte) + minimum;
    return scale * static_cast<float>(within < 16 ? byte & 15 : byte >> 4) + minimum;
}

inline void embed(const QuireMatrix& matrix, int64_t row, float scale, float* out) {
    for (int64_t col = 0; col < matrix.cols; ++col) out[col] = element(matrix, row, col) * scale;
}

}  // namespace quire
