// Matrix products over pairs of groups of 8 rows, shared among the threads.
#pragma once

#include "simd.h"
#include "team.h"
#include "tiles.h"

namespace quire {

using GroupKernel = void (*)(const uint8_t* tile, int64_t group_bytes, const void* activations,
                             int64_t cols, GroupResults& out);

// The kernel for a format, 1 or 2 groups, and 1 to 4 tokens.
GroupKernel group_kernel(int32_t format, int64_t groups, int64_t tokens);

inline int64_t num_pairs(int64_t rows) { return (num_groups(rows) + kPairGroups - 1) / kPairGroups; }

// Product of one pair of groups, the last of a matrix may be half of one, with one quad.
inline void pair_times_quad(const QuireMatrix& matrix, int64_t pair, const Activations& x,
                            int64_t quad, GroupResults& out) {
    const int64_t bytes = group_bytes(matrix.format, matrix.cols), first = pair * kPairGroups;
    const auto kernel =
        group_kernel(matrix.format, num_groups(matrix.rows) - first, x.quad_tokens(quad));
    kernel(matrix.tiles + first * bytes, bytes, x.quad(matrix.format, quad), matrix.cols, out);
}

// Call body(group, index) for the groups of a pair.
template <class Body>
void each_of_pair(int64_t rows, int64_t pair, Body&& body) {
    const int64_t first = pair * kPairGroups;
    for (int64_t i = 0; i < kPairGroups && first + i < num_groups(rows); ++i) body(first + i, i);
}

// Store the first `count` rows of a group.
inline void store_rows(float* to, f8 value, int64_t count) {
    if (count >= kGroupRows) return store(to, value);
    for (int64_t row = 0; row < count; ++row) to[row] = value[row];
}

// One product of a phase: where it goes, and whether it is added to what lies there.
struct Product {
    const QuireMatrix* matrix;
    const float* bias;  // [rows] or null
    float* out;         // [tokens, stride]
    int64_t stride;
    bool adds;
};

inline void finish_group(const Product& product, int64_t group, int64_t token, f8 value) {
    const int64_t row = group * kGroupRows, count = product.matrix->rows - row;
    float* to = product.out + token * product.stride + row;
    if (product.bias == nullptr && !product.adds) return store_rows(to, value, count);
    for (int64_t i = 0; i < std::min<int64_t>(count, kGroupRows); ++i) {
        const float biased = value[i] + (product.bias == nullptr ? 0.0f : product.bias[row + i]);
        to[i] = product.adds ? to[i] + biased : biased;
    }
}

// Tokens are taken in blocks that stay in the second-level cache while a thread's groups pass.
constexpr int64_t kQuadsPerBlock = 16;
constexpr int64_t kPairsPerItem = 2;

// Call body(pair, quad) for all of `pairs` x `quads`.
template <class Body>
void each_pair_and_quad(Worker& worker, int64_t pairs, int64_t quads, Body&& body) {
    const int64_t slabs = (pairs + kPairsPerItem - 1) / kPairsPerItem;
    const int64_t blocks = (quads + kQuadsPerBlock - 1) / kQuadsPerBlock;
    worker.each(slabs * blocks, [&](int64_t item) {
        const int64_t first_pair = item % slabs * kPairsPerItem;
        const int64_t first_quad = item / slabs * kQuadsPerBlock;
        const int64_t end_pair = std::min(first_pair + kPairsPerItem, pairs);
        const int64_t end_quad = std::min(first_quad + kQuadsPerBlock, quads);
        for (int64_t pair = first_pair; pair < end_pair; ++pair) {
            for (int64_t quad = first_quad; quad < end_quad; ++quad) body(pair, quad);
        }
    });
}

// Products of up to three matrices with the same activations, as one phase.
inline void multiply(Worker& worker, const Activations& x, const Product* products, int count) {
    int64_t pairs = 0;
    for (int i = 0; i < count; ++i) pairs += num_pairs(products[i].matrix->rows);
    each_pair_and_quad(worker, pairs, num_quads(x.tokens), [&](int64_t pair, int64_t quad) {
        const Product* product = products;
        for (; pair >= num_pairs(product->matrix->rows); ++product)
            pair -= num_pairs(product->matrix->rows);
        GroupResults values;
        pair_times_quad(*product->matrix, pair, x, quad, values);
        each_of_pair(product->matrix->rows, pair, [&](int64_t group, int64_t index) {
            for (int64_t t = 0; t < x.quad_tokens(quad); ++t)
                finish_group(*product, group, quad * kQuadTokens + t, values[index][t]);
        });
    });
}

}  // namespace quire
