// Products of one or two groups of 8 quantized rows with up to 4 tokens.
//
// The lanes of a register are the 8 rows; each holds 2 columns as 16 bits, multiplied by the same
// 2 columns of a token, which one broadcast fetches for both groups. Integer sums are exact: 32
// products of 8 and 16 bits fit 32 bits.
#pragma once

#include "simd.h"
#include "tiles.h"

namespace quire {

// Sums live in registers only if all that touches them is one function.
#define QUIRE_INLINE inline __attribute__((always_inline))

#ifdef QUIRE_AVX2

using Sums = __m256i;

inline __m256i load_bytes(const uint8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

inline __m256i broadcast_columns(const int16_t* from) {
    int32_t two;
    std::memcpy(&two, from, sizeof two);
    return _mm256_set1_epi32(two);
}

// Add the products of 2 weights and 2 columns to each lane. The sum is kept in its register: left
// alone, GCC puts all additions after all products, which then spill, and takes twice the time.
QUIRE_INLINE void add_products(__m256i& sums, __m256i weights, __m256i columns) {
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    sums = _mm256_dpwssd_epi32(sums, weights, columns);
#elif defined(__AVXVNNI__)
    sums = _mm256_dpwssd_avx_epi32(sums, weights, columns);
#else
    sums = _mm256_add_epi32(sums, _mm256_madd_epi16(weights, columns));
#endif
    asm volatile("" : "+x"(sums));
}

inline f8 to_float(__m256i value) { return f8(_mm256_cvtepi32_ps(value)); }

// 4-bit weights. `pair` brings columns out of 32 bytes at `from`, `place` says where they lie.
struct Nibbles {
    static constexpr int kBytes = 128, kLoads = 4, kPairs = 4;

    static constexpr int place(int load, int pair) { return 4 * load + pair % 2 * 16 + pair / 2 * 2; }
    static __m256i pair(__m256i bytes, int index) {
        const __m256i mask = _mm256_set1_epi16(15);
        switch (index) {
            case 0: return _mm256_and_si256(bytes, mask);
            case 1: return _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
            case 2: return _mm256_and_si256(_mm256_srli_epi16(bytes, 8), mask);
            default: return _mm256_srli_epi16(bytes, 12);
        }
    }
};

// 8-bit weights.
struct Bytes {
    static constexpr int kBytes = 256, kLoads = 8, kPairs = 2;

    static constexpr int place(int load, int pair) { return 4 * load + 2 * pair; }
    static __m256i pair(__m256i bytes, int index) {
        return _mm256_srai_epi16(index == 0 ? _mm256_slli_epi16(bytes, 8) : bytes, 8);
    }
};

// sums += the columns that loads `kBegin` to `kEnd` of a tile hold, times the tokens.
template <class Weights, int kBegin, int kEnd, int kGroups, int kTokens>
QUIRE_INLINE void add_dots(const uint8_t* tile, int64_t group_bytes, const QuantizedQuad& quad,
              Sums (&sums)[kGroups][kTokens]) {
    for (int load = kBegin; load < kEnd; ++load) {
        __m256i bytes[kGroups];
        for (int g = 0; g < kGroups; ++g) bytes[g] = load_bytes(tile + g * group_bytes + 32 * load);
#pragma GCC unroll 4
        for (int pair = 0; pair < Weights::kPairs; ++pair) {
            __m256i weights[kGroups];
            for (int g = 0; g < kGroups; ++g) weights[g] = Weights::pair(bytes[g], pair);
            for (int t = 0; t < kTokens; ++t) {
                const __m256i columns =
                    broadcast_columns(quad.values[t] + Weights::place(load, pair));
                for (int g = 0; g < kGroups; ++g) add_products(sums[g][t], weights[g], columns);
            }
        }
    }
}

#else  // portable

using Sums = i8x32;

inline f8 to_float(i8x32 value) { return __builtin_convertvector(value, f8); }

struct Nibbles {
    static constexpr int kBytes = 128, kLoads = 4;

    static int weight(const uint8_t* tile, int row, int column) {
        const uint8_t both = tile[column % 16 / 4 * 32 + 4 * row + column % 4];
        return column < 16 ? both & 15 : both >> 4;
    }
    static bool holds(int load, int column) { return column % 16 / 4 == load; }
};

struct Bytes {
    static constexpr int kBytes = 256, kLoads = 8;

    static int weight(const uint8_t* tile, int row, int column) {
        return static_cast<int8_t>(tile[column / 4 * 32 + 4 * row + column % 4]);
    }
    static bool holds(int load, int column) { return column / 4 == load; }
};

template <class Weights, int kBegin, int kEnd, int kGroups, int kTokens>
QUIRE_INLINE void add_dots(const uint8_t* tile, int64_t group_bytes, const QuantizedQuad& quad,
              Sums (&sums)[kGroups][kTokens]) {
    for (int load = kBegin; load < kEnd; ++load) {
        for (int column = 0; column < kBlockColumns; ++column) {
            if (!Weights::holds(load, column)) continue;
            for (int g = 0; g < kGroups; ++g) {
                for (int row = 0; row < kGroupRows; ++row) {
                    const int weight = Weights::weight(tile + g * group_bytes, row, column);
                    for (int t = 0; t < kTokens; ++t)
                        sums[g][t][row] += weight * quad.values[t][column_place(column)];
                }
            }
        }
    }
}

#endif

// What follows a tile's weights: `kScales` times 8 scales, each of an equal part of the columns,
// and with `kMinimum` 8 minima.
template <class Weights_, int kScales_, bool kMinimum_>
struct TileForm {
    using Weights = Weights_;
    static constexpr int kScales = kScales_;
    static constexpr bool kMinimum = kMinimum_;
    static constexpr int kBytes = Weights::kBytes + 16 * (kScales + kMinimum);
    static constexpr int kLoadsPerScale = Weights::kLoads / kScales;
};
using FormQ4 = TileForm<Nibbles, 1, true>;
using FormQ8 = TileForm<Bytes, 1, false>;
using FormQ8M = TileForm<Bytes, 1, true>;
using FormQ8H = TileForm<Bytes, 2, false>;

// totals += one part of a tile, times its scale.
template <class Form, int kPart, int kGroups, int kTokens>
QUIRE_INLINE void add_part(const uint8_t* tile, int64_t group_bytes, const QuantizedQuad& quad,
              f8 (&totals)[kGroups][kTokens]) {
    constexpr int kBegin = kPart * Form::kLoadsPerScale;
    Sums sums[kGroups][kTokens] = {};
    add_dots<typename Form::Weights, kBegin, kBegin + Form::kLoadsPerScale>(tile, group_bytes,
                                                                            quad, sums);
    for (int g = 0; g < kGroups; ++g) {
        const auto* scales = reinterpret_cast<const uint16_t*>(tile + g * group_bytes +
                                                               Form::Weights::kBytes);
        const f8 scale = F16::load8(scales + kPart * kGroupRows);
        for (int t = 0; t < kTokens; ++t)
            totals[g][t] =
                multiply_add(to_float(sums[g][t]), scale * quad.scale[t], totals[g][t]);
        if constexpr (Form::kMinimum) {
            const f8 minimum = F16::load8(scales + kGroupRows);
            for (int t = 0; t < kTokens; ++t)
                totals[g][t] = multiply_add(minimum, splat(quad.sum[t]), totals[g][t]);
        }
    }
}

// out[g][t] = group g's 8 rows times token t of the quad; groups lie `group_bytes` apart.
template <class Form, int kGroups, int kTokens>
void quantized_groups(const uint8_t* tile, int64_t group_bytes, const void* activations,
                      int64_t cols, GroupResults& out) {
    const auto* quad = static_cast<const QuantizedQuad*>(activations);
    f8 totals[kGroups][kTokens] = {};
    const int64_t blocks = cols / kBlockColumns;
    for (int64_t block = 0; block < blocks; ++block, tile += Form::kBytes, ++quad) {
        // the same tiles of the next groups, which are in memory still: reading them goes on
        // while these are multiplied with further tokens
        for (int g = kGroups; g < 2 * kGroups; ++g)
            for (int line = 0; line < Form::kBytes; line += 64)
                __builtin_prefetch(tile + g * group_bytes + line);
        add_part<Form, 0>(tile, group_bytes, *quad, totals);
        if constexpr (Form::kScales == 2) add_part<Form, 1>(tile, group_bytes, *quad, totals);
    }
    for (int g = 0; g < kGroups; ++g)
        for (int t = 0; t < kTokens; ++t) out[g][t] = totals[g][t];
}

}  // namespace quire
