// Attention of a few query rows to a range of cached keys, with a running softmax.
//
// The rows are the query heads that share a KV head, for up to 16 tokens: each key is fetched
// once for all of them. Keys come 32 at a time, from positions that are multiples of 32. With many
// rows they are copied as fp32 to scratch that stays in the first-level cache. With few rows, as in
// a decode, the copy would cost more than the products: they read the cache directly. The sums are
// the same, in the same order: a token's result does not depend on what it is computed with.
#pragma once

#include "attention.h"
#include "simd.h"

namespace quire {

constexpr int kFewRows = 6;
constexpr float kMasked = -2e30f;       // a score that weighs nothing ...
constexpr float kNothingSeen = -1e30f;  // ... even in a row that has seen no key yet

// Where the keys (or values) of a tile lie, each [head_dim].
template <class Element>
struct TilePointers {
    const typename Element::Type* at[kKeysPerTile];
};

// Sums over the lanes of four vectors.
inline void sum_each(const f8* v, float* out) {
    const f8 a = __builtin_shufflevector(v[0], v[1], 0, 8, 2, 10, 4, 12, 6, 14) +
                 __builtin_shufflevector(v[0], v[1], 1, 9, 3, 11, 5, 13, 7, 15);
    const f8 b = __builtin_shufflevector(v[2], v[3], 0, 8, 2, 10, 4, 12, 6, 14) +
                 __builtin_shufflevector(v[2], v[3], 1, 9, 3, 11, 5, 13, 7, 15);
    const f8 c = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13) +
                 __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    for (int i = 0; i < 4; ++i) out[i] = c[i] + c[i + 4];
}

// scores[row][key] = query[row] . keys[key].
template <class Element, int kRows>
void score_rows(const float* query, const TilePointers<Element>& keys, int64_t num_keys,
                int64_t head_dim, float* scores) {
    for (int64_t first = 0; first < num_keys; first += 4) {
        f8 sums[kRows][4] = {};
        for (int64_t d = 0; d < head_dim; d += 8) {
            f8 key[4];
            for (int i = 0; i < 4; ++i) key[i] = Element::load8(keys.at[first + i] + d);
            for (int row = 0; row < kRows; ++row) {
                const f8 q = load(query + row * head_dim + d);
                for (int i = 0; i < 4; ++i) sums[row][i] = multiply_add(q, key[i], sums[row][i]);
            }
        }
        for (int row = 0; row < kRows; ++row)
            sum_each(sums[row], scores + row * kKeysPerTile + first);
    }
}

// result[row] = result[row] * decay[row] + weights[row] . values, for the 8 * kVectors dimensions
// from `d` on.
template <class Element, int kRows, int kVectors>
void weigh_rows(const float* weights, const TilePointers<Element>& values, int64_t num_keys,
                int64_t head_dim, int64_t d, const float* decay, float* result) {
    f8 sums[kRows][kVectors] = {};
    for (int64_t key = 0; key < num_keys; ++key) {
        f8 value[kVectors];
        for (int i = 0; i < kVectors; ++i) value[i] = Element::load8(values.at[key] + d + 8 * i);
        for (int row = 0; row < kRows; ++row) {
            const f8 weight = splat(weights[row * kKeysPerTile + key]);
            for (int i = 0; i < kVectors; ++i)
                sums[row][i] = multiply_add(weight, value[i], sums[row][i]);
        }
    }
    for (int row = 0; row < kRows; ++row) {
        for (int i = 0; i < kVectors; ++i) {
            float* to = result + row * head_dim + d + 8 * i;
            store(to, multiply_add(load(to), splat(decay[row]), sums[row][i]));
        }
    }
}

template <class Element, int kRows>
void weigh_all(const float* weights, const TilePointers<Element>& values, int64_t num_keys,
               int64_t head_dim, const float* decay, float* result) {
    int64_t d = 0;
    for (; d + 32 <= head_dim; d += 32)
        weigh_rows<Element, kRows, 4>(weights, values, num_keys, head_dim, d, decay, result);
    for (; d < head_dim; d += 8)
        weigh_rows<Element, kRows, 1>(weights, values, num_keys, head_dim, d, decay, result);
}

// Turn one row's scores into weights against its running maximum.
inline void soften_row(float* scores, float& peak, float& total, float& decay) {
    f8 tile = load(scores);
    for (int i = 8; i < kKeysPerTile; i += 8) tile = maximum(tile, load(scores + i));
    const float before = peak;
    peak = std::max(before, largest(tile));
    decay = peak > before ? std::exp(before - peak) : 1.0f;
    f8 weights{};
    for (int i = 0; i < kKeysPerTile; i += 8) {
        const f8 weight = exponential(load(scores + i) - peak);
        store(scores + i, weight);
        weights += weight;
    }
    total = total * decay + sum(weights);
}

}  // namespace quire
