// Products of one or two groups of 8 dense rows with up to 4 tokens.
#pragma once

#include "simd.h"
#include "tiles.h"

namespace quire {

// out[g][t] = group g's 8 rows times token t; groups lie `group_bytes` apart. Even and odd columns
// are summed apart: one chain of multiply-adds would wait for itself. The order of the sum is the
// same for any number of tokens, so that a row's result does not depend on its batch.
template <class Element, int kGroups, int kTokens>
void dense_groups(const uint8_t* tile, int64_t group_bytes, const void* activations, int64_t cols,
                  GroupResults& out) {
    using Type = typename Element::Type;
    constexpr int kChains = 2;
    const auto* x = static_cast<const float*>(activations);
    for (int g = 0; g < kGroups; ++g) {
        const auto* weights = reinterpret_cast<const Type*>(tile + g * group_bytes);
        f8 totals[kChains][kTokens] = {};
        int64_t column = 0;
        for (; column + kChains <= cols; column += kChains) {
            __builtin_prefetch(weights + (cols + column) * kGroupRows);  // the next group's
            for (int chain = 0; chain < kChains; ++chain) {
                const f8 weight = Element::load8(weights + (column + chain) * kGroupRows);
                for (int t = 0; t < kTokens; ++t)
                    totals[chain][t] = multiply_add(
                        weight, splat(x[(column + chain) * kQuadTokens + t]), totals[chain][t]);
            }
        }
        for (; column < cols; ++column) {
            const f8 weight = Element::load8(weights + column * kGroupRows);
            for (int t = 0; t < kTokens; ++t)
                totals[0][t] = multiply_add(weight, splat(x[column * kQuadTokens + t]), totals[0][t]);
        }
        for (int t = 0; t < kTokens; ++t) out[g][t] = totals[0][t] + totals[1][t];
    }
}

}  // namespace quire
