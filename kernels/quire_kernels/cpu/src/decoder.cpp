// A whole step of a decoder: token ids in, logits out, all layers in one call.
#include "matmul.h"
#include "rows.h"
#include "workspace.h"

namespace quire {
namespace {

// One slice on its way through the layers; every thread has its own copy and runs the same code.
struct Pass {
    const QuireModel& model;
    const QuireCache& cache;
    const Slice& slice;
    QuireWorkspace& memory;
    Worker& worker;
    int64_t tokens, query_size, kv_size, row_size;
    float *hidden, *heads, *attended, *gated, *projected, *cosines, *sines;

    Pass(const QuireModel& model, const QuireCache& cache, const Slice& slice,
         QuireWorkspace& memory, Worker& worker)
        : model(model), cache(cache), slice(slice), memory(memory), worker(worker),
          tokens(slice.tokens()), query_size(int64_t{model.num_heads} * model.head_dim),
          kv_size(int64_t{model.num_kv_heads} * model.head_dim), row_size(query_size + 2 * kv_size),
          hidden(memory.hidden.reserve(0)), heads(memory.heads.reserve(0)),
          attended(memory.attended.reserve(0)), gated(memory.gated.reserve(0)),
          projected(memory.projected.reserve(0)), cosines(memory.cosines.reserve(0)),
          sines(memory.sines.reserve(0)) {}

    // Bring rows, normalized if there is a norm, into the forms that `forms` asks for.
    Activations prepare(const float* rows, int64_t count, int64_t cols, const float* norm,
                        Forms forms) {
        const Activations to = memory.activations(count, cols, forms);
        worker.each(num_quads(count), [&](int64_t quad) {
            float* scratch = memory.normed.reserve(0) + worker.index * cols_limit();
            const int64_t end = std::min((quad + 1) * kQuadTokens, count);
            for (int64_t t = quad * kQuadTokens; t < end; ++t) {
                const float* row = rows + t * cols;
                if (norm != nullptr) {
                    rms_norm(row, norm, model.epsilon, cols, scratch);
                    row = scratch;
                }
                put_token(row, t, to);
            }
        });
        return to;
    }

    int64_t cols_limit() const {
        return std::max<int64_t>({model.hidden, model.intermediate, query_size});
    }

    void start() {
        worker.each(tokens, [&](int64_t t) {
            embed(model.embedding, slice.ids[t], model.embedding_scale, hidden + t * model.hidden);
            const int64_t half = model.head_dim / 2;
            for (int table = 0; table < 2; ++table) {
                const float* frequencies = model.inverse_frequencies[table];
                if (frequencies == nullptr) continue;
                const int64_t at = (table * tokens + t) * half;
                for (int64_t i = 0; i < half; ++i) {
                    const float angle = static_cast<float>(slice.positions[t]) * frequencies[i];
                    cosines[at + i] = std::cos(angle) * model.rope_scale[table];
                    sines[at + i] = std::sin(angle) * model.rope_scale[table];
                }
            }
        });
    }

    void layer(int64_t index) {
        const QuireLayer& l = model.layers[index];
        const Forms forms = forms_of({&l.query, &l.key, &l.value});
        const Activations x = prepare(hidden, tokens, model.hidden, l.attention_norm, forms);
        const Product products[3] = {
            {&l.query, l.query_bias, heads, row_size, false},
            {&l.key, l.key_bias, heads + query_size, row_size, false},
            {&l.value, l.value_bias, heads + query_size + kv_size, row_size, false}};
        multiply(worker, x, products, 3);
        switch (cache.dtype) {
            case QUIRE_F32: rotate_and_store<F32>(l, index); break;
            case QUIRE_F16: rotate_and_store<F16>(l, index); break;
            default: rotate_and_store<BF16>(l, index);
        }
        attend_all(worker, attention(l, index), slice.tasks, slice.merges,
                   memory.scratch[worker.index]);
        add_product(attended, query_size, l.output, l.post_attention_norm);
        feed_forward(l);
        add_product(gated, model.intermediate, l.down, l.post_mlp_norm);
    }

