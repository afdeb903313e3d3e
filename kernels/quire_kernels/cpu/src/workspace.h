// Memory for the activations of a slice; it grows to what is needed and is kept between steps.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>

#include "plan.h"

namespace quire {

// Uninitialized, aligned to cache lines.
template <class T>
class Buffer {
  public:
    T* reserve(int64_t count) {
        if (count > capacity_) {
            const size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
            data_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
            if (!data_) throw std::bad_alloc();
            capacity_ = count;
        }
        return data_.get();
    }

  private:
    struct Free {
        void operator()(T* data) const { std::free(data); }
    };
    std::unique_ptr<T, Free> data_;
    int64_t capacity_ = 0;
};

struct Forms {
    bool quantized = false, dense = false;
};

inline Forms forms_of(std::initializer_list<const QuireMatrix*> matrices) {
    Forms forms;
    for (const QuireMatrix* matrix : matrices)
        (is_dense(matrix->format) ? forms.dense : forms.quantized) = true;
    return forms;
}

}  // namespace quire

struct QuireWorkspace {
    quire::Buffer<float> hidden, heads, attended, gated, projected, partials, sampled, logits;
    quire::Buffer<float> cosines, sines, dense, normed;
    quire::Buffer<quire::QuantizedQuad> quantized;
    std::vector<quire::AttentionScratch> scratch;

    // Room for activations of so many tokens and columns, in the forms asked for.
    quire::Activations activations(int64_t tokens, int64_t cols, quire::Forms forms) {
        quire::Activations result{tokens, cols};
        const int64_t quads = quire::num_quads(tokens);
        if (forms.quantized)
            result.quantized = quantized.reserve(quads * (cols / quire::kBlockColumns));
        if (forms.dense) result.dense = dense.reserve(quads * cols * quire::kQuadTokens);
        return result;
    }
};
