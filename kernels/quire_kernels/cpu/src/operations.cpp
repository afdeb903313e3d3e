// Single operations behind the C interface.
#include "matmul.h"
#include "rows.h"
#include "workspace.h"

QuireTeam* quire_team_create(int32_t num_threads) { return new QuireTeam(num_threads); }
void quire_team_destroy(QuireTeam* team) { delete team; }
QuireWorkspace* quire_workspace_create() { return new QuireWorkspace; }
void quire_workspace_destroy(QuireWorkspace* workspace) { delete workspace; }

const char* quire_instructions() {
#if defined(QUIRE_VNNI)
    return "vnni";
#elif defined(QUIRE_AVX2)
    return "avx2";
#else
    return "portable";
#endif
}

void quire_embed(const QuireMatrix* matrix, const int32_t* ids, int64_t count, float* out) {
    for (int64_t i = 0; i < count; ++i) quire::embed(*matrix, ids[i], 1.0f, out + i * matrix->cols);
}

void quire_rms_norm(const float* x, const float* weight, float epsilon, int64_t rows, int64_t cols,
                    float* out) {
    for (int64_t row = 0; row < rows; ++row)
        quire::rms_norm(x + row * cols, weight, epsilon, cols, out + row * cols);
}

void quire_matmul(QuireTeam* team, const QuireMatrix* matrix, const float* x, int64_t tokens,
                  float* out) {
    using namespace quire;
    QuireWorkspace memory;
    const Activations to = memory.activations(tokens, matrix->cols, forms_of({matrix}));
    const Product product{matrix, nullptr, out, matrix->rows, false};
    team->run([&](Worker& worker) {
        worker.each(num_quads(tokens), [&](int64_t quad) {
            const int64_t end = std::min((quad + 1) * kQuadTokens, tokens);
            for (int64_t t = quad * kQuadTokens; t < end; ++t) put_token(x + t * to.cols, t, to);
        });
        multiply(worker, to, &product, 1);
    });
}

void quire_attention(QuireTeam* team, const QuireCache* cache, int32_t layer, int32_t num_heads,
                     float scale, float softcap, int32_t window, const QuireBatch* batch,
                     const float* query, float* out) {
    using namespace quire;
    const int64_t stride = int64_t{num_heads} * cache->head_dim;
    std::vector<AttentionScratch> scratch(team->size);
    Buffer<float> partials;
    for (Slice& slice : cut_into_slices(*batch)) {
        plan_attention(slice, num_heads, cache->num_kv_heads, cache->head_dim);
        const Attention attention{{cache->head_dim, scale, softcap, window},
                                  cache, layer, num_heads / cache->num_kv_heads, query, stride,
                                  out, stride, partials.reserve(slice.partial_floats)};
        team->run([&](Worker& worker) {
            attend_all(worker, attention, slice.tasks, slice.merges, scratch[worker.index]);
        });
        query += slice.tokens() * stride;
        out += slice.tokens() * stride;
    }
}