    template <class Element>
    void rotate_and_store(const QuireLayer& l, int64_t index) {
        worker.each(tokens, [&](int64_t t) {
            const int64_t half = model.head_dim / 2, at = (l.rope * tokens + t) * half;
            float* row = heads + t * row_size;
            for (int64_t head = 0; head < model.num_heads + model.num_kv_heads; ++head) {
                float* x = row + head * model.head_dim;
                const float* norm = head < model.num_heads ? l.query_norm : l.key_norm;
                if (norm != nullptr) rms_norm(x, norm, model.epsilon, model.head_dim, x);
                rotate(x, cosines + at, sines + at, model.head_dim);
            }
            const int64_t block = slice.tables[t][slice.positions[t] / cache.block_size];
            const int64_t slot = slice.positions[t] % cache.block_size;
            auto* data = static_cast<typename Element::Type*>(cache.data);
            for (int64_t i = 0; i < 2 * model.num_kv_heads; ++i) {
                const int64_t value = i / model.num_kv_heads, head = i % model.num_kv_heads;
                auto* to = data + cache_offset(cache, block, index, value, head, slot);
                const float* from = row + query_size + i * model.head_dim;
                for (int64_t d = 0; d < model.head_dim; d += 8)
                    Element::store8(to + d, load(from + d));
            }
        });
    }

    Attention attention(const QuireLayer& l, int64_t index) const {
        return {{model.head_dim, model.attention_scale, model.attention_softcap, l.window},
                &cache, index, model.num_heads / model.num_kv_heads, heads, row_size,
                attended, query_size, memory.partials.reserve(0)};
    }

    // hidden += matrix x rows, through a norm where the model has one there.
    void add_product(const float* rows, int64_t cols, const QuireMatrix& matrix,
                     const float* norm) {
        const Activations x = prepare(rows, tokens, cols, nullptr, forms_of({&matrix}));
        const Product product{&matrix, nullptr, norm == nullptr ? hidden : projected, model.hidden,
                              norm == nullptr};
        multiply(worker, x, &product, 1);
        if (norm == nullptr) return;
        worker.each(tokens, [&](int64_t t) {
            float *row = projected + t * model.hidden, *to = hidden + t * model.hidden;
            rms_norm(row, norm, model.epsilon, model.hidden, row);
            for (int64_t i = 0; i < model.hidden; ++i) to[i] += row[i];
        });
    }

    void feed_forward(const QuireLayer& l) {
        const Forms forms = forms_of({&l.gate, &l.up});
        const Activations x = prepare(hidden, tokens, model.hidden, l.mlp_norm, forms);
        const int64_t pairs = num_pairs(l.gate.rows);
        each_pair_and_quad(worker, pairs, num_quads(tokens), [&](int64_t pair, int64_t quad) {
            GroupResults gate, up;
            pair_times_quad(l.gate, pair, x, quad, gate);
            pair_times_quad(l.up, pair, x, quad, up);
            each_of_pair(l.gate.rows, pair, [&](int64_t group, int64_t index) {
                const int64_t row = group * kGroupRows;
                float* to = gated + quad * kQuadTokens * model.intermediate + row;
                for (int64_t t = 0; t < x.quad_tokens(quad); ++t, to += model.intermediate) {
                    const f8 value = activate(gate[index][t], model.activation) * up[index][t];
                    store_rows(to, value, model.intermediate - row);
                }
            });
        });
    }

    // Give away the final hidden states of all tokens.
    void give_states(float* states) const {
        worker.each(tokens, [&](int64_t t) {
            const int64_t at = t * model.hidden;
            rms_norm(hidden + at, model.final_norm, model.epsilon, model.hidden, states + at);
        });
    }

