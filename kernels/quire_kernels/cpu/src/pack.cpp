// Repack weights as GGUF stores them into tiles of 8 rows. Block formats:
// https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
#include "matmul.h"

namespace quire {
namespace {

enum GgmlType { kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8,
                kQ4_K = 12, kQ5_K = 13, kQ6_K = 14, kBF16 = 30 };

// 32 weights: scale * value + minimum, the scale that of the value's half.
struct Block {
    float scale[2] = {}, minimum = 0.0f;
    int8_t values[kBlockColumns];
};

float half_at(const uint8_t* from) {
    uint16_t raw;
    std::memcpy(&raw, from, sizeof raw);
    return half_to_float(raw);
}

int64_t source_row_bytes(int32_t type, int64_t cols) {
    switch (type) {
        case kF32: return cols * 4;
        case kF16:
        case kBF16: return cols * 2;
        case kQ4_0: return cols / 32 * 18;
        case kQ4_1: return cols / 32 * 20;
        case kQ5_0: return cols / 32 * 22;
        case kQ5_1: return cols / 32 * 24;
        case kQ8_0: return cols / 32 * 34;
        case kQ4_K: return cols / 256 * 144;
        case kQ5_K: return cols / 256 * 176;
        case kQ6_K: return cols / 256 * 210;
        default: return -1;
    }
}

void read_legacy(int32_t type, const uint8_t* row, int64_t index, Block& block) {
    const uint8_t* from = row + index * source_row_bytes(type, kBlockColumns);
    const bool has_minimum = type == kQ4_1 || type == kQ5_1;
    const bool five_bits = type == kQ5_0 || type == kQ5_1;
    block.scale[0] = half_at(from);
    const int offset = type == kQ5_0 ? 16 : 0;  // Q4_0's, 8, goes into its minimum
    block.minimum = has_minimum ? half_at(from + 2) : type == kQ4_0 ? -8.0f * block.scale[0] : 0.0f;
    from += has_minimum ? 4 : 2;
    if (type == kQ8_0) {
        std::memcpy(block.values, from, kBlockColumns);
        return;
    }
    uint32_t fifth = 0;
    if (five_bits) {
        std::memcpy(&fifth, from, sizeof fifth);
        from += sizeof fifth;
    }
    for (int i = 0; i < 16; ++i) {
        const int low = (from[i] & 15) | (fifth >> i & 1) << 4;
        const int high = from[i] >> 4 | (fifth >> (i + 16) & 1) << 4;
        block.values[i] = static_cast<int8_t>(low - offset);
        block.values[i + 16] = static_cast<int8_t>(high - offset);
    }
}

// Q4_K and Q5_K: 8 blocks of 32 with 6-bit scales and minima under two fp16 factors.
void read_k(int32_t type, const uint8_t* row, int64_t index, Block& block) {
    const uint8_t* from = row + index / 8 * source_row_bytes(type, 256);
    const int64_t j = index % 8;
    const uint8_t* packed = from + 4;
    int scale, minimum;
    if (j < 4) {
        scale = packed[j] & 63;
        minimum = packed[j + 4] & 63;
    } else {
        scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
        minimum = packed[j + 4] >> 4 | (packed[j] >> 6) << 4;
    }
    block.scale[0] = half_at(from) * static_cast<float>(scale);
    block.minimum = -half_at(from + 2) * static_cast<float>(minimum);
    const uint8_t* fifth = from + 16;
    const uint8_t* low = from + (type == kQ4_K ? 16 : 48) + j / 2 * 32;
    for (int i = 0; i < kBlockColumns; ++i) {
        const int four = j % 2 == 0 ? low[i] & 15 : low[i] >> 4;
        const int high = type == kQ5_K ? (fifth[i] >> j & 1) << 4 : 0;
        block.values[i] = static_cast<int8_t>(four | high);
    }
}

// Q6_K: 16 groups of 16 with 8-bit scales under one fp16 factor.
void read_q6_k(const uint8_t* row, int64_t index, Block& block) {
    const uint8_t* from = row + index / 8 * 210;
    const auto* scales = reinterpret_cast<const int8_t*>(from + 192);
    const float factor = half_at(from + 208);
    const int64_t half = index % 8 / 4, quarter = index % 4;
    for (int64_t i = 0; i < kBlockColumns; ++i) {
        const uint8_t low = from[half * 64 + quarter % 2 * 32 + i];
        const int four = quarter < 2 ? low & 15 : low >> 4;
        const int high = from[128 + half * 32 + i] >> (2 * quarter) & 3;
        block.values[i] = static_cast<int8_t>((four | high << 4) - 32);
    }
    for (int64_t i = 0; i < 2; ++i)
        block.scale[i] = factor * static_cast<float>(scales[half * 8 + quarter * 2 + i]);
}

void read_floats(int32_t type, const uint8_t* row, int64_t begin, int64_t count, float* out) {
    for (int64_t i = 0; i < count; ++i) {
        if (type == kF32) {
            std::memcpy(out + i, row + (begin + i) * 4, 4);
            continue;
        }
        uint16_t raw;
        std::memcpy(&raw, row + (begin + i) * 2, sizeof raw);
        const uint32_t bits = static_cast<uint32_t>(raw) << 16;
        if (type == kF16) out[i] = half_to_float(raw);
        else std::memcpy(out + i, &bits, sizeof bits);
    }
}

// Round 32 floats to 8 bits around zero, or to 4 bits between the least and the greatest.
void round_floats(const float* x, int32_t format, Block& block) {
    const auto [least, greatest] = std::minmax_element(x, x + kBlockColumns);
    if (format == QUIRE_Q4) {
        block.scale[0] = half_to_float(float_to_half((*greatest - *least) / 15.0f));
        block.minimum = half_to_float(float_to_half(*least));
    } else {
        const float peak = std::max(std::fabs(*least), std::fabs(*greatest));
        block.scale[0] = half_to_float(float_to_half(peak / 127.0f));
        block.minimum = 0.0f;
    }
    const float lowest = format == QUIRE_Q4 ? 0.0f : -127.0f;
    const float highest = format == QUIRE_Q4 ? 15.0f : 127.0f;
    for (int i = 0; i < kBlockColumns; ++i) {
        const float scale = block.scale[0];
        const float value = scale > 0.0f ? (x[i] - block.minimum) / scale : 0.0f;
        block.values[i] =
            static_cast<int8_t>(std::nearbyint(std::min(highest, std::max(lowest, value))));
    }
}

void read_block(int32_t type, int32_t format, const uint8_t* row, int64_t index, Block& block) {
    float floats[kBlockColumns];
    switch (type) {
        case kF32:
        case kF16:
        case kBF16:
            read_floats(type, row, index * kBlockColumns, kBlockColumns, floats);
            return round_floats(floats, format, block);
        case kQ6_K: return read_q6_k(row, index, block);
        case kQ4_K:
        case kQ5_K: return read_k(type, row, index, block);
        default: return read_legacy(type, row, index, block);
    }
}

void put_block(const Block& block, int32_t format, int64_t lane, uint8_t* tile) {
    const bool nibbles = format == QUIRE_Q4;
    for (int i = 0; i < (nibbles ? 16 : kBlockColumns); ++i) {
        const int high = nibbles ? block.values[i + 16] << 4 : 0;
        tile[i / 4 * 32 + lane * 4 + i % 4] = static_cast<uint8_t>(block.values[i] | high);
    }
    auto* scales = reinterpret_cast<uint16_t*>(tile + (nibbles ? 128 : 256));
    scales[lane] = float_to_half(block.scale[0]);
    if (format == QUIRE_Q8) return;
    scales[kGroupRows + lane] =
        float_to_half(format == QUIRE_Q8H ? block.scale[1] : block.minimum);
}

void put_floats(const uint8_t* row, int32_t type, int32_t format, int64_t cols, int64_t lane,
                uint8_t* tiles) {
    for (int64_t col = 0; col < cols; ++col) {
        float value;
        read_floats(type, row, col, 1, &value);
        uint8_t* tile = tiles + col * tile_bytes(format);
        if (format == QUIRE_F32) std::memcpy(tile + lane * 4, &value, sizeof value);
        else std::memcpy(tile + lane * 2, row + col * 2, 2);
    }
}

// Which sources a format can hold without loss beyond its own rounding.
bool can_hold(int32_t format, int32_t type) {
    switch (format) {
        case QUIRE_F32: return type == kF32 || type == kF16 || type == kBF16;
        case QUIRE_F16: return type == kF16;
        case QUIRE_BF16: return type == kBF16;
        case QUIRE_Q4: return can_hold(QUIRE_F32, type) || type == kQ4_0 || type == kQ4_1 ||
                              type == kQ4_K;
        case QUIRE_Q8: return can_hold(QUIRE_F32, type) || type == kQ5_0 || type == kQ8_0;
        case QUIRE_Q8M: return type == kQ5_1 || type == kQ5_K;
        default: return type == kQ6_K;
    }
}

}  // namespace
}  // namespace quire

