// How packed matrices and the activations that meet them lie in memory.
//
// A group is 8 rows; its tiles follow each other along the columns, so that a matrix is read
// strictly forwards. A quantized tile covers 32 columns:
//
//     Q4    byte 32 * j + 4 * row + i: columns 4j + i (low nibble) and 16 + 4j + i (high), j < 4;
//           then 8 fp16 scales and 8 fp16 minima: weight = scale * nibble + minimum
//     Q8    byte 32 * j + 4 * row + i: column 4j + i, signed, j < 8; then 8 fp16 scales
//     Q8M   as Q8, then 8 fp16 minima
//     Q8H   as Q8, then 8 fp16 scales of columns 16 to 31: the first are those of 0 to 15
//
// and a dense one covers a single column: 8 elements.
//
// Activations lie in quads of 4 tokens, so that one pointer walks over all that a kernel holds in
// registers. Quantized: 16 bits with a scale for every 32 columns of a token. 8 bits, as llama.cpp
// has them, move logits by tenths, and now and then a token.
#pragma once

#include "quire_cpu.h"
#include "simd.h"

namespace quire {

constexpr int kGroupRows = 8;
constexpr int kQuadTokens = 4;
constexpr int kPairGroups = 2;  // a kernel multiplies two neighbours at a time
constexpr int kBlockColumns = 32;

inline bool is_dense(int32_t format) { return format <= QUIRE_BF16; }

inline int64_t tile_bytes(int32_t format) {
    switch (format) {
        case QUIRE_F32: return 32;
        case QUIRE_F16:
        case QUIRE_BF16: return 16;
        case QUIRE_Q4: return 128 + 32;
        case QUIRE_Q8: return 256 + 16;
        default: return 256 + 32;
    }
}

inline int64_t group_bytes(int32_t format, int64_t cols) {
    return tile_bytes(format) * (is_dense(format) ? cols : cols / kBlockColumns);
}

inline int64_t num_groups(int64_t rows) { return (rows + kGroupRows - 1) / kGroupRows; }
inline int64_t num_quads(int64_t tokens) { return (tokens + kQuadTokens - 1) / kQuadTokens; }

// Four columns lie as 0, 2, 1, 3: a pair is what one shift brings out of four bytes of weights.
inline int column_place(int column) {
    constexpr int kPlaces[4] = {0, 2, 1, 3};
    return column / 4 * 4 + kPlaces[column % 4];
}

// 32 columns of 4 tokens.
struct QuantizedQuad {
    float scale[kQuadTokens];
    float sum[kQuadTokens];  // scale times the sum of the 32 values: what a minimum multiplies
    int16_t values[kQuadTokens][kBlockColumns];  // by column_place
};

// Products of a pair of groups with a quad.
using GroupResults = f8[kPairGroups][kQuadTokens];

// Inputs of a matrix product, in the forms that its matrices take.
struct Activations {
    int64_t tokens = 0, cols = 0;
    QuantizedQuad* quantized = nullptr;  // [quads][cols / 32]
    float* dense = nullptr;              // [quads][cols][4]

    const void* quad(int32_t format, int64_t index) const {
        if (is_dense(format)) return dense + index * cols * kQuadTokens;
        return quantized + index * (cols / kBlockColumns);
    }
    int64_t quad_tokens(int64_t index) const {
        const int64_t left = tokens - index * kQuadTokens;
        return left < kQuadTokens ? left : kQuadTokens;
    }
};

}  // namespace quire
