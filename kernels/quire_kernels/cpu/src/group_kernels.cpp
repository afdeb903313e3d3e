// The table of kernels by format, number of groups, and number of tokens.
#include "group_dense.h"
#include "group_quantized.h"
#include "matmul.h"

namespace quire {
namespace {

template <int kGroups, int kTokens>
GroupKernel kernel_of_format(int32_t format) {
    switch (format) {
        case QUIRE_F32: return dense_groups<F32, kGroups, kTokens>;
        case QUIRE_F16: return dense_groups<F16, kGroups, kTokens>;
        case QUIRE_BF16: return dense_groups<BF16, kGroups, kTokens>;
        case QUIRE_Q4: return quantized_groups<FormQ4, kGroups, kTokens>;
        case QUIRE_Q8: return quantized_groups<FormQ8, kGroups, kTokens>;
        case QUIRE_Q8M: return quantized_groups<FormQ8M, kGroups, kTokens>;
        default: return quantized_groups<FormQ8H, kGroups, kTokens>;
    }
}

template <int kGroups>
GroupKernel kernel_of_tokens(int32_t format, int64_t tokens) {
    switch (tokens) {
        case 1: return kernel_of_format<kGroups, 1>(format);
        case 2: return kernel_of_format<kGroups, 2>(format);
        case 3: return kernel_of_format<kGroups, 3>(format);
        default: return kernel_of_format<kGroups, 4>(format);
    }
}

}  // namespace

GroupKernel group_kernel(int32_t format, int64_t groups, int64_t tokens) {
    return groups == 1 ? kernel_of_tokens<1>(format, tokens) : kernel_of_tokens<2>(format, tokens);
}

}  // namespace quire