int64_t quire_packed_bytes(int32_t format, int64_t rows, int64_t cols) {
    return quire::num_groups(rows) * quire::group_bytes(format, cols);
}

int32_t quire_pack(QuireTeam* team, int32_t ggml_type, const uint8_t* source, int32_t format,
                   int64_t rows, int64_t cols, uint8_t* tiles) {
    using namespace quire;
    if (!can_hold(format, ggml_type)) return 1;
    const int64_t row_bytes = source_row_bytes(ggml_type, cols);
    const int64_t bytes = group_bytes(format, cols);
    team->run([&](Worker& worker) {
        worker.each(num_groups(rows), [&](int64_t group) {
            uint8_t* to = tiles + group * bytes;
            std::memset(to, 0, bytes);
            for (int64_t lane = 0; lane < std::min(rows - group * 8, int64_t{8}); ++lane) {
                const uint8_t* row = source + (group * kGroupRows + lane) * row_bytes;
                if (is_dense(format)) {
                    put_floats(row, ggml_type, format, cols, lane, to);
                    continue;
                }
                for (int64_t b = 0; b < cols / kBlockColumns; ++b) {
                    Block block;
                    read_block(ggml_type, format, row, b, block);
                    put_block(block, format, lane, to + b * tile_bytes(format));
                }
            }
        });
    });
    return 0;
}
