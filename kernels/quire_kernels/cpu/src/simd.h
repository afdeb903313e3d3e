// Eight floats at a time. GCC and Clang lower the vector types to whatever the machine has, so
// this file is the portable path too; intrinsics appear only where the types cannot say it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#if !defined(QUIRE_PORTABLE) && defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define QUIRE_AVX2 1
#include <immintrin.h>
#if defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))
#define QUIRE_VNNI 1
#endif
#endif

namespace quire {

typedef float f8 __attribute__((vector_size(32)));
typedef int32_t i8x32 __attribute__((vector_size(32)));
typedef uint32_t u8x32 __attribute__((vector_size(32)));
typedef uint16_t u8x16 __attribute__((vector_size(16)));

inline f8 splat(float value) { return f8{} + value; }

inline f8 load(const float* from) {
    f8 value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

inline void store(float* to, f8 value) { std::memcpy(to, &value, sizeof value); }

// a * b + c; fused, rounded once, where the machine can, and then always.
inline f8 multiply_add(f8 a, f8 b, f8 c) {
#ifdef QUIRE_AVX2
    return f8(_mm256_fmadd_ps(__m256(a), __m256(b), __m256(c)));
#else
    return a * b + c;
#endif
}

inline f8 maximum(f8 a, f8 b) { return a > b ? a : b; }

inline float sum(f8 v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }

inline float largest(f8 v) {
    float result = v[0];
    for (int lane = 1; lane < 8; ++lane) result = v[lane] > result ? v[lane] : result;
    return result;
}

inline float half_to_float(uint16_t half) {
    const uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    uint32_t bits;
    if (magnitude >= 0x7c00u) {
        bits = sign | 0x7f800000u | (magnitude & 0x3ffu) << 13;
    } else if (magnitude < 0x400u) {  // subnormal: a multiple of 2^-24, exact in fp32
        const float value = static_cast<float>(magnitude) * 0x1p-24f;
        std::memcpy(&bits, &value, sizeof bits);
        bits |= sign;
    } else {
        bits = sign | ((magnitude << 13) + (112u << 23));
    }
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline uint16_t float_to_half(float value) {  // to nearest, ties to even
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
    const float magnitude = std::fabs(value);
    if (std::isnan(value)) return sign | 0x7e00u;
    if (magnitude >= 65520.0f) return sign | 0x7c00u;
    if (magnitude < 0x1p-14f)
        return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f));
    bits &= 0x7fffffffu;
    return sign | static_cast<uint16_t>((bits + 0xfffu + (bits >> 13 & 1u) - (112u << 23)) >> 13);
}

// Element types of dense matrices and of the KV cache: load and store eight.
struct F32 {
    using Type = float;
    static f8 load8(const float* from) { return load(from); }
    static void store8(float* to, f8 value) { store(to, value); }
};

struct BF16 {
    using Type = uint16_t;
    static f8 load8(const uint16_t* from) {
        u8x16 raw;
        std::memcpy(&raw, from, sizeof raw);
        return reinterpret_cast<f8>(__builtin_convertvector(raw, u8x32) << 16);
    }
    static void store8(uint16_t* to, f8 value) {
        const u8x32 bits = reinterpret_cast<u8x32>(value);
        const u8x32 rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
        const u8x32 quiet = bits >> 16 | 0x40u;
        const u8x16 raw = __builtin_convertvector(value == value ? rounded : quiet, u8x16);
        std::memcpy(to, &raw, sizeof raw);
    }
};

struct F16 {
    using Type = uint16_t;
#ifdef QUIRE_AVX2
    static f8 load8(const uint16_t* from) {
        return f8(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
    }
    static void store8(uint16_t* to, f8 value) {
        const __m128i raw = _mm256_cvtps_ph(__m256(limit(value)), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), raw);
    }
#else
    static f8 load8(const uint16_t* from) {
        f8 value;
        for (int lane = 0; lane < 8; ++lane) value[lane] = half_to_float(from[lane]);
        return value;
    }
    static void store8(uint16_t* to, f8 value) {
        const f8 limited = limit(value);
        for (int lane = 0; lane < 8; ++lane) to[lane] = float_to_half(limited[lane]);
    }
#endif

  private:
    // An infinite key would make NaN of every score; a NaN stays one.
    static f8 limit(f8 value) {
        value = value > 65504.0f ? splat(65504.0f) : value;
        return value < -65504.0f ? splat(-65504.0f) : value;
    }
};

// e^x with a relative error below 3e-7; exactly 0 below -87, so that a masked key weighs nothing.
inline f8 exponential(f8 x) {
    const f8 limited = x > 88.0f ? splat(88.0f) : x;
    // 1.5 * 2^23 rounds to an integer
    const f8 shifted = multiply_add(limited, splat(1.44269504f), splat(12582912.0f));
    const f8 n = shifted - 12582912.0f;
    f8 r = multiply_add(n, splat(-0.693359375f), limited);
    r = multiply_add(n, splat(2.12194440e-4f), r);
    f8 p = splat(1.9875691500e-4f);
    for (const float coefficient : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                                    1.6666665459e-1f, 5.0000001201e-1f})
        p = multiply_add(p, r, splat(coefficient));
    p = multiply_add(p * r, r, r) + 1.0f;
    const i8x32 exponent = (reinterpret_cast<i8x32>(shifted) - 0x4b400000) << 23;
    const f8 scaled = reinterpret_cast<f8>(reinterpret_cast<i8x32>(p) + exponent);
    return x < -87.0f ? f8{} : scaled;
}

inline f8 hyperbolic_tangent(f8 x) {
    const f8 limited = x > 20.0f ? splat(20.0f) : x < -20.0f ? splat(-20.0f) : x;
    return 1.0f - 2.0f / (exponential(2.0f * limited) + 1.0f);
}

}  // namespace quire