    // Keep the hidden states that are sampled from, after the `kept` of earlier slices.
    int64_t keep_sampled(int64_t kept) {
        int64_t count = 0;
        for (const Run& run : slice.runs) count += run.samples;
        worker.each(1, [&](int64_t) {
            float* to = memory.sampled.reserve(0) + kept * model.hidden;
            for (const Run& run : slice.runs) {
                if (!run.samples) continue;
                const float* from = hidden + (run.token + run.count - 1) * model.hidden;
                to = std::copy(from, from + model.hidden, to);
            }
        });
        return kept + count;
    }
};

void finish(const QuireModel& model, const QuireBatch& batch, QuireWorkspace& memory,
            const Slice& none, const QuireCache& cache, Worker& worker, int64_t sampled) {
    Pass pass(model, cache, none, memory, worker);
    const float* rows = memory.sampled.reserve(0);
    const Activations x =
        pass.prepare(rows, sampled, model.hidden, model.final_norm, forms_of({&model.head}));
    float* logits = batch.logits != nullptr ? batch.logits : memory.logits.reserve(0);
    const Product product{&model.head, nullptr, logits, model.vocab, false};
    multiply(worker, x, &product, 1);
    worker.each_range(sampled, 1, [&](int64_t i) {
        float* row = logits + i * model.vocab;
        if (model.logit_softcap > 0.0f) {
            for (int64_t v = 0; v < model.vocab; ++v)
                row[v] = model.logit_softcap * std::tanh(row[v] / model.logit_softcap);
        }
        if (batch.argmax != nullptr) batch.argmax[i] = argmax(row, model.vocab);
    });
}

// Everything that threads only read or fill is allocated before they start.
void reserve(const QuireModel& model, const std::vector<Slice>& slices, int64_t sampled,
             bool own_logits, int num_threads, QuireWorkspace& memory) {
    int64_t tokens = sampled, partials = 0;
    for (const Slice& slice : slices) {
        tokens = std::max(tokens, slice.tokens());
        partials = std::max(partials, slice.partial_floats);
    }
    const int64_t queries = int64_t{model.num_heads} * model.head_dim;
    const int64_t kv = int64_t{model.num_kv_heads} * model.head_dim;
    const int64_t widest = std::max<int64_t>({model.hidden, model.intermediate, queries});
    memory.hidden.reserve(tokens * model.hidden);
    memory.projected.reserve(tokens * model.hidden);
    memory.heads.reserve(tokens * (queries + 2 * kv));
    memory.attended.reserve(tokens * queries);
    memory.gated.reserve(tokens * model.intermediate);
    memory.cosines.reserve(tokens * model.head_dim);
    memory.sines.reserve(tokens * model.head_dim);
    memory.partials.reserve(partials);
    memory.normed.reserve(num_threads * widest);
    memory.sampled.reserve(sampled * model.hidden);
    if (own_logits) memory.logits.reserve(sampled * model.vocab);
    memory.activations(tokens, widest, {true, true});
    memory.scratch.resize(num_threads);
}

}  // namespace
}  // namespace quire

void quire_decode_step(QuireTeam* team, QuireWorkspace* memory, const QuireModel* model,
                       const QuireCache* cache, const QuireBatch* batch) {
    using namespace quire;
    std::vector<Slice> slices = cut_into_slices(*batch);
    int64_t sampled = 0;
    for (Slice& slice : slices) {
        plan_attention(slice, model->num_heads, model->num_kv_heads, model->head_dim);
        for (const Run& run : slice.runs) sampled += run.samples;
    }
    reserve(*model, slices, sampled, batch->logits == nullptr, team->size, *memory);
    const Slice none;
    team->run([&](Worker& worker) {
        int64_t kept = 0, done = 0;
        for (const Slice& slice : slices) {
            Pass pass(*model, *cache, slice, *memory, worker);
            pass.start();
            for (int64_t index = 0; index < model->num_layers; ++index) pass.layer(index);
            if (batch->states != nullptr) pass.give_states(batch->states + done * model->hidden);
            done += slice.tokens();
            kept = pass.keep_sampled(kept);
        }
        if (sampled > 0) finish(*model, *batch, *memory, none, *cache, worker, sampled);
    });
}
