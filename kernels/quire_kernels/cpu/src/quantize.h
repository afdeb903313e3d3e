// Activations from fp32 rows.
#pragma once

#include "simd.h"
#include "tiles.h"

namespace quire {

// The largest of 32 becomes this. Sums of 32 products with 8-bit weights still fit 32 bits, and
// with 4-bit weights they are exact as floats too.
constexpr float kLargestLevel = 32767.0f;
constexpr float kNothing = 1e-30f;  // smaller numbers are zero; their inverse would be infinite

// Round 32 floats, divided by the scale, to nearest; returns the scale and the integers' sum.
inline float quantize_block(const float* x, int16_t* values, int32_t& total) {
    f8 peak{};
    for (int i = 0; i < kBlockColumns; i += 8) {
        const f8 v = load(x + i);
        peak = maximum(peak, maximum(v, -v));
    }
    const float magnitude = largest(peak);
    const float inverse = magnitude > kNothing ? kLargestLevel / magnitude : 0.0f;
    total = 0;
#ifdef QUIRE_AVX2
    __m256i wide[4];
    for (int i = 0; i < 4; ++i) {
        wide[i] = _mm256_cvtps_epi32(__m256(load(x + 8 * i) * inverse));
    }
    const __m256i sums = _mm256_add_epi32(_mm256_add_epi32(wide[0], wide[1]),
                                          _mm256_add_epi32(wide[2], wide[3]));
    const i8x32 lanes = i8x32(sums);
    for (int lane = 0; lane < 8; ++lane) total += lanes[lane];
    for (int i = 0; i < 2; ++i) {
        constexpr int kOrder = 0b11'01'10'00;  // 0, 2, 1, 3
        __m256i narrow = _mm256_packs_epi32(wide[2 * i], wide[2 * i + 1]);
        narrow = _mm256_permute4x64_epi64(narrow, kOrder);
        narrow = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(narrow, kOrder), kOrder);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(values + 16 * i), narrow);
    }
#else
    for (int i = 0; i < kBlockColumns; ++i) {
        const int32_t value = static_cast<int32_t>(std::nearbyint(x[i] * inverse));
        values[column_place(i)] = static_cast<int16_t>(value);
        total += value;
    }
#endif
    return magnitude / kLargestLevel;
}

// Put one token's row into the forms that `to` has room for.
inline void put_token(const float* x, int64_t token, const Activations& to) {
    const int64_t quad = token / kQuadTokens, lane = token % kQuadTokens;
    if (to.quantized != nullptr) {
        const int64_t blocks = to.cols / kBlockColumns;
        QuantizedQuad* block = to.quantized + quad * blocks;
        for (int64_t b = 0; b < blocks; ++b, ++block) {
            int32_t total;
            block->scale[lane] = quantize_block(x + b * kBlockColumns, block->values[lane], total);
            block->sum[lane] = block->scale[lane] * static_cast<float>(total);
        }
    }
    if (to.dense != nullptr) {
        float* column = to.dense + quad * to.cols * kQuadTokens + lane;
        for (int64_t i = 0; i < to.cols; ++i) column[i * kQuadTokens] = x[i];
    }
}

}  // namespace quire
